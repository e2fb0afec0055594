/* Entropy decoding of one minimum coded unit (MCU) after another, from a stream without byte stuffing.
 *
 * Knows neither planes nor pixels: coefficients come out, or nothing but the state behind them when blocks are only
 * passed over. No reads outside the stream plus ENTROPY_PAD_BYTES, whatever the bytes are. */
#ifndef BATCHD_ENTROPY_H
#define BATCHD_ENTROPY_H

#include <stddef.h>
#include <stdint.h>

#include "jpeg/huffman.h"

enum {
	ENTROPY_MAX_BLOCKS = 6,   /* per MCU: 2x2 luma and two chroma */
	ENTROPY_PAD_BYTES = 2048, /* more than one MCU of the longest codes, readable behind the stream */
	COEF_ROW = 16,            /* int16 from one row of a block to the next: two blocks are interleaved row by
	                              * row */
	COEF_PAIR = 8 * COEF_ROW, /* int16 in two interleaved blocks */
	COEF_PAIR_STORAGE = COEF_PAIR + 16, /* and a place for what a damaged stream writes beyond coefficient 63 */
};

/* Where decoding stands. Belongs to one thread. */
struct entropy_state {
	const uint8_t *next; /* not in the window yet */
	uint64_t window;     /* upcoming bits, first one on top */
	uint64_t n_bits;     /* of them that are counted; 0..63 */
	int32_t dc[3];       /* predictors */
};

/* What an MCU is made of, block by block. */
struct mcu_layout {
	uint32_t n_blocks;
	uint8_t component[ENTROPY_MAX_BLOCKS];
	const struct huff_dc *dc[ENTROPY_MAX_BLOCKS];
	const struct huff_ac *ac[ENTROPY_MAX_BLOCKS];
};

struct entropy_ops {
	const char *name;
	/* Decodes one MCU. Of the blocks in the mask `wanted`, the coefficients (not dequantized) are stored in
	 * coef[i], which is all zero before: row r, column c at [r * COEF_ROW + c]; last[i] is set to a position in
	 * zigzag order that no nonzero coefficient is behind. Returns 0, or -1 when the bits mean nothing; then coef
	 * may hold anything, its storage pad too. */
	int (*decode)(struct entropy_state *s, const struct mcu_layout *l, uint32_t wanted,
		      int16_t *const coef[ENTROPY_MAX_BLOCKS], uint8_t last[ENTROPY_MAX_BLOCKS]);
	/* Passes over n MCUs; stops behind the first that ends beyond `end`, which the caller notices. Same returns. */
	int (*skip)(struct entropy_state *s, const struct mcu_layout *l, uint32_t n, const uint8_t *end);
};

extern const struct entropy_ops entropy_c;
#if defined(__x86_64__)
extern const struct entropy_ops entropy_bmi2; /* needs BMI1 and BMI2 */
#endif
/* The fastest that this processor runs. */
const struct entropy_ops *entropy_best(void);

/* Bits from `base` to where s stands. */
static inline uint64_t entropy_tell(const struct entropy_state *s, const uint8_t *base)
{
	return (uint64_t)(s->next - base) * 8 - s->n_bits;
}

/* Stands at `bit` of `base`; predictors are the caller's business. */
static inline void entropy_seek(struct entropy_state *s, const uint8_t *base, uint64_t bit)
{
	s->next = base + bit / 8;
	s->window = (uint64_t)*s->next++ << 56 << bit % 8;
	s->n_bits = 8 - bit % 8;
}

#endif
