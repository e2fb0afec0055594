/* One loop for each pair of kinds. Rows of numbers are aligned: a decoder's rows begin at multiples of a number's size. */
#include "image/formats/numbers.h"

#include <errno.h>

bool numbers_fit(enum image_numbers from, enum pixel to)
{
	switch (to) {
	case PIXEL_UINT16:
		return from == NUMBERS_UINT8 || from == NUMBERS_UINT16;
	case PIXEL_INT32:
		return from != NUMBERS_NONE && from != NUMBERS_FLOAT32;
	case PIXEL_FLOAT32:
		return from != NUMBERS_NONE;
	default:
		return false;
	}
}

bool numbers_are(enum image_numbers from, enum pixel to)
{
	return (from == NUMBERS_UINT16 && to == PIXEL_UINT16) || (from == NUMBERS_INT32 && to == PIXEL_INT32) ||
	       (from == NUMBERS_FLOAT32 && to == PIXEL_FLOAT32);
}

static int32_t number_at(enum image_numbers from, const uint8_t *row, uint32_t x)
{
	switch (from) {
	case NUMBERS_UINT8:
		return row[(size_t)x * 3];
	case NUMBERS_UINT16:
		return ((const uint16_t *)(const void *)row)[x];
	default:
		return ((const int32_t *)(const void *)row)[x];
	}
}

static void widen_row(enum image_numbers from, const uint8_t *row, enum pixel to, uint32_t n, uint8_t *out)
{
	for (uint32_t x = 0; x < n; x++) {
		int32_t v = number_at(from, row, x);

		if (to == PIXEL_UINT16)
			((uint16_t *)(void *)out)[x] = (uint16_t)v;
		else if (to == PIXEL_INT32)
			((int32_t *)(void *)out)[x] = v;
		else
			((float *)(void *)out)[x] = (float)v;
	}
}

int numbers_widen(enum image_numbers from, const struct image *in, enum pixel to, struct scratch *memory,
		  struct image *out)
{
	size_t stride = in->width * pixel_bytes(to);
	uint8_t *rows = scratch_reserve(memory, stride * in->height);

	if (!rows)
		return -ENOMEM;
	for (uint32_t y = 0; y < in->height; y++)
		widen_row(from, in->rgb + y * in->stride_bytes, to, in->width, rows + y * stride);
	*out = (struct image){ rows, stride, in->width, in->height };
	return 0;
}
