/* Additions have one order on every processor, so sums are the same everywhere. */
#include "image/kernels/exact.h"

#include "image/kernels/convolution.h"

#include <math.h>

#include "image/kernels/processor.h"

/* The kernel is symmetric. */
static inline __attribute__((always_inline)) void convolve(const struct kernel *k, const float *const *rows, size_t n,
							   float *out)
{
	uint32_t middle = k->size / 2;
	const float *from = rows[middle];
	float weight = k->weight[middle];

	for (size_t x = 0; x < n; x++)
		out[x] = from[x] * weight;
	for (uint32_t j = 0; j < middle; j++) {
		const float *first = rows[j], *second = rows[k->size - 1 - j];
		float w = k->weight[j];

		for (size_t x = 0; x < n; x++)
			out[x] += (first[x] + second[x]) * w;
	}
}

static void convolve_plain(const struct kernel *k, const float *const *rows, size_t n, float *out)
{
	convolve(k, rows, n, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void convolve_avx2(const struct kernel *k, const float *const *rows, size_t n,
							  float *out)
{
	convolve(k, rows, n, out);
}
#endif

/* softmax(-(x / sigma)^2) with x evenly spaced between +-(size - 1) / sqrt(8) */
void kernel_init(struct kernel *k, uint32_t size, double sigma)
{
	double limit = (size - 1) / (2.0 * sqrt(2.0)), sum = 0.0, weight[BLUR_MAX_KERNEL];

	k->size = size;
	k->convolve = convolve_plain;
#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX2)
		k->convolve = convolve_avx2;
#endif
	for (uint32_t i = 0; i < size; i++) {
		double x = size > 1 ? -limit + 2.0 * limit * i / (size - 1) : 0.0;

		weight[i] = exp(-(x / sigma) * (x / sigma));
		sum += weight[i];
	}
	for (uint32_t i = 0; i < size; i++)
		k->weight[i] = (float)(weight[i] / sum);
}
