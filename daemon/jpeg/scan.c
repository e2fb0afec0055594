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
#include <xxhash.h>

#include "jpeg/blocks.h"
#include "jpeg/entropy.h"
#include "jpeg/progressive.h"
#include "jpeg/scan.h"
#include "jpeg/stuffing.h"

enum { MAX_DIMENSION = 65500, MARGIN = BLOCKS_SLACK };

/* The part of the header that decoding needs. */
struct shape {
	uint32_t width, height;
	uint32_t n_components;
	uint32_t h, v;   /* luma samples per chroma sample: 1 or 2 */
	uint32_t n_luma; /* luma blocks per MCU: h * v */
	uint32_t mcus_per_row, mcu_rows;
	uint32_t chroma_width, chroma_height; /* real samples, not filled up to blocks */
	uint32_t restart_interval;            /* in MCUs; 0: none */
	bool is_ycc;
};

/* One component's samples of the present MCU row. */
struct strip {
	uint8_t *row0; /* first sample of the first column kept */
	size_t stride_bytes;
};

struct scan {
	const struct entropy_ops *entropy;
	const struct blocks_ops *blocks;
	struct huff_cache tables;
	struct scratch stream, starts, strips;
	struct progressive progressive;
	/* The present image. */
	bool is_progressive; /* its coefficients are in `progressive` */
	struct shape shape;
	struct mcu_layout layout;
	const uint32_t *interval_starts; /* in the stream, one more than there are intervals */
	struct checkpoints *record;
	const struct checkpoints *index;
	struct entropy_state state;
	uint32_t at;                   /* the MCU that follows the state */
	uint32_t stop;                 /* next MCU at which scan_arrive() must act */
	uint32_t next_restart;         /* first MCU after the present restart interval; UINT32_MAX: none */
	uint32_t next_record;          /* MCU before which the state is recorded next; UINT32_MAX: none */
	uint32_t next_state, next_row; /* number of that state in `record`; the first MCU of the row after its row */
	const uint8_t *interval_end;
	struct strip strip[3];
	/* The rectangle: pixels; MCU columns and rows [first, end); the samples of chroma it needs [first, end). */
	struct region_px want;
	uint32_t mcu_x0, mcu_x1, mcu_y0, mcu_y1;
	uint32_t chroma_x0, chroma_x1, chroma_y0, chroma_y1;
	/* Pairs of blocks: luma [0], [1]; chroma [2]. All zero between MCUs. */
	_Alignas(64) int16_t coef[3][COEF_PAIR_STORAGE];
	_Alignas(64) uint16_t quant[2][COEF_PAIR]; /* luma, chroma */
	int exceeded;                              /* a dequantized value was too large */
};

struct scan *scan_create(void)
{
	struct scan *s = aligned_alloc(64, (sizeof(*s) + 63) / 64 * 64);

	if (!s)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->entropy = entropy_best();
	s->blocks = blocks_paths()[0];
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
	static const char *const all[] = { "avx2", "c", NULL }; /* the plain path runs on every processor */

	for (const char *const *name = all; *name; name++)
		if (strcmp(*name, blocks_paths()[0]->name) == 0)
			return name;
	return all + 1;
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

/* ---- reading the header ---- */

static bool shape_of(const struct jpeg_decompress_struct *c, struct shape *out)
{
	const jpeg_component_info *k = c->comp_info;
	struct shape s = {
		.width = c->image_width,
		.height = c->image_height,
		.n_components = (uint32_t)c->num_components,
		.h = 1,
		.v = 1,
		.n_luma = 1,
		.restart_interval = c->restart_interval,
		.is_ycc = c->jpeg_color_space == JCS_YCbCr,
	};

	if (s.width == 0 || s.height == 0 || s.width > MAX_DIMENSION || s.height > MAX_DIMENSION)
		return false;
	if (s.n_components == 3) {
		if (k[1].h_samp_factor != 1 || k[1].v_samp_factor != 1 || k[2].h_samp_factor != 1 ||
		    k[2].v_samp_factor != 1)
			return false;
		s.h = (uint32_t)k[0].h_samp_factor;
		s.v = (uint32_t)k[0].v_samp_factor;
		if (s.h < 1 || s.h > 2 || s.v < 1 || s.v > 2)
			return false;
		if (!s.is_ycc && (c->jpeg_color_space != JCS_RGB || s.h * s.v != 1))
			return false;
	} else if (s.n_components != 1 || c->jpeg_color_space != JCS_GRAYSCALE) {
		return false;
	}
	s.n_luma = s.h * s.v;
	s.mcus_per_row = (s.width + 8 * s.h - 1) / (8 * s.h);
	s.mcu_rows = (s.height + 8 * s.v - 1) / (8 * s.v);
	s.chroma_width = (s.width + s.h - 1) / s.h;
	s.chroma_height = (s.height + s.v - 1) / s.v;
	*out = s;
	return s.h == 1 || s.chroma_width > 2; /* libjpeg upsamples narrower images in another way */
}

bool scan_supported(const struct jpeg_decompress_struct *c)
{
	struct shape s;

	if (c->progressive_mode || c->arith_code || c->data_precision != 8 || c->comps_in_scan != c->num_components ||
	    c->Ss != 0 || c->Se != DCTSIZE2 - 1 || c->Ah != 0 || c->Al != 0 || !shape_of(c, &s))
		return false;
	for (int i = 0; i < c->num_components; i++) {
		const jpeg_component_info *k = &c->comp_info[i];

		if (c->cur_comp_info[i] != k || k->quant_tbl_no < 0 || k->quant_tbl_no >= NUM_QUANT_TBLS ||
		    k->dc_tbl_no < 0 || k->dc_tbl_no >= NUM_HUFF_TBLS || k->ac_tbl_no < 0 ||
		    k->ac_tbl_no >= NUM_HUFF_TBLS)
			return false;
		if (!c->quant_tbl_ptrs[k->quant_tbl_no] || !c->dc_huff_tbl_ptrs[k->dc_tbl_no] ||
		    !c->ac_huff_tbl_ptrs[k->ac_tbl_no])
			return false;
	}
	return true;
}

size_t checkpoints_size(const struct jpeg_decompress_struct *c, size_t n)
{
	struct shape s;

	return shape_of(c, &s) ? checkpoints_bytes(s.mcus_per_row, s.mcu_rows, n) : 0;
}

void checkpoints_init(struct checkpoints *x, const struct jpeg_decompress_struct *c, size_t n, uint64_t id)
{
	struct shape s;

	if (shape_of(c, &s))
		checkpoints_clear(x, s.mcus_per_row, s.mcu_rows, n, id);
}

/* Other tables with the same data lead to other states; another quantization does not. */
uint64_t scan_id(const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n)
{
	struct {
		uint32_t size[2], sampling[2], n_components, restart_interval;
		struct {
			UINT8 dc_bits[17], dc_values[256], ac_bits[17], ac_values[256];
		} tables[3];
	} key;
	struct shape s;

	if (!scan_supported(c) || !shape_of(c, &s))
		return 0;
	memset(&key, 0, sizeof(key));
	key.size[0] = s.width;
	key.size[1] = s.height;
	key.sampling[0] = s.h;
	key.sampling[1] = s.v;
	key.n_components = s.n_components;
	key.restart_interval = s.restart_interval;
	for (uint32_t i = 0; i < s.n_components; i++) {
		const JHUFF_TBL *dc = c->dc_huff_tbl_ptrs[c->comp_info[i].dc_tbl_no],
				*ac = c->ac_huff_tbl_ptrs[c->comp_info[i].ac_tbl_no];

		memcpy(key.tables[i].dc_bits, dc->bits, sizeof(dc->bits));
		memcpy(key.tables[i].dc_values, dc->huffval, sizeof(dc->huffval));
		memcpy(key.tables[i].ac_bits, ac->bits, sizeof(ac->bits));
		memcpy(key.tables[i].ac_values, ac->huffval, sizeof(ac->huffval));
	}
	return XXH3_64bits_withSeed(data, n, XXH3_64bits(&key, sizeof(key)));
}

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

static int scan_load_tables(struct scan *s, const struct jpeg_decompress_struct *c)
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

static int load_stream(struct scan *s, const uint8_t *data, size_t n)
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

/* ---- position of the state ---- */

static uint32_t interval_of(const struct scan *s, uint32_t mcu)
{
	return s->shape.restart_interval ? mcu / s->shape.restart_interval : 0;
}

/* Bits of the present interval that are after the state; negative: it has read too far. */
static int64_t bits_left(const struct scan *s)
{
	return (s->interval_end - s->state.next) * 8 + (int64_t)s->state.n_bits;
}

/* Finds the first state to record from `mcu` on. */
static void plan_record(struct scan *s, uint32_t mcu)
{
	const uint32_t per_row = s->shape.mcus_per_row;
	uint32_t row = mcu / per_row, column = mcu % per_row, step, per_row_states;

	s->next_record = UINT32_MAX;
	if (!s->record)
		return;
	step = s->record->mcu_step;
	per_row_states = checkpoints_states_per_row(s->record);
	s->next_state = row * per_row_states + (column + step - 1) / step;
	column = (column + step - 1) / step * step;
	s->next_row = (row + 1) * per_row;
	s->next_record = row * per_row + column;
	if (column >= per_row) {
		s->next_record = s->next_row;
		s->next_row += per_row;
	}
}

static void stand_at(struct scan *s, uint32_t mcu, uint64_t bit, const int32_t dc[3])
{
	uint32_t interval = interval_of(s, mcu);

	s->at = s->stop = mcu;
	s->next_restart = s->shape.restart_interval ? interval * s->shape.restart_interval : UINT32_MAX;
	if (s->next_restart < mcu)
		s->next_restart += s->shape.restart_interval;
	s->interval_end = s->stream.data + s->interval_starts[interval + 1];
	entropy_seek(&s->state, s->stream.data, bit);
	memcpy(s->state.dc, dc, sizeof(s->state.dc));
	plan_record(s, mcu);
}

static void stand_at_interval(struct scan *s, uint32_t interval)
{
	stand_at(s, interval * s->shape.restart_interval, (uint64_t)s->interval_starts[interval] * 8,
		 (const int32_t[3]){ 0 });
}

/* The state has reached s->stop: passes a restart marker, records the state, finds the next stop. */
static int scan_arrive(struct scan *s)
{
	if (s->at == s->next_restart) {
		uint32_t interval = s->at / s->shape.restart_interval;

		if (s->interval_end == s->stream.data + s->interval_starts[interval] && bits_left(s) > 7)
			return SCAN_E_UNSURE; /* reached from the previous interval, which has bits left */
		stand_at_interval(s, interval);
		s->next_restart += s->shape.restart_interval;
	}
	if (s->at == s->next_record) {
		checkpoints_put(s->record, s->next_state++, entropy_tell(&s->state, s->stream.data), s->state.dc);
		s->next_record += s->record->mcu_step;
		if (s->next_record >= s->next_row) {
			s->next_record = s->next_row;
			s->next_row += s->shape.mcus_per_row;
		}
	}
	s->stop = s->next_restart < s->next_record ? s->next_restart : s->next_record;
	return 0;
}

/* Goes to the last known state of the index at or before `mcu`, if it is ahead of the present one. */
static int jump_by_index(struct scan *s, uint32_t mcu)
{
	const uint32_t per_row = s->shape.mcus_per_row, step = s->index->mcu_step;
	const uint32_t states_per_row = checkpoints_states_per_row(s->index);
	uint32_t state = mcu / per_row * states_per_row + mcu % per_row / step;
	int32_t dc[3];
	uint64_t bit;

	for (;; state--) {
		uint32_t there = state / states_per_row * per_row + state % states_per_row * step;

		if (there <= s->at)
			return 0;
		if (!checkpoints_get(s->index, state, &bit, dc))
			continue;
		uint32_t interval = interval_of(s, there);

		if (bit < (uint64_t)s->interval_starts[interval] * 8 ||
		    bit >= (uint64_t)s->interval_starts[interval + 1] * 8)
			return SCAN_E_UNSURE;
		stand_at(s, there, bit, dc);
		return 0;
	}
}

/* Goes to `mcu`, which is not before the present position, by the shortest way. */
static int go_to(struct scan *s, uint32_t mcu)
{
	uint32_t interval = interval_of(s, mcu);
	int r;

	if (s->shape.restart_interval && interval * s->shape.restart_interval > s->at)
		stand_at_interval(s, interval);
	if (s->index && (r = jump_by_index(s, mcu)))
		return r;
	while (s->at < mcu) {
		if (s->at == s->stop && (r = scan_arrive(s)))
			return r;
		uint32_t to = s->stop < mcu ? s->stop : mcu;

		if (s->entropy->skip(&s->state, &s->layout, to - s->at, s->interval_end) < 0 || bits_left(s) < 0)
			return SCAN_E_UNSURE;
		s->at = to;
	}
	return s->at == s->stop ? scan_arrive(s) : 0;
}

/* ---- from MCUs to samples ---- */

/* Bit b is set when block b of this MCU has samples that the rectangle needs. */
static uint32_t blocks_wanted(const struct scan *s, uint32_t mcu_x, uint32_t mcu_y)
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

/* The next MCU of the row: its wanted blocks. */
static int next_mcu(struct scan *s, uint32_t mcu_x, uint32_t mcu_y, uint32_t wanted,
		    int16_t *const coef[ENTROPY_MAX_BLOCKS], uint8_t last[ENTROPY_MAX_BLOCKS])
{
	int r;

	if (s->is_progressive) {
		fetch_mcu(s, mcu_x, mcu_y, wanted, coef, last);
		return 0;
	}
	if (s->at == s->stop && (r = scan_arrive(s)))
		return r;
	if (s->entropy->decode(&s->state, &s->layout, wanted, coef, last) < 0 || bits_left(s) < 0)
		return SCAN_E_UNSURE;
	s->at++;
	return 0;
}

/* Decodes those MCUs of one row that the rectangle needs into the strips. */
static int decode_row(struct scan *s, uint32_t mcu_y)
{
	const uint32_t n_luma = s->shape.n_luma, n = s->mcu_x1 - s->mcu_x0;
	const uint32_t inner = blocks_wanted(s, n > 2 ? s->mcu_x0 + 1 : s->mcu_x0, mcu_y);
	int16_t *coef[ENTROPY_MAX_BLOCKS] = { s->coef[0], s->coef[0] + 8, s->coef[1], s->coef[1] + 8 };
	uint8_t last[ENTROPY_MAX_BLOCKS] = { 0 };
	unsigned waiting = 0; /* for luma with one block per MCU, two MCUs make a pair: `last` of the first */
	int r;

	coef[n_luma] = s->coef[2];
	coef[n_luma + 1] = s->coef[2] + 8;
	if (!s->is_progressive && (r = go_to(s, mcu_y * s->shape.mcus_per_row + s->mcu_x0)))
		return r;
	for (uint32_t x = 0; x < n; x++) {
		uint32_t wanted = x && x + 1 < n ? inner : blocks_wanted(s, s->mcu_x0 + x, mcu_y);

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

/* ---- from samples to pixels ---- */

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
static void emit_rows(struct scan *s, uint32_t mcu_y, const struct image *out)
{
	const uint32_t v = s->shape.v, late = v == 2 ? 1 : 0;
	uint32_t from = mcu_y ? mcu_y * 8 * v - late : 0;
	uint32_t to = mcu_y + 1 == s->shape.mcu_rows ? s->shape.height : (mcu_y + 1) * 8 * v - late;

	extend_borders(s, mcu_y);
	from = from < s->want.y ? s->want.y : from;
	to = to > s->want.y + s->want.height ? s->want.y + s->want.height : to;
	for (uint32_t y = from; y < to; y++)
		emit_row(s, mcu_y, y, out->rgb + (y - s->want.y) * out->stride_bytes);
	if (late) {
		copy_row(&s->strip[0], -1, 15);
		copy_row(&s->strip[1], -1, 7);
		copy_row(&s->strip[2], -1, 7);
	}
}

/* ---- the rectangle ---- */

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

static void plan_region(struct scan *s, struct region_px want)
{
	const struct shape *shape = &s->shape;
	const uint32_t end_x = want.x + want.width, end_y = want.y + want.height;
	uint32_t first, end;

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

static int reserve_strips(struct scan *s)
{
	const struct shape *shape = &s->shape;
	size_t stride[3], rows[3], total = 0;

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

static int decode_rows(struct scan *s, const struct image *out)
{
	int r;

	s->exceeded = 0;
	if (!s->is_progressive)
		stand_at(s, 0, 0, (const int32_t[3]){ 0 });
	for (uint32_t y = s->mcu_y0; y < s->mcu_y1; y++) {
		if ((r = decode_row(s, y))) {
			memset(s->coef, 0, sizeof(s->coef));
			return r;
		}
		emit_rows(s, y, out);
	}
	return 0;
}

int scan_region(struct scan *s, const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n, uint64_t id,
		const struct checkpoints *in, struct checkpoints *record, struct region_px want, struct image *out)
{
	int r;

	if (!scan_supported(c) || !shape_of(c, &s->shape))
		return SCAN_E_UNSURE;
	s->is_progressive = false;
	if ((r = scan_load_tables(s, c)) || (r = load_stream(s, data, n)))
		return r;
	s->index = index_fits(in, &s->shape, id) ? in : NULL;
	s->record = index_fits(record, &s->shape, id) ? record : NULL;
	plan_region(s, want);
	if ((r = reserve_strips(s)))
		return r;
	out->width = want.width;
	out->height = want.height;
	return decode_rows(s, out);
}

/* ---- progressive pictures ---- */

bool scan_supported_progressive(const struct jpeg_decompress_struct *c)
{
	struct shape s;

	if (!c->progressive_mode || c->arith_code || c->data_precision != 8 || !shape_of(c, &s))
		return false;
	for (int i = 0; i < c->num_components; i++) {
		int table = c->comp_info[i].quant_tbl_no;

		if (table < 0 || table >= NUM_QUANT_TBLS || !c->quant_tbl_ptrs[table])
			return false;
	}
	return true;
}

static void frame_of(const struct scan *s, uint32_t max_scans, struct progressive_frame *f)
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

int scan_progressive_region(struct scan *s, const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n,
			    uint32_t max_scans, struct cpu_budget *budget, struct region_px want, struct image *out)
{
	struct progressive_frame frame;
	int r;

	if (!scan_supported_progressive(c) || !shape_of(c, &s->shape))
		return SCAN_E_UNSURE;
	s->is_progressive = true;
	s->index = NULL;
	s->record = NULL;
	load_quant(s, c);
	plan_region(s, want);
	frame_of(s, max_scans, &frame);
	if ((r = progressive_read(&s->progressive, &frame, c, data, n, &s->tables, budget)) || (r = reserve_strips(s)))
		return r;
	out->width = want.width;
	out->height = want.height;
	return decode_rows(s, out);
}
