/* Many normal numbers: the sequence of random_fork and random_normal, made in blocks. */
#ifndef BATCHD_NOISE_H
#define BATCHD_NOISE_H

#include "image/transform/normal.h"

enum { NOISE_NUMBERS = 256 };

struct noise {
	uint32_t key[2];
	uint32_t block;  /* the next one to make */
	unsigned n_left; /* of numbers */
	uint32_t numbers[NOISE_NUMBERS];
};

/* It takes two numbers of r, as random_fork. */
void noise_init(struct noise *n, struct random *r);
/* The numbers of Philox4x32-10 with this key. */
void noise_of_key(struct noise *n, uint32_t first, uint32_t second);

/* For noise_bits and noise_normal. */
void noise_refill(struct noise *n);
float noise_unusual(struct noise *n, uint32_t bits); /* the number that begins with bits, not below its layer's core */

/* 32 random bits */
static inline uint32_t noise_bits(struct noise *n)
{
	if (n->n_left == 0)
		noise_refill(n);
	return n->numbers[NOISE_NUMBERS - n->n_left--];
}

/* N(0, 1) */
static inline float noise_normal(struct noise *n)
{
	uint32_t bits = noise_bits(n), layer = bits % NORMAL_LAYERS;
	float x = (float)(bits >> 8) * 0x1p-24f * normal_edge[layer];

	if (x >= normal_edge[layer + 1])
		return noise_unusual(n, bits);
	return bits & NORMAL_LAYERS ? -x : x;
}

/* The next `count` of noise_normal. */
void noise_fill(struct noise *n, float *to, size_t count);

#endif
