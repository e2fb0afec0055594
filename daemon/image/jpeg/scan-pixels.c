/* From samples to pixels: strips of samples, and the rows of pixels that they complete. */
#include <errno.h>
#include <string.h>

#include "image/jpeg/scan-impl.h"

enum { MARGIN = BLOCKS_SLACK };

static void copy_row(const struct strip *p, int32_t to, int32_t from)
{
	uint8_t *start = p->row0 - MARGIN;

	memcpy(start + to * (ptrdiff_t)p->stride_bytes, start + from * (ptrdiff_t)p->stride_bytes, p->stride_bytes);
}

/* Repeats the outermost real samples beyond the image's borders, where the strip touches them. */
static void extend_borders(struct scan *s, uint32_t mcu_y)
{
	const struct shape *shape = &s->shape;

	for (uint32_t i = 1; i < shape->n_components; i++) {
		const struct strip *p = &s->strip[i];
		uint32_t behind = shape->chroma_width - s->mcu_x0 * 8;

		for (uint32_t row = 0; shape->h == 2 && row < 8; row++) {
			uint8_t *samples = p->row0 + row * p->stride_bytes;

			if (s->mcu_x0 == 0)
				samples[-1] = samples[0];
			if (s->mcu_x1 == shape->mcus_per_row)
				samples[behind] = samples[behind - 1];
		}
		if (shape->v == 2 && mcu_y == 0)
			copy_row(p, -1, 0);
		if (shape->v == 2 && mcu_y == shape->mcu_rows - 1)
			copy_row(p, (int32_t)(shape->chroma_height - mcu_y * 8),
				 (int32_t)(shape->chroma_height - mcu_y * 8) - 1);
	}
}

/* Writes the pixel row y; its samples are in the strips, which hold MCU row mcu_y and one row above. */
static void emit_row(const struct scan *s, uint32_t mcu_y, uint32_t y, uint8_t *rgb)
{
	const struct shape *shape = &s->shape;
	const int32_t row = (int32_t)(y - mcu_y * 8 * shape->v); /* in the strip; -1: the row above */
	const uint32_t x = s->want.x - s->mcu_x0 * 8 * shape->h;
	const uint8_t *luma = s->strip[0].row0 + row * (ptrdiff_t)s->strip[0].stride_bytes + x;
	const int32_t near = shape->v == 2 ? (row + 2) / 2 - 1 : row;
	struct chroma_row c = { .below = row & 1, .odd = (int)(x % shape->h) };

	if (shape->n_components == 1) {
		s->blocks->interleave(luma, luma, luma, rgb, s->want.width);
		return;
	}
	for (unsigned i = 0; i < 2; i++) {
		const struct strip *p = &s->strip[i + 1];

		c.near[i] = p->row0 + near * (ptrdiff_t)p->stride_bytes + x / shape->h;
		c.far[i] = c.near[i] + (c.below ? (ptrdiff_t)p->stride_bytes : -(ptrdiff_t)p->stride_bytes);
	}
	if (shape->is_ycc)
		s->blocks->ycc[shape->v - 1][shape->h - 1](luma, &c, rgb, s->want.width);
	else
		s->blocks->interleave(luma, c.near[0], c.near[1], rgb, s->want.width);
}

/* Emits the pixel rows that MCU row mcu_y completes, and keeps the samples that the next row needs. */
void scan_emit_rows(struct scan *s, uint32_t mcu_y, const struct image *out)
{
	const uint32_t v = s->shape.v, late = v == 2 ? 1 : 0;
	uint32_t from = mcu_y ? mcu_y * 8 * v - late : 0;
	uint32_t to = mcu_y + 1 == s->shape.mcu_rows ? s->shape.height : (mcu_y + 1) * 8 * v - late;

	extend_borders(s, mcu_y);
	from = from < s->want.y ? s->want.y : from;
	to = to > s->want.y + s->want.height ? s->want.y + s->want.height : to;
	for (uint32_t y = from; y < to; y++) {
		emit_row(s, mcu_y, y, scan_row_place(s, y, out));
		scan_row_done(s, y, out);
	}
	if (late) {
		copy_row(&s->strip[0], -1, 15);
		copy_row(&s->strip[1], -1, 7);
		copy_row(&s->strip[2], -1, 7);
	}
}

/* ---- memory ---- */

int scan_reserve_strips(struct scan *s)
{
	const struct shape *shape = &s->shape;
	size_t stride[3], rows[3], total = 0;

	if (s->edge < 8)
		return scan_reserve_drafts(s);
	for (uint32_t i = 0; i < shape->n_components; i++) {
		stride[i] = ((size_t)(s->mcu_x1 - s->mcu_x0) * 8 * (i ? 1 : shape->h) + 2 * MARGIN + 63) / 64 * 64;
		rows[i] = i ? 10 : 8 * shape->v + 1; /* one of the previous MCU row above, one beyond the image's end
		                                      * below */
		total += stride[i] * rows[i];
	}
	uint8_t *p = scratch_reserve(&s->strips, total);

	if (!p)
		return -ENOMEM;
	for (uint32_t i = 0; i < shape->n_components; i++) {
		s->strip[i] = (struct strip){ p + stride[i] + MARGIN, stride[i] };
		p += stride[i] * rows[i];
	}
	return 0;
}
