/* The finishing step of a batch that lies on the GPU: uint8 pixels as the daemon wrote them (NHWC) become float16,
 * bfloat16, float32 or uint8 in either layout, with ToTensor and Normalize, on their way into the trainer's own tensor.
 *
 * The same source is compiled as CUDA (convert.cu) and as C: the tests and the fake driver run the C loop below.
 * float32 results equal, bit for bit, those of the daemon's own finisher (daemon/image/kernels/convert.c): ((v / 255) -
 * mean) / std with every operation rounded. Reciprocals of twice the precision are used where they reproduce all 256
 * values of every channel, true divisions elsewhere. float16 and bfloat16 are these values, rounded to nearest even. */
#ifndef BATCHD_CONVERT_PLAN_H
#define BATCHD_CONVERT_PLAN_H

#include <stdint.h>

#ifdef __CUDACC__
#define CONVERT_FN static __host__ __device__ __forceinline__
#else
#include <math.h>
#define CONVERT_FN static inline
#endif

enum convert_number { CONVERT_TO_UINT8, CONVERT_TO_FLOAT16, CONVERT_TO_BFLOAT16, CONVERT_TO_FLOAT32 };

enum {
	CONVERT_MAX_CHANNELS = 4,
	CONVERT_THREADS = 256,
	CONVERT_GROUPS = 2, /* of 16 bytes of output that a thread has under way at once, where the layout stays the
	                     * same */
};

/* The kernels' one parameter, by value. Both sides are built from the same source, and everything in it has the same
 * size on both. */
struct convert_plan {
	uint64_t in, out; /* device addresses. in: n_px * n_channels values, NHWC; out: the tensor's memory, aligned for
	                   * its numbers */
	uint32_t n_px;    /* of all images together; n_px * n_channels is below 2^31 */
	uint32_t plane;   /* pixels of one image */
	uint32_t plane_inverse, plane_shift; /* to divide by plane: convert_image_of */
	uint32_t n_channels;                 /* 1 to CONVERT_MAX_CHANNELS */
	uint32_t number;                     /* enum convert_number */
	uint32_t planar;                     /* NCHW; else NHWC */
	uint32_t divides;                    /* the reciprocals are not exact for this mean and std */
	float scale_high, scale_low;
	float mean[CONVERT_MAX_CHANNELS], std[CONVERT_MAX_CHANNELS], std_high[CONVERT_MAX_CHANNELS],
		std_low[CONVERT_MAX_CHANNELS];
};

/* ---- which image a pixel belongs to ---- */

/* px / plane, exact for any px below 2^31, by a multiplication: a GPU has no division of integers. */
CONVERT_FN uint32_t convert_image_of(const struct convert_plan *p, uint32_t px)
{
	return (uint32_t)((uint64_t)px * p->plane_inverse >> p->plane_shift);
}

/* ---- the arithmetic: each operation rounded by itself, never contracted ---- */

#ifdef __CUDA_ARCH__
CONVERT_FN float convert_fma(float a, float b, float c)
{
	return __fmaf_rn(a, b, c);
}
CONVERT_FN float convert_mul(float a, float b)
{
	return __fmul_rn(a, b);
}
CONVERT_FN float convert_add(float a, float b)
{
	return __fadd_rn(a, b);
}
CONVERT_FN float convert_sub(float a, float b)
{
	return __fsub_rn(a, b);
}
CONVERT_FN float convert_div(float a, float b)
{
	return __fdiv_rn(a, b);
}
#else
/* A compiler that was told to contract operations may contract even a multiplication in a statement of its own;
 * volatile prevents that. */
CONVERT_FN float convert_fma(float a, float b, float c)
{
	return fmaf(a, b, c);
}
CONVERT_FN float convert_mul(float a, float b)
{
	volatile float r = a * b;
	return r;
}
CONVERT_FN float convert_add(float a, float b)
{
	volatile float r = a + b;
	return r;
}
CONVERT_FN float convert_sub(float a, float b)
{
	volatile float r = a - b;
	return r;
}
CONVERT_FN float convert_div(float a, float b)
{
	volatile float r = a / b;
	return r;
}
#endif

CONVERT_FN float convert_by_division(float v, float mean, float std)
{
	return convert_div(convert_sub(convert_div(v, 255.0f), mean), std);
}

CONVERT_FN float convert_by_reciprocal(float v, float scale_high, float scale_low, float mean, float std_high,
				       float std_low)
{
	float centred = convert_sub(convert_fma(v, scale_high, convert_mul(v, scale_low)), mean);

	return convert_fma(centred, std_high, convert_mul(centred, std_low));
}

CONVERT_FN float convert_value(const struct convert_plan *p, uint32_t channel, uint32_t v)
{
	return p->divides ? convert_by_division((float)v, p->mean[channel], p->std[channel])
			  : convert_by_reciprocal((float)v, p->scale_high, p->scale_low, p->mean[channel],
						  p->std_high[channel], p->std_low[channel]);
}

#ifndef __CUDACC__
#include <stddef.h>

/* ---- the same in C; in convert-plan.c ---- */

/* Fills in the fields that depend on mean and std (n_channels each; NULL for 0 and 1, which is ToTensor alone), divides
 * included. */
void convert_plan_init(struct convert_plan *p, enum convert_number number, int planar, uint32_t n_channels,
		       uint32_t plane, const float *mean, const float *std);
/* Nearest even, as the GPU's own conversions round. */
uint16_t convert_to_float16(float value);
uint16_t convert_to_bfloat16(float value);
float convert_from_float16(uint16_t half);
size_t convert_number_bytes(enum convert_number number);
/* Does on the CPU what the kernel does: in and out are host memory and replace the plan's addresses. */
void convert_plan_run(const struct convert_plan *p, const uint8_t *in, void *out);
/* Name of the kernel for this plan. */
void convert_plan_kernel(const struct convert_plan *p, char name[32]);
/* Blocks to launch it with, of CONVERT_THREADS threads: one for each piece of work. A GPU starts the next block when
 * one has ended, so it stays busy until the last; blocks that each did several pieces would all have to fit on it at
 * once. */
uint32_t convert_plan_blocks(const struct convert_plan *p);
#endif

#endif
