/* torchvision's Gaussian kernel, and sums of float32 rows with it. */
#ifndef BATCHD_CONVOLUTION_H
#define BATCHD_CONVOLUTION_H

#include <stddef.h>
#include <stdint.h>

#include "image/kernels/blur.h"

/* Its path is the processor's of the thread that made it. */
struct kernel {
	uint32_t size; /* odd, at most BLUR_MAX_KERNEL */
	float weight[BLUR_MAX_KERNEL];
	void (*convolve)(const struct kernel *k, const float *const *rows, size_t n, float *out);
};

void kernel_init(struct kernel *k, uint32_t size, double sigma);

/* out[x] = the weighted sum of rows[0..size-1][x], for n values. */
static inline void kernel_convolve(const struct kernel *k, const float *const *rows, size_t n, float *out)
{
	k->convolve(k, rows, n, out);
}

/* Position i, which may be up to n - 1 outside 0..n-1, reflected without the edge again. */
static inline uint32_t convolution_reflected(int64_t i, uint32_t n)
{
	i = i < 0 ? -i : i;
	return (uint32_t)(i < n ? i : 2 * ((int64_t)n - 1) - i);
}

#endif
