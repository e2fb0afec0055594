/* Pixels of a transform inside the source, several at a time. Only warp.c and its siblings include this. */
#ifndef BATCHD_WARP_PATHS_H
#define BATCHD_WARP_PATHS_H

#include "image/kernels/warp.h"

/* Makes pixels x, x + 1 ... of row y, up to n, as long as groups of them are far enough inside the source, or all outside, and returns
 * their number, which may be 0. Writes no byte after them. */
typedef uint32_t warp_run(const struct warp *w, const struct image *src, uint32_t x, uint32_t y, uint32_t n,
			  uint8_t *to);

#if defined(__x86_64__)
extern warp_run warp_bilinear_avx2, warp_bicubic_avx2, warp_bicubic_avx512;
#endif

#endif
