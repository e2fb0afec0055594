/* Columns of Arrow batches, read into memory: numbers, lists of numbers, texts and bytes become fields (field.h); of
 * pictures only their places are kept. Nothing that a batch says is taken without a check against its own buffers. */
#ifndef BATCHD_ARROW_COLUMN_H
#define BATCHD_ARROW_COLUMN_H

#include "dataset/arrow/ipc.h"
#include "dataset/block.h"
#include "dataset/field.h"
#include "base/meter.h"

/* Where a column's values lie in a batch: through fixed lists and lists down to numbers or bytes. */
struct arrow_layout {
	char column[ARROW_NAME_BYTES];
	struct field field; /* type, shape and kind; without name and bounds */
	enum dtype stored;
	bool is_bits, is_text, widened;
	unsigned n_levels;
	struct arrow_level {
		unsigned node;
		bool is_list, is_large; /* else items are `n` to a row */
		bool is_ragged;         /* a list of any length; other lists have `n` items each */
		uint32_t n;
	} levels[ARROW_MAX_SHAPE + 1];
	unsigned leaf,
		leaf_buffer; /* the node after the levels; of texts the list's own, whose last buffer has the bytes */
	size_t value_bytes;  /* of one stored number */
};

/* False with the reason: the field is of no kind that is read. */
bool arrow_layout_make(const struct arrow_schema *s, unsigned number, struct arrow_layout *out, char *why, size_t size);
bool arrow_layouts_are_alike(const struct arrow_layout *a, const struct arrow_layout *b);

/* The rows that are wanted; NULL: all. */
struct arrow_rows {
	const uint8_t *used; /* a bit each, of n */
	uint64_t n;
};
static inline bool arrow_rows_has(const struct arrow_rows *rows, uint64_t row)
{
	return !rows->used || (row < rows->n && rows->used[row / 8] >> row % 8 & 1);
}

/* A place in a batch that is being read. */
struct arrow_cursor {
	struct shard_reader *reader;
	const struct arrow_schema *schema;
	const struct arrow_batch *batch;
	const struct arrow_rows *rows;
	uint64_t first; /* the batch's first row, in all files together */
};

/* A field's values. Rows that are not wanted have none, or zeros. Starts zeroed, except for layout and meter. */
struct arrow_column {
	struct meter *meter;
	struct arrow_layout layout;
	char name[FIELD_NAME_BYTES];
	char *values;
	uint64_t *ends; /* ragged: of each row, in values */
	size_t n_bytes, values_capacity, n_rows, ends_capacity;
};
/* The layout is this file's, and like the column's own. A null in a wanted row is refused. 0 or negative errno with the
 * reader's err. */
int arrow_column_read(struct arrow_column *c, const struct arrow_layout *layout, const struct arrow_cursor *at);
/* Of ragged fields, the bounds of a batch. */
void arrow_column_measure(const struct arrow_column *c, struct field *f);
void arrow_column_value(const struct arrow_column *c, uint64_t row, struct field_value *out);
void arrow_column_finish(struct arrow_column *c);

/* The offsets of n rows of a list or a text, one more than rows: ascending, and none above n_values. n is at most
 * ARROW_PIECE. */
enum { ARROW_PIECE = 4096 };
int arrow_offsets(const struct arrow_cursor *at, unsigned node, bool large, uint64_t first, size_t n, uint64_t n_values,
		  uint64_t offsets[ARROW_PIECE + 1]);
/* Whether values first..first + n are there: a bit each in `valid`. At most ARROW_PIECE. */
int arrow_validity(const struct arrow_cursor *at, unsigned node, uint64_t first, size_t n,
		   uint8_t valid[ARROW_PIECE / 8 + 1]);
/* Any number of bytes of a buffer, which has them. */
int arrow_copy(const struct arrow_cursor *at, uint64_t from, uint64_t n_bytes, void *to);

#endif
