/* Applies an op to a view in two steps: the random choice, from sizes and random numbers alone; then the change, from
 * the choice alone. */
#ifndef BATCHD_OPS_H
#define BATCHD_OPS_H

#include "pipeline/random.h"
#include "pipeline/spec.h"
#include "pipeline/view.h"

/* An op's decision for one image. Only the fields of its kind are set. */
struct op_choice {
	bool happens;             /* flips, RandomGrayscale */
	int32_t left, top;        /* RandomCrop: in the unpadded image; may be negative */
	struct region_px crop;    /* RandomResizedCrop */
	uint8_t order[N_JITTERS]; /* ColorJitter: which comes first, second... */
	float factor[N_JITTERS];  /* of those given */
};

/* Deterministic ops choose nothing. 0, or IMAGE_E_FORMAT when the image is too small for a RandomCrop. */
int op_choose(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
	      struct image_error *err);
/* 0, an IMAGE_E_ outcome, -ENOMEM. */
int op_apply(const struct op *op, const struct op_choice *choice, struct view *v, struct pipeline_worker *w,
	     struct image_error *err);

#endif
