/* The samples of an epoch of data sets that are blended with weights. */
#ifndef BATCHD_PLAN_BLEND_H
#define BATCHD_PLAN_BLEND_H

#include "batch/plan/plan.h"

/* How many of n samples each part gives: n x weight / sum of weights, rounded down or up so that they are n together; the
 * largest remainders are rounded up. Parts without samples give none. */
void plan_blend_counts(const struct dataset_blend *blend, uint64_t n, uint64_t counts[]);

/* Replaces each position in the order (order32 or order64, whichever is there) by the sample at that place of the epoch's
 * list; without shuffle the list itself becomes the order. Of a part whose count is not a multiple of its size, other
 * samples come once more in each epoch. 0 or -ENOMEM. */
int plan_blend(const struct plan_spec *spec, uint32_t *order32, uint64_t *order64);

#endif
