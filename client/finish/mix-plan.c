/* Constants of the mixing kernels, and what they do, in C. */
#include "finish/mix-plan.h"

#include <stdio.h>
#include <string.h>

/* Hacker's Delight, 10-9, as for planes in convert-plan.c. */
static void set_width(struct mix_plan *p, uint32_t width)
{
	p->width = width;
	p->width_shift = 31;
	while (width > 1ull << (p->width_shift - 31))
		p->width_shift++;
	p->width_inverse = (uint32_t)(((1ull << p->width_shift) + width - 1) / width);
}

void mix_plan_init(struct mix_plan *p, const struct convert_plan *convert, uint32_t width)
{
	uint32_t tile = CONVERT_THREADS * 16 / (uint32_t)convert_number_bytes((enum convert_number)convert->number);

	memset(p, 0, sizeof *p);
	p->convert = *convert;
	p->n_tiles = convert->plane / tile + !!(convert->plane % tile);
	set_width(p, width);
}

void mix_plan_kernel(const struct mix_plan *p, char name[32])
{
	char finishing[32];

	convert_plan_kernel(&p->convert, finishing);
	snprintf(name, 32, "mix%.28s", finishing + strlen("convert"));
}

static void put(const struct convert_plan *p, void *out, size_t at, float v)
{
	if (p->number == CONVERT_TO_FLOAT32)
		((float *)out)[at] = v;
	else
		((uint16_t *)out)[at] =
			p->number == CONVERT_TO_FLOAT16 ? convert_to_float16(v) : convert_to_bfloat16(v);
}

static void run_row(const struct mix_plan *m, const struct batchd_mix_row *r, const uint8_t *own,
		    const uint8_t *partner, size_t out_from, void *out)
{
	const struct convert_plan *p = &m->convert;

	for (uint32_t px = 0; px < p->plane; px++)
		for (uint32_t c = 0; c < p->n_channels; c++) {
			size_t from = (size_t)px * p->n_channels + c;
			int takes = r->kind == BATCHD_MIX_BOX && mix_is_inside(m, r, px);
			float v = convert_value(p, c, takes ? partner[from] : own[from]);

			if (r->kind == BATCHD_MIX_BLEND)
				v = mix_blend(v, convert_value(p, c, partner[from]), r->weight, r->partner_weight);
			put(p, out, out_from + (p->planar ? (size_t)c * p->plane + px : from), v);
		}
}

void mix_plan_run(const struct mix_plan *p, const uint8_t *in, void *out)
{
	size_t n = (size_t)p->convert.plane * p->convert.n_channels;

	for (uint32_t i = 0; i < p->n_rows; i++)
		run_row(p, &p->row[i], in + (p->first + i) * n, in + p->row[i].partner * n, (p->first + i) * n, out);
}

void mix_plan_numbers_kernel(const struct mix_plan *p, char name[32])
{
	static const char *const numbers[] = { "uint8", "float16", "bfloat16", "float32" };

	snprintf(name, 32, "mix_numbers_%s", numbers[p->convert.number]);
}

static float number_at(const struct convert_plan *p, const void *numbers, size_t at)
{
	return p->number == CONVERT_TO_FLOAT16 ? convert_from_float16(((const uint16_t *)numbers)[at])
					       : ((const float *)numbers)[at];
}

static void run_numbers(const struct mix_plan *m, const struct batchd_mix_row *r, size_t own, const void *in, void *out)
{
	const struct convert_plan *p = &m->convert;
	size_t n = (size_t)p->plane * p->n_channels, partner = r->partner * n;

	for (size_t i = 0; i < n; i++) {
		uint32_t px = (uint32_t)(p->planar ? i % p->plane : i / p->n_channels);
		int takes = r->kind == BATCHD_MIX_BOX && mix_is_inside(m, r, px);
		float v = number_at(p, in, (takes ? partner : own) + i);

		if (r->kind == BATCHD_MIX_BLEND)
			v = mix_blend(v, number_at(p, in, partner + i), r->weight, r->partner_weight);
		put(p, out, own + i, v);
	}
}

void mix_plan_run_numbers(const struct mix_plan *p, const void *in, void *out)
{
	size_t n = (size_t)p->convert.plane * p->convert.n_channels;

	for (uint32_t i = 0; i < p->n_rows; i++)
		run_numbers(p, &p->row[i], (p->first + i) * n, in, out);
}

void mix_target_plan_run(const struct mix_target_plan *p, const int64_t *labels, float *out)
{
	for (uint32_t i = 0; i < p->n_rows; i++)
		for (uint32_t c = 0; c < p->n_classes; c++)
			out[(size_t)(p->first + i) * p->n_classes + c] =
				mix_target(p, &p->row[i], labels[p->first + i] == c, labels[p->row[i].partner] == c);
}
