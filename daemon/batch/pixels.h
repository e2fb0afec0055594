/* Arrays whose rows are pictures: uint8, height x width x channels as Pillow and OpenCV keep them, or channels x height x
 * width as tensors and CIFAR's files do, of 3 channels or 1; or height x width, of one. With one channel also uint16, int32
 * and float32, which are Pillow's modes I;16, I and F. */
#ifndef BATCHD_PIXELS_H
#define BATCHD_PIXELS_H

#include <stdbool.h>

#include "dataset/field.h"
#include "image/transform/pipeline.h"

struct pixels {
	struct image_form form;
	bool planar; /* channels first */
};

enum { PIXELS_MAX_EDGE = 1 << 16 };

/* What the rows of a field are as pictures; channels last where it could be either. 0, or -EINVAL with a text that says
 * what the rows are instead. */
int pixels_of(const struct field *f, struct pixels *out, char *text, size_t size);
size_t pixels_bytes(const struct pixels *p); /* of a row */
/* Whether pixels_image gives one byte a pixel where the pipeline has RGB: see views_run_image. */
bool pixels_are_gray(const struct pixels *p, enum pixel to);
/* As pixels of a pipeline that takes such rows: RGB, interleaved without gaps, or a single channel of bytes, which is the
 * row itself; or numbers, widened without loss. Any other image is in `memory`, with room for pixel_bytes(to) a pixel. */
struct image pixels_image(const struct pixels *p, uint8_t *row, enum pixel to, uint8_t *memory);

#endif
