/* Affine and perspective transforms, byte for byte as Pillow's Image.transform does them (its Geometry.c). */
#ifndef BATCHD_WARP_H
#define BATCHD_WARP_H

#include <stdbool.h>

#include "image/kernels/image.h"
#include "image/kernels/matrix.h"
#include "image/kernels/resample/resample.h"

struct warp {
	/* The pixel at (x, y) of the result, whose middle is (u, v) = (x + 0.5, y + 0.5), is the source at
	 * (m[0] u + m[1] v + m[2], m[3] u + m[4] v + m[5]); with perspective both are divided by m[6] u + m[7] v + 1. */
	double m[8];
	bool perspective;
	enum filter filter; /* nearest, bilinear or bicubic */
	uint8_t fill[3];    /* of places outside the source */
};

/* dst must not overlap src; its size may be another one. */
void warp(const struct warp *w, const struct image *src, struct image *dst);

/* Turns counterclockwise by TURN_90, TURN_180 or TURN_270; TURN_NONE copies. dst has the turned size. */
void warp_turn(enum matrix_turn turn, const struct image *src, struct image *dst);

#endif
