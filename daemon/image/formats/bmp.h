/* Windows and OS/2 bitmaps: the header, and run lengths to pixels. */
#ifndef BATCHD_BMP_H
#define BATCHD_BMP_H

#include "image/formats/raw-rows.h"

struct bmp {
	struct raw_rows rows; /* its data: the file's, NULL where run lengths are to be unpacked */
	uint64_t data_at;     /* in the file */
	bool packed, nibbles; /* run lengths of bytes, or of half bytes */
};

/* Returns 0 or an IMAGE_E_ outcome. The rows are the file's, borrowed. */
int bmp_read(const uint8_t *bytes, size_t n_bytes, struct bmp *b, struct image_error *err);
/* Unpacks run lengths into `indices`. Returns 0, an IMAGE_E_ outcome, -ENOMEM, or IMAGE_E_TIME without a text. */
int bmp_unpack(struct bmp *b, const uint8_t *bytes, size_t n_bytes, struct scratch *indices, struct cpu_budget *budget,
	       struct image_error *err);

#endif
