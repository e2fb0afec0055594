/* The inverse DCT to fewer samples than coefficients: libjpeg's for pictures at a fraction of their size. A .c file per
 * instruction set includes this and wraps it in a function of its target.
 *
 * Both passes are those of libjpeg's accurate integer transform (jidctred), which leaves out the coefficients that
 * hardly show in the smaller block; its constants are in units of 1 / 8192. libjpeg's C code computes in 64 bits and its
 * SIMD code in 16 and 32. Within the limits below, which every encoder keeps to, nothing overflows and both are equal. */
#ifndef BATCHD_IDCT_SMALL_H
#define BATCHD_IDCT_SMALL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "image/jpeg/entropy.h" /* layout of coefficients */

#ifndef IDCT_TARGET
#define IDCT_TARGET
#endif
#define IDCT_INLINE IDCT_TARGET static inline __attribute__((always_inline))

enum {
	SMALL_CONST_BITS = 13,
	SMALL_PASS1_BITS = 2,
	/* Bits of the largest magnitudes: of a coefficient, of a number between the passes, of a result. */
	SMALL_COEF_BITS = 13,
	SMALL_BETWEEN_BITS = 14,
	SMALL_RESULT_BITS = 9,
};

/* One row of a block. */
typedef int32_t row8 __attribute__((vector_size(32)));
typedef int16_t row8_stored __attribute__((vector_size(16)));
typedef uint16_t row8_quant __attribute__((vector_size(16)));

/* Nonzero if a number of the row takes more than so many bits beside its sign. `magnitudes`: v ^ v >> 31, or several of
 * them in one. */
IDCT_INLINE int small_exceeds(const row8 *magnitudes, unsigned bits)
{
	int32_t all = 0;

	for (unsigned i = 0; i < 8; i++)
		all |= (*magnitudes)[i];
	return all >> bits;
}

IDCT_INLINE uint8_t small_sample(int32_t v, int *bad)
{
	*bad |= (v ^ v >> 31) >> SMALL_RESULT_BITS;
	v += 128;
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Dequantizes the block into v and clears it. Returns nonzero when a number is too large. */
IDCT_INLINE int small_load(int16_t *coef, const uint16_t *quant, row8 v[8])
{
	row8 magnitudes = { 0 };

	for (unsigned row = 0; row < 8; row++) {
		row8_stored stored;
		row8_quant by;

		memcpy(&stored, coef + row * COEF_ROW, sizeof(stored));
		memcpy(&by, quant + row * COEF_ROW, sizeof(by));
		v[row] = __builtin_convertvector(stored, row8) * __builtin_convertvector(by, row8);
		magnitudes |= v[row] ^ v[row] >> 31;
		memset(coef + row * COEF_ROW, 0, sizeof(stored));
	}
	return small_exceeds(&magnitudes, SMALL_COEF_BITS);
}

/* Of eight numbers, the one at 4 unused, to four: columns of rows. */
#define SMALL_TO_FOUR(v, shift, out) \
	do { \
		__typeof__((v)[0]) first = (v)[0] * (1 << (SMALL_CONST_BITS + 1)); \
		__typeof__((v)[0]) even = (v)[2] * 15137 - (v)[6] * 6270; \
		__typeof__((v)[0]) inner = (v)[1] * 8697 - (v)[3] * 17799 + (v)[5] * 11893 - (v)[7] * 1730; \
		__typeof__((v)[0]) outer = (v)[1] * 20995 + (v)[3] * 7373 - (v)[5] * 4926 - (v)[7] * 4176; \
		first += 1 << ((shift) - 1); \
		(out)[0] = (first + even + outer) >> (shift); \
		(out)[1] = (first - even + inner) >> (shift); \
		(out)[2] = (first - even - inner) >> (shift); \
		(out)[3] = (first + even - outer) >> (shift); \
	} while (0)

/* The first one and the odd ones of eight, to two. */
#define SMALL_TO_TWO(v, shift, out) \
	do { \
		__typeof__((v)[0]) first = (v)[0] * (1 << (SMALL_CONST_BITS + 2)) + (1 << ((shift) - 1)); \
		__typeof__((v)[0]) odd = (v)[1] * 29692 - (v)[3] * 10426 + (v)[5] * 6967 - (v)[7] * 5906; \
		(out)[0] = (first + odd) >> (shift); \
		(out)[1] = (first - odd) >> (shift); \
	} while (0)

IDCT_INLINE int small_four(row8 v[8], uint8_t *out, size_t stride_bytes)
{
	row8 between[4], magnitudes = { 0 };
	int bad = 0;

	SMALL_TO_FOUR(v, SMALL_CONST_BITS - SMALL_PASS1_BITS + 1, between);
	for (unsigned row = 0; row < 4; row++)
		magnitudes |= between[row] ^ between[row] >> 31;
	if (small_exceeds(&magnitudes, SMALL_BETWEEN_BITS))
		return 1;
	for (unsigned row = 0; row < 4; row++) {
		int32_t four[4];

		SMALL_TO_FOUR(between[row], SMALL_CONST_BITS + SMALL_PASS1_BITS + 3 + 1, four);
		for (unsigned column = 0; column < 4; column++)
			out[row * stride_bytes + column] = small_sample(four[column], &bad);
	}
	return bad;
}

IDCT_INLINE int small_two(row8 v[8], uint8_t *out, size_t stride_bytes)
{
	row8 between[2], magnitudes;
	int bad = 0;

	SMALL_TO_TWO(v, SMALL_CONST_BITS - SMALL_PASS1_BITS + 2, between);
	magnitudes = (between[0] ^ between[0] >> 31) | (between[1] ^ between[1] >> 31);
	if (small_exceeds(&magnitudes, SMALL_BETWEEN_BITS))
		return 1;
	for (unsigned row = 0; row < 2; row++) {
		int32_t two[2];

		SMALL_TO_TWO(between[row], SMALL_CONST_BITS + SMALL_PASS1_BITS + 3 + 2, two);
		for (unsigned column = 0; column < 2; column++)
			out[row * stride_bytes + column] = small_sample(two[column], &bad);
	}
	return bad;
}

/* A block whose only nonzero coefficient is the first, and any block of one sample. */
IDCT_INLINE int small_flat(unsigned edge, int32_t first, uint8_t *out, size_t stride_bytes)
{
	int bad = (first ^ first >> 31) >> SMALL_COEF_BITS;
	uint8_t sample = small_sample(bad ? 0 : (first + 4) >> 3, &bad);

	for (unsigned row = 0; row < edge; row++)
		memset(out + row * stride_bytes, sample, edge);
	return bad;
}

/* As blocks_ops.idct_small. */
IDCT_INLINE int idct_small_block(unsigned edge, int16_t *coef, const uint16_t *quant, unsigned last, uint8_t *out,
				 size_t stride_bytes)
{
	row8 v[8];
	int bad;

	if (last == 0 || edge == 1) {
		bad = small_flat(edge, coef[0] * quant[0], out, stride_bytes);
		coef[0] = 0;
		for (unsigned row = 0; last && row < 8; row++)
			memset(coef + row * COEF_ROW, 0, 8 * sizeof(*coef));
		return bad;
	}
	bad = small_load(coef, quant, v);
	if (bad)
		return bad;
	return edge == 4 ? small_four(v, out, stride_bytes) : small_two(v, out, stride_bytes);
}

#undef IDCT_INLINE

#endif
