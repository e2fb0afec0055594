/* One axis of a resampling: the source positions that each output position reads, with their weights. */
#ifndef BATCHD_TAPS_H
#define BATCHD_TAPS_H

#include <stdbool.h>

#include "image/kernels/image.h"
#include "image/kernels/resample/resample.h"

enum {
	TAPS_PRECISION_BITS = 22
}; /* weights are fixed point: 1.0 is 1 << 22; 8 bits of pixel and 2 of overflow
                                    * remain */

/* The request for one axis. Compared as a whole to find out whether the last result is still valid. */
struct taps_request {
	enum filter filter;
	uint32_t in, out;    /* size of the whole source and of the whole result, in pixels */
	uint32_t from, n;    /* output positions wanted: from .. from + n - 1 */
	uint32_t avail_from; /* source positions that are in memory: avail_from .. avail_from + n_avail - 1 */
	uint32_t n_avail;
	bool reverse; /* last wanted position first: a mirrored result at no cost */
};

/* Position i reads sources avail_from + first[i] .. + count[i] - 1 with weights k[i * width ..]. After count[i] the
 * weights are 0, and first[i] + width never exceeds n_avail, so that SIMD code may read width positions. */
struct taps {
	struct taps_request made; /* the request that the rest answers; n == 0: nothing yet */
	uint32_t width;           /* weights per position */
	uint32_t *first, *count;
	int32_t *k;
	struct scratch windows, weights, exact; /* first and count; k; the weights of some windows */
};

/* Source positions first..last (half open) that output positions from .. from + n - 1 read. */
void taps_span(enum filter f, uint32_t in, uint32_t out, uint32_t from, uint32_t n, uint32_t *first, uint32_t *end);

/* Fills t, unless it holds the same result already. *changed: whether t was made again. avail must cover taps_span. 0 or
 * -ENOMEM. */
int taps_make(struct taps *t, const struct taps_request *want, bool *changed);

/* One output position of an axis in double, as taps_make has it in fixed point: the source positions *first ..
 * *first + *count - 1 of the whole source, and their weights. weights: room for taps_exact_width. Not for
 * FILTER_NEAREST. */
uint32_t taps_exact_width(enum filter f, uint32_t in, uint32_t out);
void taps_exact(enum filter f, uint32_t in, uint32_t out, uint32_t x, uint32_t *first, uint32_t *count,
		double *weights);
void taps_finish(struct taps *t);

#endif
