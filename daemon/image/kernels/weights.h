/* The windows of an axis, and the weights of eight of its output positions side by side, in the arithmetic and the order
 * of taps.c, so that they are its to the bit. */
#ifndef BATCHD_WEIGHTS_H
#define BATCHD_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "image/kernels/resample/resample.h"

enum { WEIGHTS_AT_ONCE = 8 };

/* An axis as taps.c stretches it. Output position i is number from + i * step. */
struct weights_axis {
	double scale, support; /* source positions per output position; half a window */
	uint32_t in, from, n;
	int32_t step;
};

/* The windows that taps.c reads. first, count: room for n, rounded up to WEIGHTS_AT_ONCE. Returns the largest count, at
 * least 1. */
uint32_t weights_find(const struct weights_axis *axis, uint32_t *first, uint32_t *count);

/* The window of position x, half open. Rounded towards zero, as Pillow does it: a negative value becomes 0 either way.
 * Inline, so that loops over positions are vectorised. */
static inline __attribute__((always_inline)) void weights_window(double scale, double support, int32_t in, int32_t x,
								 int32_t *first, int32_t *end)
{
	double center = ((double)x + 0.5) * scale;
	int32_t from = (int32_t)(center - support + 0.5), to = (int32_t)(center + support + 0.5);

	*first = from < 0 ? 0 : from;
	*end = to > in ? in : to;
}

/* Where the windows of the positions are, in source positions; whole numbers but for the centers. */
struct weights_windows {
	double center[WEIGHTS_AT_ONCE], first[WEIGHTS_AT_ONCE], count[WEIGHTS_AT_ONCE];
};

/* False: this processor or this filter has no such function. */
bool weights_can(enum filter f);
/* n: the largest count. exact, fixed: room for WEIGHTS_ROOM(n) numbers. fixed: weight j of window w, with
 * TAPS_PRECISION_BITS, is at j * WEIGHTS_AT_ONCE + w. */
#define WEIGHTS_ROOM(n) (((size_t)(n) + WEIGHTS_AT_ONCE - 1) * WEIGHTS_AT_ONCE)
void weights_make(enum filter f, double filterscale, const struct weights_windows *windows, uint32_t n, double *exact,
		  int32_t *fixed);
/* k: n weights of the first window, n of the second ... May write WEIGHTS_AT_ONCE numbers more. */
void weights_by_window(const int32_t *fixed, uint32_t n, int32_t *k);

#endif
