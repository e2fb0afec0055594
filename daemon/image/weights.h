/* The weights of eight output positions of an axis side by side, in the arithmetic and the order of taps.c, so that they
 * are its weights to the bit. */
#ifndef BATCHD_WEIGHTS_H
#define BATCHD_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "image/resample.h"

enum { WEIGHTS_AT_ONCE = 8 };

/* Where the windows of the positions are, in source positions; whole numbers but for the centers. */
struct weights_windows {
	double center[WEIGHTS_AT_ONCE], first[WEIGHTS_AT_ONCE], count[WEIGHTS_AT_ONCE];
};

/* False: this processor or this filter has no such function. */
bool weights_can(enum filter f);
/* n: the largest count. exact, fixed: room for n * WEIGHTS_AT_ONCE numbers. fixed: weight j of window w, with
 * TAPS_PRECISION_BITS, is at j * WEIGHTS_AT_ONCE + w. */
void weights_make(enum filter f, double filterscale, const struct weights_windows *windows, uint32_t n, double *exact,
		  int32_t *fixed);

#endif
