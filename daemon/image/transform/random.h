/* Random numbers that depend only on their position: Philox4x32-10 keyed by (seed; epoch, sample index, op position,
 * draw number).
 *
 * So a sample's augmentation is the same on any thread, in any process, after any restart. Distributions are
 * torch's. */
#ifndef BATCHD_RANDOM_H
#define BATCHD_RANDOM_H

#include <stdint.h>

#include "image/transform/pipeline.h"

enum { RANDOM_PLACES = 0x706c6163, RANDOM_REPEATS = 0x72657065 };

struct random {
	uint32_t key[2];
	uint32_t counter
		[4]; /* of a fork only its last word. Otherwise: index low, index high, epoch low, (epoch high 12 bits, op 8 bits, block 12 bits) */
	uint32_t block[4]; /* numbers made from counter */
	unsigned n_left;   /* of block */
};

/* place: of the op in the pipeline; any number. Ops of the pipeline itself have 0 to 63, those inside containers the
 * numbers after. Bits 16 and above are for the view. From 256 on the key is another one: the first 64 bits of
 * Philox4x32-10 of counter (place / 256, RANDOM_PLACES, 0, 0), which belongs to no sample. Epochs differ in their low 44
 * bits. */
void random_init(struct random *r, struct sample_key key, uint32_t place);
/* A generator for many numbers: random_init's ends after 16384 of them. It takes two numbers of r. */
struct random random_fork(struct random *r);
/* The seed of one row in an order that may have a sample more than once: the first 64 bits of Philox4x32-10 of counter
 * (position low, position high, 0, 0) under the loader's seed. With it as sample_key.seed every row draws its own
 * numbers. */
uint64_t random_seed_at(uint64_t seed, uint64_t position);
/* The seed of a row of the built-in order whose sample has come `repeat` times before in its epoch: the seed itself for
 * the first time, then the first 64 bits of Philox4x32-10 of counter (repeat, 0, RANDOM_REPEATS, 0). */
uint64_t random_seed_again(uint64_t seed, uint32_t repeat);
uint32_t random_bits(struct random *r);
/* torch.empty(1).uniform_(from, to): float32 with 24 random bits, in [from, to). */
float random_uniform(struct random *r, float from, float to);
/* torch.randint(0, n), without bias. n at least 1. */
uint32_t random_below(struct random *r, uint32_t n);
/* In [0, 1), with 53 random bits. */
double random_unit(struct random *r);
/* torch.rand(1) < p. */
int random_chance(struct random *r, double p);

#endif
