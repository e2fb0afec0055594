/* Moves pixels: windows that may reach over the edge, and mirroring. */
#ifndef BATCHD_GEOMETRY_H
#define BATCHD_GEOMETRY_H

#include <stdbool.h>

#include "image/kernels/image.h"
#include "image/kernels/pixel.h"

/* The pixels outside the image. As torchvision's padding_mode, which is numpy.pad's: */
enum pad_mode {
	PAD_CONSTANT,  /* a colour */
	PAD_EDGE,      /* the last pixel */
	PAD_REFLECT,   /* mirrored, without the last pixel again */
	PAD_SYMMETRIC, /* mirrored, with the last pixel again */
};

/* dst(x, y) = src(left + x, top + y) for every pixel of dst; left and top may be negative and the window may be larger
 * than src. columns: room for index tables. dst and src must not overlap. Returns 0 or -ENOMEM. */
int image_window(const struct image *src, int32_t left, int32_t top, enum pad_mode mode, const uint8_t fill[3],
		 struct image *dst, struct scratch *columns);

/* The same for pixels of another kind, and fill of one such pixel. */
int image_window_as(enum pixel pixel, const struct image *src, int32_t left, int32_t top, enum pad_mode mode,
		    const void *fill, struct image *dst, struct scratch *columns);

/* dst = src, mirrored as asked. Same sizes, no overlap. */
void image_copy(const struct image *src, bool flip_horizontal, bool flip_vertical, struct image *dst);
/* One row of n_px pixels, last first. No overlap. */
void pixels_mirror(const uint8_t *src, uint8_t *dst, uint32_t n_px);

#endif
