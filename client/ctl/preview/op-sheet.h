/* The columns of a preview of one op: the picture before it, then the op at several magnitudes, or, if it has none, as it is
 * drawn in several epochs. */
#ifndef BATCHCTL_OP_SHEET_H
#define BATCHCTL_OP_SHEET_H

#include <stdint.h>

#include "image/transform/pipeline.h"

enum { OP_SHEET_COLUMNS = 7, OP_SHEET_PX = 160 };

struct op_sheet {
	unsigned n;
	struct pipeline *pipelines[OP_SHEET_COLUMNS];
	char captions[OP_SHEET_COLUMNS][64];
	uint64_t epochs[OP_SHEET_COLUMNS]; /* beyond the preview's own */
};

/* op: a name, which is shown over its magnitudes where it has one, or an op with its arguments in JSON. 0, -EINVAL with
 * err->text, -ENOMEM. The caller finishes *s after success. */
int op_sheet_make(struct op_sheet *s, const char *op, struct pipeline_error *err);
void op_sheet_finish(struct op_sheet *s);

#endif
