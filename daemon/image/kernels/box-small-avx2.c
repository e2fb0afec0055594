/* A small box's pass with AVX2, for 16 words at once: box-small-avx512.c in narrower registers. */
#if defined(__x86_64__)
#include "image/kernels/box-small.h"

#include <immintrin.h>

#define TARGET "avx2"
#define AVX2 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum { PART_BITS = 15, RESULT_BITS = 24, ROUND = BOX_HALF >> PART_BITS, WORDS_AT_ONCE = 16 };

struct small_weights {
	__m256i upper, lower;
};

INLINE __m256i weigh(__m256i pairs, const struct small_weights *w)
{
	__m256i v = _mm256_add_epi32(_mm256_madd_epi16(pairs, w->upper), _mm256_set1_epi32(ROUND));

	v = _mm256_add_epi32(_mm256_slli_epi32(v, PART_BITS), _mm256_madd_epi16(pairs, w->lower));
	return _mm256_srli_epi32(v, RESULT_BITS);
}

INLINE __m256i words_at(const uint16_t *p)
{
	return _mm256_loadu_si256((const void *)p);
}

INLINE void small_row(const struct small_weights *w, const uint16_t *const window[], unsigned n_inside, uint16_t *out,
		      size_t n)
{
	for (size_t i = 0; i < n; i += WORDS_AT_ONCE) {
		__m256i far = _mm256_add_epi16(words_at(window[0] + i), words_at(window[n_inside + 1] + i));
		__m256i sum = words_at(window[1] + i), low, high;

		for (unsigned k = 2; k <= n_inside; k++)
			sum = _mm256_add_epi16(sum, words_at(window[k] + i));
		low = weigh(_mm256_unpacklo_epi16(sum, far), w);
		high = weigh(_mm256_unpackhi_epi16(sum, far), w);
		_mm256_storeu_si256((void *)(out + i), _mm256_packus_epi32(low, high));
	}
}

AVX2 static void small_pass(const struct box *b, const uint16_t *const window[BOX_SMALL_WINDOW], uint16_t *out,
			    size_t n)
{
	const uint32_t mask = (1u << PART_BITS) - 1;
	struct small_weights w = { _mm256_set1_epi32((int)(b->fw >> PART_BITS << 16 | b->ww >> PART_BITS)),
				   _mm256_set1_epi32((int)((b->fw & mask) << 16 | (b->ww & mask))) };

	if (b->radius == 0)
		small_row(&w, window, 1, out, n);
	else
		small_row(&w, window, 3, out, n);
}

AVX2 static void small_widen(const uint8_t *from, uint16_t *to, size_t n)
{
	size_t i = 0;

	for (; n - i >= WORDS_AT_ONCE; i += WORDS_AT_ONCE)
		_mm256_storeu_si256((void *)(to + i), _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(from + i))));
	for (; i < n; i++)
		to[i] = from[i];
}

AVX2 static void small_narrow(const uint16_t *from, uint8_t *to, size_t n)
{
	size_t i = 0;

	for (; n - i >= WORDS_AT_ONCE; i += WORDS_AT_ONCE) {
		__m256i bytes = _mm256_packus_epi16(words_at(from + i), _mm256_setzero_si256());

		_mm_storeu_si128((void *)(to + i), _mm256_castsi256_si128(_mm256_permute4x64_epi64(bytes, 0xd8)));
	}
	for (; i < n; i++)
		to[i] = (uint8_t)from[i];
}

const struct box_small_path box_small_avx2 = { small_pass, small_widen, small_narrow };
#endif
