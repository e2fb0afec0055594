/* The orientation of a PNG's picture: by EXIF, by the text that ImageMagick writes for it, or by XMP. Other texts are
 * not read. */
#ifndef BATCHD_PNG_TEXT_H
#define BATCHD_PNG_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/formats/arena.h"

/* A chunk's four letters as the number in the file. */
#define PNG_NAME(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

/* A value of a text chunk, in the file. */
struct png_text {
	const uint8_t *bytes; /* NULL: there is none */
	size_t n;
	bool packed; /* with zlib */
};

/* The last of each kind in the chunks of one file, which have to stay in memory. Zeroed at first. */
struct png_texts {
	struct png_text exif;
	struct png_text profile; /* "Raw profile type exif" */
	struct png_text xmp;
};

/* Notes one whole chunk of any name; what is no such text does not count, nor does a malformed one. */
void png_texts_note(struct png_texts *t, uint32_t name, const uint8_t *data, size_t n);
/* 1..8. 0, or -ENOMEM: a packed text takes working memory from `arena`. */
int png_texts_orientation(const struct png_texts *t, struct arena *arena, int *orientation);

#endif
