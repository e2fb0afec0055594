/* The AVX2 path of conversion (with FMA and F16C): 16 pixels at a time, eight numbers to a register. */
#if defined(__x86_64__)
#include "image/kernels/convert-paths.h"

#include <cpuid.h>
#include <immintrin.h>

#define TARGET "avx2,fma,f16c"
#define AVX2 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum { PX_AT_ONCE = 16 };

static bool convert_avx2_can_run(void)
{
	unsigned a, b, c = 0, d;

	/* Clang 14's __builtin_cpu_supports does not know f16c. */
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
	       (c & bit_F16C);
}

/* ((v / 255) - mean) / std of eight pixel values. */
INLINE __m256 normalized(const struct convert *f, __m128i bytes, __m256 mean, __m256 std_high, __m256 std_low)
{
	__m256 v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
	__m256 scaled =
		_mm256_fmadd_ps(v, _mm256_set1_ps(f->scale_high), _mm256_mul_ps(v, _mm256_set1_ps(f->scale_low)));
	__m256 centred = _mm256_sub_ps(scaled, mean);

	return _mm256_fmadd_ps(centred, std_high, _mm256_mul_ps(centred, std_low));
}

/* Stores eight numbers at place i of a plane or row. */
INLINE void store(enum convert_type type, void *out, size_t i, __m256 v)
{
	if (type == CONVERT_FLOAT32)
		_mm256_storeu_ps((float *)out + i, v);
	else
		_mm_storeu_si128((void *)((uint16_t *)out + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* 16 pixels, 48 bytes, to one register per channel. */
INLINE void split_channels(const uint8_t *rgb, __m128i out[3])
{
	__m128i a = _mm_loadu_si128((const void *)rgb), b = _mm_loadu_si128((const void *)(rgb + 16));
	__m128i c = _mm_loadu_si128((const void *)(rgb + 32));

	out[0] = _mm_or_si128(
		_mm_or_si128(
			_mm_shuffle_epi8(a, _mm_setr_epi8(0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)),
			_mm_shuffle_epi8(b,
					 _mm_setr_epi8(-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1))),
		_mm_shuffle_epi8(c, _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13)));
	out[1] = _mm_or_si128(
		_mm_or_si128(
			_mm_shuffle_epi8(a, _mm_setr_epi8(1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)),
			_mm_shuffle_epi8(b, _mm_setr_epi8(-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1))),
		_mm_shuffle_epi8(c, _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14)));
	out[2] = _mm_or_si128(
		_mm_or_si128(
			_mm_shuffle_epi8(a, _mm_setr_epi8(2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)),
			_mm_shuffle_epi8(b,
					 _mm_setr_epi8(-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1))),
		_mm_shuffle_epi8(c, _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15)));
}

INLINE void planar_px(const struct convert *f, enum convert_type type, const uint8_t *rgb, void *const planes[3],
		      uint32_t x)
{
	__m128i bytes[3];

	split_channels(rgb + (size_t)x * 3, bytes);
	for (int c = 0; c < 3; c++) {
		__m256 mean = _mm256_set1_ps(f->mean[c]), high = _mm256_set1_ps(f->std_high[c]),
		       low = _mm256_set1_ps(f->std_low[c]);

		if (type == CONVERT_UINT8) {
			_mm_storeu_si128((void *)((uint8_t *)planes[c] + x), bytes[c]);
			continue;
		}
		store(type, planes[c], x, normalized(f, bytes[c], mean, high, low));
		store(type, planes[c], x + 8, normalized(f, _mm_srli_si128(bytes[c], 8), mean, high, low));
	}
}

INLINE void planar_as(const struct convert *f, enum convert_type type, const uint8_t *rgb, void *const planes[3])
{
	uint32_t x = 0;

	for (; x + PX_AT_ONCE <= f->width; x += PX_AT_ONCE)
		planar_px(f, type, rgb, planes, x);
	convert_c_planar(f, rgb, planes, x);
}

INLINE void interleaved_as(const struct convert *f, enum convert_type type, const uint8_t *rgb, void *row)
{
	uint32_t x = 0;

	for (; x + PX_AT_ONCE <= f->width; x += PX_AT_ONCE) {
		for (size_t i = 0; i < PX_AT_ONCE * 3; i += 8) {
			size_t at = (size_t)x * 3 + i;

			store(type, row, at,
			      normalized(f, _mm_loadl_epi64((const void *)(rgb + at)), _mm256_loadu_ps(f->mean16 + i),
					 _mm256_loadu_ps(f->std_high16 + i), _mm256_loadu_ps(f->std_low16 + i)));
		}
	}
	convert_c_interleaved(f, rgb, row, x);
}

INLINE void gray_as(const struct convert *f, enum convert_type type, const uint8_t *gray, void *row)
{
	__m256 mean = _mm256_set1_ps(f->mean[0]), high = _mm256_set1_ps(f->std_high[0]);
	__m256 low = _mm256_set1_ps(f->std_low[0]);
	uint32_t x = 0;

	for (; x + 8 <= f->width; x += 8)
		store(type, row, x, normalized(f, _mm_loadl_epi64((const void *)(gray + x)), mean, high, low));
	convert_c_gray(f, gray, row, x);
}

AVX2 static void planar(const struct convert *f, const uint8_t *rgb, void *const planes[3])
{
	switch (f->type) {
	case CONVERT_UINT8:
		planar_as(f, CONVERT_UINT8, rgb, planes);
		break;
	case CONVERT_FLOAT16:
		planar_as(f, CONVERT_FLOAT16, rgb, planes);
		break;
	case CONVERT_FLOAT32:
		planar_as(f, CONVERT_FLOAT32, rgb, planes);
		break;
	}
}

AVX2 static void interleaved(const struct convert *f, const uint8_t *rgb, void *row)
{
	if (f->type == CONVERT_FLOAT32)
		interleaved_as(f, CONVERT_FLOAT32, rgb, row);
	else
		interleaved_as(f, CONVERT_FLOAT16, rgb, row);
}

AVX2 static void gray(const struct convert *f, const uint8_t *px, void *row)
{
	switch (f->type) {
	case CONVERT_UINT8:
		convert_c_gray(f, px, row, 0);
		break;
	case CONVERT_FLOAT16:
		gray_as(f, CONVERT_FLOAT16, px, row);
		break;
	case CONVERT_FLOAT32:
		gray_as(f, CONVERT_FLOAT32, px, row);
		break;
	}
}

const struct convert_path convert_avx2 = {
	.name = "avx2",
	.can_run = convert_avx2_can_run,
	.planar = planar,
	.interleaved = interleaved,
	.gray = gray,
};
#endif
