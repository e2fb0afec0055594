/* See weights.h. Every loop over the eight positions has no branch, and compilers are kept from unrolling it, so that they
 * vectorise it. */
#include "image/exact.h"

#include "image/weights.h"

#include <math.h>

#include "image/processor.h"
#include "image/taps.h"

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
#endif

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
