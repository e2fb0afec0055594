/* The AVX2 path of color_hue: eight pixels at a time, in whole numbers and floats (with FMA).
 *
 * Between RGB and HSV there are few different ratios, so shorter calculations give the bytes of color.c's doubles, which
 * a test tries for every colour:
 *
 * - the saturation is 255 * range / max, in whole numbers;
 * - of the two differences that make a hue one is 0 or the whole range, so that the hue takes one division. Where it
 *   is a whole number of 255ths, color.c's rounding errors decide; hence the division by 6 is rounded correctly here,
 *   too, and the product with 255 is rounded down;
 * - in a sixth of the circle one channel is the value, one lies lowest, and one between. That one alone depends on the
 *   place in the sixth, which is a whole number of 85ths. */
#if defined(__x86_64__)
#include "image/kernels/exact.h"

#include "image/kernels/hue-paths.h"

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((target("avx2,fma"), always_inline))

enum { PX_AT_ONCE = 8, BYTES = 3 * PX_AT_ONCE };

/* Byte n of pixels 0 to 3 in the lower half, which begins with pixel 0, and of pixels 4 to 7 in the upper one, whose
 * first 4 bytes are of pixels before. */
#define CHANNEL(n) \
	_mm256_setr_epi8(n, -1, -1, -1, n + 3, -1, -1, -1, n + 6, -1, -1, -1, n + 9, -1, -1, -1, n + 4, -1, -1, -1, \
			 n + 7, -1, -1, -1, n + 10, -1, -1, -1, n + 13, -1, -1, -1)

struct planes {
	__m256i r, g, b;
};

INLINE struct planes planes_of(const uint8_t *p)
{
	__m256i px = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)p)),
					     _mm_loadu_si128((const void *)(p + 8)), 1);

	return (struct planes){ _mm256_shuffle_epi8(px, CHANNEL(0)), _mm256_shuffle_epi8(px, CHANNEL(1)),
				_mm256_shuffle_epi8(px, CHANNEL(2)) };
}

/* Which channel is larger than which: bit 0 green than red, bit 1 blue than green, bit 2 blue than red. */
INLINE __m256i order_of(const struct planes *p)
{
	__m256i green = _mm256_srli_epi32(_mm256_cmpgt_epi32(p->g, p->r), 31);
	__m256i blue = _mm256_and_si256(_mm256_cmpgt_epi32(p->b, p->g), _mm256_set1_epi32(2));

	return _mm256_or_si256(_mm256_or_si256(green, blue),
			       _mm256_and_si256(_mm256_cmpgt_epi32(p->b, p->r), _mm256_set1_epi32(4)));
}

/* (int)(turns * 255.0): the product is rounded to the nearest float first, so that its error says whether it reached
 * the whole number. */
INLINE __m256i in_255ths(__m256 turns)
{
	const __m256 full = _mm256_set1_ps(255.0f);
	__m256i whole = _mm256_cvttps_epi32(_mm256_mul_ps(turns, full));
	__m256 rest = _mm256_fmsub_ps(turns, full, _mm256_cvtepi32_ps(whole));

	return _mm256_add_epi32(whole, _mm256_srai_epi32(_mm256_castps_si256(rest), 31));
}

/* The byte of a pixel's hue. share: how far the channel between the two others is below the largest, of the range. */
INLINE __m256i hue_bytes(__m256i order, __m256 share)
{
	/* By order: rgb (from the largest to the smallest), grb, rbg, -, -, gbr, brg, bgr. In sixths of a turn the hue
	 * is from + share or from - share; the hues of rbg are negative, which a turn mends. */
	const __m256 from = _mm256_setr_ps(1, 1, -1, 0, 0, 3, 5, 3), turn = _mm256_setr_ps(0, 0, 1, 0, 0, 0, 0, 0);
	const __m256 minus = _mm256_setr_ps(-0.0f, 0, 0, 0, 0, -0.0f, -0.0f, 0);
	const __m256 sixth = _mm256_set1_ps(1.0f / 6.0f);
	__m256 sixths = _mm256_add_ps(_mm256_permutevar8x32_ps(from, order),
				      _mm256_xor_ps(share, _mm256_permutevar8x32_ps(minus, order)));
	__m256 turns = _mm256_mul_ps(sixths, sixth);
	__m256 rest = _mm256_fnmadd_ps(turns, _mm256_set1_ps(6.0f), sixths);

	turns = _mm256_fmadd_ps(rest, sixth, turns);
	return in_255ths(_mm256_add_ps(turns, _mm256_permutevar8x32_ps(turn, order)));
}

/* The sixth of the circle, and in 85ths of it how far a hue is from where the channel between is lowest. The last hue
 * is the first again: sixth 6. */
struct place {
	__m256i sixth, height;
};

INLINE struct place place_of(__m256i hue)
{
	__m256i sixth = _mm256_mulhi_epu16(hue, _mm256_set1_epi32(1543)); /* hue * 6 / 255 */
	/* In even sixths the channel falls towards their end as hues go back. */
	__m256i edge = _mm256_mullo_epi16(_mm256_or_si256(sixth, _mm256_set1_epi32(1)), _mm256_set1_epi32(85));

	return (struct place){ sixth, _mm256_abs_epi32(_mm256_sub_epi32(_mm256_add_epi32(hue, hue), edge)) };
}

/* Largest, middle and lowest value in bytes 0 to 2. */
INLINE __m256i levels_of(__m256i max, __m256 saturation, __m256i height)
{
	__m256 v = _mm256_cvtepi32_ps(max), top = _mm256_add_ps(v, _mm256_set1_ps(0.5f));
	__m256 depth = _mm256_mul_ps(v, saturation), part = _mm256_mul_ps(depth, _mm256_cvtepi32_ps(height));
	__m256i low = _mm256_cvttps_epi32(_mm256_fnmadd_ps(depth, _mm256_set1_ps(1.0f / 255.0f), top));
	__m256i middle = _mm256_cvttps_epi32(_mm256_fnmadd_ps(part, _mm256_set1_ps(1.0f / 21675.0f), top));

	return _mm256_or_si256(max, _mm256_or_si256(_mm256_slli_epi32(middle, 8), _mm256_slli_epi32(low, 16)));
}

#define PICK(r, g, b) (int)(0x80u << 24 | (b) << 16 | (g) << 8 | (r))

/* Puts the three values where the sixth has them, and writes 24 bytes. */
INLINE void write_levels(__m256i levels, __m256i sixth, uint8_t *p)
{
	const __m256i picks = _mm256_setr_epi32(PICK(0, 1, 2), PICK(1, 0, 2), PICK(2, 0, 1), PICK(2, 1, 0),
						PICK(1, 2, 0), PICK(0, 2, 1), PICK(0, 1, 2), 0);
	const __m256i lanes = _mm256_setr_epi32(0, 0x040404, 0x080808, 0x0c0c0c, 0, 0x040404, 0x080808, 0x0c0c0c);
	const __m256i dense =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
	__m256i px = _mm256_shuffle_epi8(levels, _mm256_add_epi32(_mm256_permutevar8x32_epi32(picks, sixth), lanes));

	px = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(px, dense), _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7));
	_mm_storeu_si128((void *)p, _mm256_castsi256_si128(px));
	_mm_storel_epi64((void *)(p + 16), _mm256_extracti128_si256(px, 1));
}

INLINE void turn_eight(__m256i steps, uint8_t *rgb)
{
	struct planes p = planes_of(rgb);
	__m256i low = _mm256_min_epi32(p.r, p.g), high = _mm256_max_epi32(p.r, p.g);
	__m256i max = _mm256_max_epi32(high, p.b), min = _mm256_min_epi32(low, p.b);
	__m256i middle = _mm256_max_epi32(low, _mm256_min_epi32(high, p.b)), one = _mm256_set1_epi32(1);
	__m256 range = _mm256_cvtepi32_ps(_mm256_sub_epi32(max, min));
	/* Grey has no hue and black no saturation; their divisors are 1 in place of 0. */
	__m256 divisor = _mm256_max_ps(range, _mm256_set1_ps(1.0f));
	__m256 share = _mm256_div_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(max, middle)), divisor);
	__m256 saturation = _mm256_div_ps(_mm256_mul_ps(range, _mm256_set1_ps(255.0f)),
					  _mm256_cvtepi32_ps(_mm256_max_epi32(max, one)));
	__m256i hue = _mm256_add_epi32(hue_bytes(order_of(&p), share), steps);
	struct place place = place_of(_mm256_and_si256(hue, _mm256_set1_epi32(255)));

	saturation = _mm256_round_ps(saturation, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
	write_levels(levels_of(max, saturation, place.height), place.sixth, rgb);
}

AVX2 void hue_turn_avx2(uint8_t steps, uint8_t *rgb, uint32_t n_px)
{
	__m256i by = _mm256_set1_epi32(steps);
	uint8_t rest[BYTES] = { 0 };
	uint32_t done = 0;

	for (; n_px - done >= PX_AT_ONCE; done += PX_AT_ONCE)
		turn_eight(by, rgb + (size_t)done * 3);
	if (done == n_px)
		return;
	memcpy(rest, rgb + (size_t)done * 3, (size_t)(n_px - done) * 3);
	turn_eight(by, rest);
	memcpy(rgb + (size_t)done * 3, rest, (size_t)(n_px - done) * 3);
}
#endif
