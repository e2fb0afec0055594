/* See blend.h. The list of an epoch has, part by part, all samples of the part so many times, and then a selection of
 * them in ascending order, drawn by the seed, the epoch and the number of the part (Knuth's algorithm S). */
#include "batch/plan/blend.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "image/transform/random.h"

typedef unsigned __int128 wide;

void plan_blend_counts(const struct dataset_blend *blend, uint64_t n, uint64_t counts[])
{
	wide sum = 0, rest[64];
	uint64_t left = n;

	for (unsigned k = 0; k < blend->n; k++)
		sum += blend->part[k].n ? blend->part[k].weight : 0;
	for (unsigned k = 0; k < blend->n; k++) {
		wide share = blend->part[k].n ? (wide)n * blend->part[k].weight : 0;

		counts[k] = sum ? (uint64_t)(share / sum) : 0;
		rest[k] = sum ? share % sum : 0;
		left -= counts[k];
	}
	while (left && sum) {
		unsigned most = 0;

		for (unsigned k = 1; k < blend->n; k++)
			most = rest[k] > rest[most] ? k : most;
		counts[most]++;
		rest[most] = 0;
		left--;
	}
}

struct list {
	uint32_t *narrow;
	uint64_t *wide;
	uint64_t n;
};

static void list_add(struct list *l, uint64_t index)
{
	if (l->narrow)
		l->narrow[l->n++] = (uint32_t)index;
	else
		l->wide[l->n++] = index;
}

/* Chooses `wanted` of the part's samples, every set of so many with the same chance. */
static void list_select(struct list *l, const struct dataset_part *part, uint64_t wanted, uint64_t seed)
{
	for (uint64_t i = 0; wanted && i < part->n; i++) {
		if ((uint64_t)((wide)random_seed_at(seed, i) * (part->n - i) >> 64) < wanted) {
			list_add(l, part->first + i);
			wanted--;
		}
	}
}

static void list_fill(struct list *l, const struct plan_spec *spec)
{
	const struct dataset_blend *blend = spec->blend;
	uint64_t counts[64], seed = blend->has_seed ? blend->seed : spec->seed;

	plan_blend_counts(blend, spec->n_samples, counts);
	for (unsigned k = 0; k < blend->n; k++) {
		const struct dataset_part *part = &blend->part[k];

		for (uint64_t i = 0; part->n && i < counts[k] / part->n * part->n; i++)
			list_add(l, part->first + i % part->n);
		if (part->n)
			list_select(l, part, counts[k] % part->n, random_seed_at(seed + k, spec->epoch));
	}
}

static void list_apply(const struct list *l, bool shuffle, uint32_t *order32, uint64_t *order64)
{
	for (uint64_t i = 0; i < l->n; i++) {
		if (order32)
			order32[i] = l->narrow[shuffle ? order32[i] : i];
		else
			order64[i] = l->wide[shuffle ? order64[i] : i];
	}
}

int plan_blend(const struct plan_spec *spec, uint32_t *order32, uint64_t *order64)
{
	uint64_t n = spec->n_samples;
	struct list l = { .narrow = order32 ? malloc(n * sizeof(*order32)) : NULL,
			  .wide = order32 ? NULL : malloc(n * sizeof(*order64)) };

	if (!l.narrow && !l.wide)
		return -ENOMEM;
	list_fill(&l, spec);
	list_apply(&l, spec->shuffle, order32, order64);
	free(l.narrow);
	free(l.wide);
	return 0;
}
