/* See convert.h. torchvision's ToDtype(scale=True) multiplies by the float nearest to 1 / greatest value. */
#include "image/kernels/exact.h"

#include "image/kernels/convert.h"

#include <string.h>

void convert_init_numbers(struct convert *f, enum pixel pixel, uint32_t width, uint32_t height)
{
	*f = (struct convert){ .pixel = pixel, .stored = true, .n_channels = 1, .width = width, .height = height };
}

void convert_numbers_to(struct convert *f, enum convert_type type, bool scaled, float mean, float std)
{
	f->type = type;
	f->stored = false;
	f->unscaled = !scaled;
	for (int c = 0; c < 3; c++) {
		f->mean[c] = mean;
		f->std[c] = std;
	}
}

static float scale_of(const struct convert *f)
{
	return f->unscaled || f->pixel == PIXEL_FLOAT32 ? 1.0f
	       : f->pixel == PIXEL_UINT16               ? (float)(1.0 / 65535)
							: (float)(1.0 / 2147483647);
}

static float number_of(const struct convert *f, const uint8_t *row, uint32_t x)
{
	switch (f->pixel) {
	case PIXEL_UINT16:
		return ((const uint16_t *)(const void *)row)[x];
	case PIXEL_INT32:
		return (float)((const int32_t *)(const void *)row)[x];
	default:
		return ((const float *)(const void *)row)[x];
	}
}

void convert_numbers_row(const struct convert *f, const uint8_t *row, uint32_t y, void *out)
{
	size_t n = f->width, at = n * y;
	float scale = scale_of(f);

	if (f->stored) {
		memcpy((uint8_t *)out + at * pixel_bytes(f->pixel), row, n * pixel_bytes(f->pixel));
		return;
	}
	for (uint32_t x = 0; x < n; x++) {
		float v = (number_of(f, row, x) * scale - f->mean[0]) / f->std[0];

		if (f->type == CONVERT_FLOAT16)
			((uint16_t *)out)[at + x] = float_to_half(v);
		else
			((float *)out)[at + x] = v;
	}
}
