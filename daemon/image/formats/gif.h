/* The first frame of a GIF. */
#ifndef BATCHD_GIF_H
#define BATCHD_GIF_H

#include "image/formats/raw-rows.h"

struct gif {
	struct raw_rows rows;              /* its data: NULL until the frame is unpacked */
	size_t data_at;                    /* of the frame's codes in the file */
	uint32_t left, top, width, height; /* of the frame on the canvas */
	uint8_t code_bits, background;
	bool interlaced;
};

/* Returns 0 or an IMAGE_E_ outcome. */
int gif_read(const uint8_t *bytes, size_t n_bytes, struct gif *g, struct image_error *err);
/* Unpacks the frame onto its canvas, in `indices`. Returns 0, an IMAGE_E_ outcome, -ENOMEM, or IMAGE_E_TIME without a
 * text. */
int gif_unpack(struct gif *g, const uint8_t *bytes, size_t n_bytes, struct scratch *indices, struct scratch *tables,
	       struct cpu_budget *budget, struct image_error *err);

#endif
