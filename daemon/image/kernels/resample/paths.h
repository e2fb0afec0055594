/* The functions of a processor-specific resampling path. Only resample.c and its siblings include this.
 *
 * All paths give the same bytes: sums are exact in 32-bit integers (modulo 2^32, the final sum fits), rounded once. */
#ifndef BATCHD_RESAMPLE_PATHS_H
#define BATCHD_RESAMPLE_PATHS_H

#include <stdbool.h>

#include "image/kernels/taps.h"

enum {
	RESAMPLE_BATCH_ROWS = 4,      /* maximum of rows in one horizontal call: the weights are loaded once for all of
	                            * them */
	RESAMPLE_SLACK_BYTES = 64,    /* readable after every source row and writable after every result row */
	RESAMPLE_MAX_FOURS_TAPS = 56, /* of the vertical axis, for vertical_fours */
};

struct resample_path {
	const char *name;
	bool (*can_run)(void);
	/* Bytes of the path's own form of the weights, which prepare makes after taps_make. NULL: the path uses the
	 * taps directly. */
	size_t (*table_bytes)(const struct taps *t);
	void (*prepare)(const struct taps *t, void *table);
	/* t->made.n pixels of each of n_rows (1..RESAMPLE_BATCH_ROWS) rows of interleaved RGB. src: the first available
	 * pixel. */
	void (*horizontal)(const struct taps *t, const void *table, const uint8_t *src, size_t src_stride, uint8_t *dst,
			   size_t dst_stride, unsigned n_rows);
	/* dst[i] = the weighted sum of rows[j][i], i < n_bytes. May write up to RESAMPLE_SLACK_BYTES more; reads no
	 * byte more. */
	void (*vertical)(const int32_t *k, uint32_t n_rows, const uint8_t *const *rows, uint8_t *dst, size_t n_bytes);
	/* Both or none of these, for the two passes in this order: the first leaves four rows as one, in which the
	 * four's bytes lie side by side, as the second needs them. */

	/* Writes resample_fours_bytes, and may write RESAMPLE_SLACK_BYTES more; of fewer rows some may be given twice. */
	void (*horizontal_four)(const struct taps *t, const void *table, const uint8_t *const src[RESAMPLE_BATCH_ROWS],
				uint8_t *dst);
	/* The sum of n_rows (at most RESAMPLE_MAX_FOURS_TAPS) from number `first` of fours[0] on, which is below four.
	 * May write RESAMPLE_SLACK_BYTES more than n_bytes. */
	void (*vertical_fours)(const int32_t *k, uint32_t first, uint32_t n_rows, const uint8_t *const *fours,
			       uint8_t *dst, size_t n_bytes);
};

/* Only the paths of this architecture are defined. */
extern const struct resample_path resample_c;
extern const struct resample_path resample_avx2;
extern const struct resample_path resample_avx512;
extern const struct resample_path resample_avx512_wide; /* a part of it */
extern const struct resample_path resample_neon;

#if defined(__x86_64__)
void resample_avx512_vertical_fours(const int32_t *k, uint32_t first, uint32_t n_rows, const uint8_t *const *fours,
				    uint8_t *dst, size_t n_bytes);
#endif

/* Of four rows of n_bytes side by side, with what the passes read and write beyond. */
static inline size_t resample_fours_bytes(size_t n_bytes)
{
	return (n_bytes + 63) / 64 * 64 * RESAMPLE_BATCH_ROWS;
}

static inline uint8_t resample_clip(int32_t sum)
{
	int32_t v = sum >> TAPS_PRECISION_BITS;

	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

#endif
