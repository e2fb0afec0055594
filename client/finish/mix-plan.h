/* The finishing step of a batch whose rows are mixed: as convert-plan.h, of two rows at a time. The same source is compiled
 * as CUDA (mix.cuh) and as C. Numbers equal those of the finishing pass on the CPU (finish.h), bit for bit. */
#ifndef BATCHD_MIX_PLAN_H
#define BATCHD_MIX_PLAN_H

#include "batchd.h"
#include "finish/convert-plan.h"

/* Rows that one launch makes: their records travel as its parameter, of which a launch may have 4 KiB. */
enum { MIX_LAUNCH_ROWS = 64 };

/* The kernels' one parameter, by value. */
struct mix_plan {
	struct convert_plan convert; /* in, out: of the batch's row 0, whatever `first` is. n_px plays no part */
	uint32_t width, width_inverse, width_shift; /* pixels of a line; to divide by it: mix_line_of */
	uint32_t first, n_rows;                     /* made by this launch */
	uint32_t n_tiles;                           /* pieces of an image, one for each block */
	struct batchd_mix_row row[MIX_LAUNCH_ROWS]; /* of rows first, first + 1 ... */
};

struct mix_target_plan {
	uint64_t labels, out; /* device addresses of int64[] of the whole batch, and of float32[][n_classes] */
	uint32_t first, n_rows, n_classes;
	float on, off; /* of a class that a row has and has not */
	struct batchd_mix_row row[MIX_LAUNCH_ROWS];
};

/* ---- the arithmetic ---- */

/* px / width, exact for any px below 2^31. */
CONVERT_FN uint32_t mix_line_of(const struct mix_plan *p, uint32_t px)
{
	return (uint32_t)((uint64_t)px * p->width_inverse >> p->width_shift);
}

CONVERT_FN int mix_is_inside(const struct mix_plan *p, const struct batchd_mix_row *r, uint32_t px)
{
	uint32_t y = mix_line_of(p, px), x = px - y * p->width;

	return y >= r->top && y < r->bottom && x >= r->left && x < r->right;
}

CONVERT_FN float mix_blend(float own, float partner, float weight, float partner_weight)
{
	return convert_add(convert_mul(own, weight), convert_mul(partner, partner_weight));
}

CONVERT_FN float mix_target(const struct mix_target_plan *p, const struct batchd_mix_row *r, int is_own,
			    int is_partners)
{
	return mix_blend(is_own ? p->on : p->off, is_partners ? p->on : p->off, r->weight, r->partner_weight);
}

#ifndef __CUDACC__
/* ---- the same in C; in mix-plan.c ---- */

/* convert: as convert_plan_init made it. */
void mix_plan_init(struct mix_plan *p, const struct convert_plan *convert, uint32_t width);
/* Do on the CPU what the kernels do: pointers replace the plans' addresses. */
void mix_plan_run(const struct mix_plan *p, const uint8_t *in, void *out);
void mix_target_plan_run(const struct mix_target_plan *p, const int64_t *labels, float *out);
/* Name of the kernel for this plan; that for targets is "mix_targets". */
void mix_plan_kernel(const struct mix_plan *p, char name[32]);
/* The same for slots that have numbers, in the plan's layout: float16 for a float16 result, otherwise float32. */
void mix_plan_run_numbers(const struct mix_plan *p, const void *in, void *out);
void mix_plan_numbers_kernel(const struct mix_plan *p, char name[32]);
#endif

#endif
