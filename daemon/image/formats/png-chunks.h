/* A PNG's chunks, read by Pillow's rules: the picture's layout, the place of its compressed rows, and the reasons to
 * call the file invalid. */
#ifndef BATCHD_PNG_CHUNKS_H
#define BATCHD_PNG_CHUNKS_H

#include <stdbool.h>

#include "image/formats/arena.h"
#include "image/kernels/image.h"

enum { PNG_GREY = 0, PNG_RGB = 2, PNG_PALETTE = 3, PNG_GREY_ALPHA = 4, PNG_RGB_ALPHA = 6 };

struct png_layout {
	uint32_t width, height;
	uint8_t bits;  /* per channel: 1, 2, 4, 8 or 16 */
	uint8_t color; /* PNG_GREY .. PNG_RGB_ALPHA */
	bool interlaced;
	struct region_px frame;  /* the part that the rows fill: the whole, or an animation's first frame */
	uint8_t palette[256][3]; /* black for entries that the file lacks */
	size_t data_at;          /* offset of the first chunk with compressed rows */
	size_t data_bytes;       /* compressed, in all chunks of that run */
	bool complete;           /* another chunk follows the run: the data is not cut short */
	int orientation;         /* 1..8 */
	bool deep;               /* grey of 16 bits is wanted as uint16 */
};

/* Returns 0, IMAGE_E_CORRUPT, IMAGE_E_FORMAT or -ENOMEM. Takes working memory from `arena`. */
int png_layout_read(const uint8_t *bytes, size_t n_bytes, struct arena *arena, struct png_layout *layout,
		    struct image_error *err);

/* Steps through the run of chunks that holds the compressed rows: sets the next chunk's bytes. *at starts as data_at.
 * False at the end of the run. The last piece is shorter than its chunk says if the file is cut short. */
bool png_next_data(const uint8_t *bytes, size_t n_bytes, size_t *at, const uint8_t **data, size_t *n_data);

#endif
