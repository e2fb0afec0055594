/* torchvision's ElasticTransform: every pixel is taken from a place beside its own, by a smooth field of random numbers. */
#ifndef BATCHD_ELASTIC_H
#define BATCHD_ELASTIC_H

#include <stdbool.h>

#include "image/kernels/image.h"

/* Pairs are x and y. */
struct elastic {
	double alpha[2]; /* most pixels that a place moves, times two; from -1e6 to 1e6 */
	double sigma[2]; /* of the blur that makes the field smooth; both 0: none */
	bool nearest;    /* otherwise bilinear */
	bool filled;     /* places outside the image have the color fill; otherwise they count as black */
	uint8_t fill[3];
	/* The next n numbers of the field of x (0) or y (1), evenly spread in -1..1. */
	void (*numbers)(void *source, unsigned field, float *out, uint32_t n);
	void *source;
};

/* The size of the kernel for this sigma, which is at most BLUR_MAX_KERNEL where sigma is at most 31.75. */
uint32_t elastic_kernel_size(double sigma);
/* dst has the size of src and does not overlap it. Both edges are longer than half of each kernel. Values are within 1
 * of torchvision's for the same numbers; with `nearest`, a place within a thousandth of a pixel of the middle between two
 * pixels may take the other one. 0 or -ENOMEM. */
int elastic(const struct elastic *e, const struct image *src, struct image *dst, struct scratch *room);

#endif
