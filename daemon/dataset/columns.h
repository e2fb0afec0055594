/* Small values of samples, in memory: columns of integers, of vectors of numbers, of texts.
 *
 * Columns are built row by row and then laid out as part of a block (block.h), in which they are used in place. */
#ifndef BATCHD_COLUMNS_H
#define BATCHD_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/meter.h"

enum { COLUMNS_MAX = 32, COLUMN_NAME_BYTES = 64, COLUMN_MAX_WIDTH = 1 << 20 };

enum column_kind {
	COLUMN_INT64,   /* one a row */
	COLUMN_FLOAT32, /* `width` a row */
	COLUMN_BYTES,   /* of any length */
	COLUMN_TEXT,    /* the same, valid UTF-8 */
	COLUMN_UINT64,  /* one a row, as are the next */
	COLUMN_FLOAT64,
	COLUMN_CLASS, /* the name of a class, text; of the column "label" only */
};

struct column {
	char name[COLUMN_NAME_BYTES]; /* ends with a zero byte */
	uint32_t kind, width;
	const char *values;
	const uint64_t *ends; /* of each row in values: COLUMN_BYTES, COLUMN_TEXT and COLUMN_CLASS */
};

struct columns {
	unsigned n;
	uint64_t n_rows;
	struct column list[COLUMNS_MAX];
};

/* The value of a row, valid as long as the block. Returns its bytes. */
const void *columns_value(const struct columns *c, unsigned k, uint64_t row, size_t *n_bytes);
int columns_find(const struct columns *c, const char *name); /* -1: there is none */

/* The builder starts zeroed, except for its meter. A row is complete when each column has been given its value. All
 * functions return 0, -ENOMEM or the meter's error. */
struct column_builder {
	char name[COLUMN_NAME_BYTES];
	uint32_t kind, width;
	char *values;
	uint64_t *ends;
	size_t n_bytes, bytes_capacity, n_rows, ends_capacity;
};

struct columns_builder {
	struct meter *meter; /* borrowed; NULL: nothing is counted */
	unsigned n;
	struct column_builder list[COLUMNS_MAX];
};
/* -EFBIG: too many columns. width: of COLUMN_FLOAT32, at most COLUMN_MAX_WIDTH. */
int columns_add(struct columns_builder *b, const char *name, enum column_kind kind, uint32_t width);
int columns_put_int(struct columns_builder *b, unsigned k, int64_t value);
/* The bytes of a value: of `width` floats, or of a text. */
int columns_put(struct columns_builder *b, unsigned k, const void *bytes, size_t n_bytes);
/* Turns the whole numbers that a column has so far into real ones: it is of COLUMN_FLOAT32 from then on. */
void columns_make_real(struct columns_builder *b, unsigned k);
/* Appends a row of other columns that have the same names and kinds. */
int columns_copy_row(struct columns_builder *b, const struct columns *from, uint64_t row);
bool columns_are_alike(const struct columns_builder *b, const struct columns *other);
void columns_builder_finish(struct columns_builder *b);

/* The part of a block, 8-byte aligned: its size, its writing, and its reading with checks of every offset (-EINVAL). The
 * builder's columns have n_rows rows each. */
size_t columns_size(const struct columns_builder *b);
void columns_write(const struct columns_builder *b, char *part);
int columns_parse(const char *part, size_t n_bytes, uint64_t n_rows, struct columns *out);

#endif
