/* A small box's pass with AVX-512 and VNNI, for 32 words at once. The arithmetic is box-avx512.c's: weights in two
 * parts, of which each is multiplied with (sum, far) pairs. */
#if defined(__x86_64__)
#include "image/kernels/box-small.h"

#include <immintrin.h>

#define TARGET "avx512f,avx512bw,avx512vl,avx512vnni"
#define AVX512 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum { PART_BITS = 15, RESULT_BITS = 24, ROUND = BOX_HALF >> PART_BITS };

struct small_weights {
	__m512i upper, lower;
};

INLINE __m512i weigh(__m512i pairs, const struct small_weights *w)
{
	__m512i v = _mm512_dpwssd_epi32(_mm512_set1_epi32(ROUND), pairs, w->upper);

	v = _mm512_dpwssd_epi32(_mm512_slli_epi32(v, PART_BITS), pairs, w->lower);
	return _mm512_srli_epi32(v, RESULT_BITS);
}

INLINE __m512i words_at(const uint16_t *p)
{
	return _mm512_loadu_si512(p);
}

INLINE void small_row(const struct small_weights *w, const uint16_t *const window[], unsigned n_inside, uint16_t *out,
		      size_t n)
{
	for (size_t i = 0; i < n; i += BOX_SMALL_STEP) {
		__m512i far = _mm512_add_epi16(words_at(window[0] + i), words_at(window[n_inside + 1] + i));
		__m512i sum = words_at(window[1] + i), low, high;

		for (unsigned k = 2; k <= n_inside; k++)
			sum = _mm512_add_epi16(sum, words_at(window[k] + i));
		low = weigh(_mm512_unpacklo_epi16(sum, far), w);
		high = weigh(_mm512_unpackhi_epi16(sum, far), w);
		_mm512_storeu_si512(out + i, _mm512_packus_epi32(low, high));
	}
}

AVX512 static void small_pass(const struct box *b, const uint16_t *const window[BOX_SMALL_WINDOW], uint16_t *out,
			      size_t n)
{
	const uint32_t mask = (1u << PART_BITS) - 1;
	struct small_weights w = { _mm512_set1_epi32((int)(b->fw >> PART_BITS << 16 | b->ww >> PART_BITS)),
				   _mm512_set1_epi32((int)((b->fw & mask) << 16 | (b->ww & mask))) };

	if (b->radius == 0)
		small_row(&w, window, 1, out, n);
	else
		small_row(&w, window, 3, out, n);
}

AVX512 static void small_widen(const uint8_t *from, uint16_t *to, size_t n)
{
	for (size_t i = 0; i < n; i += BOX_SMALL_STEP) {
		__mmask32 there = n - i < BOX_SMALL_STEP ? (1u << (n - i)) - 1 : ~0u;

		_mm512_storeu_si512(to + i, _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(there, from + i)));
	}
}

AVX512 static void small_narrow(const uint16_t *from, uint8_t *to, size_t n)
{
	size_t i = 0;

	for (; n - i >= BOX_SMALL_STEP; i += BOX_SMALL_STEP)
		_mm256_storeu_si256((void *)(to + i), _mm512_cvtepi16_epi8(words_at(from + i)));
	_mm256_mask_storeu_epi8(to + i, (1u << (n - i)) - 1, _mm512_cvtepi16_epi8(words_at(from + i)));
}

const struct box_small_path box_small_avx512 = { small_pass, small_widen, small_narrow };
#endif
