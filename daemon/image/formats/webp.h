/* WebP through libwebp: still pictures and the first frame of animations. */
#ifndef BATCHD_WEBP_H
#define BATCHD_WEBP_H

#include "image/formats/decode.h"

struct webp_reader;

/* NULL when memory is short; limits are borrowed */
struct webp_reader *webp_reader_create(const struct decode_limits *limits);
void webp_reader_destroy(struct webp_reader *r);

/* As jpeg_reader_open, _region and _close. */
int webp_reader_open(struct webp_reader *r, const uint8_t *bytes, size_t n_bytes, struct image_info *info,
		     struct image_error *err);
int webp_reader_region(struct webp_reader *r, struct region_px want, struct scratch *pixels, struct image *out,
		       struct image_error *err);
void webp_reader_close(struct webp_reader *r);

#endif
