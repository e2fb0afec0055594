/* Decodes a rectangle of the compressed rows of a PNG without libpng: plain files, faster, to the same pixels.
 *
 * It inflates up to the last wanted row and undoes filters up to the last wanted column, in memory of a few rows. */
#ifndef BATCHD_PNG_ROWS_H
#define BATCHD_PNG_ROWS_H

#include "image/formats/png-chunks.h"
#include "image/kernels/row-sink.h"
#include "base/cpu-budget.h"

enum {
	PNG_ROWS_UNSURE = 1, /* an unusual or damaged file: use libpng and its result */
};

struct png_rows {
	struct scratch inflate; /* a struct inflate */
	struct scratch stream;  /* the compressed rows, joined and padded */
	struct scratch window;  /* inflated bytes */
	struct scratch lines;   /* the row in progress, and the row above it */
};

/* `want`, which lies in the layout's frame, is decoded into `out` of the same size, or goes to the bands if they are not
 * NULL. Returns 0, PNG_ROWS_UNSURE (`out` then holds anything, and the bands' rows do not count) or -ENOMEM. */
int png_rows_read(struct png_rows *r, const struct png_layout *l, const uint8_t *bytes, size_t n_bytes,
		  struct region_px want, struct row_bands *bands, struct image *out, struct cpu_budget *budget);
void png_rows_trim(struct png_rows *r, size_t keep_bytes);
void png_rows_finish(struct png_rows *r);

#endif
