/* The streams of a loader, in the order of their numbers: one for each rank that has come (shard; those of a large job
 * are elsewhere), one (share in lockstep), the cohorts there have been at once (other share groups). Loop thread only. */
#ifndef BATCHD_STREAMS_H
#define BATCHD_STREAMS_H

#include "core/stream.h"

struct streams {
	struct stream_host *host;
	struct stream **list;
	uint32_t n;
	uint32_t n_consumers; /* of each stream */
};

/* NULL: there is none. */
struct stream *streams_find(const struct streams *s, uint32_t number);
/* There is none of that number. NULL: out of memory. */
struct stream *streams_add(struct streams *s, uint32_t number);
/* Frees them; each has been finished (stream_finish) and has nothing in work. */
void streams_finish(struct streams *s);

#endif
