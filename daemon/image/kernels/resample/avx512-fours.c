/* The AVX-512 path's vertical pass over rows that the horizontal pass has left in fours. The bytes of four rows lie
 * side by side there, as vpdpbusd takes them, so that nothing is interleaved again for every row of the result. */
#if defined(__x86_64__)
#include "image/kernels/resample/paths.h"

#include <immintrin.h>
#include <string.h>

#define TARGET "avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni"
#define AVX512 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum {
	ROUND = 1 << (TAPS_PRECISION_BITS - 1),
	FOUR = RESAMPLE_BATCH_ROWS,
	MAX_FOURS = (RESAMPLE_MAX_FOURS_TAPS + FOUR - 1 + FOUR - 1) / FOUR,
	TAPS_SPLIT_AT_ONCE = 16,
	FEW_FOURS = TAPS_SPLIT_AT_ONCE / FOUR,
	FOURS_ROOM = FOUR * MAX_FOURS + 2 * TAPS_SPLIT_AT_ONCE,
};

/* The digits of each row's weight in base 256; rows outside the window have zeros. */
struct fours_weights {
	int8_t high[FOURS_ROOM], middle[FOURS_ROOM], low[FOURS_ROOM];
};

INLINE void split_fours(const int32_t *k, uint32_t first, uint32_t n, struct fours_weights *w)
{
	int8_t *const digits[3] = { w->high, w->middle, w->low };

	for (int d = 0; d < 3; d++) {
		memset(digits[d], 0, FOUR);
		memset(digits[d] + n / TAPS_SPLIT_AT_ONCE * TAPS_SPLIT_AT_ONCE, 0, 2 * TAPS_SPLIT_AT_ONCE);
	}
	for (uint32_t j = 0; j < n; j += TAPS_SPLIT_AT_ONCE) {
		__mmask16 there = (__mmask16)(n - j < TAPS_SPLIT_AT_ONCE ? (1u << (n - j)) - 1 : 0xffff);
		__m512i rest = _mm512_maskz_loadu_epi32(there, k + j);
		__m128i low = _mm512_cvtepi32_epi8(rest), middle;

		rest = _mm512_srai_epi32(_mm512_sub_epi32(rest, _mm512_cvtepi8_epi32(low)), 8);
		middle = _mm512_cvtepi32_epi8(rest);
		rest = _mm512_srai_epi32(_mm512_sub_epi32(rest, _mm512_cvtepi8_epi32(middle)), 8);
		_mm_storeu_si128((void *)(w->low + first + j), low);
		_mm_storeu_si128((void *)(w->middle + first + j), middle);
		_mm_storeu_si128((void *)(w->high + first + j), _mm512_cvtepi32_epi8(rest));
	}
}

INLINE __m512i joined(__m512i high, __m512i middle, __m512i low)
{
	__m512i upper = _mm512_add_epi32(_mm512_slli_epi32(high, 8), middle);

	return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(upper, 8), low), TAPS_PRECISION_BITS);
}

INLINE __m512i digits_at(const int8_t *digits)
{
	int32_t four;

	memcpy(&four, digits, sizeof(four));
	return _mm512_set1_epi32(four);
}

/* 16 bytes of the result. */
INLINE __m512i sum_fours(const struct fours_weights *w, uint32_t n_fours, const uint8_t *const *fours, size_t at)
{
	__m512i high = _mm512_setzero_si512(), middle = high, low = _mm512_set1_epi32(ROUND);

	for (uint32_t g = 0; g < n_fours; g++) {
		__m512i px = _mm512_loadu_si512(fours[g] + at);

		high = _mm512_dpbusd_epi32(high, px, digits_at(w->high + (size_t)g * FOUR));
		middle = _mm512_dpbusd_epi32(middle, px, digits_at(w->middle + (size_t)g * FOUR));
		low = _mm512_dpbusd_epi32(low, px, digits_at(w->low + (size_t)g * FOUR));
	}
	return joined(high, middle, low);
}

INLINE void store_sums(const __m512i sum[4], uint8_t *dst)
{
	const __m512i in_order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	__m512i bytes = _mm512_packus_epi16(_mm512_packs_epi32(sum[0], sum[1]), _mm512_packs_epi32(sum[2], sum[3]));

	_mm512_storeu_si512(dst, _mm512_permutexvar_epi32(in_order, bytes));
}

AVX512 static void sum_many(const struct fours_weights *w, uint32_t n_fours, const uint8_t *const *fours, uint8_t *dst,
			    size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i += 64) {
		__m512i sum[4];

		for (size_t v = 0; v < 4; v++)
			sum[v] = sum_fours(w, n_fours, fours, i * FOUR + v * 64);
		store_sums(sum, dst + i);
	}
}

/* The digits of one four's weights, the same in every lane. */
struct four_weights {
	__m512i high, middle, low;
};

/* The digits of up to 16 weights never leave the registers: a load of four bytes from two earlier stores would wait for
 * both, in every row. */
INLINE void split_few(const int32_t *k, uint32_t first, uint32_t n, uint32_t n_fours, struct four_weights *w)
{
	__mmask16 there = (__mmask16)((1u << n) - 1);
	__m512i rest = _mm512_maskz_expand_epi32((__mmask16)(there << first), _mm512_maskz_loadu_epi32(there, k));
	__m128i low = _mm512_cvtepi32_epi8(rest), middle, high;

	rest = _mm512_srai_epi32(_mm512_sub_epi32(rest, _mm512_cvtepi8_epi32(low)), 8);
	middle = _mm512_cvtepi32_epi8(rest);
	high = _mm512_cvtepi32_epi8(_mm512_srai_epi32(_mm512_sub_epi32(rest, _mm512_cvtepi8_epi32(middle)), 8));
	for (uint32_t g = 0; g < n_fours; g++) {
		__m512i which = _mm512_set1_epi32((int)g);

		w[g].high = _mm512_permutexvar_epi32(which, _mm512_castsi128_si512(high));
		w[g].middle = _mm512_permutexvar_epi32(which, _mm512_castsi128_si512(middle));
		w[g].low = _mm512_permutexvar_epi32(which, _mm512_castsi128_si512(low));
	}
}

INLINE void sum_few(const int32_t *k, uint32_t first, uint32_t n_rows, uint32_t n_fours, const uint8_t *const *fours,
		    uint8_t *dst, size_t n_bytes)
{
	struct four_weights w[FEW_FOURS];

	split_few(k, first, n_rows, n_fours, w);
	for (size_t i = 0; i < n_bytes; i += 64) {
		__m512i sum[4];

		for (size_t v = 0; v < 4; v++) {
			__m512i high = _mm512_setzero_si512(), middle = high, low = _mm512_set1_epi32(ROUND);

			for (uint32_t g = 0; g < n_fours; g++) {
				__m512i px = _mm512_loadu_si512(fours[g] + i * FOUR + v * 64);

				high = _mm512_dpbusd_epi32(high, px, w[g].high);
				middle = _mm512_dpbusd_epi32(middle, px, w[g].middle);
				low = _mm512_dpbusd_epi32(low, px, w[g].low);
			}
			sum[v] = joined(high, middle, low);
		}
		store_sums(sum, dst + i);
	}
}

AVX512 void resample_avx512_vertical_fours(const int32_t *k, uint32_t first, uint32_t n_rows,
					   const uint8_t *const *fours, uint8_t *dst, size_t n_bytes)
{
	uint32_t n_fours = (first + n_rows + FOUR - 1) / FOUR;
	struct fours_weights w;

	/* With constants, so that weights stay in registers. */
	switch (n_fours) {
	case 1:
		sum_few(k, first, n_rows, 1, fours, dst, n_bytes);
		break;
	case 2:
		sum_few(k, first, n_rows, 2, fours, dst, n_bytes);
		break;
	case 3:
		sum_few(k, first, n_rows, 3, fours, dst, n_bytes);
		break;
	case FEW_FOURS:
		sum_few(k, first, n_rows, FEW_FOURS, fours, dst, n_bytes);
		break;
	default:
		split_fours(k, first, n_rows, &w);
		sum_many(&w, n_fours, fours, dst, n_bytes);
	}
}
#endif
