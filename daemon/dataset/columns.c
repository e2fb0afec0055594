/* See columns.h. A part of a block is a count, a table that says where each column's values are, and the values. */
#include "dataset/columns.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/block.h"

enum { ALIGN = 8 };

struct place {
	char name[COLUMN_NAME_BYTES];
	uint32_t kind, width;
	uint64_t ends_at, values_at, n_bytes; /* offsets in the part; ends_at 0: none */
};

static bool has_ends(uint32_t kind)
{
	return kind == COLUMN_BYTES || kind == COLUMN_TEXT || kind == COLUMN_CLASS;
}

static size_t row_bytes(uint32_t kind, uint32_t width)
{
	return kind == COLUMN_FLOAT32 ? width * sizeof(float) : sizeof(int64_t);
}

const void *columns_value(const struct columns *c, unsigned k, uint64_t row, size_t *n_bytes)
{
	const struct column *column = &c->list[k];
	uint64_t begin;

	if (!has_ends(column->kind)) {
		*n_bytes = row_bytes(column->kind, column->width);
		return column->values + row * *n_bytes;
	}
	begin = row ? column->ends[row - 1] : 0;
	*n_bytes = (size_t)(column->ends[row] - begin);
	return column->values + begin;
}

int columns_find(const struct columns *c, const char *name)
{
	for (unsigned k = 0; k < c->n; k++) {
		if (!strcmp(c->list[k].name, name))
			return (int)k;
	}
	return -1;
}

/* ---- building ---- */

int columns_add(struct columns_builder *b, const char *name, enum column_kind kind, uint32_t width)
{
	struct column_builder *column;

	if (b->n == COLUMNS_MAX || width > COLUMN_MAX_WIDTH || strlen(name) >= COLUMN_NAME_BYTES)
		return -EFBIG;
	column = &b->list[b->n++];
	*column = (struct column_builder){ .kind = kind, .width = kind == COLUMN_FLOAT32 ? width : 1 };
	snprintf(column->name, sizeof(column->name), "%s", name);
	return 0;
}

int columns_put(struct columns_builder *b, unsigned k, const void *bytes, size_t n_bytes)
{
	struct column_builder *column = &b->list[k];
	int r = block_grow(b->meter, &column->values, &column->bytes_capacity, column->n_bytes + n_bytes, 1);

	if (!r && has_ends(column->kind))
		r = block_grow(b->meter, &column->ends, &column->ends_capacity, column->n_rows + 1,
			       sizeof(*column->ends));
	if (r < 0)
		return r;
	if (n_bytes)
		memcpy(column->values + column->n_bytes, bytes, n_bytes);
	column->n_bytes += n_bytes;
	if (has_ends(column->kind))
		column->ends[column->n_rows] = column->n_bytes;
	column->n_rows++;
	return 0;
}

int columns_put_int(struct columns_builder *b, unsigned k, int64_t value)
{
	return columns_put(b, k, &value, sizeof(value));
}

void columns_make_real(struct columns_builder *b, unsigned k)
{
	struct column_builder *column = &b->list[k];

	for (size_t i = 0; i < column->n_rows; i++) {
		int64_t whole;
		float real;

		memcpy(&whole, column->values + i * sizeof(whole), sizeof(whole));
		real = (float)whole;
		memcpy(column->values + i * sizeof(real), &real, sizeof(real));
	}
	column->n_bytes = column->n_rows * sizeof(float);
	column->kind = COLUMN_FLOAT32;
}

int columns_copy_row(struct columns_builder *b, const struct columns *from, uint64_t row)
{
	int r = 0;

	for (unsigned k = 0; !r && k < b->n; k++) {
		size_t n_bytes;
		const void *bytes = columns_value(from, k, row, &n_bytes);

		r = columns_put(b, k, bytes, n_bytes);
	}
	return r;
}

bool columns_are_alike(const struct columns_builder *b, const struct columns *other)
{
	for (unsigned k = 0; k < b->n; k++) {
		const struct column *column = &other->list[k];

		if (k >= other->n || strcmp(b->list[k].name, column->name) || b->list[k].kind != column->kind ||
		    b->list[k].width != column->width)
			return false;
	}
	return b->n == other->n;
}

void columns_builder_finish(struct columns_builder *b)
{
	for (unsigned k = 0; k < b->n; k++) {
		struct column_builder *column = &b->list[k];

		meter_give(b->meter, column->bytes_capacity + column->ends_capacity * sizeof(*column->ends));
		free(column->values);
		free(column->ends);
	}
	*b = (struct columns_builder){ 0 };
}

/* ---- in a block ---- */

static size_t columns_aligned(size_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t columns_table_bytes(unsigned n)
{
	return sizeof(uint64_t) + n * sizeof(struct place);
}

static size_t ends_bytes(const struct column_builder *column)
{
	return has_ends(column->kind) ? column->n_rows * sizeof(*column->ends) : 0;
}

size_t columns_size(const struct columns_builder *b)
{
	size_t n = columns_table_bytes(b->n);

	for (unsigned k = 0; k < b->n; k++)
		n += ends_bytes(&b->list[k]) + columns_aligned(b->list[k].n_bytes);
	return n;
}

static void columns_copy(char *to, const void *from, size_t n_bytes)
{
	if (n_bytes)
		memcpy(to, from, n_bytes);
}

void columns_write(const struct columns_builder *b, char *part)
{
	size_t at = columns_table_bytes(b->n);

	memset(part, 0, columns_size(b));
	memcpy(part, &(uint64_t){ b->n }, sizeof(uint64_t));
	for (unsigned k = 0; k < b->n; k++) {
		const struct column_builder *column = &b->list[k];
		size_t n_ends = ends_bytes(column);
		struct place p = { .kind = column->kind,
				   .width = column->width,
				   .ends_at = n_ends ? at : 0,
				   .values_at = at + n_ends,
				   .n_bytes = column->n_bytes };

		memcpy(p.name, column->name, sizeof(p.name));
		memcpy(part + columns_table_bytes(k), &p, sizeof(p));
		columns_copy(part + at, column->ends, n_ends);
		columns_copy(part + p.values_at, column->values, column->n_bytes);
		at = p.values_at + columns_aligned(column->n_bytes);
	}
}

static bool ends_are_sound(const uint64_t *ends, uint64_t n_rows, uint64_t n_bytes)
{
	uint64_t last = 0;

	for (uint64_t i = 0; i < n_rows; i++) {
		if (ends[i] < last)
			return false;
		last = ends[i];
	}
	return last == n_bytes;
}

static bool is_inside(uint64_t at, uint64_t n_bytes, size_t part_bytes)
{
	return at % ALIGN == 0 && at <= part_bytes && n_bytes <= part_bytes - at;
}

static int parse_column(const char *part, size_t n_bytes, uint64_t n_rows, const struct place *p, struct column *out)
{
	uint64_t n_ends_bytes = n_rows * sizeof(uint64_t);

	if (!memchr(p->name, '\0', sizeof(p->name)) || p->kind > COLUMN_CLASS || !p->width ||
	    p->width > COLUMN_MAX_WIDTH || !is_inside(p->values_at, p->n_bytes, n_bytes))
		return -EINVAL;
	*out = (struct column){ .kind = p->kind, .width = p->width, .values = part + p->values_at };
	memcpy(out->name, p->name, sizeof(out->name));
	if (!has_ends(p->kind))
		return p->n_bytes / row_bytes(p->kind, p->width) == n_rows &&
				       p->n_bytes % row_bytes(p->kind, p->width) == 0
			       ? 0
			       : -EINVAL;
	if (n_rows > n_bytes || !is_inside(p->ends_at, n_ends_bytes, n_bytes))
		return -EINVAL;
	out->ends = (const void *)(part + p->ends_at);
	return ends_are_sound(out->ends, n_rows, p->n_bytes) ? 0 : -EINVAL;
}

int columns_parse(const char *part, size_t n_bytes, uint64_t n_rows, struct columns *out)
{
	uint64_t n;

	*out = (struct columns){ .n_rows = n_rows };
	if (n_bytes < sizeof(n))
		return -EINVAL;
	memcpy(&n, part, sizeof(n));
	if (n > COLUMNS_MAX || columns_table_bytes((unsigned)n) > n_bytes)
		return -EINVAL;
	out->n = (unsigned)n;
	for (unsigned k = 0; k < n; k++) {
		struct place p;
		int r;

		memcpy(&p, part + columns_table_bytes(k), sizeof(p));
		r = parse_column(part, n_bytes, n_rows, &p, &out->list[k]);
		if (r < 0)
			return r;
	}
	return 0;
}
