/* The functions of a processor-specific conversion path. Only convert.c and its siblings include this. */
#ifndef BATCHD_CONVERT_PATHS_H
#define BATCHD_CONVERT_PATHS_H

#include "image/kernels/convert.h"

struct convert_path {
	const char *name;
	bool (*can_run)(void);
	/* width pixels of rgb to three planes (uint8, float16 or float32 by f->type), or to one interleaved row (not
	 * uint8). Read and write exactly width pixels of three channels. */
	void (*planar)(const struct convert *f, const uint8_t *rgb, void *const planes[3]);
	void (*interleaved)(const struct convert *f, const uint8_t *rgb, void *row);
	/* width pixels of one channel, without gaps, to numbers of the first channel. */
	void (*gray)(const struct convert *f, const uint8_t *gray, void *row);
};

extern const struct convert_path convert_c;
extern const struct convert_path convert_avx2;
extern const struct convert_path convert_avx512;

/* The plain C loops over pixels from..width - 1; the SIMD paths use them for their tails. convert_c_planar writes
 * n_channels planes. */
void convert_c_planar(const struct convert *f, const uint8_t *rgb, void *const planes[3], uint32_t from);
void convert_c_interleaved(const struct convert *f, const uint8_t *rgb, void *row, uint32_t from);
void convert_c_gray(const struct convert *f, const uint8_t *gray, void *row, uint32_t from);

#endif
