/* The first directory of a TIFF or BigTIFF: where the values of its tags are. */
#ifndef BATCHD_TIFF_TAGS_H
#define BATCHD_TIFF_TAGS_H

#include <stdbool.h>

#include "image/kernels/image.h"

enum tiff_tag {
	TIFF_WIDTH,
	TIFF_HEIGHT,
	TIFF_BITS,
	TIFF_COMPRESSION,
	TIFF_PHOTOMETRIC,
	TIFF_FILL_ORDER,
	TIFF_STRIP_OFFSETS,
	TIFF_ORIENTATION,
	TIFF_SAMPLES,
	TIFF_STRIP_ROWS,
	TIFF_STRIP_BYTES,
	TIFF_PLANES,
	TIFF_PREDICTOR,
	TIFF_COLORS,
	TIFF_TILE_WIDTH,
	TIFF_TILE_HEIGHT,
	TIFF_TILE_OFFSETS,
	TIFF_TILE_BYTES,
	TIFF_EXTRA,
	TIFF_SAMPLE_FORMAT,
	TIFF_JPEG_TABLES,
	TIFF_XMP,
	TIFF_N_TAGS,
};

struct tiff_values {
	const uint8_t *data; /* in the file */
	uint64_t n;          /* 0: the tag is absent */
	uint8_t bytes;       /* of a value: 1, 2, 4 or 8 */
};

struct tiff_tags {
	bool big_endian, cut; /* cut: the values of a tag lie outside the file */
	struct tiff_values tag[TIFF_N_TAGS];
};

/* Whether these bytes begin a TIFF, and its directory lies in the file. Returns 0 or IMAGE_E_CORRUPT. */
bool tiff_begins(const uint8_t *bytes, size_t n_bytes);
int tiff_tags_read(const uint8_t *bytes, size_t n_bytes, struct tiff_tags *t, struct image_error *err);

/* The i-th value, i < n. */
uint64_t tiff_value(const struct tiff_tags *t, enum tiff_tag tag, uint64_t i);
/* The first value, or `otherwise`. */
uint64_t tiff_number(const struct tiff_tags *t, enum tiff_tag tag, uint64_t otherwise);

#endif
