/* All blocks of a baseline picture, in the form in which a progressive one's are kept, so that they can be packed and
 * later epochs need no entropy decoding. */
#include <string.h>

#include "image/jpeg/scan-impl.h"
#include "image/jpeg/zigzag.h"

/* Takes a block's coefficients, up to `last` in zigzag order, and leaves zeros. Returns the mask of those that are not
 * zero, without the first. */
static uint64_t take_block(int16_t *to, int16_t *coef, unsigned last)
{
	uint64_t mask = 0;

	for (unsigned k = 0; k <= last; k++) {
		int16_t v = coef[zigzag[k]];

		coef[zigzag[k]] = 0;
		to[k] = v;
		mask |= (uint64_t)(v != 0) << k;
	}
	return mask & ~UINT64_C(1);
}

static void keep_mcu(struct scan *s, uint32_t mcu, int16_t *const coef[ENTROPY_MAX_BLOCKS],
		     const uint8_t last[ENTROPY_MAX_BLOCKS])
{
	const struct shape *shape = &s->shape;
	const uint32_t mcu_x = mcu % shape->mcus_per_row, mcu_y = mcu / shape->mcus_per_row;
	int16_t *values = (int16_t *)(void *)s->progressive.values.data;
	uint64_t *masks = (uint64_t *)(void *)s->progressive.masks.data;

	for (uint32_t b = 0; b < s->layout.n_blocks; b++) {
		const struct progressive_component *c = &s->progressive.frame.component[s->layout.component[b]];
		uint32_t in_mcu = b < shape->n_luma ? b : 0;
		size_t block = c->first_block + (size_t)(mcu_y * c->v + in_mcu / c->h) * c->stride + mcu_x * c->h +
			       in_mcu % c->h;

		masks[block] = take_block(values + block * DCTSIZE2, coef[b], last[b]);
	}
}

static int decode_all(struct scan *s)
{
	const uint32_t n = s->shape.mcus_per_row * s->shape.mcu_rows, n_blocks = s->layout.n_blocks;
	int16_t *const coef[ENTROPY_MAX_BLOCKS] = { s->coef[0],     s->coef[0] + 8, s->coef[1],
						    s->coef[1] + 8, s->coef[2],     s->coef[2] + 8 };
	uint8_t last[ENTROPY_MAX_BLOCKS] = { 0 };
	int r;

	scan_stand_at(s, 0, 0, (const int32_t[3]){ 0 });
	for (; s->at < n; s->at++) {
		if (s->at == s->stop && (r = scan_arrive(s)))
			return r;
		if (s->entropy->decode(&s->state, &s->layout, (1u << n_blocks) - 1, coef, last) < 0 ||
		    scan_bits_left(s) < 0)
			return SCAN_E_UNSURE;
		keep_mcu(s, s->at, coef, last);
	}
	return 0;
}

int scan_whole_region(struct scan *s, const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n,
		      struct region_px want, struct image *out)
{
	struct progressive_frame frame;
	int r;

	if (!scan_supported(c) || !scan_shape(c, &s->shape) || !scan_can_draft(s))
		return SCAN_E_UNSURE;
	if ((r = scan_load_tables(s, c)) || (r = scan_load_stream(s, data, n)))
		return r;
	s->index = s->record = NULL;
	scan_plan(s, want);
	scan_frame(s, 1, &frame);
	frame.n_rows = frame.mcu_rows;
	if ((r = progressive_reserve(&s->progressive, &frame)))
		return r;
	s->source = FROM_STREAM;
	if ((r = decode_all(s))) {
		memset(s->coef, 0, sizeof(s->coef));
		return r;
	}
	s->source = FROM_PROGRESSIVE;
	return scan_decode_blocks(s, want, out);
}
