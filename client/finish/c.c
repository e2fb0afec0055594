/* The finishing pass in C: the reference, ends of lines that fill no register, and what the other paths leave out. */
#include "../daemon/image/kernels/exact.h"

#include "finish/finish.h"

#include <string.h>

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

void finish_box_by_copy(const struct finish_path *path, const struct finish *f, const struct batchd_mix_row *row,
			const uint8_t *own, const uint8_t *partner, size_t first, uint8_t *scratch, void *image)
{
	size_t channels = f->plan.n_channels, from = row->left * channels;

	memcpy(scratch, own, f->width * channels);
	memcpy(scratch + from, partner + from, (row->right - row->left) * channels);
	path->plain(f, scratch, first, f->width, image);
}

static void c_box(const struct finish *f, const struct batchd_mix_row *row, const uint8_t *own, const uint8_t *partner,
		  size_t first, uint8_t *scratch, void *image)
{
	finish_box_by_copy(&finish_c, f, row, own, partner, first, scratch, image);
}

static float number_of(const struct finish *f, const struct finish_chain *rows, unsigned source, size_t at,
		       uint32_t channel)
{
	return f->float32[channel][((const uint8_t *)rows->from[source])[at]];
}

static void c_chain(const struct finish *f, const struct finish_chain *rows, size_t first)
{
	uint32_t channels = f->plan.n_channels;

	for (size_t i = first; i < f->plan.plane; i++)
		for (uint32_t c = 0; c < channels; c++) {
			size_t at = number_at(&f->plan, i, c);
			float partner = number_of(f, rows, 0, i * channels + c, c);

			for (unsigned r = 0; r < rows->n; r++) {
				float own = number_of(f, rows, r + 1, i * channels + c, c);

				put(f, rows->to[r], at, c_mixed(rows->row[r], own, partner));
				partner = own;
			}
		}
}

static void c_pair(const struct finish *f, const struct finish_chain *rows, size_t first)
{
	struct finish_chain chain = *rows;

	chain.from[2] = chain.from[0];
	c_chain(f, &chain, first);
}

static float stored_number(const struct finish *f, const void *numbers, size_t i)
{
	return f->plan.number == CONVERT_TO_FLOAT32 ? ((const float *)numbers)[i]
						    : convert_from_float16(((const uint16_t *)numbers)[i]);
}

static void c_chain_numbers(const struct finish *f, const struct finish_chain *rows, size_t first, size_t n)
{
	for (size_t i = first; i < n; i++)
		for (unsigned r = 0; r < rows->n; r++)
			put(f, rows->to[r], i,
			    c_mixed(rows->row[r], stored_number(f, rows->from[r + 1], i),
				    stored_number(f, rows->from[r], i)));
}

const struct finish_path finish_c = { "c", c_can_run, c_plain, c_box, c_chain, c_pair, c_chain_numbers };
