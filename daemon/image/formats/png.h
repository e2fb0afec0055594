/* PNG through libpng. */
#ifndef BATCHD_PNG_H
#define BATCHD_PNG_H

#include "image/formats/decode.h"

struct png_reader;

/* NULL when memory is short; limits are borrowed */
struct png_reader *png_reader_create(const struct decode_limits *limits);
void png_reader_destroy(struct png_reader *r);

/* As jpeg_reader_open, _region and _close. deep: grey of 16 bits comes as uint16, not as RGB. */
int png_reader_open(struct png_reader *r, const uint8_t *bytes, size_t n_bytes, struct image_info *info,
		    struct image_error *err);
int png_reader_region(struct png_reader *r, bool deep, struct region_px want, struct row_sink *sink,
		      struct scratch *pixels, struct image *out, struct image_error *err);
void png_reader_close(struct png_reader *r);

#endif
