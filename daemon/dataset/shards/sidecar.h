/* The text of a file beside a shard: its index. */
#ifndef BATCHD_SIDECAR_H
#define BATCHD_SIDECAR_H

#include "dataset/shards/shards.h"

struct sidecar {
	char *text; /* NULL: there is none that can be used */
	size_t n;
	struct meter *meter;
};

/* Reads the file that has shard i's name with another ending. 0, also when there is none; 1: there is one that is not
 * used, `why` says why not; -EDQUOT, -ENOMEM. It may not be older than the shard (`stamp`), nor longer. */
int sidecar_read(struct sidecar *s, const struct shards *shards, uint32_t i, const char *ending,
		 const struct shard_stamp *stamp, struct meter *meter, char *why, size_t size);
void sidecar_finish(struct sidecar *s);

#endif
