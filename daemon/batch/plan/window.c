/* See window.h. Shards are permuted as torch.randperm does under the epoch's seed. Places in the window are drawn by
 * the seed, the epoch and the sample's turn. */
#include "batch/plan/window.h"

#include <errno.h>
#include <stdlib.h>

#include "batch/plan/mt19937.h"
#include "batch/plan/resample.h"
#include "image/transform/random.h"

struct order {
	uint32_t *order32;
	uint64_t *order64;
	uint64_t n, key;
	uint64_t *window;
	uint64_t n_window, most, n_taken;
};

static uint32_t n_shards_of(const struct plan_spec *spec)
{
	return spec->shards ? dataset_n_shards(spec->shards) : 1;
}

static uint64_t window_of(const struct plan_spec *spec)
{
	uint64_t window = spec->shuffle & (PLAN_RESAMPLED - 1);

	return window < spec->n_samples ? window : spec->n_samples;
}

uint64_t plan_window_bytes(const struct plan_spec *spec)
{
	return n_shards_of(spec) * sizeof(uint32_t) + window_of(spec) * sizeof(uint64_t);
}

/* Gives out a sample of the window at random, and puts another one, or the last, into its place. */
static void order_give(struct order *o, uint64_t next)
{
	uint64_t k = (uint64_t)((unsigned __int128)random_seed_at(o->key, o->n) * o->n_window >> 64);

	if (o->order32)
		o->order32[o->n++] = (uint32_t)o->window[k];
	else
		o->order64[o->n++] = o->window[k];
	o->window[k] = next;
}

static void order_take(struct order *o, uint64_t index)
{
	o->n_taken++;
	if (o->n_window < o->most)
		o->window[o->n_window++] = index;
	else
		order_give(o, index);
}

static void order_end(struct order *o)
{
	while (o->n_window) {
		order_give(o, o->window[o->n_window - 1]);
		o->n_window--;
	}
}

static void take_shard(struct order *o, const struct plan_spec *spec, uint32_t shard)
{
	uint64_t first = 0, end = spec->n_samples;

	if (spec->shards)
		dataset_shard(spec->shards, shard, &first, &end);
	for (uint64_t i = first; i < end && o->n_taken < spec->n_samples; i++)
		order_take(o, i);
}

/* As many samples as there are, some never, some several times. */
static void take_resampled(struct order *o, const struct plan_spec *spec, uint32_t *shards)
{
	struct resample r;

	resample_init(&r, spec, shards);
	while (r.sum && o->n_taken < spec->n_samples)
		take_shard(o, spec, resample_next(&r));
}

int plan_window(const struct plan_spec *spec, uint32_t *order32, uint64_t *order64)
{
	uint32_t n_shards = n_shards_of(spec), *shards = malloc(n_shards * sizeof(*shards));
	struct order o = { .order32 = order32,
			   .order64 = order64,
			   .key = random_seed_at(~spec->seed, spec->epoch),
			   .most = window_of(spec) };
	struct mt19937 mt;
	int r = -ENOMEM;

	o.window = malloc(o.most * sizeof(*o.window));
	if (shards && o.window && plan_is_resampled(spec->shuffle)) {
		take_resampled(&o, spec, shards);
		order_end(&o);
		r = 0;
	} else if (shards && o.window) {
		mt19937_init(&mt, spec->seed + spec->epoch);
		randperm_narrow(&mt, shards, n_shards);
		for (uint32_t i = 0; i < n_shards; i++)
			take_shard(&o, spec, shards[i]);
		order_end(&o);
		r = 0;
	}
	free(shards);
	free(o.window);
	return r;
}
