/* From the crop's rectangle to blocks: the MCUs whose samples its pixels need, and of each MCU the blocks. Upsampled
 * pixels need chroma beyond their own samples; pictures at a fraction of their size do not. */
#include "image/jpeg/scan-impl.h"

/* The chroma samples that pixels [first, end) need along a halved axis: each its own and the adjacent one. */
static void chroma_needs(uint32_t first, uint32_t end, uint32_t factor, uint32_t n_samples, uint32_t *from,
			 uint32_t *to)
{
	if (factor == 1) {
		*from = first;
		*to = end;
		return;
	}
	*from = first % 2 || first == 0 ? first / 2 : first / 2 - 1;
	*to = (end - 1) / 2 + 1 + (end - 1) % 2;
	*to = *to > n_samples ? n_samples : *to;
}

static void plan_draft(struct scan *s, struct region_px want)
{
	const uint32_t width = s->edge * s->shape.h, height = s->edge * s->shape.v;

	s->want = want;
	s->mcu_x0 = want.x / width;
	s->mcu_x1 = (want.x + want.width - 1) / width + 1;
	s->mcu_y0 = want.y / height;
	s->mcu_y1 = (want.y + want.height - 1) / height + 1;
}

void scan_plan(struct scan *s, struct region_px want)
{
	const struct shape *shape = &s->shape;
	const uint32_t end_x = want.x + want.width, end_y = want.y + want.height;
	uint32_t first, end;

	if (s->edge < 8) {
		plan_draft(s, want);
		return;
	}
	s->want = want;
	chroma_needs(want.x, end_x, shape->h, shape->chroma_width, &s->chroma_x0, &s->chroma_x1);
	chroma_needs(want.y, end_y, shape->v, shape->chroma_height, &s->chroma_y0, &s->chroma_y1);
	first = want.x / (8 * shape->h);
	end = (end_x - 1) / (8 * shape->h) + 1;
	s->mcu_x0 = s->chroma_x0 / 8 < first ? s->chroma_x0 / 8 : first;
	s->mcu_x1 = (s->chroma_x1 - 1) / 8 + 1 > end ? (s->chroma_x1 - 1) / 8 + 1 : end;
	first = want.y / (8 * shape->v);
	end = (end_y - 1) / (8 * shape->v) + 1;
	s->mcu_y0 = s->chroma_y0 / 8 < first ? s->chroma_y0 / 8 : first;
	s->mcu_y1 = (s->chroma_y1 - 1) / 8 + 1 > end ? (s->chroma_y1 - 1) / 8 + 1 : end;
}

uint32_t scan_blocks_wanted(const struct scan *s, uint32_t mcu_x, uint32_t mcu_y)
{
	const struct shape *shape = &s->shape;
	uint32_t mask = 0;

	for (uint32_t b = 0; b < shape->n_luma; b++) {
		uint32_t x = (mcu_x * shape->h + b % shape->h) * 8, y = (mcu_y * shape->v + b / shape->h) * 8;

		if (x < s->want.x + s->want.width && x + 8 > s->want.x && y < s->want.y + s->want.height &&
		    y + 8 > s->want.y)
			mask |= 1u << b;
	}
	if (mcu_x * 8 < s->chroma_x1 && mcu_x * 8 + 8 > s->chroma_x0 && mcu_y * 8 < s->chroma_y1 &&
	    mcu_y * 8 + 8 > s->chroma_y0)
		mask |= ((1u << (shape->n_components - 1)) - 1) << shape->n_luma;
	return mask;
}
