/* One image through a pipeline in the calling thread, without a daemon: for inference, where the delay of a single
 * sample counts.
 *
 * It is the daemon's own code, so a row has the bytes that a loader with the same transform serves. It stands in a
 * library of its own, libbatchd-inline.so, because libbatchd.so has no decoders.
 *
 * Functions return 0 or a negative BATCHD_E_ code (batchd.h) and then leave one line of text in err. A pipeline may be
 * used by several threads at once. */
#ifndef BATCHD_INLINE_H
#define BATCHD_INLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct batchd_inline batchd_inline;

/* transform: "val224", "train224" or JSON text, as in batchd_options. dtype, layout: enum batchd_dtype (BATCHD_UINT8,
 * BATCHD_FLOAT16, BATCHD_FLOAT32; of images of one number a pixel also BATCHD_UINT16 and BATCHD_INT32) and enum batchd_layout. BATCHD_E_INVALID: err says which op or argument is wrong. */
int batchd_inline_open(const char *transform, int dtype, int layout, batchd_inline **out, char *err, size_t err_size);
/* When no thread is in a call. NULL: does nothing. */
void batchd_inline_close(batchd_inline *p);

/* The row's shape in memory order, and its size. */
void batchd_inline_shape(const batchd_inline *p, uint32_t shape[3]);
size_t batchd_inline_row_bytes(const batchd_inline *p);
/* 1: dtype is uint8, and the transform ends with this Normalize, which is left to the caller; units of 0..1. */
int batchd_inline_normalize(const batchd_inline *p, float mean[3], float std[3]);

/* bytes: a compressed image. row: batchd_inline_row_bytes, aligned as the dtype wants it. apply_exif: turn it upright.
 * seed, epoch, index: what random ops are drawn by, as of a loader's sample. The limits are the daemon's defaults (256
 * MiB of file, 178 Mpx, 20 s of processor time). BATCHD_E_BAD_DATA: not an image, damaged, or beyond a limit. */
int batchd_inline_load(batchd_inline *p, const void *bytes, size_t n_bytes, int apply_exif, uint64_t seed,
		       uint64_t epoch, uint64_t index, void *row, char *err, size_t err_size);

#ifdef __cplusplus
}
#endif
#endif
