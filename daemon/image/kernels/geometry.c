/* Windows and mirrors. A window that leaves the image on some side is one table of source columns and one source row
 * per row. So padding, and padding followed by a crop, need the same code. */
#include "image/kernels/geometry.h"

#include <errno.h>
#include <string.h>

/* The source position for position i (negative: before the image) of n; -1: there is none. */
static int32_t padded_position(int32_t i, int32_t n, enum pad_mode mode)
{
	int32_t period;

	if (i >= 0 && i < n)
		return i;
	if (mode == PAD_CONSTANT)
		return -1;
	if (mode == PAD_EDGE || (mode == PAD_REFLECT && n == 1))
		return i < 0 ? 0 : n - 1;
	period = mode == PAD_REFLECT ? 2 * (n - 1) : 2 * n;
	i = (i % period + period) % period;
	if (i < n)
		return i;
	return mode == PAD_REFLECT ? period - i : period - 1 - i;
}

/* Inline, so that each size of a pixel has a loop of its own. */
static inline __attribute__((always_inline)) void window_row_of(size_t bytes, const uint8_t *src,
								const int32_t *columns, uint32_t width,
								const uint8_t *fill, uint8_t *dst)
{
	for (uint32_t x = 0; x < width; x++, dst += bytes)
		memcpy(dst, columns[x] < 0 ? fill : src + (size_t)columns[x] * bytes, bytes);
}

static void window_row(enum pixel pixel, const uint8_t *src, const int32_t *columns, uint32_t width,
		       const uint8_t *fill, uint8_t *dst)
{
	if (pixel == PIXEL_RGB)
		window_row_of(3, src, columns, width, fill, dst);
	else if (pixel == PIXEL_UINT16)
		window_row_of(2, src, columns, width, fill, dst);
	else
		window_row_of(4, src, columns, width, fill, dst);
}

int image_window(const struct image *src, int32_t left, int32_t top, enum pad_mode mode, const uint8_t fill[3],
		 struct image *dst, struct scratch *memory)
{
	return image_window_as(PIXEL_RGB, src, left, top, mode, fill, dst, memory);
}

int image_window_as(enum pixel pixel, const struct image *src, int32_t left, int32_t top, enum pad_mode mode,
		    const void *fill, struct image *dst, struct scratch *memory)
{
	int32_t *columns = (int32_t *)(void *)scratch_reserve(memory, dst->width * 2 * sizeof(int32_t));
	int32_t *nothing;

	if (!columns)
		return -ENOMEM;
	nothing = columns + dst->width;
	for (uint32_t x = 0; x < dst->width; x++) {
		columns[x] = padded_position(left + (int32_t)x, (int32_t)src->width, mode);
		nothing[x] = -1;
	}
	for (uint32_t y = 0; y < dst->height; y++) {
		int32_t from = padded_position(top + (int32_t)y, (int32_t)src->height, mode);

		window_row(pixel, from < 0 ? src->rgb : src->rgb + (size_t)from * src->stride_bytes,
			   from < 0 ? nothing : columns, dst->width, fill, dst->rgb + (size_t)y * dst->stride_bytes);
	}
	return 0;
}

void pixels_mirror(const uint8_t *src, uint8_t *dst, uint32_t n_px)
{
	for (src += (size_t)n_px * 3; n_px-- > 0; dst += 3) {
		src -= 3;
		memcpy(dst, src, 3);
	}
}

void image_copy(const struct image *src, bool flip_horizontal, bool flip_vertical, struct image *dst)
{
	for (uint32_t y = 0; y < src->height; y++) {
		const uint8_t *from = src->rgb + (size_t)(flip_vertical ? src->height - 1 - y : y) * src->stride_bytes;
		uint8_t *to = dst->rgb + (size_t)y * dst->stride_bytes;

		if (flip_horizontal)
			pixels_mirror(from, to, src->width);
		else
			memcpy(to, from, (size_t)src->width * 3);
	}
}
