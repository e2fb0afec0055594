/* The entropy decoder's inner loops. A .c file per instruction set includes this and wraps the loops in functions of
 * its target.
 *
 * The window holds the next bits of the stream, first bit on top. A refill is one unaligned load without a branch and
 * leaves at least 56 bits: enough for three look-ups of at most HUFF_AC_LENGTH = 18 bits, for one look-up and the
 * longest DC code and value, or for any one symbol. */
#ifndef BATCHD_ENTROPY_CORE_H
#define BATCHD_ENTROPY_CORE_H

#include <stdbool.h>
#include <string.h>

#include "image/jpeg/entropy.h"
#include "image/jpeg/zigzag.h"

/* Set by the file that includes this: the functions' target, and how to take the lowest n bits of v. */
#ifndef ENTROPY_TARGET
#define ENTROPY_TARGET
#define BITS_LOW(v, n) ((v) & ((1u << (n)) - 1))
#endif

#define ALWAYS_INLINE ENTROPY_TARGET static inline __attribute__((always_inline))

ALWAYS_INLINE void refill(struct entropy_state *s)
{
	uint64_t bytes;

	memcpy(&bytes, s->next, sizeof(bytes));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	bytes = __builtin_bswap64(bytes);
#endif
	s->window |= bytes >> s->n_bits;
	s->next += (63 - s->n_bits) >> 3;
	s->n_bits |= 56;
}

/* length is below 64. */
ALWAYS_INLINE void consume(struct entropy_state *s, uint64_t length)
{
	s->window <<= length & 63;
	s->n_bits -= length;
}

/* 1 - 2^size: the correction of a value of that size whose top bit is zero. */
static const int16_t below_range[16] = { 0, -1, -3, -7, -15, -31, -63, -127, -255, -511, -1023, -2047, 0, 0, 0, 0 };

/* The value of `size` bits that ends `length` bits into the window, in JPEG's coding: the lower half of the range is
 * negative. 0 for size 0. */
ALWAYS_INLINE int32_t value_at(uint64_t window, uint64_t length, uint32_t size)
{
	int32_t v = (int32_t)(BITS_LOW((uint32_t)(window >> (-length & 63)), size));
	int32_t low = v + below_range[size];

	return v + low < 0 ? low : v;
}

/* One code of any length. Returns its symbol and length, or -1. Needs 16 bits. */
ALWAYS_INLINE int code_slow(uint64_t window, const struct huff_codes *c, uint32_t *length)
{
	int32_t top = (int32_t)(window >> 48);
	uint32_t n = 1;

	for (unsigned i = 1; i <= 16; i++) /* no early end: it would be mispredicted */
		n += top >= c->limit[i];
	if (n > 16)
		return -1;
	*length = n;
	return c->values[(top >> (16 - n)) + c->offset[n]];
}

ALWAYS_INLINE int dc_decode(struct entropy_state *s, const struct huff_dc *t, int32_t *predictor)
{
	uint32_t e = t->fast[s->window >> (64 - HUFF_DC_BITS)];

	if (__builtin_expect(e == 0, 0)) {
		uint32_t length;
		int size = code_slow(s->window, &t->codes, &length);

		if (size < 0)
			return -1;
		e = (length + (uint32_t)size) | (uint32_t)size << 8;
	}
	*predictor += value_at(s->window, e & 63, e >> 8);
	consume(s, e & 63);
	return (uint32_t)(*predictor + 32768) >> 16 ? -1 : 0;
}

/* Decodes one symbol after coefficient k, with any code. Returns the new k, with HUFF_AC_END added at the end of the
 * block, or -1. */
ALWAYS_INLINE int ac_slow(struct entropy_state *s, const struct huff_ac *t, uint32_t k, int16_t *coef, bool store)
{
	uint32_t length;
	int symbol;

	refill(s);
	symbol = code_slow(s->window, &t->codes, &length);
	if (symbol < 0)
		return -1;
	uint32_t size = (uint32_t)symbol & 15, run = (uint32_t)symbol >> 4;

	if (size == 0 && run != 15) {
		consume(s, length);
		return (int)(k + HUFF_AC_END);
	}
	k += run + 1;
	if (k > 63)
		return -1;
	if (store)
		coef[zigzag[k]] = (int16_t)value_at(s->window, length + size, size);
	consume(s, length + size);
	return (int)k;
}

/* Does one look-up. *z: the present coefficient in `zigzag`. Returns the index that it looked up. */
ALWAYS_INLINE uint64_t ac_step(struct entropy_state *s, const struct huff_ac *t, const uint8_t **z, int16_t *coef,
			       bool store)
{
	uint64_t at = s->window >> (64 - HUFF_AC_BITS), length = t->length[at];

	const uint8_t *first = *z + t->first[at];

	*z += t->forward[at];
	if (store) {
		coef[**z] = (int16_t)value_at(s->window, length, t->size[at]);
		coef[*first] = (int8_t)t->value[at];
	}
	consume(s, length);
	return at;
}

/* Decodes all coefficients but the first. At most 27 bits have been consumed since the last refill. Returns a position
 * in zigzag order after which all coefficients are zero, or -1. */
ALWAYS_INLINE int ac_decode(struct entropy_state *s, const struct huff_ac *t, int16_t *coef, bool store)
{
	const uint8_t *z = zigzag, *const full = zigzag + 63;
	uint64_t window = s->window, at;

	at = ac_step(s, t, &z, coef, store);
	for (;;) {
		while (z < full) {
			refill(s);
			window = s->window;
			at = ac_step(s, t, &z, coef, store);
			if (z >= full)
				break;
			window = s->window;
			at = ac_step(s, t, &z, coef, store);
			if (z >= full)
				break;
			window = s->window;
			at = ac_step(s, t, &z, coef, store);
		}
		uint32_t k = (uint32_t)(z - zigzag);

		if (__builtin_expect(k - HUFF_AC_END < 63, 1))
			return (int)(k - HUFF_AC_END);
		/* The last look-up met a long code, or reached coefficient 63, and then its second half may belong to
		 * the next block: undo it and continue symbol by symbol. */
		s->window = window;
		s->n_bits += t->length[at];
		int r = ac_slow(s, t, k - t->forward[at], coef, store);

		if (r < 0)
			return -1;
		if (r >= 63)
			return r & 63;
		z = zigzag + r;
	}
}

ALWAYS_INLINE int block_decode(struct entropy_state *s, const struct mcu_layout *l, uint32_t i, int16_t *coef,
			       bool store)
{
	int32_t *predictor = &s->dc[l->component[i]];

	refill(s);
	if (dc_decode(s, l->dc[i], predictor) < 0)
		return -1;
	if (store)
		coef[0] = (int16_t)*predictor;
	return ac_decode(s, l->ac[i], coef, store);
}

ALWAYS_INLINE int mcu_decode(struct entropy_state *state, const struct mcu_layout *l, uint32_t wanted,
			     int16_t *const coef[ENTROPY_MAX_BLOCKS], uint8_t last[ENTROPY_MAX_BLOCKS])
{
	struct entropy_state s = *state;

	for (uint32_t i = 0; i < l->n_blocks; i++) {
		int r;

		if (wanted >> i & 1) {
			r = block_decode(&s, l, i, coef[i], true);
			last[i] = (uint8_t)r;
		} else {
			r = block_decode(&s, l, i, NULL, false);
			if (wanted >> (ENTROPY_FIRST_ONLY + i) & 1) {
				coef[i][0] = (int16_t)s.dc[l->component[i]];
				last[i] = 0;
			}
		}
		if (r < 0)
			return -1;
	}
	*state = s;
	return 0;
}

ALWAYS_INLINE int mcu_skip(struct entropy_state *state, const struct mcu_layout *l, uint32_t n, const uint8_t *end)
{
	struct entropy_state s = *state;

	for (; n && s.next <= end + 8; n--)
		for (uint32_t i = 0; i < l->n_blocks; i++)
			if (block_decode(&s, l, i, NULL, false) < 0)
				return -1;
	*state = s;
	return 0;
}

#undef ALWAYS_INLINE

#endif
