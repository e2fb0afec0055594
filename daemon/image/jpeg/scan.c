/* Decodes a rectangle of a JPEG scan, see scan.h.
 *
 * For each MCU row: go to the first MCU that the rectangle touches (from the nearest known state), decode blocks into
 * coefficients, two blocks at a time into samples, and emit the pixel rows whose samples are complete. Samples are
 * stored in a strip, one MCU row high. The difficult case is chroma that is halved vertically. A pixel row needs the
 * sample rows on both sides of it, so the last pixel row of an MCU row waits for the next MCU row, and the strip keeps
 * one row of the previous MCU row above its top (index -1). At the image's borders the outermost real samples are
 * repeated; the samples beyond them, with which an encoder fills the block, are never used.
 *
 * The data determine only values: lengths and positions are checked after every MCU, and the stream is padded by more
 * than an MCU can consume. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "image/jpeg/scan-impl.h"
#include "image/jpeg/stuffing.h"

struct scan *scan_create(void)
{
	struct scan *s = aligned_alloc(64, (sizeof(*s) + 63) / 64 * 64);

	if (!s)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->entropy = entropy_best();
	s->blocks = blocks_paths()[0];
	s->edge = 8;
	return s;
}

void scan_destroy(struct scan *s)
{
	if (!s)
		return;
	scratch_finish(&s->stream);
	scratch_finish(&s->starts);
	scratch_finish(&s->strips);
	progressive_finish(&s->progressive);
	free(s);
}

const char *const *scan_paths(void)
{
	static const char *const all[] = { "avx512", "avx2", "c", NULL }; /* the plain path runs on every processor */

	for (const char *const *name = all; *name; name++)
		if (strcmp(*name, blocks_paths()[0]->name) == 0)
			return name;
	return all + 2;
}

int scan_set_path(struct scan *s, const char *name)
{
	for (const struct blocks_ops *const *p = blocks_paths(); *p; p++)
		if (strcmp((*p)->name, name) == 0) {
			s->blocks = *p;
			s->entropy = *p == &blocks_c ? &entropy_c : entropy_best();
			return 0;
		}
	return -ENOENT;
}

void scan_set_sink(struct scan *s, struct row_sink *sink)
{
	s->sink = sink;
	s->sink_has_rows = false;
}

bool scan_sink_has_rows(const struct scan *s)
{
	return s->sink_has_rows;
}

/* ---- tables and data ---- */

static void load_quant(struct scan *s, const struct jpeg_decompress_struct *c)
{
	for (uint32_t i = 0; i < s->shape.n_components; i++) {
		const UINT16 *quant = c->quant_tbl_ptrs[c->comp_info[i].quant_tbl_no]->quantval;

		for (unsigned at = 0; at < DCTSIZE2; at++) {
			uint16_t *to = s->quant[i > 0] + at / 8 * COEF_ROW + at % 8;

			if (i != 2)
				to[0] = quant[at];
			if (i != 1)
				to[8] = quant[at];
		}
	}
}

int scan_load_tables(struct scan *s, const struct jpeg_decompress_struct *c)
{
	const struct huff_dc *dc[3];
	const struct huff_ac *ac[3];
	struct mcu_layout *l = &s->layout;

	for (uint32_t i = 0; i < s->shape.n_components; i++) {
		const jpeg_component_info *k = &c->comp_info[i];
		const JHUFF_TBL *dc_table = c->dc_huff_tbl_ptrs[k->dc_tbl_no],
				*ac_table = c->ac_huff_tbl_ptrs[k->ac_tbl_no];

		dc[i] = huff_cache_dc(&s->tables, dc_table->bits, dc_table->huffval);
		ac[i] = huff_cache_ac(&s->tables, ac_table->bits, ac_table->huffval);
		if (!dc[i] || !ac[i])
			return SCAN_E_UNSURE;
	}
	load_quant(s, c);
	l->n_blocks = s->shape.n_luma + s->shape.n_components - 1;
	for (uint32_t b = 0; b < l->n_blocks; b++) {
		uint32_t i = b < s->shape.n_luma ? 0 : b - s->shape.n_luma + 1;

		l->component[b] = (uint8_t)i;
		l->dc[b] = dc[i];
		l->ac[b] = ac[i];
	}
	return 0;
}

int scan_load_stream(struct scan *s, const uint8_t *data, size_t n)
{
	uint64_t n_mcus = (uint64_t)s->shape.mcus_per_row * s->shape.mcu_rows, n_intervals = 1;

	if (s->shape.restart_interval)
		n_intervals = (n_mcus + s->shape.restart_interval - 1) / s->shape.restart_interval;
	if (n > INT32_MAX || n_intervals > n) /* each interval has a marker */
		return SCAN_E_UNSURE;
	uint8_t *stream = scratch_reserve(&s->stream, n + ENTROPY_PAD_BYTES);
	uint32_t *starts = (void *)scratch_reserve(&s->starts, (n_intervals + 1) * sizeof(uint32_t));

	if (!stream || !starts)
		return -ENOMEM;
	s->interval_starts = starts;
	if (unstuff(data, n, stream, starts, (uint32_t)n_intervals) < 0)
		return SCAN_E_UNSURE;
	memset(stream + starts[n_intervals], 0, ENTROPY_PAD_BYTES);
	return 0;
}

static bool index_fits(const struct checkpoints *x, const struct shape *s, uint64_t id)
{
	return x && x->magic == CHECKPOINTS_MAGIC && x->mcus_per_row == s->mcus_per_row && x->mcu_rows == s->mcu_rows &&
	       x->scan_id == id && x->mcu_step;
}

/* ---- from MCUs to samples ---- */

static void transform_pair(struct scan *s, int16_t *coef, const uint16_t *quant, unsigned last_a, unsigned last_b,
			   uint8_t *a, uint8_t *b, size_t stride_bytes)
{
	if (last_a | last_b) {
		s->exceeded |= s->blocks->idct_pair(coef, quant, last_a > last_b ? last_a : last_b, a, b, stride_bytes);
		return;
	}
	s->exceeded |= idct_flat(coef[0], quant[0], a, stride_bytes) | idct_flat(coef[8], quant[8], b, stride_bytes);
	coef[0] = coef[8] = 0;
}

/* Transforms the blocks of an MCU with several luma blocks, or the chroma blocks of any MCU. x: MCU column in the
 * strip. */
static void transform_mcu(struct scan *s, uint32_t x, uint32_t wanted, const uint8_t *last)
{
	const struct shape *shape = &s->shape;
	const struct strip *luma = &s->strip[0];

	for (uint32_t b = 0; shape->n_luma > 1 && b < shape->n_luma; b += 2) {
		uint8_t *to = luma->row0 + x * shape->h * 8 + b / shape->h * 8 * luma->stride_bytes;

		if (wanted >> b & 3)
			transform_pair(s, s->coef[b / 2], s->quant[0], last[b], last[b + 1], to,
				       shape->h == 2 ? to + 8 : to + 8 * luma->stride_bytes, luma->stride_bytes);
	}
	if (wanted >> shape->n_luma)
		transform_pair(s, s->coef[2], s->quant[1], last[shape->n_luma], last[shape->n_luma + 1],
			       s->strip[1].row0 + x * 8, s->strip[2].row0 + x * 8, s->strip[1].stride_bytes);
}

/* The wanted blocks of an MCU of a progressive picture, as entropy_ops.decode gives them. */
static void fetch_mcu(const struct scan *s, uint32_t mcu_x, uint32_t mcu_y, uint32_t wanted,
		      int16_t *const coef[ENTROPY_MAX_BLOCKS], uint8_t last[ENTROPY_MAX_BLOCKS])
{
	const struct shape *shape = &s->shape;

	for (uint32_t b = 0; b < shape->n_luma + shape->n_components - 1; b++) {
		bool luma = b < shape->n_luma;
		uint32_t x = luma ? mcu_x * shape->h + b % shape->h : mcu_x;
		uint32_t y = luma ? mcu_y * shape->v + b / shape->h : mcu_y;

		if (wanted >> b & 1)
			last[b] = (uint8_t)progressive_block(&s->progressive, luma ? 0 : b - shape->n_luma + 1, x, y,
							     coef[b]);
	}
}

/* Goes to the rectangle's first blocks in a row of MCUs of the pack. */
static int enter_pack_row(struct scan *s, uint32_t mcu_y)
{
	const struct shape *shape = &s->shape;

	for (uint32_t i = 0; i < s->pack->n_lines; i++) {
		s->line[i] = block_pack_line(s->pack, mcu_y, i);
		if (block_pack_skip(&s->line[i], s->mcu_x0 * (i < shape->v ? shape->h : 1)) < 0)
			return SCAN_E_UNSURE;
	}
	return 0;
}

/* The next MCU of the pack's row, as entropy_ops.decode gives it. */
static int take_mcu(struct scan *s, uint32_t wanted, int16_t *const coef[ENTROPY_MAX_BLOCKS],
		    uint8_t last[ENTROPY_MAX_BLOCKS])
{
	const struct shape *shape = &s->shape;

	for (uint32_t b = 0; b < shape->n_luma + shape->n_components - 1; b++) {
		struct block_place *line = &s->line[b < shape->n_luma ? b / shape->h : shape->v + b - shape->n_luma];
		int r = wanted >> b & 1 ? block_pack_take(line, coef[b]) : block_pack_skip(line, 1);

		if (r < 0)
			return SCAN_E_UNSURE;
		if (wanted >> b & 1)
			last[b] = (uint8_t)r;
	}
	return 0;
}

/* Goes to the rectangle's first MCU of a row. */
static int enter_row(struct scan *s, uint32_t mcu_y)
{
	if (s->source == FROM_STREAM)
		return scan_go_to(s, mcu_y * s->shape.mcus_per_row + s->mcu_x0);
	return s->source == FROM_PACK ? enter_pack_row(s, mcu_y) : 0;
}

/* The next MCU of the row: its wanted blocks. */
static int next_mcu(struct scan *s, uint32_t mcu_x, uint32_t mcu_y, uint32_t wanted,
		    int16_t *const coef[ENTROPY_MAX_BLOCKS], uint8_t last[ENTROPY_MAX_BLOCKS])
{
	int r;

	if (s->source == FROM_PACK)
		return take_mcu(s, wanted, coef, last);
	if (s->source == FROM_PROGRESSIVE) {
		fetch_mcu(s, mcu_x, mcu_y, wanted, coef, last);
		return 0;
	}
	if (s->at == s->stop && (r = scan_arrive(s)))
		return r;
	if (s->entropy->decode(&s->state, &s->layout, wanted, coef, last) < 0 || scan_bits_left(s) < 0)
		return SCAN_E_UNSURE;
	s->at++;
	return 0;
}

/* Decodes those MCUs of one row that the rectangle needs into the strips. */
static int decode_row(struct scan *s, uint32_t mcu_y)
{
	const uint32_t n_luma = s->shape.n_luma, n = s->mcu_x1 - s->mcu_x0;
	const uint32_t inner = scan_blocks_wanted(s, n > 2 ? s->mcu_x0 + 1 : s->mcu_x0, mcu_y);
	int16_t *coef[ENTROPY_MAX_BLOCKS] = { s->coef[0], s->coef[0] + 8, s->coef[1], s->coef[1] + 8 };
	uint8_t last[ENTROPY_MAX_BLOCKS] = { 0 };
	unsigned waiting = 0; /* for luma with one block per MCU, two MCUs make a pair: `last` of the first */
	int r;

	coef[n_luma] = s->coef[2];
	coef[n_luma + 1] = s->coef[2] + 8;
	if ((r = enter_row(s, mcu_y)))
		return r;
	for (uint32_t x = 0; x < n; x++) {
		uint32_t wanted = x && x + 1 < n ? inner : scan_blocks_wanted(s, s->mcu_x0 + x, mcu_y);

		if (n_luma == 1)
			coef[0] = s->coef[0] + x % 2 * 8;
		if (wanted != (1u << (n_luma + s->shape.n_components - 1)) - 1)
			memset(last, 0, sizeof(last));
		if ((r = next_mcu(s, s->mcu_x0 + x, mcu_y, wanted, coef, last)))
			return r;
		transform_mcu(s, x, wanted, last);
		if (n_luma == 1) {
			if (x % 2 == 0)
				waiting = last[0];
			if (x % 2 || x + 1 == n) {
				uint8_t *to = s->strip[0].row0 + (x & ~1u) * 8;

				transform_pair(s, s->coef[0], s->quant[0], waiting, x % 2 ? last[0] : 0, to, to + 8,
					       s->strip[0].stride_bytes);
			}
		}
	}
	return s->exceeded ? SCAN_E_UNSURE : 0;
}

/* The same of a draft, whose pixels need no other row. */
static int decode_draft_row(struct scan *s, uint32_t mcu_y, const struct image *out)
{
	const uint32_t n_luma = s->shape.n_luma;
	int16_t *coef[ENTROPY_MAX_BLOCKS] = { s->coef[0], s->coef[0] + 8, s->coef[1], s->coef[1] + 8 };
	uint8_t last[ENTROPY_MAX_BLOCKS] = { 0 };
	uint32_t wanted = scan_draft_wants(s);
	int r;

	coef[n_luma] = s->coef[2];
	coef[n_luma + 1] = s->coef[2] + 8;
	if ((r = enter_row(s, mcu_y)))
		return r;
	for (uint32_t x = s->mcu_x0; x < s->mcu_x1; x++) {
		if ((r = next_mcu(s, x, mcu_y, wanted, coef, last)))
			return r;
		scan_transform_draft(s, x - s->mcu_x0, last);
	}
	if (s->exceeded)
		return SCAN_E_UNSURE;
	scan_emit_draft(s, mcu_y, out);
	return 0;
}

static int decode_rows(struct scan *s, const struct image *out)
{
	int r;

	s->exceeded = 0;
	if (s->source == FROM_STREAM)
		scan_stand_at(s, 0, 0, (const int32_t[3]){ 0 });
	for (uint32_t y = s->mcu_y0; y < s->mcu_y1; y++) {
		r = s->edge < 8 ? decode_draft_row(s, y, out) : decode_row(s, y);
		if (r) {
			memset(s->coef, 0, sizeof(s->coef));
			return r;
		}
		if (s->edge == 8)
			scan_emit_rows(s, y, out);
	}
	return 0;
}

int scan_region(struct scan *s, const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n, uint64_t id,
		const struct checkpoints *in, struct checkpoints *record, struct region_px want, struct image *out)
{
	int r;

	if (!scan_supported(c) || !scan_shape(c, &s->shape) || !scan_can_draft(s))
		return SCAN_E_UNSURE;
	s->source = FROM_STREAM;
	if ((r = scan_load_tables(s, c)) || (r = scan_load_stream(s, data, n)))
		return r;
	s->index = index_fits(in, &s->shape, id) ? in : NULL;
	s->record = index_fits(record, &s->shape, id) ? record : NULL;
	scan_plan(s, want);
	if ((r = scan_reserve_strips(s)))
		return r;
	out->width = want.width;
	out->height = want.height;
	return decode_rows(s, out);
}

/* ---- progressive pictures ---- */

void scan_frame(const struct scan *s, uint32_t max_scans, struct progressive_frame *f)
{
	const struct shape *shape = &s->shape;

	*f = (struct progressive_frame){ .n_components = shape->n_components,
					 .mcus_per_row = shape->mcus_per_row,
					 .mcu_rows = shape->mcu_rows,
					 .n_rows = s->mcu_y1,
					 .max_scans = max_scans,
					 .plain = s->entropy == &entropy_c };
	for (uint32_t i = 0; i < shape->n_components; i++) {
		uint32_t h = i ? 1 : shape->h, v = i ? 1 : shape->v;
		uint32_t width = i ? shape->chroma_width : shape->width,
			 height = i ? shape->chroma_height : shape->height;

		f->component[i] = (struct progressive_component){ .h = h,
								  .v = v,
								  .columns = (width + 7) / 8,
								  .rows = (height + 7) / 8,
								  .stride = shape->mcus_per_row * h };
	}
}

/* The picture's shape and tables, and the rectangle; false if this decoder does not handle it. */
static bool begin_progressive(struct scan *s, const struct jpeg_decompress_struct *c, enum scan_source source,
			      struct region_px want)
{
	if (!scan_supported_progressive(c) && !(source == FROM_PACK && scan_supported(c)))
		return false;
	if (!scan_shape(c, &s->shape) || !scan_can_draft(s))
		return false;
	s->source = source;
	s->index = NULL;
	s->record = NULL;
	load_quant(s, c);
	scan_plan(s, want);
	return true;
}

int scan_decode_blocks(struct scan *s, struct region_px want, struct image *out)
{
	int r = scan_reserve_strips(s);

	if (r)
		return r;
	out->width = want.width;
	out->height = want.height;
	return decode_rows(s, out);
}

int scan_progressive_region(struct scan *s, const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n,
			    uint32_t max_scans, struct cpu_budget *budget, bool all_rows, struct region_px want,
			    struct image *out)
{
	struct progressive_frame frame;
	int r;

	if (!begin_progressive(s, c, FROM_PROGRESSIVE, want))
		return SCAN_E_UNSURE;
	scan_frame(s, max_scans, &frame);
	if (all_rows)
		frame.n_rows = frame.mcu_rows;
	r = progressive_read(&s->progressive, &frame, c, data, n, &s->tables, budget);
	return r ? r : scan_decode_blocks(s, want, out);
}

size_t scan_pack(struct scan *s, uint64_t id, size_t limit_bytes, struct scratch *to)
{
	return block_pack_make(to, &s->progressive, id, limit_bytes);
}

int scan_packed_region(struct scan *s, const struct jpeg_decompress_struct *c, const struct block_pack *pack,
		       struct region_px want, struct image *out)
{
	if (!begin_progressive(s, c, FROM_PACK, want) || pack->mcus_per_row != s->shape.mcus_per_row ||
	    pack->mcu_rows != s->shape.mcu_rows || pack->n_lines != s->shape.v + s->shape.n_components - 1 ||
	    pack->n_rows < s->mcu_y1)
		return SCAN_E_UNSURE;
	s->pack = pack;
	return scan_decode_blocks(s, want, out);
}
