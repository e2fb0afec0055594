/* See thumbnail.h. */
#include "image/transform/thumbnail.h"

#include <math.h>
#include <string.h>

#include "image/transform/pipeline-impl.h"

enum { PLACES = 4 }; /* in a block, each way */

void thumbnail_form_of_view(const struct pipeline *view, struct thumbnail_form *out)
{
	const struct convert *c = &view->finish;

	*out = (struct thumbnail_form){ .dtype = view->dtype,
					.planar = c->planar && c->pixel == PIXEL_RGB,
					.stretch = c->pixel != PIXEL_RGB,
					.width = c->width,
					.height = c->height,
					.n_channels = c->pixel == PIXEL_RGB ? c->n_channels : 1 };
	for (uint32_t i = 0; i < out->n_channels; i++) {
		double mean = 0, std = 1;

		if (!out->stretch && view->dtype != DTYPE_UINT8)
			pipeline_normalized_by(view, i, &mean, &std);
		out->scale[i] = view->dtype == DTYPE_UINT8 ? 1 : std * 255;
		out->offset[i] = view->dtype == DTYPE_UINT8 ? 0 : mean * 255;
	}
}

static bool is_number(enum dtype dtype)
{
	switch (dtype) {
	case DTYPE_UINT8:
	case DTYPE_UINT16:
	case DTYPE_INT16:
	case DTYPE_INT32:
	case DTYPE_FLOAT16:
	case DTYPE_FLOAT32:
	case DTYPE_FLOAT64:
		return true;
	default:
		return false;
	}
}

bool thumbnail_form_of_array(enum dtype dtype, unsigned n_dims, const uint32_t *shape, struct thumbnail_form *out)
{
	bool last = n_dims == 3 && (shape[2] == 1 || shape[2] == 3), first = n_dims == 3 && !last;

	if (!is_number(dtype) || n_dims < 2 || n_dims > 3 || (first && shape[0] != 1 && shape[0] != 3))
		return false;
	*out = (struct thumbnail_form){ .dtype = dtype,
					.planar = first,
					.stretch = dtype != DTYPE_UINT8,
					.height = shape[first ? 1 : 0],
					.width = shape[first ? 2 : 1],
					.n_channels = n_dims == 2 ? 1 : shape[first ? 0 : 2],
					.scale = { 1, 1, 1 } };
	return out->width > 0 && out->height > 0;
}

/* ---- numbers ---- */

static inline __attribute__((always_inline)) double load(enum dtype dtype, const void *row, size_t i)
{
	switch (dtype) {
	case DTYPE_UINT8:
		return ((const uint8_t *)row)[i];
	case DTYPE_UINT16:
		return ((const uint16_t *)row)[i];
	case DTYPE_INT16:
		return ((const int16_t *)row)[i];
	case DTYPE_INT32:
		return ((const int32_t *)row)[i];
	case DTYPE_FLOAT16:
		return (double)float_of_half(((const uint16_t *)row)[i]);
	case DTYPE_FLOAT64:
		return ((const double *)row)[i];
	default:
		return (double)((const float *)row)[i];
	}
}

/* A block of the row: its places, `step` apart. */
struct block {
	uint32_t left, top, right, bottom, step;
};

static inline __attribute__((always_inline)) double mean_of(enum dtype dtype, const struct thumbnail_form *f,
							    const void *row, const struct block *b, uint32_t channel)
{
	size_t pixel = f->planar ? 1 : f->n_channels;
	size_t plane = f->planar ? (size_t)channel * f->width * f->height : channel;
	double sum = 0;
	unsigned n = 0;

	/* In 64 bits: a step after the last place of a long row may be beyond 2^32. */
	for (uint64_t y = b->top; y < b->bottom; y += b->step)
		for (uint64_t x = b->left; x < b->right; x += b->step, n++)
			sum += load(dtype, row, plane + (y * f->width + x) * pixel);
	return sum / n;
}

/* One loop for each type, as the choice for each number would cost more than the number. */
static double block_mean(const struct thumbnail_form *f, const void *row, const struct block *b, uint32_t channel)
{
	switch (f->dtype) {
	case DTYPE_UINT8:
		return mean_of(DTYPE_UINT8, f, row, b, channel);
	case DTYPE_UINT16:
		return mean_of(DTYPE_UINT16, f, row, b, channel);
	case DTYPE_INT16:
		return mean_of(DTYPE_INT16, f, row, b, channel);
	case DTYPE_INT32:
		return mean_of(DTYPE_INT32, f, row, b, channel);
	case DTYPE_FLOAT16:
		return mean_of(DTYPE_FLOAT16, f, row, b, channel);
	case DTYPE_FLOAT64:
		return mean_of(DTYPE_FLOAT64, f, row, b, channel);
	default:
		return mean_of(DTYPE_FLOAT32, f, row, b, channel);
	}
}

/* ---- the thumbnail ---- */

static struct block block_at(const struct thumbnail_form *f, uint32_t factor, uint32_t x, uint32_t y)
{
	struct block b = { .left = x * factor, .top = y * factor, .step = (factor + PLACES - 1) / PLACES };

	b.right = f->width - b.left < factor ? f->width : b.left + factor;
	b.bottom = f->height - b.top < factor ? f->height : b.top + factor;
	return b;
}

static uint8_t to_pixel(double v)
{
	return (uint8_t)lrint(v > 0 ? v < 255 ? v : 255 : 0); /* what is no number is black */
}

/* The form by which the thumbnail's own numbers reach from black to white. */
static void stretch(const struct thumbnail_form *f, const void *row, uint32_t factor, const struct thumbnail *t,
		    double *scale, double *offset)
{
	double least = INFINITY, greatest = -INFINITY;

	for (uint32_t i = 0; i < t->width * t->height * f->n_channels; i++) {
		uint32_t at = i / f->n_channels;
		struct block b = block_at(f, factor, at % t->width, at / t->width);
		double v = block_mean(f, row, &b, i % f->n_channels);

		if (isfinite(v)) {
			least = v < least ? v : least;
			greatest = v > greatest ? v : greatest;
		}
	}
	*scale = greatest > least ? 255 / (greatest - least) : 0;
	*offset = isfinite(least) ? -least * *scale : 0;
}

void thumbnail_make(const struct thumbnail_form *f, const void *row, struct thumbnail *out)
{
	uint32_t longest = f->width > f->height ? f->width : f->height;
	uint32_t factor = (uint32_t)(((uint64_t)longest + THUMBNAIL_EDGE - 1) / THUMBNAIL_EDGE);
	double scale[3], offset[3];
	uint8_t *rgb = out->rgb;

	out->width = (uint32_t)(((uint64_t)f->width + factor - 1) / factor);
	out->height = (uint32_t)(((uint64_t)f->height + factor - 1) / factor);
	memcpy(scale, f->scale, sizeof scale);
	memcpy(offset, f->offset, sizeof offset);
	if (f->stretch) {
		stretch(f, row, factor, out, &scale[0], &offset[0]);
		scale[1] = scale[2] = scale[0];
		offset[1] = offset[2] = offset[0];
	}
	for (uint32_t y = 0; y < out->height; y++)
		for (uint32_t x = 0; x < out->width; x++, rgb += 3) {
			struct block b = block_at(f, factor, x, y);

			for (uint32_t c = 0; c < f->n_channels; c++)
				rgb[c] = to_pixel(block_mean(f, row, &b, c) * scale[c] + offset[c]);
			if (f->n_channels == 1)
				rgb[1] = rgb[2] = rgb[0];
		}
}
