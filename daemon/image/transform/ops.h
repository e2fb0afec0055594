/* Runs ops on one image. */
#ifndef BATCHD_OPS_H
#define BATCHD_OPS_H

#include "image/transform/op-types.h"

/* Begins a sample; its processor time counts from here. */
void op_run_init(struct op_run *run, struct pipeline_worker *w, struct sample_key key);
/* The op's choice for an image of this size, from its own random numbers. Ops that are not random choose nothing. 0, or
 * IMAGE_E_FORMAT when the image does not suit the op. */
int op_choose(const struct op *op, struct op_run *run, uint32_t width, uint32_t height, struct op_choice *out,
	      struct image_error *err);
/* Pixel ops, in order. 0, an IMAGE_E_ outcome, -ENOMEM. */
int ops_run(struct op_run *run, const struct op *ops, unsigned n, struct view *v, struct image_error *err);
/* The ops after the pixel ops, on a finished row. */
int ops_finish(struct op_run *run, const struct op *ops, unsigned n, const struct convert *f, void *row,
	       struct image_error *err);

#endif
