/* See pixels.h. */
#include "batch/pixels.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_channels(uint32_t n)
{
	return n == 1 || n == 3;
}

static void write_shape(const struct field *f, char *text, size_t size)
{
	size_t n = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < f->n_dims && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%u", i ? " x " : "", f->shape[i]);
}

/* False: there is no such picture. */
static bool pixel_of_dtype(enum dtype dtype, unsigned n_channels, enum pixel *pixel)
{
	*pixel = dtype == DTYPE_UINT16    ? PIXEL_UINT16
		 : dtype == DTYPE_INT32   ? PIXEL_INT32
		 : dtype == DTYPE_FLOAT32 ? PIXEL_FLOAT32
					  : PIXEL_RGB;
	return dtype == DTYPE_UINT8 || (*pixel != PIXEL_RGB && n_channels == 1);
}

int pixels_of(const struct field *f, struct pixels *out, char *text, size_t size)
{
	const uint32_t *s = f->shape;
	bool last = f->n_dims == 3 && is_channels(s[2]), first = f->n_dims == 3 && !last && is_channels(s[0]);
	char shape[120];

	*out = (struct pixels){ .planar = first };
	out->form.n_channels = last ? s[2] : first ? s[0] : 1;
	if (f->kind == FIELD_DENSE && (last || first || f->n_dims == 2) &&
	    pixel_of_dtype(f->dtype, out->form.n_channels, &out->form.pixel)) {
		out->form.height = s[first];
		out->form.width = s[first + 1];
		if (out->form.height >= 1 && out->form.width >= 1 && out->form.height <= PIXELS_MAX_EDGE &&
		    out->form.width <= PIXELS_MAX_EDGE)
			return 0;
	}
	write_shape(f, shape, sizeof(shape));
	snprintf(
		text, size,
		"rows of '%s' are %s of %s, which are no images: a transform works on the first array (put that of the images "
		"first), of uint8 of height x width x 3 (or 1), 3 x height x width, or height x width, or of one channel uint16, "
		"int32 or float32; without one, rows are delivered as they are",
		f->name, dtype_name(f->dtype), shape[0] ? shape : "one number");
	return -EINVAL;
}

size_t pixels_bytes(const struct pixels *p)
{
	size_t n = (size_t)p->form.width * p->form.height;

	return p->form.pixel == PIXEL_RGB ? n * p->form.n_channels : n * pixel_bytes(p->form.pixel);
}

static void pixels_to_rgb(const struct pixels *p, const uint8_t *row, uint8_t *restrict rgb)
{
	size_t n = (size_t)p->form.width * p->form.height;

	if (!p->planar) {
		memcpy(rgb, row, 3 * n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		rgb[3 * i] = row[i];
		rgb[3 * i + 1] = row[i + n];
		rgb[3 * i + 2] = row[i + 2 * n];
	}
}

static int32_t whole_at(enum pixel from, const uint8_t *row, size_t i)
{
	switch (from) {
	case PIXEL_UINT16:
		return ((const uint16_t *)(const void *)row)[i];
	case PIXEL_INT32:
		return ((const int32_t *)(const void *)row)[i];
	default:
		return row[i];
	}
}

static void pixels_widen(enum pixel from, const uint8_t *row, size_t n, enum pixel to, uint8_t *out)
{
	for (size_t i = 0; i < n; i++) {
		int32_t v = whole_at(from, row, i);

		if (to == PIXEL_UINT16)
			((uint16_t *)(void *)out)[i] = (uint16_t)v;
		else if (to == PIXEL_INT32)
			((int32_t *)(void *)out)[i] = v;
		else
			((float *)(void *)out)[i] = (float)v;
	}
}

bool pixels_are_gray(const struct pixels *p, enum pixel to)
{
	return to == PIXEL_RGB && p->form.n_channels == 1;
}

struct image pixels_image(const struct pixels *p, uint8_t *row, enum pixel to, uint8_t *memory)
{
	size_t n = (size_t)p->form.width * p->form.height;

	if (pixels_are_gray(p, to))
		return (struct image){ row, p->form.width, p->form.width, p->form.height };
	if (to == PIXEL_RGB)
		pixels_to_rgb(p, row, memory);
	else if (to == p->form.pixel)
		memcpy(memory, row, n * pixel_bytes(to));
	else
		pixels_widen(p->form.pixel, row, n, to, memory);
	return (struct image){ memory, p->form.width * pixel_bytes(to), p->form.width, p->form.height };
}
