/* The order of an epoch: sample for sample the order of torch.utils.data.DistributedSampler, with repeats that of
 * repeated augmentation (torchvision's RASampler, timm's RepeatAugSampler). Of a blend with weights it is that of a list
 * that has each part's samples as often as the weights say, in the order of the parts.
 *
 * A plan is made once per (seed, epoch, base, world size), is read-only afterwards and is shared by all ranks. Making a
 * plan takes time linear in the data set (1.3 million samples: about 10 ms), so for large data sets an I/O thread makes
 * it. */
#ifndef BATCHD_PLAN_H
#define BATCHD_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "dataset/dataset.h"
#include "base/account.h"

enum { PLAN_RESAMPLED = 1 << 30 };

static inline bool plan_is_resampled(uint32_t shuffle)
{
	return shuffle >= PLAN_RESAMPLED;
}

struct plan_spec {
	uint64_t n_samples;
	uint64_t seed, epoch;
	uint64_t base;    /* positions of the epoch's order that the ranks have already consumed; 0 for a whole epoch */
	uint64_t n_rows;  /* positions of an epoch; 0, or more than there are: all */
	uint32_t repeats; /* a sample comes so often, each time in the next position; 0: once */
	uint32_t world_size;
	/* 0: no; 1: all samples; more: by shard, with a window of so many samples; PLAN_RESAMPLED + window: shards drawn with
	 * replacement */
	uint32_t shuffle;
	bool drop_last;
	const struct dataset *shards; /* borrowed while the plan is made: for a window. NULL: one shard */
	const struct dataset_blend
		*blend; /* borrowed while the plan is made; its parts have n_samples together. NULL: none */
};

struct plan; /* reference counted, thread-safe counts */

int plan_create(const struct plan_spec *spec, struct plan **out); /* 0, -EINVAL, -ENOMEM */
/* Memory that the plan will take: 4 bytes a sample, 8 from 2^32 samples on; twice that for a blend with
 * weights, while it is made; almost nothing without shuffle. */
uint64_t plan_spec_bytes(const struct plan_spec *spec);
/* Moves the charge to the plan, which keeps it until its last reference is dropped: streams at different places keep
 * plans of their own. */
void plan_take_charge(struct plan *p, struct charge *charge);
struct plan *plan_ref(struct plan *p);
void plan_unref(struct plan *p);

uint64_t plan_n_per_rank(const struct plan *p);
/* The same number without making the plan. */
uint64_t plan_spec_n_per_rank(const struct plan_spec *spec);
/* Positions of an epoch, of all ranks together, without padding. */
uint64_t plan_length(uint64_t n_samples, uint32_t repeats, uint64_t n_rows);
/* How often the epoch's order has had the sample of a position before, padding left out: 0 to repeats - 1. */
uint32_t plan_repeat(uint64_t position, uint64_t length, uint32_t repeats);
/* i-th sample index of a rank, i < plan_n_per_rank. */
uint64_t plan_at(const struct plan *p, uint32_t rank, uint64_t i);
/* Whether that row only repeats a sample so that all ranks get the same number. Such rows are always the last ones of a
 * rank. */
bool plan_is_padding(const struct plan *p, uint32_t rank, uint64_t i);

/* Batches of an epoch for each rank: rows / batch_size, rounded down with drop_last, else up. */
uint64_t plan_n_batches(uint64_t n_per_rank, uint32_t batch_size, bool drop_last);

#endif
