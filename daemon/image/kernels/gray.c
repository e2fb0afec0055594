/* Greys in plain C, and with AVX2 eight pixels at a time. A multiplication there has factors below 2^15, so that the
 * weight of green is used in two halves. */
#include "image/kernels/gray.h"

#include <stddef.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "image/kernels/processor.h"

static uint8_t gray_of(const uint8_t *p)
{
	return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((target("avx2"), always_inline))

enum { PX_AT_ONCE = 8, PX_READ = 10 }; /* loads of 16 bytes at pixels 0 and 4 end in the tenth */

/* Eight greys as 32-bit numbers. */
INLINE __m256i gray8(const uint8_t *p)
{
	const __m256i red_green =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 1, -1, 3, -1, 4, -1, 6, -1, 7, -1, 9, -1, 10, -1));
	const __m256i green_blue =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(1, -1, 2, -1, 4, -1, 5, -1, 7, -1, 8, -1, 10, -1, 11, -1));
	__m256i px = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)p)),
					     _mm_loadu_si128((const void *)(p + 12)), 1);
	__m256i sum = _mm256_add_epi32(
		_mm256_madd_epi16(_mm256_shuffle_epi8(px, red_green), _mm256_set1_epi32(19235 << 16 | 19595)),
		_mm256_madd_epi16(_mm256_shuffle_epi8(px, green_blue), _mm256_set1_epi32(7471 << 16 | 19235)));

	return _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(0x8000)), 16);
}

/* Return how many pixels are done. */

AVX2 static uint32_t triples_avx2(const uint8_t *rgb, uint32_t n_px, uint8_t *out)
{
	const __m256i thrice =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 4, 4, 4, 8, 8, 8, 12, 12, 12, -1, -1, -1, -1));
	uint32_t x;

	for (x = 0; x + PX_READ <= n_px; x += PX_AT_ONCE) {
		__m256i made = _mm256_shuffle_epi8(gray8(rgb + (size_t)x * 3), thrice);
		uint8_t *to = out + (size_t)x * 3;

		/* 16 bytes each, of which the last 4 are overwritten. */
		_mm_storeu_si128((void *)to, _mm256_castsi256_si128(made));
		_mm_storeu_si128((void *)(to + 12), _mm256_extracti128_si256(made, 1));
	}
	return x;
}

AVX2 static uint32_t to_rgb_avx2(const uint8_t *gray, uint32_t n_px, uint8_t *rgb)
{
	const __m128i from[3] = { _mm_setr_epi8(0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5),
				  _mm_setr_epi8(5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8, 9, 9, 9, 10, 10),
				  _mm_setr_epi8(10, 11, 11, 11, 12, 12, 12, 13, 13, 13, 14, 14, 14, 15, 15, 15) };
	uint32_t x;

	for (x = 0; x + 16 <= n_px; x += 16) {
		__m128i px = _mm_loadu_si128((const void *)(gray + x));
		uint8_t *to = rgb + (size_t)x * 3;

		_mm_storeu_si128((void *)to, _mm_shuffle_epi8(px, from[0]));
		_mm_storeu_si128((void *)(to + 16), _mm_shuffle_epi8(px, from[1]));
		_mm_storeu_si128((void *)(to + 32), _mm_shuffle_epi8(px, from[2]));
	}
	return x;
}

AVX2 static uint32_t sum_avx2(const uint8_t *rgb, uint32_t n_px, uint32_t *sum)
{
	__m256i sums = _mm256_setzero_si256();
	uint32_t lanes[8], x;

	for (x = 0; x + PX_READ <= n_px; x += PX_AT_ONCE)
		sums = _mm256_add_epi32(sums, gray8(rgb + (size_t)x * 3));
	_mm256_storeu_si256((void *)lanes, sums);
	for (int i = 0; i < 8; i++)
		*sum += lanes[i];
	return x;
}
#endif

void gray_triples(const uint8_t *rgb, uint32_t n_px, uint8_t *out)
{
	uint32_t x = 0;

#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX2)
		x = triples_avx2(rgb, n_px, out);
#endif
	for (; x < n_px; x++) {
		uint8_t *to = out + (size_t)x * 3;

		to[0] = to[1] = to[2] = gray_of(rgb + (size_t)x * 3);
	}
}

void gray_to_rgb(const uint8_t *gray, uint32_t n_px, uint8_t *rgb)
{
	uint32_t x = 0;

#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX2)
		x = to_rgb_avx2(gray, n_px, rgb);
#endif
	for (; x < n_px; x++) {
		uint8_t *to = rgb + (size_t)x * 3;

		to[0] = to[1] = to[2] = gray[x];
	}
}

uint32_t gray_sum(const uint8_t *rgb, uint32_t n_px)
{
	uint32_t x = 0, sum = 0;

#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX512)
		return gray_sum_avx512(rgb, n_px);
	if (processor_path() >= PROCESSOR_AVX2)
		x = sum_avx2(rgb, n_px, &sum);
#endif
	for (; x < n_px; x++)
		sum += gray_of(rgb + (size_t)x * 3);
	return sum;
}
