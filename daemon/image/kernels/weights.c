/* See weights.h. Every loop over the eight positions has no branch, and compilers are kept from unrolling it, so that they
 * vectorise it. */
#include "image/kernels/exact.h"

#include "image/kernels/weights.h"

#include <math.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "image/kernels/processor.h"
#include "image/kernels/taps.h"

#define BODY static inline __attribute__((always_inline))

BODY double weights_bilinear(double x)
{
	x = fabs(x);
	return x < 1.0 ? 1.0 - x : 0.0;
}

BODY double weights_bicubic(double x)
{
	const double a = -0.5;
	double near, far;

	x = fabs(x);
	near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
	far = (((x - 5) * x + 8) * x - 4) * a;
	far = x < 2.0 ? far : 0.0;
	return x < 1.0 ? near : far;
}

BODY uint32_t find(const struct weights_axis *axis, uint32_t *restrict first, uint32_t *restrict count)
{
	int32_t most[WEIGHTS_AT_ONCE] = { 1, 1, 1, 1, 1, 1, 1, 1 }, last = (int32_t)axis->n - 1;
	int32_t from = (int32_t)axis->from, in = (int32_t)axis->in, width = 1;
	const double scale = axis->scale, support = axis->support;

	for (int32_t i = 0; i <= last; i += WEIGHTS_AT_ONCE) {
#pragma GCC unroll 1
		for (int32_t w = 0; w < WEIGHTS_AT_ONCE; w++) {
			int32_t at = i + w < last ? i + w : last, begin, end;

			weights_window(scale, support, in, from + at * axis->step, &begin, &end);
			first[i + w] = (uint32_t)begin;
			count[i + w] = (uint32_t)(end - begin);
			most[w] = end - begin > most[w] ? end - begin : most[w];
		}
	}
	for (int w = 0; w < WEIGHTS_AT_ONCE; w++)
		width = most[w] > width ? most[w] : width;
	return (uint32_t)width;
}

/* The windows that are shorter than n end with zeros, which do not change their sums. */
BODY void weigh_eight(double (*filter)(double), double filterscale, const struct weights_windows *windows, uint32_t n,
		      double *restrict exact, int32_t *restrict fixed)
{
	double inverse = 1.0 / filterscale, sum[WEIGHTS_AT_ONCE] = { 0 };

	for (int32_t j = 0; j < (int32_t)n; j++) {
		double *to = exact + (size_t)j * WEIGHTS_AT_ONCE, at = (double)j;

#pragma GCC unroll 1
		for (int w = 0; w < WEIGHTS_AT_ONCE; w++) {
			double v = filter((at + windows->first[w] - windows->center[w] + 0.5) * inverse);

			to[w] = at < windows->count[w] ? v : 0.0;
		}
#pragma GCC unroll 1
		for (int w = 0; w < WEIGHTS_AT_ONCE; w++)
			sum[w] += to[w];
	}
	for (int w = 0; w < WEIGHTS_AT_ONCE; w++)
		sum[w] = sum[w] != 0.0 ? sum[w] : 1.0;
	for (int32_t j = 0; j < (int32_t)n; j++)
		for (int w = 0; w < WEIGHTS_AT_ONCE; w++) {
			double v = exact[j * WEIGHTS_AT_ONCE + w] / sum[w];

			fixed[j * WEIGHTS_AT_ONCE + w] =
				(int32_t)((v < 0 ? -0.5 : 0.5) + v * (1 << TAPS_PRECISION_BITS));
		}
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

AVX2 static uint32_t find_avx2(const struct weights_axis *axis, uint32_t *first, uint32_t *count)
{
	return find(axis, first, count);
}

AVX512 static uint32_t find_avx512(const struct weights_axis *axis, uint32_t *first, uint32_t *count)
{
	return find(axis, first, count);
}

AVX2 static void bilinear_avx2(double filterscale, const struct weights_windows *windows, uint32_t n, double *exact,
			       int32_t *fixed)
{
	weigh_eight(weights_bilinear, filterscale, windows, n, exact, fixed);
}

AVX2 static void bicubic_avx2(double filterscale, const struct weights_windows *windows, uint32_t n, double *exact,
			      int32_t *fixed)
{
	weigh_eight(weights_bicubic, filterscale, windows, n, exact, fixed);
}

AVX512 static void bilinear_avx512(double filterscale, const struct weights_windows *windows, uint32_t n, double *exact,
				   int32_t *fixed)
{
	weigh_eight(weights_bilinear, filterscale, windows, n, exact, fixed);
}

AVX512 static void bicubic_avx512(double filterscale, const struct weights_windows *windows, uint32_t n, double *exact,
				  int32_t *fixed)
{
	weigh_eight(weights_bicubic, filterscale, windows, n, exact, fixed);
}

/* Eight numbers of each of eight rows, turned. */
AVX2 static inline void turn(const int32_t *from, __m256i to[8])
{
	__m256i pairs[8], fours[8];

	for (int i = 0; i < 8; i += 2) {
		__m256i a = _mm256_loadu_si256((const void *)(from + 8 * i)),
			b = _mm256_loadu_si256((const void *)(from + 8 * i + 8));

		pairs[i] = _mm256_unpacklo_epi32(a, b);
		pairs[i + 1] = _mm256_unpackhi_epi32(a, b);
	}
	for (int i = 0; i < 8; i += 4)
		for (int half = 0; half < 2; half++) {
			fours[i + 2 * half] = _mm256_unpacklo_epi64(pairs[i + half], pairs[i + half + 2]);
			fours[i + 2 * half + 1] = _mm256_unpackhi_epi64(pairs[i + half], pairs[i + half + 2]);
		}
	for (int i = 0; i < 4; i++) {
		to[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
		to[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
	}
}

/* What is written beyond a row is written again with the next one: the last of several eights come first. */
AVX2 static void by_window_avx2(const int32_t *fixed, uint32_t n, int32_t *k)
{
	for (uint32_t j = (n - 1) / 8 * 8 + 8; j > 0; j -= 8) {
		__m256i rows[8];

		turn(fixed + (size_t)(j - 8) * WEIGHTS_AT_ONCE, rows);
		for (uint32_t w = 0; w < 8; w++)
			_mm256_storeu_si256((void *)(k + (size_t)w * n + j - 8), rows[w]);
	}
}
#endif

uint32_t weights_find(const struct weights_axis *axis, uint32_t *first, uint32_t *count)
{
#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX512)
		return find_avx512(axis, first, count);
	if (processor_path() >= PROCESSOR_AVX2)
		return find_avx2(axis, first, count);
#endif
	return find(axis, first, count);
}

void weights_by_window(const int32_t *fixed, uint32_t n, int32_t *k)
{
#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX2) {
		by_window_avx2(fixed, n, k);
		return;
	}
#endif
	for (uint32_t w = 0; w < WEIGHTS_AT_ONCE; w++)
		for (uint32_t j = 0; j < n; j++)
			k[(size_t)w * n + j] = fixed[(size_t)j * WEIGHTS_AT_ONCE + w];
}

bool weights_can(enum filter f)
{
	return processor_path() >= PROCESSOR_AVX2 && (f == FILTER_BILINEAR || f == FILTER_BICUBIC);
}

void weights_make(enum filter f, double filterscale, const struct weights_windows *windows, uint32_t n, double *exact,
		  int32_t *fixed)
{
#if defined(__x86_64__)
	bool widest = processor_path() >= PROCESSOR_AVX512;

	if (f == FILTER_BILINEAR)
		(widest ? bilinear_avx512 : bilinear_avx2)(filterscale, windows, n, exact, fixed);
	else
		(widest ? bicubic_avx512 : bicubic_avx2)(filterscale, windows, n, exact, fixed);
#else
	weigh_eight(f == FILTER_BILINEAR ? weights_bilinear : weights_bicubic, filterscale, windows, n, exact, fixed);
#endif
}
