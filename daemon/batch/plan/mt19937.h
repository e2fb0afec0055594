/* The Mersenne Twister as torch's CPU generator runs it, and torch.randperm on top of it. */
#ifndef BATCHD_MT19937_H
#define BATCHD_MT19937_H

#include <stdint.h>

enum { MT19937_N = 624 };

struct mt19937 {
	uint32_t state[MT19937_N];
};

/* Only the low 32 bits of the seed count, as in torch.Generator.manual_seed. */
void mt19937_init(struct mt19937 *mt, uint64_t seed);
/* The next MT19937_N draws. */
void mt19937_block(struct mt19937 *mt, uint32_t out[MT19937_N]);

/* Writes torch.randperm(n) into `order`. From RANDPERM_WIDE_FROM elements on torch shuffles differently, so that case
 * has functions of its own (which can be tested with few elements). Limits: n < RANDPERM_WIDE_FROM for narrow, n <=
 * 2^32 for wide32. */
#define RANDPERM_WIDE_FROM ((uint64_t)(UINT32_MAX / 20))
void randperm_narrow(struct mt19937 *mt, uint32_t *order, uint32_t n);
void randperm_wide32(struct mt19937 *mt, uint32_t *order, uint64_t n);
void randperm_wide64(struct mt19937 *mt, uint64_t *order, uint64_t n);

#endif
