/* Pillow's antialiased resampling (src/libImaging/Resample.c: fixed point, 22 - 8 bits of precision), in SIMD.
 *
 * The result equals PIL.Image.resize(size, filter, box) byte for byte on every path. Paths are chosen once, at run time,
 * by what the processor offers: AVX-512, AVX2, SSE4.1, NEON or plain C. Coefficients are cached in the resampler, which belongs
 * to one thread. */
#ifndef BATCHD_RESAMPLE_H
#define BATCHD_RESAMPLE_H

#include <stdbool.h>

#include "image/image.h"

enum filter { FILTER_NEAREST = 0, FILTER_BILINEAR = 2, FILTER_BICUBIC = 3 }; /* Pillow's numbers */

struct resampler;

struct resampler *resampler_create(void); /* NULL when memory is short */
void resampler_destroy(struct resampler *r);

/* Names of the paths this processor can run, fastest first, NULL-terminated: "avx512", "avx2", "sse4.1", "neon", "c". */
const char *const *resample_paths(void);
/* Uses the named path from now on in this resampler; for tests and benchmarks. -ENOENT if it cannot run here. */
int resampler_set_path(struct resampler *r, const char *name);

/* The part of the source that resizing `box` (in floats, as Pillow takes it; here whole pixels) to out_width x out_height and then keeping
 * only `keep` of the result reads. For Resize followed by CenterCrop this is what has to be decoded. */
struct region_px resample_needs(enum filter f, struct region_px box, uint32_t out_width, uint32_t out_height,
				struct region_px keep);

/* src holds at least resample_needs(...) of the image: src_origin says which part of the full image src is.
 * Writes keep.width x keep.height pixels to dst (its width and height must be these). flip: mirror horizontally while
 * writing. Returns 0 or -ENOMEM. */
int resample(struct resampler *r, enum filter f, const struct image *src, struct region_px src_origin,
	     struct region_px box, uint32_t out_width, uint32_t out_height, struct region_px keep, bool flip,
	     struct image *dst);

#endif
