/* The AVX-512 paths of color_saturation, color_grayscale and gray_sum (with VBMI and VNNI): greys of 16 pixels, and their
 * blend with these in one pass. The arithmetic is gray.c's and blend.c's. */
#if defined(__x86_64__)
#include "image/kernels/exact.h"

#include "image/kernels/gray.h"

#include <immintrin.h>

#define TARGET "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni"
#define AVX512 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum { PX_AT_ONCE = 16, BYTES = 3 * PX_AT_ONCE };

/* In 16 bits each: red and green, green and blue of each lane's pixel. */
struct pairs {
	__m512i red_green, green_blue;
};

INLINE struct pairs pairs_of(__m512i px)
{
	const __mmask64 words = 0x5555555555555555;
	const __m512i thirds = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45);
	__m512i places = _mm512_or_si512(thirds, _mm512_slli_epi32(thirds, 16));

	return (struct pairs){
		_mm512_maskz_permutexvar_epi8(words, _mm512_add_epi32(places, _mm512_set1_epi32(1 << 16)), px),
		_mm512_maskz_permutexvar_epi8(words, _mm512_add_epi32(places, _mm512_set1_epi32(2 << 16 | 1)), px),
	};
}

INLINE __m512i grays_of(struct pairs px)
{
	__m512i sum =
		_mm512_dpwssd_epi32(_mm512_set1_epi32(0x8000), px.red_green, _mm512_set1_epi32(19235 << 16 | 19595));

	sum = _mm512_dpwssd_epi32(sum, px.green_blue, _mm512_set1_epi32(7471 << 16 | 19235));
	return _mm512_srli_epi32(sum, 16);
}

/* The packing that follows clips. */
INLINE __m512i blended(__m512 gray, __m512i channel, __m512 factor)
{
	__m512 own = _mm512_cvtepi32_ps(channel);

	return _mm512_cvttps_epi32(_mm512_add_ps(gray, _mm512_mul_ps(factor, _mm512_sub_ps(own, gray))));
}

/* The bytes at these places, 48 of them. */
INLINE __m512i dense(__m512i bytes, const uint8_t places[BYTES])
{
	return _mm512_permutexvar_epi8(_mm512_maskz_loadu_epi8((1ull << BYTES) - 1, places), bytes);
}

INLINE __m512i saturated(__m512i px, __m512 factor)
{
	/* Packing leaves in every 16 bytes four reds, four greens and four blues. */
	static const uint8_t places[BYTES] = { 0,  4,  8,  1,  5,  9,  2,  6,  10, 3,  7,  11, 16, 20, 24, 17,
					       21, 25, 18, 22, 26, 19, 23, 27, 32, 36, 40, 33, 37, 41, 34, 38,
					       42, 35, 39, 43, 48, 52, 56, 49, 53, 57, 50, 54, 58, 51, 55, 59 };
	struct pairs own = pairs_of(px);
	__m512 gray = _mm512_cvtepi32_ps(grays_of(own));
	__m512i red = blended(gray, _mm512_and_si512(own.red_green, _mm512_set1_epi32(0xffff)), factor),
		green = blended(gray, _mm512_srli_epi32(own.red_green, 16), factor),
		blue = blended(gray, _mm512_srli_epi32(own.green_blue, 16), factor);

	return dense(_mm512_packus_epi16(_mm512_packs_epi32(red, green), _mm512_packs_epi32(blue, blue)), places);
}

INLINE __m512i grayed(__m512i px)
{
	static const uint8_t places[BYTES] = { 0,  0,  0,  4,  4,  4,  8,  8,  8,  12, 12, 12, 16, 16, 16, 20,
					       20, 20, 24, 24, 24, 28, 28, 28, 32, 32, 32, 36, 36, 36, 40, 40,
					       40, 44, 44, 44, 48, 48, 48, 52, 52, 52, 56, 56, 56, 60, 60, 60 };

	return dense(grays_of(pairs_of(px)), places);
}

/* A store with a mask would hold up the next load, which begins within its 64 bytes. */
INLINE void store_group(uint8_t *px, __m512i made)
{
	_mm256_storeu_si256((void *)px, _mm512_castsi512_si256(made));
	_mm_storeu_si128((void *)(px + 32), _mm512_extracti32x4_epi32(made, 2));
}

AVX512 void saturate_avx512(uint8_t *rgb, uint32_t n_px, float factor)
{
	const __mmask64 group = (1ull << BYTES) - 1, rest = (1ull << 3 * (n_px % PX_AT_ONCE)) - 1;
	__m512 by = _mm512_set1_ps(factor);
	uint8_t *px = rgb;

	for (uint32_t done = 0; n_px - done >= PX_AT_ONCE; done += PX_AT_ONCE, px += BYTES)
		store_group(px, saturated(_mm512_maskz_loadu_epi8(group, px), by));
	if (rest)
		_mm512_mask_storeu_epi8(px, rest, saturated(_mm512_maskz_loadu_epi8(rest, px), by));
}

AVX512 void grayscale_avx512(uint8_t *rgb, uint32_t n_px)
{
	const __mmask64 group = (1ull << BYTES) - 1, rest = (1ull << 3 * (n_px % PX_AT_ONCE)) - 1;
	uint8_t *px = rgb;

	for (uint32_t done = 0; n_px - done >= PX_AT_ONCE; done += PX_AT_ONCE, px += BYTES)
		store_group(px, grayed(_mm512_maskz_loadu_epi8(group, px)));
	if (rest)
		_mm512_mask_storeu_epi8(px, rest, grayed(_mm512_maskz_loadu_epi8(rest, px)));
}

AVX512 uint32_t gray_sum_avx512(const uint8_t *rgb, uint32_t n_px)
{
	const __mmask64 group = (1ull << BYTES) - 1, rest = (1ull << 3 * (n_px % PX_AT_ONCE)) - 1;
	__m512i sums = _mm512_setzero_si512();
	uint32_t done;

	for (done = 0; n_px - done >= PX_AT_ONCE; done += PX_AT_ONCE, rgb += BYTES)
		sums = _mm512_add_epi32(sums, grays_of(pairs_of(_mm512_maskz_loadu_epi8(group, rgb))));
	if (rest) /* missing pixels are black */
		sums = _mm512_add_epi32(sums, grays_of(pairs_of(_mm512_maskz_loadu_epi8(rest, rgb))));
	return (uint32_t)_mm512_reduce_add_epi32(sums);
}
#endif
