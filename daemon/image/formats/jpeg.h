/* JPEG through libjpeg-turbo: the accurate inverse DCT and smooth chroma upsampling, as in Pillow. */
#ifndef BATCHD_JPEG_H
#define BATCHD_JPEG_H

#include "image/formats/decode.h"

struct jpeg_reader;

/* NULL when memory is short; limits are borrowed */
struct jpeg_reader *jpeg_reader_create(const struct decode_limits *limits);
void jpeg_reader_destroy(struct jpeg_reader *r);

/* As decoder_open and decoder_region, without orientation: info and want are as the file stores the picture. The
 * region's pixels are put into `pixels`. bytes are borrowed until jpeg_reader_close. */
int jpeg_reader_open(struct jpeg_reader *r, const uint8_t *bytes, size_t n_bytes, struct image_info *info,
		     struct image_error *err);
/* As decoder_draft, of the picture that is open. */
void jpeg_reader_draft(struct jpeg_reader *r, uint32_t width, uint32_t height, struct image_info *info);
int jpeg_reader_region(struct jpeg_reader *r, struct region_px want, struct row_sink *sink, struct scratch *pixels,
		       struct image *out, struct image_error *err);
/* As decoder_want_index, decoder_index and decoder_index_use. */
void jpeg_reader_want_index(struct jpeg_reader *r, const void *known, size_t n_bytes, enum index_effort most);
const void *jpeg_reader_index(const struct jpeg_reader *r, size_t *n_bytes);
enum index_use jpeg_reader_index_use(const struct jpeg_reader *r);
void jpeg_reader_close(struct jpeg_reader *r);

#endif
