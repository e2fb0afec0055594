/* Every kind of PNG sample as Pillow's convert("RGB") gives it, and the sizes of such samples. */
#include "image/formats/png-samples.h"

#include <string.h>

enum { N_PASSES = 7 };

uint32_t png_channels(const struct png_layout *l)
{
	switch (l->color) {
	case PNG_RGB:
		return 3;
	case PNG_GREY_ALPHA:
		return 2;
	case PNG_RGB_ALPHA:
		return 4;
	default:
		return 1;
	}
}

size_t png_pixel_bytes(const struct png_layout *l)
{
	if (l->color == PNG_GREY && l->bits == 16)
		return 2;
	return l->color == PNG_RGB || l->color == PNG_RGB_ALPHA ? 3 : 1;
}

uint64_t png_row_bytes(const struct png_layout *l, uint32_t width)
{
	return 1 + ((uint64_t)width * png_channels(l) * l->bits + 7) / 8;
}

static void grey_to_rgb(const uint8_t *in, uint32_t factor, uint32_t n, uint8_t *out)
{
	for (uint32_t i = 0; i < n; i++, out += 3)
		out[0] = out[1] = out[2] = (uint8_t)(in[i] * factor);
}

/* Pillow clips 16-bit grey instead of scaling it. */
static void grey16_to_rgb(const uint8_t *in, uint32_t n, uint8_t *out)
{
	for (uint32_t i = 0; i < n; i++, in += 2, out += 3)
		out[0] = out[1] = out[2] = in[0] ? 255 : in[1];
}

static void grey16_to_numbers(const uint8_t *in, uint32_t n, uint8_t *out)
{
	for (uint32_t i = 0; i < n; i++, in += 2, out += 2) {
		uint16_t v = (uint16_t)(in[0] << 8 | in[1]);

		memcpy(out, &v, sizeof(v));
	}
}

size_t png_result_bytes(const struct png_layout *l)
{
	return l->deep ? 2 : 3;
}

static void palette_to_rgb(const uint8_t *in, const uint8_t palette[256][3], uint32_t n, uint8_t *out)
{
	for (uint32_t i = 0; i < n; i++, out += 3)
		memcpy(out, palette[in[i]], 3);
}

void png_samples_to_rgb(const struct png_layout *l, const uint8_t *in, uint32_t n, uint8_t *out)
{
	switch (l->color) {
	case PNG_PALETTE:
		palette_to_rgb(in, l->palette, n, out);
		break;
	case PNG_GREY:
		if (l->deep)
			grey16_to_numbers(in, n, out);
		else if (l->bits == 16)
			grey16_to_rgb(in, n, out);
		else
			grey_to_rgb(in, 255u / ((1u << l->bits) - 1), n, out);
		break;
	case PNG_GREY_ALPHA:
		grey_to_rgb(in, 1, n, out);
		break;
	default:
		memcpy(out, in, (size_t)n * 3);
	}
}

void png_fill_zero(const struct png_layout *l, struct image *out, uint32_t from_row)
{
	const uint8_t black[3] = { 0 };
	const uint8_t *rgb = l->color == PNG_PALETTE ? l->palette[0] : black;
	size_t bytes = png_result_bytes(l);

	for (uint32_t y = from_row; y < out->height; y++)
		for (uint32_t x = 0; x < out->width; x++)
			memcpy(out->rgb + y * out->stride_bytes + x * bytes, rgb, bytes);
}

bool png_ends_on_row(const struct png_layout *l, uint64_t n)
{
	static const uint8_t first_x[] = { 0, 4, 0, 2, 0, 1, 0 }, first_y[] = { 0, 0, 4, 0, 2, 0, 1 };
	static const uint8_t step_x[] = { 8, 8, 4, 4, 2, 2, 1 }, step_y[] = { 8, 8, 8, 4, 4, 2, 2 };

	if (!l->interlaced)
		return n > 0 && n % png_row_bytes(l, l->frame.width) == 0;
	if (n == 0)
		return false;
	for (int pass = 0; pass < N_PASSES; pass++) {
		uint32_t width = (l->frame.width + step_x[pass] - 1 - first_x[pass]) / step_x[pass];
		uint32_t height = (l->frame.height + step_y[pass] - 1 - first_y[pass]) / step_y[pass];

		if (width == 0)
			continue;
		uint64_t row = png_row_bytes(l, width), whole = row * height;
		if (n <= whole)
			return n % row == 0;
		n -= whole;
	}
	return false;
}
