/* Conversion of a PNG's samples to RGB, and their sizes. `l` is the layout of their file. */
#ifndef BATCHD_PNG_SAMPLES_H
#define BATCHD_PNG_SAMPLES_H

#include "image/formats/png-chunks.h"

/* Samples of a pixel in the file, of which an index is one. */
uint32_t png_channels(const struct png_layout *l);
/* Bytes of a pixel as libpng delivers it: grey (two bytes if stored so), an index, or RGB. libpng drops alpha and the
 * low bytes of 16-bit colours. */
size_t png_pixel_bytes(const struct png_layout *l);
/* Bytes of a pixel of the result: 3 of RGB, or 2 of a uint16. */
size_t png_result_bytes(const struct png_layout *l);
/* Converts n such pixels to RGB, or where l->deep says so, to uint16. */
void png_samples_to_rgb(const struct png_layout *l, const uint8_t *in, uint32_t n, uint8_t *out);
/* Fills the rows from from_row on as Pillow's untouched canvas: black, or the palette's first colour. */
void png_fill_zero(const struct png_layout *l, struct image *out, uint32_t from_row);

/* Bytes of a row of `width` pixels in the compressed stream, with its filter byte. */
uint64_t png_row_bytes(const struct png_layout *l, uint32_t width);
/* Whether a stream of n bytes ends after a whole row, of some pass if the file is interlaced. */
bool png_ends_on_row(const struct png_layout *l, uint64_t n);

#endif
