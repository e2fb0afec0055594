/* Pillow's box filters for radii below two, which are blurs of a sigma of up to 2.4 or so: without running sums, both
 * axes in one sweep over the image. Only blur-pillow.c and its siblings include this. */
#ifndef BATCHD_BOX_SMALL_H
#define BATCHD_BOX_SMALL_H

#include <stddef.h>
#include <stdint.h>

#include "image/kernels/box-paths.h"
#include "image/kernels/image.h"

enum {
	BOX_SMALL_MAX_RADIUS = 1,
	BOX_SMALL_WINDOW = 2 * BOX_SMALL_MAX_RADIUS + 3, /* with the two pixels at its ends */
	BOX_SMALL_STEP = 32,                             /* words that a path may write and read beyond the last one */
};

/* Three passes of each box along its axis, in place; NULL: none along this axis. Radii are at most
 * BOX_SMALL_MAX_RADIUS. 0 or -ENOMEM. */
int box_small(struct image *i, const struct box *x, const struct box *y, struct scratch *room);

/* What a processor has for it. A word has a byte's value; n: how many. Whole steps of words may be read and written. */
struct box_small_path {
	/* window: the words at distances -radius - 1 to radius + 1 from the first result */
	void (*pass)(const struct box *b, const uint16_t *const window[BOX_SMALL_WINDOW], uint16_t *out, size_t n);
	void (*widen)(const uint8_t *from, uint16_t *to, size_t n);
	void (*narrow)(const uint16_t *from, uint8_t *to, size_t n);
};

#if defined(__x86_64__)
extern const struct box_small_path box_small_avx2, box_small_avx512;
#endif

#endif
