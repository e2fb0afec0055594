/* The part of a JPEG before its first scan, as Pillow reads it: size, layers and orientation. Parses bytes to plain
 * numbers. */
#ifndef BATCHD_JPEG_HEADER_H
#define BATCHD_JPEG_HEADER_H

#include <stdbool.h>

#include "image/kernels/image.h"

struct jpeg_header {
	uint32_t width, height;
	int n_layers;       /* 1 grey, 3 colour, 4 CMYK */
	size_t scan_offset; /* of the first entropy-coded byte */
	int orientation;    /* 1..8 */
};

/* Returns 0 or IMAGE_E_CORRUPT or IMAGE_E_FORMAT (an unusual kind of JPEG), or -ENOMEM. joined: memory to assemble an
 * EXIF record that is spread over several segments. */
int jpeg_header_read(const uint8_t *bytes, size_t n_bytes, struct scratch *joined, struct jpeg_header *header,
		     struct image_error *err);

/* Whether entropy-coded data from p on continues to the end-of-image marker with only restart markers in between. Then
 * no decoder can report an error in the part that it did not read. */
bool jpeg_tail_is_plain(const uint8_t *p, const uint8_t *end);

#endif
