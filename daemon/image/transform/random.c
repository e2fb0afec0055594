/* Philox from Random123, four numbers a block. No draw needs more than 4096 blocks: every op draws a few dozen numbers
 * at most (random_fork is for more), and the probability of a rejection in random_below is below n / 2^32. */
#include "image/kernels/exact.h"

#include "image/transform/random.h"

#include <Random123/philox.h>

static uint64_t first_bits(uint64_t seed, uint32_t low, uint32_t high, uint32_t purpose)
{
	philox4x32_ctr_t counter = { { low, high, purpose, 0 } };
	philox4x32_key_t key = { { (uint32_t)seed, (uint32_t)(seed >> 32) } };
	philox4x32_ctr_t made = philox4x32(counter, key);

	return (uint64_t)made.v[1] << 32 | made.v[0];
}

uint64_t random_seed_at(uint64_t seed, uint64_t position)
{
	return first_bits(seed, (uint32_t)position, (uint32_t)(position >> 32), 0);
}

uint64_t random_seed_again(uint64_t seed, uint32_t repeat)
{
	return repeat ? first_bits(seed, repeat, 0, RANDOM_REPEATS) : seed;
}

static void set_key(struct random *r, uint64_t seed)
{
	r->key[0] = (uint32_t)seed;
	r->key[1] = (uint32_t)(seed >> 32);
	r->n_left = 0;
}

void random_init(struct random *r, struct sample_key key, uint32_t place)
{
	set_key(r, place < 256 ? key.seed : first_bits(key.seed, place >> 8, RANDOM_PLACES, 0));
	r->counter[0] = (uint32_t)key.index;
	r->counter[1] = (uint32_t)(key.index >> 32);
	r->counter[2] = (uint32_t)key.epoch;
	r->counter[3] = (uint32_t)(key.epoch >> 32) << 20 | (place & 0xff) << 12;
}

struct random random_fork(struct random *r)
{
	struct random fork = { .counter = { 0 } };
	uint64_t low = random_bits(r);

	set_key(&fork, (uint64_t)random_bits(r) << 32 | low);
	return fork;
}

uint32_t random_bits(struct random *r)
{
	if (r->n_left == 0) {
		philox4x32_ctr_t counter = { { r->counter[0], r->counter[1], r->counter[2], r->counter[3] } };
		philox4x32_key_t key = { { r->key[0], r->key[1] } };
		philox4x32_ctr_t made = philox4x32(counter, key);

		for (int i = 0; i < 4; i++)
			r->block[i] = made.v[i];
		r->counter[3]++;
		r->n_left = 4;
	}
	return r->block[4 - r->n_left--];
}

float random_uniform(struct random *r, float from, float to)
{
	float unit = (float)(random_bits(r) >> 8) * 0x1p-24f, value = unit * (to - from) + from;

	/* The sum may round up to the end. torch.uniform_ does not exclude that either, but a half-open range
	 * should. */
	return value >= to && from < to ? from : value;
}

uint32_t random_below(struct random *r, uint32_t n)
{
	uint64_t product = (uint64_t)random_bits(r) * n;

	if ((uint32_t)product < n) { /* perhaps in the part that would bias the result */
		uint32_t threshold = -n % n;

		while ((uint32_t)product < threshold)
			product = (uint64_t)random_bits(r) * n;
	}
	return (uint32_t)(product >> 32);
}

double random_unit(struct random *r)
{
	uint64_t low = random_bits(r) >> 5;

	return (double)((uint64_t)(random_bits(r) >> 6) << 27 | low) * 0x1p-53;
}

int random_chance(struct random *r, double p)
{
	return (double)((float)(random_bits(r) >> 8) * 0x1p-24f) < p;
}
