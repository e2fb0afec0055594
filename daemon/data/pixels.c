/* See pixels.h. */
#include "data/pixels.h"

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
	for (unsigned i = 0; i < f->n_dims && n < size; i++) {
		n += (size_t)snprintf(text + n, size - n, "%s%u", i ? " x " : "", f->shape[i]);
	}
}

int pixels_of(const struct field *f, struct pixels *out, char *text, size_t size)
{
	const uint32_t *s = f->shape;
	bool last = f->n_dims == 3 && is_channels(s[2]), first = f->n_dims == 3 && !last && is_channels(s[0]);
	char shape[120];

	*out = (struct pixels){ .planar = first };
	if (f->kind == FIELD_DENSE && f->dtype == DTYPE_UINT8 && (last || first || f->n_dims == 2)) {
		out->form.height = s[first];
		out->form.width = s[first + 1];
		out->form.n_channels = last ? s[2] : first ? s[0] : 1;
		if (out->form.height >= 1 && out->form.width >= 1 && out->form.height <= PIXELS_MAX_EDGE &&
		    out->form.width <= PIXELS_MAX_EDGE) {
			return 0;
		}
	}
	write_shape(f, shape, sizeof(shape));
	snprintf(
		text, size,
		"rows of '%s' are %s of %s, which are no pictures: a transform needs uint8 of height x width x 3 (or 1), 3 x "
		"height x width, or height x width; without one, rows are delivered as they are",
		f->name, dtype_name(f->dtype), shape[0] ? shape : "one number");
	return -EINVAL;
}

size_t pixels_bytes(const struct pixels *p)
{
	return (size_t)p->form.width * p->form.height * p->form.n_channels;
}

void pixels_to_rgb(const struct pixels *p, const uint8_t *row, uint8_t *restrict rgb)
{
	size_t n = (size_t)p->form.width * p->form.height, plane = p->form.n_channels == 3 ? n : 0;

	if (p->form.n_channels == 3 && !p->planar) {
		memcpy(rgb, row, 3 * n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		rgb[3 * i] = row[i];
		rgb[3 * i + 1] = row[i + plane];
		rgb[3 * i + 2] = row[i + 2 * plane];
	}
}
