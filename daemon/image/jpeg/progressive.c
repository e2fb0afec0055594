/* See progressive.h.
 *
 * A block's coefficients are kept in zigzag order, the order in which scans bring them, with a mask of those that are
 * not zero. So a scan that refines earlier ones visits only these, most blocks cost it one look at the mask, and the
 * memory needs no clearing. Rows below the last one needed are not decoded: the next scan is found by its marker.
 *
 * Lengths and positions are checked after every block, and the stream is padded by more than a block can consume. */
#include "image/jpeg/progressive.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "image/jpeg/entropy-core.h"
#include "image/jpeg/progressive-scan.h"
#include "image/jpeg/scan.h"
#include "image/jpeg/stuffing.h"

enum {
	MAX_LOW_BIT = 5, /* so that shifted values fit into 16 bits */
	AC_BITS = PROGRESSIVE_AC_BITS,
	N_TABLES = 4,
	MARKER_SOS = 0xDA,
	MARKER_EOI = 0xD9,
	MARKER_DHT = 0xC4,
	MARKER_DRI = 0xDD,
	MARKER_COM = 0xFE,
	UNKNOWN = -1,
};

struct definition {
	bool defined;
	uint8_t bits[17], values[256];
};

struct tables {
	struct definition dc[N_TABLES], ac[N_TABLES];
	struct ac_table built;
};

struct reader {
	struct progressive *p;
	const struct jpeg_decompress_struct *c;
	struct tables *tables;
	struct huff_cache *dc_cache;
	const uint8_t *next, *end;                          /* of the file */
	int8_t known[PROGRESSIVE_MAX_COMPONENTS][DCTSIZE2]; /* the lowest bit so far; UNKNOWN: none */
	struct scan_run run;
};

/* ---- a scan ---- */

static void scan_size(const struct reader *r, uint32_t *columns, uint32_t *rows, uint32_t *needed)
{
	const struct progressive_frame *f = &r->p->frame;
	const struct progressive_component *c = &f->component[r->run.scan.component[0]];

	*columns = r->run.scan.n_components == 1 ? c->columns : f->mcus_per_row;
	*rows = r->run.scan.n_components == 1 ? c->rows : f->mcu_rows;
	*needed = r->run.scan.n_components == 1 ? f->n_rows * c->v : f->n_rows;
	*needed = *needed < *rows ? *needed : *rows;
}

/* Removes the scan's stuffing. Sets the marker that ends it. */
static int load_scan(struct reader *r, uint32_t columns, uint32_t rows, int *marker)
{
	uint64_t n_mcus = (uint64_t)columns * rows, n_intervals = 1;
	size_t n = (size_t)(r->end - r->next), n_used = 0;

	if (r->run.restart_interval)
		n_intervals = (n_mcus + r->run.restart_interval - 1) / r->run.restart_interval;
	if (n > INT32_MAX || n_intervals > n)
		return SCAN_E_UNSURE;
	uint8_t *stream = scratch_reserve(&r->p->stream, n + ENTROPY_PAD_BYTES);
	uint32_t *starts = (void *)scratch_reserve(&r->p->starts, (n_intervals + 1) * sizeof(uint32_t));
	if (!stream || !starts)
		return -ENOMEM;
	*marker = unstuff_scan(r->next, n, stream, starts, (uint32_t)n_intervals, &n_used);
	if (*marker < 0)
		return SCAN_E_UNSURE;
	memset(stream + starts[n_intervals], 0, ENTROPY_PAD_BYTES);
	r->next += n_used;
	return 0;
}

static bool build_ac(struct ac_table *t, const struct definition *d)
{
	uint32_t at = 0, n = 0;

	if (!d->defined || huff_codes_build(&t->codes, d->bits, d->values, HUFF_MAX_AC_SIZE) < 0)
		return false;
	memset(t->fast, 0, sizeof(t->fast));
	memset(t->code, 0, sizeof(t->code));
	for (uint32_t length = 1; length <= AC_BITS; length++)
		for (uint32_t i = 0; i < d->bits[length]; i++) {
			uint8_t symbol = d->values[n++];
			uint32_t size = symbol & 15, all = length + size;

			for (uint32_t end = at + (1u << (AC_BITS - length)); at < end; at++) {
				t->code[at].symbol = symbol;
				t->code[at].length = (uint8_t)length;
				if (size == 0 || all > AC_BITS)
					continue;
				t->fast[at].value = (int16_t)value_at((uint64_t)at << (64 - AC_BITS), all, size);
				t->fast[at].run = symbol >> 4;
				t->fast[at].length = (uint8_t)all;
			}
		}
	return true;
}

static bool progressive_load_tables(struct reader *r)
{
	const struct scan_header *h = &r->run.scan;

	if (h->from > 0)
		return build_ac(r->run.ac, &r->tables->ac[h->ac_table]);
	for (uint32_t i = 0; h->high == 0 && i < h->n_components; i++) {
		const struct definition *d = &r->tables->dc[h->dc_table[i]];

		r->run.dc[i] = d->defined ? huff_cache_dc(r->dc_cache, d->bits, d->values) : NULL;
		if (!r->run.dc[i])
			return false;
	}
	return true;
}

/* Whether the scan continues where earlier ones ended; then they are the earlier ones. */
static bool progressive_follows(struct reader *r)
{
	const struct scan_header *h = &r->run.scan;

	if (h->low > MAX_LOW_BIT || (h->high && h->low != h->high - 1) || h->to >= DCTSIZE2 || h->from > h->to ||
	    (h->from == 0 && h->to > 0) || (h->from > 0 && h->n_components != 1))
		return false;
	for (uint32_t i = 0; i < h->n_components; i++) {
		int8_t *known = r->known[h->component[i]];

		if (h->from > 0 && known[0] == UNKNOWN)
			return false;
		for (uint32_t k = h->from; k <= h->to; k++) {
			if (known[k] != (h->high ? (int8_t)h->high : UNKNOWN))
				return false;
			known[k] = (int8_t)h->low;
		}
	}
	return true;
}

static progressive_scan_fn *scan_function(bool plain)
{
	(void)plain;
#if defined(__x86_64__)
	if (!plain && entropy_best() == &entropy_bmi2 && __builtin_cpu_supports("avx2"))
		return progressive_scan_bmi2;
#endif
	return progressive_scan_c;
}

static int read_scan(struct reader *r, int *marker)
{
	uint32_t columns, rows, needed;
	int outcome;

	if (!progressive_follows(r) || !progressive_load_tables(r))
		return SCAN_E_UNSURE;
	scan_size(r, &columns, &rows, &needed);
	if ((outcome = load_scan(r, columns, rows, marker)))
		return outcome;
	return scan_function(r->p->frame.plain)(&r->run, columns, needed);
}

/* ---- what is between scans ---- */

static bool progressive_read_codes(struct reader *r, const uint8_t *p, size_t n)
{
	while (n > 0) {
		size_t n_values = 0;

		if (n < 17 || (p[0] & 0xef) >= N_TABLES)
			return false;
		struct definition *d = p[0] >> 4 ? &r->tables->ac[p[0] & 15] : &r->tables->dc[p[0] & 15];
		for (int i = 1; i <= 16; i++)
			n_values += p[i];
		if (n_values > 256 || n - 17 < n_values)
			return false;
		d->defined = true;
		memcpy(d->bits, p, sizeof(d->bits));
		memset(d->values, 0, sizeof(d->values));
		memcpy(d->values, p + 17, n_values);
		p += 17 + n_values;
		n -= 17 + n_values;
	}
	return true;
}

static bool read_scan_header(struct reader *r, const uint8_t *p, size_t n)
{
	const struct progressive_frame *f = &r->p->frame;
	struct scan_header *h = &r->run.scan;

	if (n < 1 || p[0] < 1 || p[0] > f->n_components || n != 4 + 2 * (size_t)p[0])
		return false;
	h->n_components = p[0];
	for (uint32_t i = 0; i < h->n_components; i++) {
		uint32_t k = 0;

		while (k < f->n_components && r->c->comp_info[k].component_id != p[1 + 2 * i])
			k++;
		/* In the frame's order, and so none twice. */
		if (k == f->n_components || (i > 0 && k <= h->component[i - 1]))
			return false;
		h->component[i] = k;
		h->dc_table[i] = p[2 + 2 * i] >> 4;
		h->ac_table = p[2 + 2 * i] & 15;
		if (h->dc_table[i] >= N_TABLES || h->ac_table >= N_TABLES)
			return false;
	}
	p += 1 + 2 * h->n_components;
	h->from = p[0];
	h->to = p[1];
	h->high = p[2] >> 4;
	h->low = p[2] & 15;
	return true;
}

/* Reads segments up to and including the header of a scan. Returns 1 at the end of the picture. */
static int next_scan(struct reader *r, int marker, bool *ended)
{
	for (;;) {
		*ended = marker == MARKER_EOI;
		if (*ended)
			return 0;
		if (r->end - r->next < 2)
			return SCAN_E_UNSURE;
		size_t n = (size_t)r->next[0] << 8 | r->next[1];
		const uint8_t *p = r->next + 2;
		if (n < 2 || (size_t)(r->end - r->next) < n)
			return SCAN_E_UNSURE;
		r->next += n;
		n -= 2;
		if (marker == MARKER_SOS)
			return read_scan_header(r, p, n) ? 0 : SCAN_E_UNSURE;
		if (marker == MARKER_DHT && !progressive_read_codes(r, p, n))
			return SCAN_E_UNSURE;
		if (marker == MARKER_DRI) {
			if (n != 2)
				return SCAN_E_UNSURE;
			r->run.restart_interval = (uint32_t)p[0] << 8 | p[1];
		}
		if (marker != MARKER_DHT && marker != MARKER_DRI && marker != MARKER_COM)
			return SCAN_E_UNSURE; /* it may change tables of the frame */
		if (r->end - r->next < 2 || r->next[0] != 0xff)
			return SCAN_E_UNSURE;
		marker = r->next[1];
		r->next += 2;
	}
}

/* ---- the picture ---- */

static bool first_scan(struct reader *r)
{
	const struct jpeg_decompress_struct *c = r->c;
	struct scan_header *h = &r->run.scan;

	if (c->comps_in_scan < 1 || (uint32_t)c->comps_in_scan > r->p->frame.n_components)
		return false;
	h->n_components = (uint32_t)c->comps_in_scan;
	for (uint32_t i = 0; i < h->n_components; i++) {
		const jpeg_component_info *k = c->cur_comp_info[i];

		h->component[i] = (uint32_t)k->component_index;
		if ((i > 0 && h->component[i] <= h->component[i - 1]) || k->dc_tbl_no < 0 || k->dc_tbl_no >= N_TABLES ||
		    k->ac_tbl_no < 0 || k->ac_tbl_no >= N_TABLES)
			return false;
		h->dc_table[i] = (uint32_t)k->dc_tbl_no;
		h->ac_table = (uint32_t)k->ac_tbl_no;
	}
	if (c->Ss < 0 || c->Se < 0 || c->Ah < 0 || c->Al < 0)
		return false;
	h->from = (uint32_t)c->Ss;
	h->to = (uint32_t)c->Se;
	h->high = (uint32_t)c->Ah;
	h->low = (uint32_t)c->Al;
	return true;
}

static void take_tables(struct tables *t, const struct jpeg_decompress_struct *c)
{
	for (int i = 0; i < 2 * N_TABLES; i++) {
		const JHUFF_TBL *from = i < N_TABLES ? c->dc_huff_tbl_ptrs[i] : c->ac_huff_tbl_ptrs[i - N_TABLES];
		struct definition *to = i < N_TABLES ? &t->dc[i] : &t->ac[i - N_TABLES];

		to->defined = from != NULL;
		if (from) {
			memcpy(to->bits, from->bits, sizeof(to->bits));
			memcpy(to->values, from->huffval, sizeof(to->values));
		}
	}
}

int progressive_reserve(struct progressive *p, const struct progressive_frame *frame)
{
	size_t n_blocks = 0;

	p->frame = *frame;
	for (uint32_t i = 0; i < p->frame.n_components; i++) {
		struct progressive_component *c = &p->frame.component[i];

		c->first_block = n_blocks;
		n_blocks += (size_t)c->stride * c->v * p->frame.n_rows;
	}
	if (!scratch_reserve(&p->tables, sizeof(struct tables)) ||
	    !scratch_reserve(&p->values, n_blocks * DCTSIZE2 * sizeof(int16_t)) ||
	    !scratch_reserve(&p->masks, n_blocks * sizeof(uint64_t)))
		return -ENOMEM;
	memset(p->masks.data, 0, n_blocks * sizeof(uint64_t));
	return 0;
}

/* All scans have come: libjpeg smooths blocks of which bits are missing. */
static bool progressive_is_complete(const struct reader *r)
{
	for (uint32_t i = 0; i < r->p->frame.n_components; i++)
		for (int k = 0; k < DCTSIZE2; k++)
			if (r->known[i][k] != 0)
				return false;
	return true;
}

int progressive_read(struct progressive *p, const struct progressive_frame *frame,
		     const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n, struct huff_cache *dc,
		     struct cpu_budget *budget)
{
	struct reader r = { .p = p, .c = c, .dc_cache = dc, .next = data, .end = data + n };
	bool ended = false;
	int marker = 0, outcome;

	if ((outcome = progressive_reserve(p, frame)))
		return outcome;
	r.tables = (struct tables *)(void *)p->tables.data;
	r.run.p = p;
	r.run.budget = budget;
	r.run.ac = &r.tables->built;
	r.run.restart_interval = c->restart_interval;
	memset(r.known, UNKNOWN, sizeof(r.known));
	take_tables(r.tables, c);
	if (!first_scan(&r))
		return SCAN_E_UNSURE;
	for (uint32_t i = 0; !ended; i++)
		if (i == frame->max_scans || (outcome = read_scan(&r, &marker)) ||
		    (outcome = next_scan(&r, marker, &ended)))
			return outcome ? outcome : SCAN_E_UNSURE;
	return progressive_is_complete(&r) ? 0 : SCAN_E_UNSURE;
}

unsigned progressive_block(const struct progressive *p, uint32_t component, uint32_t x, uint32_t y, int16_t *coef)
{
	const struct progressive_component *c = &p->frame.component[component];
	size_t block = c->first_block + (size_t)y * c->stride + x;
	const int16_t *values = (const int16_t *)(const void *)p->values.data + block * DCTSIZE2;
	uint64_t mask = ((const uint64_t *)(const void *)p->masks.data)[block];
	unsigned last = mask ? 63 - (unsigned)__builtin_clzll(mask) : 0;

	coef[0] = values[0];
	for (; mask; mask &= mask - 1) {
		int k = __builtin_ctzll(mask);

		coef[zigzag[k]] = values[k];
	}
	return last;
}

void progressive_finish(struct progressive *p)
{
	scratch_finish(&p->values);
	scratch_finish(&p->masks);
	scratch_finish(&p->stream);
	scratch_finish(&p->starts);
	scratch_finish(&p->tables);
}
