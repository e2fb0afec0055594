/* The AVX-512 path of conversion (with VBMI): 16 pixels at a time, 16 numbers to a register; with masks the last few
 * pixels need no code of their own. */
#if defined(__x86_64__)
#include "image/kernels/convert-paths.h"

#include <immintrin.h>

#define TARGET "avx512f,avx512bw,avx512vl,avx512vbmi"
#define AVX512 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum { PX_AT_ONCE = 16 };

static bool convert_avx512_can_run(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi");
}

/* ((v / 255) - mean) / std of 16 pixel values. */
INLINE __m512 normalized(const struct convert *f, __m512i values, __m512 mean, __m512 std_high, __m512 std_low)
{
	__m512 v = _mm512_cvtepi32_ps(values);
	__m512 scaled =
		_mm512_fmadd_ps(v, _mm512_set1_ps(f->scale_high), _mm512_mul_ps(v, _mm512_set1_ps(f->scale_low)));
	__m512 centred = _mm512_sub_ps(scaled, mean);

	return _mm512_fmadd_ps(centred, std_high, _mm512_mul_ps(centred, std_low));
}

/* Stores the numbers of mask at place i of a plane or row. */
INLINE void store(enum convert_type type, void *out, size_t i, __mmask16 mask, __m512 v)
{
	if (type == CONVERT_FLOAT32)
		_mm512_mask_storeu_ps((float *)out + i, mask, v);
	else
		_mm256_mask_storeu_epi16((uint16_t *)out + i, mask, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* Lane i: byte `channel` of pixel i of the 16 in px, as a 32-bit number. */
INLINE __m512i channel_of(__m512i px, int channel)
{
	const __m512i thirds = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45);

	return _mm512_maskz_permutexvar_epi8(0x1111111111111111ull,
					     _mm512_add_epi32(thirds, _mm512_set1_epi32(channel)), px);
}

INLINE void planar_as(const struct convert *f, enum convert_type type, const uint8_t *rgb, void *const planes[3])
{
	for (uint32_t x = 0; x < f->width; x += PX_AT_ONCE) {
		uint32_t n = f->width - x < PX_AT_ONCE ? f->width - x : PX_AT_ONCE;
		__m512i px = _mm512_maskz_loadu_epi8((1ull << 3 * n) - 1, rgb + (size_t)x * 3);
		__mmask16 mask = (__mmask16)((1u << n) - 1);

		for (int c = 0; c < 3; c++) {
			__m512i values = channel_of(px, c);

			if (type == CONVERT_UINT8)
				_mm_mask_storeu_epi8((uint8_t *)planes[c] + x, mask, _mm512_cvtepi32_epi8(values));
			else
				store(type, planes[c], x, mask,
				      normalized(f, values, _mm512_set1_ps(f->mean[c]), _mm512_set1_ps(f->std_high[c]),
						 _mm512_set1_ps(f->std_low[c])));
		}
	}
}

INLINE void interleaved_as(const struct convert *f, enum convert_type type, const uint8_t *rgb, void *row)
{
	size_t n_bytes = (size_t)f->width * 3;

	for (size_t at = 0, phase = 0; at < n_bytes; at += 16, phase = phase == 32 ? 0 : phase + 16) {
		size_t n = n_bytes - at < 16 ? n_bytes - at : 16;
		__mmask16 mask = (__mmask16)((1u << n) - 1);
		__m512i values = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, rgb + at));

		store(type, row, at, mask,
		      normalized(f, values, _mm512_loadu_ps(f->mean16 + phase), _mm512_loadu_ps(f->std_high16 + phase),
				 _mm512_loadu_ps(f->std_low16 + phase)));
	}
}

INLINE void gray_as(const struct convert *f, enum convert_type type, const uint8_t *gray, void *row)
{
	__m512 mean = _mm512_set1_ps(f->mean[0]), high = _mm512_set1_ps(f->std_high[0]);
	__m512 low = _mm512_set1_ps(f->std_low[0]);

	for (uint32_t x = 0; x < f->width; x += PX_AT_ONCE) {
		uint32_t n = f->width - x < PX_AT_ONCE ? f->width - x : PX_AT_ONCE;
		__mmask16 mask = (__mmask16)((1u << n) - 1);
		__m512i values = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, gray + x));

		store(type, row, x, mask, normalized(f, values, mean, high, low));
	}
}

AVX512 static void planar(const struct convert *f, const uint8_t *rgb, void *const planes[3])
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

AVX512 static void interleaved(const struct convert *f, const uint8_t *rgb, void *row)
{
	if (f->type == CONVERT_FLOAT32)
		interleaved_as(f, CONVERT_FLOAT32, rgb, row);
	else
		interleaved_as(f, CONVERT_FLOAT16, rgb, row);
}

AVX512 static void gray(const struct convert *f, const uint8_t *px, void *row)
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

const struct convert_path convert_avx512 = {
	.name = "avx512",
	.can_run = convert_avx512_can_run,
	.planar = planar,
	.interleaved = interleaved,
	.gray = gray,
};
#endif
