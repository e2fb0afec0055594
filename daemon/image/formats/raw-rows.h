/* Pixels that lie row by row in memory, in the layouts of BMP, PNM, GIF and TIFF, and their conversion to RGB as
 * Pillow's convert("RGB") gives it. */
#ifndef BATCHD_RAW_ROWS_H
#define BATCHD_RAW_ROWS_H

#include <stdbool.h>

#include "image/kernels/image.h"
#include "image/kernels/row-sink.h"
#include "base/cpu-budget.h"

enum raw_kind {
	RAW_INDEX,  /* `bits` (1, 2, 4 or 8) of a pixel, from the high bit down: its place in `table` */
	RAW_BYTES,  /* `step` bytes a pixel; red, green and blue at at[0], at[1], at[2] */
	RAW_CMYK,   /* `step` bytes a pixel; cyan to black at at[0] to at[3] */
	RAW_BGR15,  /* 5, 5, 5 bits, little endian */
	RAW_BGR16,  /* 5, 6, 5 bits, little endian */
	RAW_GREY,   /* one number, clipped to 0..255 */
	RAW_SCALED, /* `channels` (1 or 3) numbers of 0..max_value, each scaled to 0..scale and clipped to 255 */
};

enum raw_number { RAW_UINT8, RAW_UINT16, RAW_INT16, RAW_INT32, RAW_FLOAT32 };

struct raw_layout {
	enum raw_kind kind;
	enum raw_number number; /* of RAW_GREY and RAW_SCALED */
	bool big_endian;        /* its bytes */
	bool deep;              /* RAW_GREY, RAW_SCALED of one channel: give numbers instead of RGB */
	bool multiplied;        /* RAW_BYTES: at[3] is the transparency by which the colours were multiplied */
	uint8_t bits, step, at[4], channels;
	uint32_t max_value, scale;
	uint8_t table[256][3];
};

struct raw_rows {
	struct raw_layout layout;
	uint32_t width, height;
	const uint8_t *data; /* row_bytes readable at each row's place; not owned */
	size_t stride_bytes;
	bool bottom_up; /* the last row of the picture comes first */
};

/* Bytes of a row without padding. */
uint64_t raw_row_bytes(const struct raw_layout *l, uint32_t width);
/* table[i] = i, i, i */
void raw_grey_table(struct raw_layout *l);
/* Whether its pixels are numbers of more than 8 bits; *give: what those are given as. Then `deep` may be set. */
bool raw_is_deep(const struct raw_layout *l, enum raw_number *give);
/* Bytes of a converted pixel: 3, or those of a number. */
size_t raw_result_bytes(const struct raw_layout *l);
/* The layout of `bits` a pixel with `table` black, and white where the bit is set. */
void raw_bilevel(struct raw_layout *l, bool inverted);

/* Converts the rectangle of out's size that begins at x, y. */
void raw_rows_convert(const struct raw_rows *r, uint32_t x, uint32_t y, struct image *out);
/* Converts `want`, which lies in the picture, into `pixels`. RGB goes to the sink instead if there is one; out->rgb is NULL
 * then. Returns 0, -ENOMEM, or IMAGE_E_TIME without a text. */
int raw_rows_region(const struct raw_rows *r, struct region_px want, struct row_sink *sink, struct scratch *pixels,
		    struct cpu_budget *budget, struct image *out);

#endif
