/* A thumbnail of a row of a batch: RGB, without ToTensor and Normalize, made smaller by a whole factor.
 *
 * Of a factor up to 4 each pixel is the mean of its block, as Pillow's Image.reduce has it; of a greater one the mean of
 * 4 x 4 places in the block. So the time does not grow with the size of the row. */
#ifndef BATCHD_THUMBNAIL_H
#define BATCHD_THUMBNAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "image/transform/pipeline.h"

enum { THUMBNAIL_EDGE = 96 };

/* How the numbers of a row are to be read. */
struct thumbnail_form {
	enum dtype dtype;
	bool planar;  /* CHW, otherwise HWC */
	bool stretch; /* the least number becomes black, the greatest white */
	uint32_t width, height, n_channels;
	double scale[3], offset[3]; /* pixel = number * scale + offset, of values 0 to 255 */
};

struct thumbnail {
	uint32_t width, height;                           /* at most THUMBNAIL_EDGE */
	uint8_t rgb[THUMBNAIL_EDGE * THUMBNAIL_EDGE * 3]; /* width * height pixels */
};

/* Of a view (views_at) of a pipeline. */
void thumbnail_form_of_view(const struct pipeline *view, struct thumbnail_form *out);
/* Of an array that is delivered as it is. shape: of a row. False: it is no picture. */
bool thumbnail_form_of_array(enum dtype dtype, unsigned n_dims, const uint32_t *shape, struct thumbnail_form *out);

/* row: aligned for its type. */
void thumbnail_make(const struct thumbnail_form *f, const void *row, struct thumbnail *out);

#endif
