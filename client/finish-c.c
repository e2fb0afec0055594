/* The finishing pass in C: the reference, ends of lines that fill no register, and what the other paths leave out. */
#include "../daemon/image/exact.h"

#include "finish.h"

uint16_t finish_sixteen(const struct finish *f, float v)
{
	return f->plan.number == CONVERT_TO_FLOAT16 ? convert_to_float16(v) : convert_to_bfloat16(v);
}

/* Where number `channel` of a pixel lies in an image. */
static size_t number_at(const struct convert_plan *p, size_t px, uint32_t channel)
{
	return p->planar ? (size_t)channel * p->plane + px : px * p->n_channels + channel;
}

static int c_can_run(const struct finish *f)
{
	(void)f;
	return 1;
}

static void c_plain(const struct finish *f, const uint8_t *own, size_t first, size_t n, void *image)
{
	const struct convert_plan *p = &f->plan;

	for (size_t i = 0; i < n; i++)
		for (uint32_t c = 0; c < p->n_channels; c++) {
			size_t at = number_at(p, first + i, c), v = own[i * p->n_channels + c];

			if (p->number == CONVERT_TO_FLOAT32)
				((float *)image)[at] = f->float32[c][v];
			else
				((uint16_t *)image)[at] = f->sixteen[c][v];
		}
}

static void put(const struct finish *f, void *image, size_t at, float v)
{
	if (f->plan.number == CONVERT_TO_FLOAT32)
		((float *)image)[at] = v;
	else
		((uint16_t *)image)[at] = finish_sixteen(f, v);
}

static float c_mixed(const struct batchd_mix_row *row, float own, float partner)
{
	float a = own * row->weight, b = partner * row->partner_weight;

	return a + b;
}

/* Floats are kept pixel by pixel. */
static void c_floats(const struct finish *f, const uint8_t *own, size_t n, float *to)
{
	uint32_t channels = f->plan.n_channels;

	for (size_t i = 0; i < n * channels; i++)
		to[i] = f->float32[i % channels][own[i]];
}

static void c_blend(const struct finish *f, const struct batchd_mix_row *row, const uint8_t *own, float *partner,
		    size_t first, size_t n, void *image)
{
	uint32_t channels = f->plan.n_channels;

	for (size_t i = 0; i < n; i++)
		for (uint32_t c = 0; c < channels; c++) {
			float *other = partner + i * channels + c, a = f->float32[c][own[i * channels + c]];

			put(f, image, number_at(&f->plan, first + i, c), c_mixed(row, a, *other));
			*other = a;
		}
}

static void c_pair(const struct finish *f, const struct batchd_mix_row *const rows[2], const uint8_t *const px[2],
		   size_t first, size_t n, void *const images[2])
{
	uint32_t channels = f->plan.n_channels;

	for (size_t i = 0; i < n; i++)
		for (uint32_t c = 0; c < channels; c++) {
			size_t from = i * channels + c, at = number_at(&f->plan, first + i, c);
			float a = f->float32[c][px[0][from]], b = f->float32[c][px[1][from]];

			put(f, images[0], at, c_mixed(rows[0], a, b));
			put(f, images[1], at, c_mixed(rows[1], b, a));
		}
}

static void c_blend_numbers(const struct finish *f, const struct batchd_mix_row *row, const void *own,
			    const void *partner, size_t n, void *to)
{
	const float *a32 = own, *b32 = partner;
	const uint16_t *a16 = own, *b16 = partner;
	int single = f->plan.number == CONVERT_TO_FLOAT32;

	for (size_t i = 0; i < n; i++) {
		float a = (single ? a32[i] : convert_from_float16(a16[i])) * row->weight,
		      b = (single ? b32[i] : convert_from_float16(b16[i])) * row->partner_weight, v = a + b;

		if (single)
			((float *)to)[i] = v;
		else
			((uint16_t *)to)[i] = convert_to_float16(v);
	}
}

const struct finish_path finish_c = { "c", c_can_run, c_plain, c_floats, c_blend, c_pair, c_blend_numbers };
