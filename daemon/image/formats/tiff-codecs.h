/* Unpacks one strip or tile of a TIFF, and undoes its predictor. */
#ifndef BATCHD_TIFF_CODECS_H
#define BATCHD_TIFF_CODECS_H

#include <stdbool.h>

#include "image/formats/arena.h"
#include "image/kernels/image.h"

enum tiff_compression {
	TIFF_PLAIN = 1,
	TIFF_LZW = 5,
	TIFF_JPEG = 7, /* tiff-jpeg.h */
	TIFF_DEFLATE = 8,
	TIFF_PACKBITS = 32773,
	TIFF_OLD_DEFLATE = 32946,
};

/* Fills out[0..n_out). tables: memory of any codec; arena: zlib's, reset by the caller. Returns 0, IMAGE_E_CORRUPT or
 * -ENOMEM. */
int tiff_unpack(enum tiff_compression compression, const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out,
		struct scratch *tables, struct arena *arena, struct image_error *err);

/* Adds to each number of a row its left neighbour of the same of n_samples samples. */
void tiff_undo_differences(uint8_t *row, size_t n_bytes, unsigned n_samples, unsigned sample_bytes, bool big_endian);
/* Of floats stored as differences of bytes, high ones first; they become little endian. temp: n_bytes. */
void tiff_undo_float_differences(uint8_t *row, size_t n_bytes, unsigned n_samples, unsigned sample_bytes,
				 uint8_t *temp);

#endif
