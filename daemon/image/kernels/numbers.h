/* Images of one number for each pixel (enum pixel but RGB): resampling, and their way into the batch. */
#ifndef BATCHD_IMAGE_NUMBERS_H
#define BATCHD_IMAGE_NUMBERS_H

#include <stdbool.h>

#include "image/kernels/image.h"
#include "image/kernels/pixel.h"
#include "image/kernels/resample/resample.h"

enum { NUMBERS_MAX_BETWEEN = 1 << 26 }; /* pixels between the two passes */

/* The part of the source that numbers_resample reads. */
struct region_px numbers_needs(const struct resample_request *q, enum pixel pixel);

/* As PIL.Image.crop(box).resize(size, filter) of an image in this mode, of which `keep` is wanted; the rows into dst, the
 * last one first with flip_vertical. src holds at least numbers_needs, and begins at src_origin of the full image.
 * memory: for the weights, and for the numbers between the passes. Returns 0, -ENOMEM, or IMAGE_E_LIMIT when the two
 * sizes need more than NUMBERS_MAX_BETWEEN pixels between the passes. */
int numbers_resample(const struct resample_request *q, enum pixel pixel, const struct image *src,
		     struct region_px src_origin, bool flip_vertical, struct scratch memory[2], struct image *dst);

#endif
