/* The AVX-512 path of color_hue (with VBMI): 16 pixels at a time, by the calculation of hue-avx2.c.
 *
 * Divisions are multiplications by a reciprocal of one step more than the processor's estimate. A saturation is a whole
 * number: half of one in the numerator keeps an error far from the next. A hue's ratio is corrected once by its exact
 * rest; a quotient of bytes lies much further from the middle of two floats than the error that is left, so it is
 * rounded correctly. A test tries every colour. */
#if defined(__x86_64__)
#include "image/exact.h"

#include "image/hue-paths.h"

#include <immintrin.h>

#define TARGET "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi"
#define AVX512 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum { PX_AT_ONCE = 16, BYTES = 3 * PX_AT_ONCE };

/* A table of eight numbers, twice. */
#define EIGHT_PS(a, b, c, d, e, f, g, h) _mm512_setr_ps(a, b, c, d, e, f, g, h, a, b, c, d, e, f, g, h)
#define EIGHT(a, b, c, d, e, f, g, h) _mm512_setr_epi32(a, b, c, d, e, f, g, h, a, b, c, d, e, f, g, h)

struct planes {
	__m512i r, g, b;
};

/* Lane i: byte `channel` of pixel i. */
INLINE __m512i channel_of(__m512i px, int channel)
{
	const __m512i thirds = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45);

	return _mm512_maskz_permutexvar_epi8(0x1111111111111111, _mm512_add_epi32(thirds, _mm512_set1_epi32(channel)),
					     px);
}

/* Which channel is larger than which: bit 0 green than red, bit 1 blue than green, bit 2 blue than red. */
INLINE __m512i order_of(const struct planes *p)
{
	__m512i order = _mm512_maskz_set1_epi32(_mm512_cmpgt_epi32_mask(p->g, p->r), 1);

	order = _mm512_mask_or_epi32(order, _mm512_cmpgt_epi32_mask(p->b, p->g), order, _mm512_set1_epi32(2));
	return _mm512_mask_or_epi32(order, _mm512_cmpgt_epi32_mask(p->b, p->r), order, _mm512_set1_epi32(4));
}

/* 1 / x to about 28 bits. */
INLINE __m512 reciprocal(__m512 x)
{
	__m512 r = _mm512_rcp14_ps(x);

	return _mm512_fmadd_ps(_mm512_fnmadd_ps(x, r, _mm512_set1_ps(1.0f)), r, r);
}

/* (int)(turns * 255.0): the product is rounded to the nearest float first, so that its error says whether it reached
 * the whole number. */
INLINE __m512i in_255ths(__m512 turns)
{
	const __m512 full = _mm512_set1_ps(255.0f);
	__m512i whole = _mm512_cvttps_epi32(_mm512_mul_ps(turns, full));
	__m512 rest = _mm512_fmsub_ps(turns, full, _mm512_cvtepi32_ps(whole));

	return _mm512_add_epi32(whole, _mm512_srai_epi32(_mm512_castps_si512(rest), 31));
}

/* The byte of a pixel's hue. share: how far the channel between the two others is below the largest, of the range. The
 * tables are hue-avx2.c's. */
INLINE __m512i hue_bytes(__m512i order, __m512 share)
{
	const __m512 from = EIGHT_PS(1, 1, -1, 0, 0, 3, 5, 3), turn = EIGHT_PS(0, 0, 1, 0, 0, 0, 0, 0);
	const __m512 minus = EIGHT_PS(-0.0f, 0, 0, 0, 0, -0.0f, -0.0f, 0);
	const __m512 sixth = _mm512_set1_ps(1.0f / 6.0f);
	__m512 sixths = _mm512_add_ps(_mm512_permutexvar_ps(order, from),
				      _mm512_xor_ps(share, _mm512_permutexvar_ps(order, minus)));
	__m512 turns = _mm512_mul_ps(sixths, sixth);
	__m512 rest = _mm512_fnmadd_ps(turns, _mm512_set1_ps(6.0f), sixths);

	turns = _mm512_fmadd_ps(rest, sixth, turns);
	return in_255ths(_mm512_add_ps(turns, _mm512_permutexvar_ps(order, turn)));
}

/* The sixth of the circle, and in 85ths of it how far a hue is from where the channel between is lowest. */
struct place {
	__m512i sixth, height;
};

INLINE struct place place_of(__m512i hue)
{
	__m512i sixth = _mm512_mulhi_epu16(hue, _mm512_set1_epi32(1543)); /* hue * 6 / 255 */
	__m512i edge = _mm512_mullo_epi16(_mm512_or_si512(sixth, _mm512_set1_epi32(1)), _mm512_set1_epi32(85));

	return (struct place){ sixth, _mm512_abs_epi32(_mm512_sub_epi32(_mm512_add_epi32(hue, hue), edge)) };
}

/* Largest, middle and lowest value in bytes 0 to 2. */
INLINE __m512i levels_of(__m512i max, __m512 saturation, __m512i height)
{
	__m512 v = _mm512_cvtepi32_ps(max), top = _mm512_add_ps(v, _mm512_set1_ps(0.5f));
	__m512 depth = _mm512_mul_ps(v, saturation), part = _mm512_mul_ps(depth, _mm512_cvtepi32_ps(height));
	__m512i low = _mm512_cvttps_epi32(_mm512_fnmadd_ps(depth, _mm512_set1_ps(1.0f / 255.0f), top));
	__m512i middle = _mm512_cvttps_epi32(_mm512_fnmadd_ps(part, _mm512_set1_ps(1.0f / 21675.0f), top));

	return _mm512_or_si512(max, _mm512_or_si512(_mm512_slli_epi32(middle, 8), _mm512_slli_epi32(low, 16)));
}

#define PICK(r, g, b) (int)((b) << 16 | (g) << 8 | (r))

/* Puts the three values where the sixth has them, and pixels side by side: 48 bytes. */
INLINE __m512i pixels_of(__m512i levels, __m512i sixth)
{
	static const uint8_t dense[64] = { 0,  1,  2,  4,  5,  6,  8,  9,  10, 12, 13, 14, 16, 17, 18, 20,
					   21, 22, 24, 25, 26, 28, 29, 30, 32, 33, 34, 36, 37, 38, 40, 41,
					   42, 44, 45, 46, 48, 49, 50, 52, 53, 54, 56, 57, 58, 60, 61, 62 };
	const __m512i picks = EIGHT(PICK(0, 1, 2), PICK(1, 0, 2), PICK(2, 0, 1), PICK(2, 1, 0), PICK(1, 2, 0),
				    PICK(0, 2, 1), PICK(0, 1, 2), 0);
	const __m512i lanes =
		_mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x040404, 0x080808, 0x0c0c0c)); /* of each 16 bytes */
	__m512i px = _mm512_shuffle_epi8(levels, _mm512_add_epi32(_mm512_permutexvar_epi32(sixth, picks), lanes));

	return _mm512_permutexvar_epi8(_mm512_loadu_si512(dense), px);
}

INLINE __m512i turned(__m512i steps, __m512i rgb)
{
	struct planes p = { channel_of(rgb, 0), channel_of(rgb, 1), channel_of(rgb, 2) };
	__m512i low = _mm512_min_epi32(p.r, p.g), high = _mm512_max_epi32(p.r, p.g), one = _mm512_set1_epi32(1);
	__m512i max = _mm512_max_epi32(high, p.b), min = _mm512_min_epi32(low, p.b);
	__m512i middle = _mm512_max_epi32(low, _mm512_min_epi32(high, p.b));
	__m512 range = _mm512_cvtepi32_ps(_mm512_sub_epi32(max, min)),
	       below = _mm512_cvtepi32_ps(_mm512_sub_epi32(max, middle));
	/* Grey has no hue and black no saturation; their divisors are 1 in place of 0. */
	__m512 divisor = _mm512_max_ps(range, _mm512_set1_ps(1.0f)), inverse = reciprocal(divisor);
	__m512 share = _mm512_mul_ps(below, inverse);
	__m512 saturation = _mm512_mul_ps(_mm512_fmadd_ps(range, _mm512_set1_ps(255.0f), _mm512_set1_ps(0.5f)),
					  reciprocal(_mm512_cvtepi32_ps(_mm512_max_epi32(max, one))));
	__m512i hue;
	struct place place;

	share = _mm512_fmadd_ps(_mm512_fnmadd_ps(share, divisor, below), inverse, share);
	hue = _mm512_add_epi32(hue_bytes(order_of(&p), share), steps);
	place = place_of(_mm512_and_si512(hue, _mm512_set1_epi32(255)));
	saturation = _mm512_roundscale_ps(saturation, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
	return pixels_of(levels_of(max, saturation, place.height), place.sixth);
}

AVX512 void hue_turn_avx512(uint8_t steps, uint8_t *rgb, uint32_t n_px)
{
	__m512i by = _mm512_set1_epi32(steps);
	const __mmask64 group = (1ull << BYTES) - 1;
	uint8_t *px = rgb;
	__mmask64 rest = (1ull << 3 * (n_px % PX_AT_ONCE)) - 1;

	for (uint32_t done = 0; n_px - done >= PX_AT_ONCE; done += PX_AT_ONCE, px += BYTES) {
		__m512i made = turned(by, _mm512_maskz_loadu_epi8(group, px));

		/* A store with a mask would hold up the next load, which begins within its 64 bytes. */
		_mm256_storeu_si256((void *)px, _mm512_castsi512_si256(made));
		_mm_storeu_si128((void *)(px + 32), _mm512_extracti32x4_epi32(made, 2));
	}
	if (rest)
		_mm512_mask_storeu_epi8(px, rest, turned(by, _mm512_maskz_loadu_epi8(rest, px)));
}
#endif
