/* The Mersenne Twister as torch's CPU generator runs it, and the draw behind torch.randperm. */
#ifndef BATCHD_MT19937_H
#define BATCHD_MT19937_H

#include <stdint.h>

enum { MT19937_N = 624 };

struct mt19937 {
	uint32_t state[MT19937_N];
	unsigned next; /* first word of `state` that is not drawn yet */
};

/* Only the low 32 bits of the seed count, as in torch.Generator.manual_seed. */
void mt19937_init(struct mt19937 *mt, uint64_t seed);
/* The next MT19937_N draws at once; not to be mixed with mt19937_next inside a block. */
void mt19937_block(struct mt19937 *mt, uint32_t out[MT19937_N]);
uint32_t mt19937_next(struct mt19937 *mt);

/* From this many elements on torch.randperm draws 64 bits for each. */
#define RANDPERM_WIDE_FROM ((uint64_t)(UINT32_MAX / 20))
/* Draw number i of torch.randperm(n): element i changes places with element i + randperm_draw. i < n. */
uint64_t randperm_draw(struct mt19937 *mt, uint64_t n, uint64_t i);

#endif
