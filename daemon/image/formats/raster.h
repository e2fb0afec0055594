/* The formats that store plain or simply packed rows: BMP, PNM, TIFF and a GIF's first frame. */
#ifndef BATCHD_RASTER_H
#define BATCHD_RASTER_H

#include "image/formats/decode.h"

struct raster_reader;

/* NULL when memory is short; limits are borrowed */
struct raster_reader *raster_reader_create(const struct decode_limits *limits);
void raster_reader_destroy(struct raster_reader *r);

/* As jpeg_reader_open, _region and _close; the format is that of the first bytes. deep: numbers of more than 8 bits come
 * as info->numbers says, not as RGB. */
int raster_reader_open(struct raster_reader *r, enum image_format format, const uint8_t *bytes, size_t n_bytes,
		       struct image_info *info, struct image_error *err);
int raster_reader_region(struct raster_reader *r, bool deep, struct region_px want, struct row_sink *sink,
			 struct scratch *pixels, struct image *out, struct image_error *err);
void raster_reader_close(struct raster_reader *r);

#endif
