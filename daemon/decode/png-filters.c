/* See png-filters.h.
 *
 * Three of the filters need the pixel to the left, so a row is one chain from pixel to pixel. Only the channels of one
 * pixel are computed side by side, in vectors of eight words. Each function is compiled for every size of a pixel, so
 * that loads and stores are single instructions; they may touch up to seven bytes after a pixel, which the next pixel
 * writes again. */
#include "decode/png-filters.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef int16_t words __attribute__((vector_size(16)));
typedef uint8_t bytes8 __attribute__((vector_size(8)));

/* ---- a pixel ---- */

INLINE words load_pixel(const uint8_t *p, unsigned pixel_bytes)
{
	bytes8 b = { 0 };

	if (pixel_bytes <= 4)
		memcpy(&b, p, 4);
	else
		memcpy(&b, p, 8);
	return __builtin_convertvector(b, words);
}

INLINE void store_pixel(uint8_t *p, words v, unsigned pixel_bytes)
{
	bytes8 b = __builtin_convertvector(v, bytes8);

	if (pixel_bytes <= 4)
		memcpy(p, &b, 4);
	else
		memcpy(p, &b, 8);
}

INLINE words low_bytes(words v)
{
	return v & 0xff;
}

INLINE words choose(words mask, words yes, words no)
{
	return (mask & yes) | (~mask & no);
}

INLINE words absolute(words v)
{
	return choose(v < 0, -v, v);
}

/* ---- rows ---- */

INLINE void undo_sub(const uint8_t *in, uint8_t *row, size_t n, unsigned pixel_bytes)
{
	words left = { 0 };

	for (size_t i = 0; i < n; i += pixel_bytes) {
		left = low_bytes(left + load_pixel(in + i, pixel_bytes));
		store_pixel(row + i, left, pixel_bytes);
	}
}

static void undo_up(const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n)
{
	for (size_t i = 0; i < n; i++)
		row[i] = (uint8_t)(in[i] + above[i]);
}

INLINE void undo_average(const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n, unsigned pixel_bytes)
{
	words left = { 0 };

	for (size_t i = 0; i < n; i += pixel_bytes) {
		words half = (left + load_pixel(above + i, pixel_bytes)) >> 1;

		left = low_bytes(half + load_pixel(in + i, pixel_bytes));
		store_pixel(row + i, left, pixel_bytes);
	}
}

/* The neighbour that is closest to left + up - corner; of equally close ones left, then up. */
INLINE void undo_paeth(const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n, unsigned pixel_bytes)
{
	words left = { 0 }, corner = { 0 };

	for (size_t i = 0; i < n; i += pixel_bytes) {
		words up = load_pixel(above + i, pixel_bytes), rise = up - corner;
		words to_left = absolute(rise), to_up = absolute(left - corner),
		      to_corner = absolute(left + (rise - corner));
		words not_left = (to_left > to_up) | (to_left > to_corner);
		words best = choose(not_left, choose(to_up > to_corner, corner, up), left);

		left = low_bytes(best + load_pixel(in + i, pixel_bytes));
		store_pixel(row + i, left, pixel_bytes);
		corner = up;
	}
}

INLINE void undo(unsigned filter, const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n, unsigned pixel_bytes)
{
	switch (filter) {
	case 1:
		undo_sub(in, row, n, pixel_bytes);
		break;
	case 2:
		undo_up(in, above, row, n);
		break;
	case 3:
		undo_average(in, above, row, n, pixel_bytes);
		break;
	case 4:
		undo_paeth(in, above, row, n, pixel_bytes);
		break;
	default:
		memcpy(row, in, n);
	}
}

void png_unfilter(unsigned filter, const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n,
		  unsigned pixel_bytes)
{
	switch (pixel_bytes) {
	case 1:
		undo(filter, in, above, row, n, 1);
		break;
	case 2:
		undo(filter, in, above, row, n, 2);
		break;
	case 3:
		undo(filter, in, above, row, n, 3);
		break;
	case 4:
		undo(filter, in, above, row, n, 4);
		break;
	case 6:
		undo(filter, in, above, row, n, 6);
		break;
	default:
		undo(filter, in, above, row, n, 8);
	}
}
