/* The AVX-512 path of color_saturation (with VBMI and VNNI): greys of 16 pixels and their blend with these, in one pass.
 * The arithmetic is gray.c's and blend.c's. */
#if defined(__x86_64__)
#include "image/exact.h"

#include "image/gray.h"

#include <immintrin.h>

#define TARGET "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni"
#define AVX512 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum { PX_AT_ONCE = 16, BYTES = 3 * PX_AT_ONCE };

/* Lane i: byte `low` of pixel i, and byte `high` in the upper 16 bits where the mask has it. */
INLINE __m512i bytes_of(__m512i px, int low, int high, __mmask64 mask)
{
	const __m512i thirds = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45);
	__m512i places = _mm512_add_epi32(_mm512_or_si512(thirds, _mm512_slli_epi32(thirds, 16)),
					  _mm512_set1_epi32(high << 16 | low));

	return _mm512_maskz_permutexvar_epi8(mask, places, px);
}

INLINE __m512 grays_of(__m512i px)
{
	const __mmask64 pairs = 0x5555555555555555;
	__m512i sum = _mm512_dpwssd_epi32(_mm512_set1_epi32(0x8000), bytes_of(px, 0, 1, pairs),
					  _mm512_set1_epi32(19235 << 16 | 19595));

	sum = _mm512_dpwssd_epi32(sum, bytes_of(px, 1, 2, pairs), _mm512_set1_epi32(7471 << 16 | 19235));
	return _mm512_cvtepi32_ps(_mm512_srli_epi32(sum, 16));
}

INLINE __m512i blended(__m512 gray, __m512i px, int channel, __m512 factor)
{
	__m512 own = _mm512_cvtepi32_ps(bytes_of(px, channel, channel, 0x1111111111111111));
	__m512 mixed = _mm512_add_ps(gray, _mm512_mul_ps(factor, _mm512_sub_ps(own, gray)));

	mixed = _mm512_min_ps(_mm512_max_ps(mixed, _mm512_setzero_ps()), _mm512_set1_ps(255.0f));
	return _mm512_cvttps_epi32(mixed);
}

INLINE __m512i saturated(__m512i px, __m512 factor)
{
	static const uint8_t dense[64] = { 0,  1,  2,  4,  5,  6,  8,  9,  10, 12, 13, 14, 16, 17, 18, 20,
					   21, 22, 24, 25, 26, 28, 29, 30, 32, 33, 34, 36, 37, 38, 40, 41,
					   42, 44, 45, 46, 48, 49, 50, 52, 53, 54, 56, 57, 58, 60, 61, 62 };
	__m512 gray = grays_of(px);
	__m512i green = _mm512_slli_epi32(blended(gray, px, 1, factor), 8),
		blue = _mm512_slli_epi32(blended(gray, px, 2, factor), 16),
		all = _mm512_or_si512(blended(gray, px, 0, factor), _mm512_or_si512(green, blue));

	return _mm512_permutexvar_epi8(_mm512_loadu_si512(dense), all);
}

AVX512 void saturate_avx512(uint8_t *rgb, uint32_t n_px, float factor)
{
	const __mmask64 group = (1ull << BYTES) - 1, rest = (1ull << 3 * (n_px % PX_AT_ONCE)) - 1;
	__m512 by = _mm512_set1_ps(factor);
	uint8_t *px = rgb;

	for (uint32_t done = 0; n_px - done >= PX_AT_ONCE; done += PX_AT_ONCE, px += BYTES) {
		__m512i made = saturated(_mm512_maskz_loadu_epi8(group, px), by);

		/* A store with a mask would hold up the next load, which begins within its 64 bytes. */
		_mm256_storeu_si256((void *)px, _mm512_castsi512_si256(made));
		_mm_storeu_si128((void *)(px + 32), _mm512_extracti32x4_epi32(made, 2));
	}
	if (rest)
		_mm512_mask_storeu_epi8(px, rest, saturated(_mm512_maskz_loadu_epi8(rest, px), by));
}
#endif
