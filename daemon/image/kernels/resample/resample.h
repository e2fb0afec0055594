/* Pillow's antialiased resampling (its Resample.c: fixed point, 22 bits of precision), in SIMD.
 *
 * The result equals PIL.Image.crop(box).resize(size, filter) byte for byte on every path: pixels outside the box have
 * no influence, as in torchvision's resized_crop. A path is chosen at run time by the processor's features: AVX-512,
 * AVX2, NEON or plain C. Weights are cached in the resampler, which belongs to one thread. */
#ifndef BATCHD_RESAMPLE_H
#define BATCHD_RESAMPLE_H

#include <stdbool.h>

#include "image/kernels/image.h"

/* Pillow's numbers */
enum filter {
	FILTER_NEAREST = 0,
	FILTER_LANCZOS = 1,
	FILTER_BILINEAR = 2,
	FILTER_BICUBIC = 3,
	FILTER_BOX = 4,
	FILTER_HAMMING = 5,
};

struct resampler;

struct resampler *resampler_create(void); /* NULL when memory is short */
void resampler_destroy(struct resampler *r);
void resampler_trim(struct resampler *r); /* frees its memory */

/* Names of the paths that this processor can run, fastest first, NULL-terminated: "avx512", "avx2", "neon", "c". */
const char *const *resample_paths(void);
/* Makes this resampler use the named path; for tests and benchmarks. -ENOENT if it cannot run here. */
int resampler_set_path(struct resampler *r, const char *name);

/* Which pass comes first; the order affects rounding. Pillow up to 12 always resamples rows first; 13 begins with the
 * columns when the height shrinks by more than twice as many pixels as the width does. */
enum pass_order { PASS_ORDER_PILLOW_13 = 0, PASS_ORDER_PILLOW_12 = 1 };

/* One resampling, of the rectangle `box` of an image (whole pixels) to out_width x out_height, of which only `keep` is
 * wanted. */
struct resample_request {
	enum filter filter;
	enum pass_order order;
	struct region_px box;
	uint32_t out_width, out_height;
	struct region_px keep; /* inside the result */
	bool flip;             /* mirror each row of the kept part */
};

/* The part of the source that the request reads. For Resize followed by CenterCrop, only this part must be decoded. */
struct region_px resample_needs(const struct resample_request *q);

/* Whether the columns are resampled before the rows. */
bool resample_columns_first(const struct resample_request *q);

/* Row by row, for callers that use each row at once. src holds at least resample_needs; src_origin (x, y) is the place
 * of src in the full image. src and its pixels are borrowed until the last row. Returns 0 or -ENOMEM. */
int resample_begin(struct resampler *r, const struct resample_request *q, const struct image *src,
		   struct region_px src_origin);
/* The next of keep.height rows: keep.width RGB pixels, in the resampler's memory or in src, valid until the next
 * call. */
const uint8_t *resample_next_row(struct resampler *r);

/* Row by row as well, of a source that comes in bands while it is decoded: resample_begin_bands, then
 * resample_take_band for all rows of resample_needs(q) from the top (as struct row_sink has them), then
 * resample_next_row. In between is only what the first pass has left. Not for every request: resample_takes_bands says
 * which. */
bool resample_takes_bands(const struct resample_request *q);
int resample_begin_bands(struct resampler *r, const struct resample_request *q);
void resample_take_band(struct resampler *r, const uint8_t *rows, size_t stride_bytes, unsigned n);

/* All rows into dst, whose width and height must be keep's. Returns 0 or -ENOMEM. */
int resample(struct resampler *r, const struct resample_request *q, const struct image *src,
	     struct region_px src_origin, struct image *dst);

#endif
