/* A PNG's texts, colour profile and EXIF: the orientation of the picture, and whether they make the file invalid. */
#ifndef BATCHD_PNG_TEXT_H
#define BATCHD_PNG_TEXT_H

#include <zlib.h>

#include "decode/arena.h"
#include "image/image.h"

/* A chunk's four letters as the number in the file. */
#define PNG_NAME(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

/* Collected over all chunks of one file. */
struct png_texts {
	struct arena *arena; /* borrowed, and so is err */
	struct image_error *err;
	uint8_t *unpacked; /* memory for one text; in the arena, from the first use on */
	z_stream z;        /* initialized together with `unpacked` */
	size_t n_total, n_unpacked_total;
	const uint8_t *exif; /* in the file */
	size_t n_exif;
	int profile_orientation; /* of ImageMagick's "Raw profile type exif"; -1: none */
	int xmp;                 /* orientation by XMP; 0: none */
};

void png_texts_init(struct png_texts *t, struct arena *arena, struct image_error *err);
/* Reads one whole chunk of any name; other chunks than texts are ignored. Returns 0, IMAGE_E_CORRUPT, IMAGE_E_LIMIT or
 * -ENOMEM. */
int png_texts_read(struct png_texts *t, uint32_t name, const uint8_t *data, size_t n);
/* The orientation by the chunks read so far: 1..8. */
int png_texts_orientation(const struct png_texts *t);

#endif
