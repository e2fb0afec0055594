/* A strip or tile of a TIFF that is a JPEG of its own (compression 7), whose tables may be the file's. */
#ifndef BATCHD_TIFF_JPEG_H
#define BATCHD_TIFF_JPEG_H

#include <stdbool.h>

#include "image/formats/decode.h"
#include "base/cpu-budget.h"

struct tiff_jpeg; /* libjpeg's state, kept from chunk to chunk; nothing of one chunk reaches the next */

struct tiff_jpeg_chunk {
	const uint8_t *tables, *bytes; /* tables: NULL where each chunk has its own */
	size_t n_tables, n_bytes;
	uint32_t width, height; /* as the TIFF says */
	bool may_be_taller;     /* the last strip: its JPEG may have the rows of a whole one */
	unsigned n_samples;     /* of a pixel */
	bool is_ycbcr;          /* to be converted to RGB */
	unsigned across, down;  /* pixels to a sample of chroma; 1, 1 without chroma */
};

/* NULL when memory is short. limits are borrowed. */
struct tiff_jpeg *tiff_jpeg_create(const struct decode_limits *limits);
void tiff_jpeg_destroy(struct tiff_jpeg *j);

/* The sampling of the first component in a JPEG's frame header. False: there is no header. */
bool tiff_jpeg_sampling(const uint8_t *bytes, size_t n_bytes, unsigned *across, unsigned *down);

/* Writes the first n_rows, n_samples bytes a pixel, without padding. All of the chunk is decoded, as libtiff does, so that
 * it fails where libtiff fails. Returns 0, an IMAGE_E_ outcome or -ENOMEM. */
int tiff_jpeg_rows(struct tiff_jpeg *j, const struct tiff_jpeg_chunk *c, uint32_t n_rows, uint8_t *out,
		   struct cpu_budget *budget, struct image_error *err);

#endif
