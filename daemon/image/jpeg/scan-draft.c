/* Pictures at 1/2, 1/4 or 1/8 of their size, as libjpeg makes them with a scale_denom: a block becomes fewer samples.
 * Halved chroma needs no upsampling then, because its blocks become as many samples as they cover pixels. */
#include <errno.h>

#include "image/jpeg/scan-impl.h"

void scan_shrink(struct scan *s, uint32_t times)
{
	s->edge = 8 / times;
}

bool scan_can_draft(const struct scan *s)
{
	return s->edge == 8 || s->shape.h == s->shape.v;
}

int scan_reserve_drafts(struct scan *s)
{
	const size_t stride =
		((size_t)(s->mcu_x1 - s->mcu_x0) * s->edge * s->shape.h + 2 * BLOCKS_SLACK + 63) / 64 * 64;
	const size_t plane = stride * s->edge * s->shape.v;
	uint8_t *p = scratch_reserve(&s->strips, plane * s->shape.n_components);

	if (!p)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->shape.n_components; i++)
		s->strip[i] = (struct strip){ p + i * plane + BLOCKS_SLACK, stride };
	return 0;
}

/* A block that becomes one sample needs its first coefficient alone. Packs and progressive pictures have the others at
 * hand. */
uint32_t scan_draft_wants(const struct scan *s)
{
	const uint32_t all = (1u << (s->shape.n_luma + s->shape.n_components - 1)) - 1;
	const uint32_t first = s->edge == 1 ? (s->shape.h == 1 ? all : (1u << s->shape.n_luma) - 1) : 0;

	return s->source == FROM_STREAM ? (all & ~first) | first << ENTROPY_FIRST_ONLY : all;
}

void scan_transform_draft(struct scan *s, uint32_t x, const uint8_t *last)
{
	const struct shape *shape = &s->shape;
	const uint32_t edge = s->edge, wide = edge * shape->h;
	const struct strip *luma = &s->strip[0], *blue = &s->strip[1], *red = &s->strip[2];

	for (uint32_t b = 0; b < shape->n_luma; b++)
		s->exceeded |= s->blocks->idct_small(edge, s->coef[b / 2] + b % 2 * 8, s->quant[0], last[b],
						     luma->row0 + x * wide + b % shape->h * edge +
							     b / shape->h * edge * luma->stride_bytes,
						     luma->stride_bytes);
	if (shape->n_components == 1)
		return;
	const uint8_t *of_chroma = last + shape->n_luma;
	uint8_t *to[2] = { blue->row0 + x * wide, red->row0 + x * wide };
	if (wide == 8) {
		s->exceeded |= s->blocks->idct_pair(s->coef[2], s->quant[1],
						    of_chroma[0] > of_chroma[1] ? of_chroma[0] : of_chroma[1], to[0],
						    to[1], blue->stride_bytes);
		return;
	}
	for (uint32_t i = 0; i < 2; i++)
		s->exceeded |= s->blocks->idct_small(wide, s->coef[2] + i * 8, s->quant[1] + i * 8, of_chroma[i], to[i],
						     blue->stride_bytes);
}

void scan_emit_draft(struct scan *s, uint32_t mcu_y, const struct image *out)
{
	const uint32_t height = s->edge * s->shape.v, end_y = s->want.y + s->want.height;
	const uint32_t from = mcu_y * height > s->want.y ? mcu_y * height : s->want.y;
	const uint32_t to = (mcu_y + 1) * height < end_y ? (mcu_y + 1) * height : end_y;
	const uint32_t x = s->want.x - s->mcu_x0 * s->edge * s->shape.h, chroma = s->shape.n_components - 1;

	for (uint32_t y = from; y < to; y++) {
		const size_t at = (y - mcu_y * height) * s->strip[0].stride_bytes + x;
		const uint8_t *luma = s->strip[0].row0 + at, *blue = s->strip[chroma / 2].row0 + at,
			      *red = s->strip[chroma].row0 + at;
		uint8_t *rgb = scan_row_place(s, y, out);
		const struct chroma_row c = { .near = { blue, red }, .far = { blue, red } };

		if (s->shape.is_ycc && chroma)
			s->blocks->ycc[0][0](luma, &c, rgb, s->want.width);
		else
			s->blocks->interleave(luma, blue, red, rgb, s->want.width);
		scan_row_done(s, y, out);
	}
}
