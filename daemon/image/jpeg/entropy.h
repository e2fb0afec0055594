/* Entropy decoding of one minimum coded unit (MCU) after another, from a stream without byte stuffing.
 *
 * It knows neither planes nor pixels. It outputs coefficients, or only the decoder state after them when it skips
 * blocks. It reads nothing outside the stream plus ENTROPY_PAD_BYTES, whatever the bytes are. */
#ifndef BATCHD_ENTROPY_H
#define BATCHD_ENTROPY_H

#include <stddef.h>
#include <stdint.h>

#include "image/jpeg/huffman.h"

enum {
	ENTROPY_MAX_BLOCKS = 6,   /* per MCU: 2x2 luma and two chroma */
	ENTROPY_PAD_BYTES = 2048, /* more than one MCU of the longest codes, readable after the stream */
	ENTROPY_FIRST_ONLY = 8,   /* in `wanted`: the first bit of the blocks whose first coefficient is enough */
	COEF_ROW = 16,            /* int16 values from one row of a block to the next: two blocks are interleaved row by
	                           * row */
	COEF_PAIR = 8 * COEF_ROW, /* int16 in two interleaved blocks */
	COEF_PAIR_STORAGE = COEF_PAIR + 16, /* plus room for a damaged stream's writes after coefficient 63 */
};

/* The decoder's position. Belongs to one thread. */
struct entropy_state {
	const uint8_t *next; /* not in the window yet */
	uint64_t window;     /* upcoming bits, first one on top */
	uint64_t n_bits;     /* valid bits in the window; 0..63 */
	int32_t dc[3];       /* predictors */
};

/* The blocks of an MCU. */
struct mcu_layout {
	uint32_t n_blocks;
	uint8_t component[ENTROPY_MAX_BLOCKS];
	const struct huff_dc *dc[ENTROPY_MAX_BLOCKS];
	const struct huff_ac *ac[ENTROPY_MAX_BLOCKS];
};

struct entropy_ops {
	const char *name;
	/* Decodes one MCU. For the blocks in the mask `wanted`, stores the coefficients (not dequantized) in coef[i],
	 * which must be all zero before: row r, column c at [r * COEF_ROW + c]; sets last[i] to a position in zigzag
	 * order after which all coefficients are zero. For those in wanted >> ENTROPY_FIRST_ONLY, stores the first
	 * coefficient alone, and last[i] is 0. Returns 0, or -1 when the bits are invalid; then coef and its
	 * storage pad may hold any values. */
	int (*decode)(struct entropy_state *s, const struct mcu_layout *l, uint32_t wanted,
		      int16_t *const coef[ENTROPY_MAX_BLOCKS], uint8_t last[ENTROPY_MAX_BLOCKS]);
	/* Skips n MCUs; stops after the first that ends beyond `end`, which the caller must check. Same returns. */
	int (*skip)(struct entropy_state *s, const struct mcu_layout *l, uint32_t n, const uint8_t *end);
};

extern const struct entropy_ops entropy_c;
#if defined(__x86_64__)
extern const struct entropy_ops entropy_bmi2; /* needs BMI1 and BMI2 */
#endif
/* The fastest that this processor can run. */
const struct entropy_ops *entropy_best(void);

/* Bits from `base` to the position of s. */
static inline uint64_t entropy_tell(const struct entropy_state *s, const uint8_t *base)
{
	return (uint64_t)(s->next - base) * 8 - s->n_bits;
}

/* Moves s to `bit` of `base`; the caller sets the predictors. */
static inline void entropy_seek(struct entropy_state *s, const uint8_t *base, uint64_t bit)
{
	s->next = base + bit / 8;
	s->window = (uint64_t)*s->next++ << 56 << bit % 8;
	s->n_bits = 8 - bit % 8;
}

#endif
