/* Draws shards with replacement, as webdataset's ResampledShards does. Of a blend with weights, a part's rows have the
 * part's share of all rows in the long run; the shards of a part are equally likely. */
#ifndef BATCHD_PLAN_RESAMPLE_H
#define BATCHD_PLAN_RESAMPLE_H

#include "batch/plan/plan.h"

struct resample {
	uint64_t key, n_drawn, sum; /* sum of the chances */
	unsigned n_parts;
	struct resample_part {
		uint64_t chance;   /* of one of its shards */
		uint32_t first, n; /* its shards that are not empty, in the list */
	} part[64];
	const uint32_t *shards;
};

/* The draws follow from the spec's seed and epoch. shards: room for the numbers of all shards. Empty ones are never
 * drawn: a part of a million of them would take a million draws for each of its rows. */
void resample_init(struct resample *r, const struct plan_spec *spec, uint32_t *shards);
/* The next shard. */
uint32_t resample_next(struct resample *r);

#endif
