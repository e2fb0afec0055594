/* See column.h. Wanted rows that follow each other are read together, as ranges: of the column's rows, then of
 * the items of each level of lists, at last of the values, which lie one after the other. */
#include "dataset/arrow/column.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/arrays/gather.h"
#include "dataset/name.h"

/* ---- layouts ---- */

static bool number_type(const struct arrow_field *f, struct arrow_layout *out)
{
	static const enum dtype ints[2][4] = { { DTYPE_UINT8, DTYPE_UINT16, DTYPE_UINT32, DTYPE_UINT64 },
					       { DTYPE_INT8, DTYPE_INT16, DTYPE_INT32, DTYPE_INT64 } };

	if (f->is_encoded)
		return false;
	switch (f->type) {
	case ARROW_INT:
		out->stored = ints[f->is_signed][f->width == 8 ? 0 : f->width == 16 ? 1 : f->width == 32 ? 2 : 3];
		return true;
	case ARROW_FLOAT:
		out->stored = f->width == 16 ? DTYPE_FLOAT16 : f->width == 32 ? DTYPE_FLOAT32 : DTYPE_FLOAT64;
		return true;
	case ARROW_BOOL:
		out->stored = DTYPE_BOOL8;
		out->is_bits = true;
		return true;
	case ARROW_FIXED_BINARY:
		out->stored = DTYPE_UINT8;
		return f->width > 0;
	default:
		return false;
	}
}

static bool arrow_is_bytes(const struct arrow_field *f)
{
	return !f->is_encoded && (f->type == ARROW_BINARY || f->type == ARROW_UTF8 || f->type == ARROW_LARGE_BINARY ||
				  f->type == ARROW_LARGE_UTF8);
}

static bool arrow_is_list(const struct arrow_field *f)
{
	return !f->is_encoded && (f->type == ARROW_LIST || f->type == ARROW_LARGE_LIST || f->type == ARROW_FIXED_LIST);
}

static bool add_level(struct arrow_layout *l, unsigned node, const struct arrow_field *f, const struct arrow_field *top,
		      char *why, size_t size)
{
	unsigned depth = l->n_levels;
	struct arrow_level *level = &l->levels[depth];

	if (depth == ARROW_MAX_SHAPE || l->field.n_dims == FIELD_MAX_DIMS) {
		snprintf(why, size, "lists more than %d deep", ARROW_MAX_SHAPE);
		return false;
	}
	*level = (struct arrow_level){ .node = node, .is_large = f->type == ARROW_LARGE_LIST, .n = f->width };
	if (f->type != ARROW_FIXED_LIST) {
		level->is_list = true;
		level->n = depth < top->n_shape ? top->shape[depth] : 0;
		level->is_ragged = !level->n;
	}
	if (level->is_ragged && depth) {
		snprintf(why, size, "lists of different lengths within lists");
		return false;
	}
	if (!level->is_ragged && !level->n) {
		snprintf(why, size, "lists without items");
		return false;
	}
	l->n_levels++;
	if (level->is_ragged)
		l->field.kind = FIELD_RAGGED;
	else
		l->field.shape[l->field.n_dims++] = level->n;
	return true;
}

static bool arrow_end_layout(struct arrow_layout *l, unsigned number, const struct arrow_field *f)
{
	l->leaf = number;
	l->leaf_buffer = f->first_buffer + 1;
	l->value_bytes = l->is_bits ? 1 : dtype_bytes(l->stored);
	if (f->type == ARROW_FIXED_BINARY) {
		if (l->field.n_dims == FIELD_MAX_DIMS)
			return false;
		l->value_bytes = f->width;
		l->field.shape[l->field.n_dims++] = f->width;
	}
	/* Indexing and losses want int64, and a single integer costs little. */
	l->widened = !l->n_levels && !l->is_bits && f->type == ARROW_INT && l->stored != DTYPE_UINT64;
	l->field.dtype = l->widened ? DTYPE_INT64 : l->stored;
	return true;
}

static bool arrow_bytes_layout(struct arrow_layout *l, unsigned number, const struct arrow_field *f)
{
	l->levels[0] = (struct arrow_level){ .node = number,
					     .is_list = true,
					     .is_ragged = true,
					     .is_large = f->type == ARROW_LARGE_BINARY || f->type == ARROW_LARGE_UTF8 };
	l->n_levels = 1;
	l->field.kind = FIELD_RAGGED;
	l->field.dtype = l->stored = DTYPE_UINT8;
	l->field.text = l->is_text = f->type == ARROW_UTF8 || f->type == ARROW_LARGE_UTF8;
	l->field.bytes = !l->is_text;
	l->leaf = UINT32_MAX;
	l->leaf_buffer = f->first_buffer + 2;
	l->value_bytes = 1;
	return true;
}

bool arrow_layout_make(const struct arrow_schema *s, unsigned number, struct arrow_layout *out, char *why, size_t size)
{
	const struct arrow_field *top = &s->fields[number], *f = top;

	*out = (struct arrow_layout){ 0 };
	snprintf(out->column, sizeof(out->column), "%s", top->name);
	if (arrow_is_bytes(f))
		return arrow_bytes_layout(out, number, f);
	for (; arrow_is_list(f); f++, number++) {
		if (!add_level(out, number, f, top, why, size))
			return false;
	}
	if (!number_type(f, out) || !arrow_end_layout(out, number, f)) {
		snprintf(why, size, "%s%s", out->n_levels ? "lists of " : "", arrow_type_name(f));
		return false;
	}
	return true;
}

bool arrow_layouts_are_alike(const struct arrow_layout *a, const struct arrow_layout *b)
{
	return !memcmp(&a->field, &b->field, sizeof(a->field)) && a->stored == b->stored;
}

/* ---- buffers ---- */

static int arrow_column_refuse(const struct arrow_cursor *at, uint64_t place, unsigned node, const char *why)
{
	return shard_reader_refuse(at->reader, place, "column %.64s: %s", at->schema->fields[node].name, why);
}

static int buffer_piece(const struct arrow_cursor *at, unsigned node, unsigned buffer, uint64_t from, size_t n,
			const uint8_t **piece)
{
	const struct arrow_buffer *b = &at->batch->buffers[buffer];

	if (from > b->n_bytes || n > b->n_bytes - from)
		return arrow_column_refuse(at, b->at, node, "a buffer is shorter than its values");
	return shard_reader_get(at->reader, b->at + from, n, piece);
}

int arrow_offsets(const struct arrow_cursor *at, unsigned node, bool large, uint64_t first, size_t n, uint64_t n_values,
		  uint64_t offsets[ARROW_PIECE + 1])
{
	unsigned width = large ? 8 : 4, buffer = at->schema->fields[node].first_buffer + 1;
	const uint8_t *piece;
	uint64_t last = 0;
	int r = buffer_piece(at, node, buffer, first * width, (n + 1) * width, &piece);

	for (size_t i = 0; !r && i <= n; i++) {
		uint64_t offset;

		if (large) {
			memcpy(&offset, piece + 8 * i, 8);
		} else {
			uint32_t narrow;

			memcpy(&narrow, piece + 4 * i, 4);
			offset = narrow;
		}
		if (offset < last || offset > n_values)
			return arrow_column_refuse(at, at->batch->buffers[buffer].at, node,
						   "its offsets do not ascend, or lead outside of its values");
		offsets[i] = last = offset;
	}
	return r;
}

int arrow_validity(const struct arrow_cursor *at, unsigned node, uint64_t first, size_t n,
		   uint8_t valid[ARROW_PIECE / 8 + 1])
{
	const uint8_t *piece;
	int r;

	memset(valid, 0xff, ARROW_PIECE / 8 + 1);
	if (!at->batch->nodes[node].n_null || !n)
		return 0;
	r = buffer_piece(at, node, at->schema->fields[node].first_buffer, first / 8, (first % 8 + n + 7) / 8, &piece);
	for (size_t i = 0; !r && i < n; i++) {
		uint64_t bit = first % 8 + i;

		if (!(piece[bit / 8] >> bit % 8 & 1))
			valid[i / 8] = (uint8_t)(valid[i / 8] & ~(1u << i % 8));
	}
	return r;
}

int arrow_copy(const struct arrow_cursor *at, uint64_t from, uint64_t n_bytes, void *to)
{
	enum { STEP = 256 << 10 };
	uint64_t done = 0;
	int r = 0;

	while (!r && done < n_bytes) {
		size_t n = n_bytes - done < STEP ? (size_t)(n_bytes - done) : STEP;
		const uint8_t *piece;

		r = shard_reader_get(at->reader, from + done, n, &piece);
		if (!r)
			memcpy((char *)to + done, piece, n);
		done += n;
	}
	return r;
}

/* ---- values ---- */

struct range {
	uint64_t from, to;
};

/* is_row: the values are rows, which the message names. column: in which the node is. */
static int check_no_null(const struct arrow_cursor *at, unsigned node, const char *column, struct range r, bool is_row)
{
	uint8_t valid[ARROW_PIECE / 8 + 1];

	if (r.to > at->batch->nodes[node].n)
		return arrow_column_refuse(at, 0, node, "it has fewer values than its lists say");
	if (!at->batch->nodes[node].n_null)
		return 0;
	for (uint64_t i = r.from; i < r.to; i += ARROW_PIECE) {
		size_t n = r.to - i < ARROW_PIECE ? (size_t)(r.to - i) : ARROW_PIECE;
		int result = arrow_validity(at, node, i, n, valid);

		for (size_t k = 0; !result && k < n; k++) {
			if (valid[k / 8] >> k % 8 & 1)
				continue;
			return is_row ? shard_reader_refuse(at->reader, at->batch->buffers[0].at,
							    "column %.64s is null in row %" PRIu64
							    ": filter such rows out, or leave the column out of fields",
							    at->schema->fields[node].name, at->first + i + k)
				      : shard_reader_refuse(at->reader, at->batch->buffers[0].at,
							    "column %.64s: a list has a null: fill it, or leave the "
							    "column out of fields",
							    column);
		}
		if (result)
			return result;
	}
	return 0;
}

static int arrow_no_room(const struct arrow_cursor *at, int error)
{
	return dataset_fail(at->reader->err, DATASET_E_LIMIT, error, "%.200s: %s", at->reader->name,
			    error == -EDQUOT ? "its columns take more than there is memory for: name fewer in fields"
					     : "out of memory");
}

static int add_ends(struct arrow_column *c, const struct arrow_cursor *at, const uint64_t *offsets, size_t n)
{
	size_t item_bytes;
	uint64_t end = c->n_rows ? c->ends[c->n_rows - 1] : 0;
	int r = block_grow(c->meter, &c->ends, &c->ends_capacity, c->n_rows + n, sizeof(*c->ends));

	if (!r && field_item_bytes(&c->layout.field, &item_bytes))
		r = -ENOMEM;
	if (r)
		return arrow_no_room(at, r);
	for (size_t i = 0; i < n; i++) {
		uint64_t bytes;

		if (__builtin_mul_overflow(offsets[i + 1] - offsets[i], (uint64_t)item_bytes, &bytes) ||
		    __builtin_add_overflow(end, bytes, &end))
			return arrow_no_room(at, -EDQUOT);
		c->ends[c->n_rows++] = end;
	}
	return 0;
}

/* From the rows of a level to its items. */
static int arrow_descend(struct arrow_column *c, const struct arrow_layout *l, const struct arrow_level *level,
			 const struct arrow_cursor *at, struct range *r)
{
	uint64_t most = l->leaf == UINT32_MAX ? at->batch->buffers[l->leaf_buffer].n_bytes
					      : at->batch->nodes[level->node + 1].n;
	uint64_t offsets[ARROW_PIECE + 1];
	struct range items = { 0, 0 };

	if (!level->is_list)
		return __builtin_mul_overflow(r->from, (uint64_t)level->n, &r->from) ||
				       __builtin_mul_overflow(r->to, (uint64_t)level->n, &r->to)
			       ? arrow_column_refuse(at, 0, level->node, "it has more values than fit")
			       : 0;
	for (uint64_t i = r->from; i < r->to; i += ARROW_PIECE) {
		size_t n = r->to - i < ARROW_PIECE ? (size_t)(r->to - i) : ARROW_PIECE;
		int result = arrow_offsets(at, level->node, level->is_large, i, n, most, offsets);

		for (size_t k = 0; !result && !level->is_ragged && k < n; k++) {
			if (offsets[k + 1] - offsets[k] != level->n)
				return shard_reader_refuse(
					at->reader, at->batch->buffers[0].at,
					"column %.64s: a list of %" PRIu64 " items: the column's type says %u",
					at->schema->fields[level->node].name, offsets[k + 1] - offsets[k], level->n);
		}
		result = result || !level->is_ragged ? result : add_ends(c, at, offsets, n);
		if (result)
			return result;
		if (i > r->from && offsets[0] != items.to)
			return arrow_column_refuse(at, 0, level->node, "its offsets have changed while they were read");
		items.from = i == r->from ? offsets[0] : items.from;
		items.to = offsets[n];
	}
	*r = items;
	return 0;
}

static int unpack_bits(struct arrow_column *c, const struct arrow_layout *l, const struct arrow_cursor *at,
		       struct range r)
{
	for (uint64_t i = r.from; i < r.to; i += ARROW_PIECE) {
		size_t n = r.to - i < ARROW_PIECE ? (size_t)(r.to - i) : ARROW_PIECE;
		const uint8_t *piece;
		int result = buffer_piece(at, l->leaf, l->leaf_buffer, i / 8, (i % 8 + n + 7) / 8, &piece);

		if (result)
			return result;
		for (size_t k = 0; k < n; k++)
			c->values[c->n_bytes++] = piece[(i % 8 + k) / 8] >> (i % 8 + k) % 8 & 1;
	}
	return 0;
}

static int widen_numbers(struct arrow_column *c, const struct arrow_layout *l, const struct arrow_cursor *at,
			 struct range r)
{
	for (uint64_t i = r.from; i < r.to; i += ARROW_PIECE) {
		size_t n = r.to - i < ARROW_PIECE ? (size_t)(r.to - i) : ARROW_PIECE;
		const uint8_t *piece;
		int result = buffer_piece(at, l->leaf, l->leaf_buffer, i * l->value_bytes, n * l->value_bytes, &piece);

		if (result)
			return result;
		widen_int64((int64_t *)(void *)(c->values + c->n_bytes), piece, l->stored, n);
		c->n_bytes += n * 8;
	}
	return 0;
}

/* The texts from `start` on, which a zero byte ends: valid together, and none begins within a character. */
static bool texts_are_valid(const struct arrow_column *c, size_t start, size_t n)
{
	if (!name_is_utf8(c->values + start, n))
		return false;
	for (size_t k = c->n_rows; k-- > 0 && c->ends[k] > start;) {
		if (c->ends[k] < start + n && (c->values[c->ends[k]] & 0xc0) == 0x80)
			return false;
	}
	return true;
}

static int copy_plain(struct arrow_column *c, const struct arrow_layout *l, const struct arrow_cursor *at,
		      struct range r)
{
	const struct arrow_buffer *b = &at->batch->buffers[l->leaf_buffer];
	uint64_t from = r.from * l->value_bytes, n = (r.to - r.from) * l->value_bytes;
	int result = arrow_copy(at, b->at + from, n, c->values + c->n_bytes);

	if (result)
		return result;
	c->values[c->n_bytes + n] = '\0';
	if (l->is_text && !texts_are_valid(c, c->n_bytes, n))
		return arrow_column_refuse(at, b->at + from, l->levels[0].node, "a text that is not UTF-8");
	c->n_bytes += n;
	return 0;
}

static int add_values(struct arrow_column *c, const struct arrow_layout *l, const struct arrow_cursor *at,
		      struct range r)
{
	const struct arrow_buffer *b = &at->batch->buffers[l->leaf_buffer];
	uint64_t n = r.to - r.from, bytes, stored;
	int result;

	if (__builtin_mul_overflow(r.to, (uint64_t)l->value_bytes, &stored) ||
	    __builtin_mul_overflow(n, l->widened ? (uint64_t)8 : (uint64_t)l->value_bytes, &bytes) ||
	    (l->is_bits ? r.to / 8 + (r.to % 8 != 0) : stored) > b->n_bytes)
		return arrow_column_refuse(at, b->at, l->levels[0].node, "a buffer is shorter than its values");
	result = block_grow(c->meter, &c->values, &c->values_capacity, c->n_bytes + bytes + 1, 1);
	if (result)
		return arrow_no_room(at, result);
	return !n           ? 0
	       : l->is_bits ? unpack_bits(c, l, at, r)
	       : l->widened ? widen_numbers(c, l, at, r)
			    : copy_plain(c, l, at, r);
}

static int add_rows(struct arrow_column *c, const struct arrow_layout *l, const struct arrow_cursor *at, struct range r)
{
	int result = 0;

	for (unsigned k = 0; !result && k < l->n_levels; k++) {
		result = check_no_null(at, l->levels[k].node, l->column, r, k == 0);
		result = result ? result : arrow_descend(c, l, &l->levels[k], at, &r);
	}
	if (!result && l->leaf != UINT32_MAX)
		result = check_no_null(at, l->leaf, l->column, r, l->n_levels == 0);
	return result ? result : add_values(c, l, at, r);
}

/* Rows that no sample is. */
static int add_unused(struct arrow_column *c, const struct arrow_cursor *at, uint64_t n)
{
	size_t item_bytes;
	uint64_t bytes, all;
	int r = 0;

	if (c->layout.field.kind == FIELD_RAGGED) {
		uint64_t end = c->n_rows ? c->ends[c->n_rows - 1] : 0;

		r = block_grow(c->meter, &c->ends, &c->ends_capacity, c->n_rows + n, sizeof(*c->ends));
		for (uint64_t i = 0; !r && i < n; i++)
			c->ends[c->n_rows++] = end;
		return r ? arrow_no_room(at, r) : 0;
	}
	if (field_item_bytes(&c->layout.field, &item_bytes) ||
	    __builtin_mul_overflow(n, (uint64_t)item_bytes, &bytes) || __builtin_add_overflow(c->n_bytes, bytes, &all))
		return arrow_no_room(at, -EDQUOT);
	r = block_grow(c->meter, &c->values, &c->values_capacity, all, 1);
	if (r)
		return arrow_no_room(at, r);
	memset(c->values + c->n_bytes, 0, bytes);
	c->n_bytes += bytes;
	return 0;
}

/* Room for all rows of a batch, of which the file may claim any number: before they are looked at one by one. */
static int reserve_rows(struct arrow_column *c, const struct arrow_cursor *at, uint64_t n)
{
	size_t item_bytes = 0;
	uint64_t all;
	int r;

	if (c->layout.field.kind == FIELD_RAGGED) {
		r = n > SIZE_MAX - c->n_rows
			    ? -EDQUOT
			    : block_grow(c->meter, &c->ends, &c->ends_capacity, c->n_rows + n, sizeof(*c->ends));
		return r ? arrow_no_room(at, r) : 0;
	}
	r = field_item_bytes(&c->layout.field, &item_bytes) || __builtin_mul_overflow(n, (uint64_t)item_bytes, &all) ||
			    __builtin_add_overflow(c->n_bytes, all, &all)
		    ? -EDQUOT
		    : block_grow(c->meter, &c->values, &c->values_capacity, all, 1);
	return r ? arrow_no_room(at, r) : 0;
}

int arrow_column_read(struct arrow_column *c, const struct arrow_layout *layout, const struct arrow_cursor *at)
{
	uint64_t n = at->batch->n_rows;
	int r = at->rows->used ? reserve_rows(c, at, n) : 0;

	for (uint64_t i = 0, end; !r && i < n; i = end) {
		bool used = arrow_rows_has(at->rows, at->first + i);

		for (end = at->rows->used ? i + 1 : n; end < n; end++) {
			if (!used && at->first + end >= at->rows->n) {
				end = n; /* a batch may claim any number of rows */
				break;
			}
			if (arrow_rows_has(at->rows, at->first + end) != used)
				break;
		}
		r = used ? add_rows(c, layout, at, (struct range){ i, end }) : add_unused(c, at, end - i);
	}
	return r;
}

void arrow_column_measure(const struct arrow_column *c, struct field *f)
{
	struct field_measure m = { 0 };
	size_t item_bytes = 1;

	if (f->kind != FIELD_RAGGED || field_item_bytes(f, &item_bytes))
		return;
	for (size_t i = 0; i < c->n_rows; i++)
		field_measure_add(&m, (c->ends[i] - (i ? c->ends[i - 1] : 0)) / item_bytes);
	field_measure_end(&m, f);
}

void arrow_column_value(const struct arrow_column *c, uint64_t row, struct field_value *out)
{
	size_t item_bytes = 0;

	if (c->layout.field.kind == FIELD_RAGGED) {
		uint64_t from = row ? c->ends[row - 1] : 0;

		out->bytes = c->values + from;
		out->n_bytes = c->ends[row] - from;
		return;
	}
	(void)field_item_bytes(&c->layout.field, &item_bytes);
	out->bytes = c->values + row * item_bytes;
	out->n_bytes = item_bytes;
}

void arrow_column_finish(struct arrow_column *c)
{
	free(c->values);
	free(c->ends);
	c->values = NULL;
	c->ends = NULL;
}
