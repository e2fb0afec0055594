/* The streams of a loader, by number. Shard: one for each rank that has come (ranks of a large job may attach to other
 * daemons). Share in lockstep: one. Other share groups: the most cohorts that existed at once. Loop thread only. */
#ifndef BATCHD_STREAMS_H
#define BATCHD_STREAMS_H

#include "batch/stream.h"

struct streams {
	struct stream_host *host;
	struct stream **list;
	uint32_t n;
	uint32_t n_consumers; /* of each stream */
};

/* NULL: there is none. */
struct stream *streams_find(const struct streams *s, uint32_t number);
/* No stream of that number may exist. NULL: out of memory. */
struct stream *streams_add(struct streams *s, uint32_t number);
/* Frees them; each has been finished (stream_finish) and has nothing in work. */
void streams_finish(struct streams *s);

#endif
