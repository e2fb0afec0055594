/* Blends in plain C, and 32 bytes at a time with AVX2. Both round every operation as Pillow does. */
#include "image/kernels/exact.h"

#include "image/kernels/blend.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "image/kernels/processor.h"

static uint8_t blend(uint8_t from, uint8_t to, float factor)
{
	float mixed = (float)from + factor * (float)(to - from);

	mixed = mixed < 0.0f ? 0.0f : mixed;
	mixed = mixed > 255.0f ? 255.0f : mixed;
	return (uint8_t)(int32_t)mixed;
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((target("avx2"), always_inline))

enum { BYTES_AT_ONCE = 32 };

INLINE __m256 floats(const uint8_t *p)
{
	return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)));
}

INLINE __m256i blend8(__m256 from, __m256 to, __m256 factor)
{
	__m256 mixed = _mm256_add_ps(from, _mm256_mul_ps(factor, _mm256_sub_ps(to, from)));

	mixed = _mm256_min_ps(_mm256_max_ps(mixed, _mm256_setzero_ps()), _mm256_set1_ps(255.0f));
	return _mm256_cvttps_epi32(mixed);
}

/* from: constant, or as many bytes as to. Returns how many bytes are done. */
INLINE size_t blend_avx2(const uint8_t *from, __m256 constant, uint8_t *to, size_t n, float factor)
{
	__m256 f = _mm256_set1_ps(factor);
	size_t at;

	for (at = 0; at + BYTES_AT_ONCE <= n; at += BYTES_AT_ONCE) {
		__m256i made[4], words[2], bytes;

		for (int i = 0; i < 4; i++)
			made[i] = blend8(from ? floats(from + at + 8 * i) : constant, floats(to + at + 8 * i), f);
		words[0] = _mm256_packs_epi32(made[0], made[1]);
		words[1] = _mm256_packs_epi32(made[2], made[3]);
		bytes = _mm256_packus_epi16(words[0], words[1]); /* of each half: 4 bytes of each of the four */
		bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
		_mm256_storeu_si256((void *)(to + at), bytes);
	}
	return at;
}

AVX2 static size_t bytes_avx2(const uint8_t *from, uint8_t *to, size_t n, float factor)
{
	return blend_avx2(from, _mm256_setzero_ps(), to, n, factor);
}

AVX2 static size_t constant_avx2(uint8_t from, uint8_t *to, size_t n, float factor)
{
	return blend_avx2(NULL, _mm256_set1_ps((float)from), to, n, factor);
}
#endif

void blend_bytes(const uint8_t *from, uint8_t *to, size_t n, float factor)
{
	size_t done = 0;

#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX2)
		done = bytes_avx2(from, to, n, factor);
#endif
	for (; done < n; done++)
		to[done] = blend(from[done], to[done], factor);
}

void blend_constant(uint8_t from, uint8_t *to, size_t n, float factor)
{
	size_t done = 0;

#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX2)
		done = constant_avx2(from, to, n, factor);
#endif
	for (; done < n; done++)
		to[done] = blend(from, to[done], factor);
}
