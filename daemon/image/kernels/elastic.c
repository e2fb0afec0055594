/* The fields are made row by row, just ahead of the row of pixels that needs them, so that memory is in proportion to the
 * width and not to the picture. Coordinates and weights are float32 in the order of torch's grid_sample. */
#include "image/kernels/exact.h"

#include "image/kernels/elastic.h"

#include <errno.h>
#include <math.h>

#include "image/kernels/convolution.h"

/* The blurred numbers of one direction. */
struct field {
	struct kernel x, y;
	uint32_t width, height;
	float *padded; /* one row with its reflected borders */
	float *ring;   /* y.size rows, convolved along the row */
	float *made;   /* the present row */
	uint32_t n_convolved;
};

uint32_t elastic_kernel_size(double sigma)
{
	uint32_t size = sigma > 0.0 ? (uint32_t)(8.0 * sigma + 1.0) : 1;

	return size | 1;
}

static size_t field_floats(const struct field *f)
{
	return (size_t)f->width + f->x.size + ((size_t)f->y.size + 1) * f->width;
}

/* Both directions of a field are blurred with kernels of one size, but each with its own sigma. */
static void field_init(struct field *f, const struct elastic *e, unsigned i, const struct image *src)
{
	uint32_t size = elastic_kernel_size(e->sigma[i]);

	*f = (struct field){ .width = src->width, .height = src->height };
	kernel_init(&f->x, size, e->sigma[0] > 0.0 ? e->sigma[0] : 1.0);
	kernel_init(&f->y, size, e->sigma[1] > 0.0 ? e->sigma[1] : 1.0);
}

static float *field_place(struct field *f, float *memory)
{
	f->padded = memory;
	f->ring = f->padded + f->width + f->x.size;
	f->made = f->ring + (size_t)f->y.size * f->width;
	return f->made + f->width;
}

static float *field_ring_row(const struct field *f, uint32_t y)
{
	return f->ring + (size_t)(y % f->y.size) * f->width;
}

static void field_convolve_row(struct field *f, const struct elastic *e, unsigned i)
{
	const float *taps[BLUR_MAX_KERNEL];
	uint32_t border = f->x.size / 2;
	float *row = f->padded + border;

	e->numbers(e->source, i, row, f->width);
	for (uint32_t x = 1; x <= border; x++) {
		row[-(int64_t)x] = row[x];
		row[f->width - 1 + x] = row[f->width - 1 - x];
	}
	for (uint32_t j = 0; j < f->x.size; j++)
		taps[j] = f->padded + j;
	kernel_convolve(&f->x, taps, f->width, field_ring_row(f, f->n_convolved++));
}

/* Row y of the field, in torch's unit: 2 is the image's edge. Rows are asked for in order. */
static const float *field_row(struct field *f, const struct elastic *e, unsigned i, uint32_t y)
{
	const float *rows[BLUR_MAX_KERNEL];
	int64_t border = f->y.size / 2, end = y + border + 1;
	float alpha = (float)e->alpha[i], edge = (float)(i == 0 ? f->width : f->height);

	while (f->n_convolved < f->height && f->n_convolved < end)
		field_convolve_row(f, e, i);
	for (int64_t j = 0; j < f->y.size; j++)
		rows[j] = field_ring_row(f, convolution_reflected(y - border + j, f->height));
	kernel_convolve(&f->y, rows, f->width, f->made);
	for (uint32_t x = 0; x < f->width; x++)
		f->made[x] = f->made[x] * alpha / edge;
	return f->made;
}

/* torch.linspace((1 - n) / n, (n - 1) / n, n)[i] */
static float identity_at(uint32_t i, uint32_t n)
{
	float end = (float)((double)(n - 1) / n), step = n > 1 ? (end + end) / (float)(n - 1) : 0.0f;

	return i < n / 2 ? step * (float)i - end : end - step * (float)(n - 1 - i);
}

/* grid_sample's place in pixels. */
static float place(uint32_t i, float moved, uint32_t n)
{
	return (identity_at(i, n) + moved + 1.0f) * ((float)n / 2.0f) - 0.5f;
}

struct sampling {
	const struct elastic *e;
	const struct image *src;
};

static bool near_image(float x, float y, const struct image *src)
{
	return x > -1.0f && y > -1.0f && x < (float)src->width && y < (float)src->height;
}

/* Adds a pixel to sum, which has the weights' sum in sum[3]. */
static void elastic_add(const struct image *src, int64_t x, int64_t y, float weight, float sum[4])
{
	const uint8_t *px;

	if (x < 0 || y < 0 || x >= src->width || y >= src->height)
		return;
	px = src->rgb + (size_t)y * src->stride_bytes + (size_t)x * 3;
	for (int c = 0; c < 3; c++)
		sum[c] += (float)px[c] * weight;
	sum[3] += weight;
}

static void sample_bilinear(const struct image *src, float x, float y, float sum[4])
{
	float left = floorf(x), top = floorf(y), w = x - left, n = y - top;

	elastic_add(src, (int64_t)left, (int64_t)top, (1.0f - w) * (1.0f - n), sum);
	elastic_add(src, (int64_t)left + 1, (int64_t)top, w * (1.0f - n), sum);
	elastic_add(src, (int64_t)left, (int64_t)top + 1, (1.0f - w) * n, sum);
	elastic_add(src, (int64_t)left + 1, (int64_t)top + 1, w * n, sum);
}

static void sample(const struct sampling *s, float x, float y, uint8_t *to)
{
	float sum[4] = { 0 };

	if (near_image(x, y, s->src) && s->e->nearest)
		elastic_add(s->src, (int64_t)rintf(x), (int64_t)rintf(y), 1.0f, sum);
	else if (near_image(x, y, s->src))
		sample_bilinear(s->src, x, y, sum);
	for (int c = 0; c < 3; c++) {
		float fill = s->e->fill[c], v = s->e->filled ? (sum[c] - fill) * sum[3] + fill : sum[c];

		v = rintf(v);
		to[c] = (uint8_t)(v < 0.0f ? 0.0f : v > 255.0f ? 255.0f : v);
	}
}

int elastic(const struct elastic *e, const struct image *src, struct image *dst, struct scratch *room)
{
	struct sampling s = { .e = e, .src = src };
	struct field fields[2];
	float *memory;

	for (unsigned i = 0; i < 2; i++)
		field_init(&fields[i], e, i, src);
	memory = (float *)(void *)scratch_reserve(room, (field_floats(&fields[0]) + field_floats(&fields[1])) *
								sizeof(float));
	if (!memory)
		return -ENOMEM;
	(void)field_place(&fields[1], field_place(&fields[0], memory));
	for (uint32_t y = 0; y < src->height; y++) {
		const float *by_x = field_row(&fields[0], e, 0, y), *by_y = field_row(&fields[1], e, 1, y);
		uint8_t *to = dst->rgb + (size_t)y * dst->stride_bytes;

		for (uint32_t x = 0; x < src->width; x++)
			sample(&s, place(x, by_x[x], src->width), place(y, by_y[x], src->height), to + (size_t)x * 3);
	}
	return 0;
}
