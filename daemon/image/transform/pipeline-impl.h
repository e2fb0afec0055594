/* What a pipeline consists of, for pipeline.c and views.c. */
#ifndef BATCHD_PIPELINE_IMPL_H
#define BATCHD_PIPELINE_IMPL_H

#include "image/kernels/convert.h"
#include "image/transform/ops.h"
#include "image/transform/spec.h"
#include "image/transform/view.h"

struct pipeline {
	struct spec spec;
	struct convert finish;
	enum dtype dtype;
	enum layout layout;

	/* Of the first view, for all of them; see views.h. */
	struct pipeline **more; /* the second view and those after it; owned */
	unsigned n_more;
	char *text;    /* of all views; owned. NULL: spec.text, one view without a name */
	char name[64]; /* of this view, ended by a zero byte */
};

/* Runs the pixel ops from number `first` on, and writes the row. */
int pipeline_make(const struct pipeline *p, struct op_run *run, struct view *v, unsigned first, void *row,
		  struct image_error *err);

/* Numbers of the channel become pixels, as ToTensor has them, by number * std + mean. */
void pipeline_normalized_by(const struct pipeline *p, uint32_t channel, double *mean, double *std);

#endif
