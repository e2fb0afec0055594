/* What stands before a JPEG's first scan, as Pillow reads it: size, layers and which way up. Bytes in, plain numbers
 * out. */
#ifndef BATCHD_JPEG_HEADER_H
#define BATCHD_JPEG_HEADER_H

#include <stdbool.h>

#include "image/image.h"

struct jpeg_header {
	uint32_t width, height;
	int n_layers;       /* 1 grey, 3 colour, 4 CMYK */
	size_t scan_offset; /* of the first entropy-coded byte */
	int orientation;    /* 1..8 */
};

/* Returns 0 or IMAGE_E_CORRUPT or IMAGE_E_FORMAT (an unusual kind of JPEG), or -ENOMEM. joined: room to put together
 * an EXIF record that is spread over several segments. */
int jpeg_header_read(const uint8_t *bytes, size_t n_bytes, struct scratch *joined, struct jpeg_header *header,
		     struct image_error *err);

/* Whether entropy-coded data from p on runs to the end-of-image marker with nothing but restart markers between. Then
 * no decoder can complain about what it did not read. */
bool jpeg_tail_is_plain(const uint8_t *p, const uint8_t *end);

#endif
