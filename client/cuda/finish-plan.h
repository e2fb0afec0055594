/* The finishing step of a batch that lies on the GPU: uint8 pixels as the daemon wrote them (NHWC) become float16,
 * bfloat16, float32 or uint8 in either layout, with ToTensor and Normalize, on their way into the trainer's own tensor.
 *
 * The same source is compiled as CUDA (finish.cu) and as C: the tests and the driver double run the C loop below.
 * float32 is bit for bit what the daemon's own finisher writes (daemon/image/finish.c), ((v / 255) - mean) / std with
 * every operation rounded: the same reciprocals of twice the precision where they reproduce all 256 values of every
 * channel, true divisions where they do not. float16 and bfloat16 are that, rounded to nearest even. */
#ifndef BATCHD_FINISH_PLAN_H
#define BATCHD_FINISH_PLAN_H

#include <stdint.h>

#ifdef __CUDACC__
#define FINISH_FN static __host__ __device__ __forceinline__
#else
#include <math.h>
#define FINISH_FN static inline
#endif

enum finish_number { FINISH_TO_UINT8, FINISH_TO_FLOAT16, FINISH_TO_BFLOAT16, FINISH_TO_FLOAT32 };

enum {
	FINISH_MAX_CHANNELS = 4,
	FINISH_THREADS = 256,
	FINISH_GROUPS = 2, /* of 16 bytes of output that a thread has under way at once, where the layout stays the
	                    * same */
};

/* The kernels' one parameter, by value. Both sides are built from the same source, and everything in it has the same
 * size on both. */
struct finish_plan {
	uint64_t in, out;        /* device addresses: n_px * n_channels pixels values, NHWC; the tensor's memory,
	                          * aligned for its numbers */
	uint32_t n_px;           /* of all images together; n_px * n_channels is below 2^31 */
	uint32_t plane;          /* pixels of one image */
	uint32_t plane_inverse, plane_shift; /* to divide by that: finish_image_of */
	uint32_t n_channels;     /* 1 to FINISH_MAX_CHANNELS */
	uint32_t number;         /* enum finish_number */
	uint32_t planar;         /* NCHW; else NHWC */
	uint32_t divides;        /* the reciprocals are not exact for this mean and std */
	float scale_high, scale_low;
	float mean[FINISH_MAX_CHANNELS], std[FINISH_MAX_CHANNELS], std_high[FINISH_MAX_CHANNELS],
		std_low[FINISH_MAX_CHANNELS];
};

/* ---- whose pixel it is ---- */

/* px / plane, exact for any px below 2^31, by a multiplication: a GPU has no division of integers. */
FINISH_FN uint32_t finish_image_of(const struct finish_plan *p, uint32_t px)
{
	return (uint32_t)((uint64_t)px * p->plane_inverse >> p->plane_shift);
}

/* ---- the arithmetic: each operation rounded by itself, never contracted ---- */

#ifdef __CUDA_ARCH__
FINISH_FN float finish_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
FINISH_FN float finish_mul(float a, float b) { return __fmul_rn(a, b); }
FINISH_FN float finish_sub(float a, float b) { return __fsub_rn(a, b); }
FINISH_FN float finish_div(float a, float b) { return __fdiv_rn(a, b); }
#else
/* A multiplication in a statement of its own may still be contracted by a compiler that was told to; volatile keeps it
 * from that. */
FINISH_FN float finish_fma(float a, float b, float c) { return fmaf(a, b, c); }
FINISH_FN float finish_mul(float a, float b) { volatile float r = a * b; return r; }
FINISH_FN float finish_sub(float a, float b) { volatile float r = a - b; return r; }
FINISH_FN float finish_div(float a, float b) { volatile float r = a / b; return r; }
#endif

FINISH_FN float finish_by_division(float v, float mean, float std)
{
	return finish_div(finish_sub(finish_div(v, 255.0f), mean), std);
}

FINISH_FN float finish_by_reciprocal(float v, float scale_high, float scale_low, float mean, float std_high,
				     float std_low)
{
	float centred = finish_sub(finish_fma(v, scale_high, finish_mul(v, scale_low)), mean);

	return finish_fma(centred, std_high, finish_mul(centred, std_low));
}

FINISH_FN float finish_value(const struct finish_plan *p, uint32_t channel, uint32_t v)
{
	return p->divides ? finish_by_division((float)v, p->mean[channel], p->std[channel])
			  : finish_by_reciprocal((float)v, p->scale_high, p->scale_low, p->mean[channel],
						 p->std_high[channel], p->std_low[channel]);
}

#ifndef __CUDACC__
#include <stddef.h>

/* ---- the same in C; in finish-plan.c ---- */

/* Fills in what depends on mean and std (n_channels each; NULL for 0 and 1, which is ToTensor alone) and decides about
 * divides. */
void finish_plan_init(struct finish_plan *p, enum finish_number number, int planar, uint32_t n_channels, uint32_t plane,
		      const float *mean, const float *std);
/* Nearest even, as the GPU's own conversions round. */
uint16_t finish_to_float16(float value);
uint16_t finish_to_bfloat16(float value);
size_t finish_number_bytes(enum finish_number number);
/* Does on the CPU what the kernel does: in and out are host memory in place of the plan's addresses. */
void finish_plan_run(const struct finish_plan *p, const uint8_t *in, void *out);
/* Name of the kernel for this plan. */
void finish_plan_kernel(const struct finish_plan *p, char name[32]);
/* Blocks to launch it with, of FINISH_THREADS threads: as many as there is work for. A GPU begins the next one when one
 * has ended, so none of it rests until the last; blocks that each did several pieces would all have to fit on it at
 * once. */
uint32_t finish_plan_blocks(const struct finish_plan *p);
#endif

#endif
