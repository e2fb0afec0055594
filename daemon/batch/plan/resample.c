/* See resample.h. A part whose shards are large is drawn less often, so that a weight is a share of the rows. */
#include "batch/plan/resample.h"

#include "image/transform/random.h"

typedef unsigned __int128 wide;

enum { CHANCE_BITS = 56, UNIT_BITS = 24 }; /* of a chance at most: 64 of them fit 64 bits; of a fraction of a weight */

static uint64_t draw_below(struct resample *r, uint64_t n)
{
	return (uint64_t)((wide)random_seed_at(r->key, r->n_drawn++) * n >> 64);
}

static void find_shards(struct resample *r, const struct plan_spec *spec, uint32_t *shards)
{
	uint32_t n = spec->shards ? dataset_n_shards(spec->shards) : 1, n_full = 0;
	unsigned k = 0;

	for (uint32_t i = 0; i < n && k < r->n_parts; i++) {
		uint64_t first = 0, end = spec->n_samples;

		if (spec->shards)
			dataset_shard(spec->shards, i, &first, &end);
		if (first == end)
			continue;
		while (spec->blend && k + 1 < r->n_parts && first >= spec->blend->part[k + 1].first)
			k++;
		r->part[k].first = r->part[k].n ? r->part[k].first : n_full;
		r->part[k].n++;
		shards[n_full++] = i;
	}
}

void resample_init(struct resample *r, const struct plan_spec *spec, uint32_t *shards)
{
	const struct dataset_blend *blend = spec->blend;
	wide chances[64], most = 1;

	*r = (struct resample){ .key = random_seed_at(~spec->seed - 1, spec->epoch),
				.n_parts = blend ? blend->n : 1,
				.shards = shards };
	find_shards(r, spec, shards);
	for (unsigned k = 0; k < r->n_parts; k++) {
		uint64_t n = blend ? blend->part[k].n : spec->n_samples, weight = blend ? blend->part[k].weight : 1;

		chances[k] = n ? ((wide)weight * r->part[k].n << UNIT_BITS) / n : 0;
		most = chances[k] > most ? chances[k] : most;
	}
	for (unsigned k = 0; k < r->n_parts; k++) {
		wide chance = chances[k];

		for (wide m = most; m >> CHANCE_BITS; m >>= 1)
			chance >>= 1;
		r->part[k].chance = r->part[k].n ? (uint64_t)chance : 0;
		r->sum += r->part[k].chance;
	}
}

uint32_t resample_next(struct resample *r)
{
	uint64_t at = draw_below(r, r->sum);
	unsigned k = 0;

	while (k + 1 < r->n_parts && at >= r->part[k].chance)
		at -= r->part[k++].chance;
	return r->shards[r->part[k].first + draw_below(r, r->part[k].n)];
}
