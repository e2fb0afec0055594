/* A field: a named part of every sample of a data set.
 *
 * Field 0 is the main one: the image, which the pipeline makes, or the first array. Field 1 is "label" unless a kind says
 * otherwise. Dense fields have rows of one shape. Rows of ragged fields are lists of values of one shape, as many as the
 * sample has; texts and bytes are ragged uint8. */
#ifndef BATCHD_FIELD_H
#define BATCHD_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

enum { FIELD_MAX_DIMS = 8, FIELD_NAME_BYTES = 64, FIELD_SUMS = 25 };

enum field_kind { FIELD_DENSE, FIELD_RAGGED };

struct field {
	char name[FIELD_NAME_BYTES]; /* ends with a zero byte; see field_name_is_valid */
	enum field_kind kind;
	bool text;  /* ragged uint8: valid UTF-8 */
	bool bytes; /* ragged uint8: neither text nor a list of numbers */
	enum dtype dtype;
	unsigned n_dims;
	uint32_t shape[FIELD_MAX_DIMS]; /* dense: of a row; ragged: of one value */
	/* Ragged: what bounds a batch. Number of values of the longest row, and at [k] of the 2^k longest rows together,
	 * or more than that. See struct field_measure. */
	uint64_t longest, sum_longest[FIELD_SUMS];
};

/* 1 to 63 bytes of printable ASCII without space, quote, comma, backslash. */
bool field_name_is_valid(const char *name);

/* Bytes of a row (dense) or of one value (ragged). 0 with `out`, or -EOVERFLOW. */
int field_item_bytes(const struct field *f, size_t *out);

/* The most values that n_rows different rows of a ragged field have together. */
uint64_t field_most_values(const struct field *f, uint64_t n_rows);

/* Bounds of a ragged field from the lengths of all its rows, in any order and in constant memory. Lengths are counted in
 * size classes, eight per power of two, so a sum is at most an eighth too large. */
struct field_measure {
	uint64_t count[64 * 8];
	uint64_t longest;
};

/* n_values: of one row. */
void field_measure_add(struct field_measure *m, uint64_t n_values);
void field_measure_end(const struct field_measure *m, struct field *f);

/* A value that a data set holds in memory. A kind without a stored copy puts it into `scalar`. */
struct field_value {
	const void *bytes; /* valid as long as the data set and this struct */
	size_t n_bytes;
	int64_t scalar;
};

static inline void field_value_set_scalar(struct field_value *v, int64_t scalar)
{
	v->scalar = scalar;
	v->bytes = &v->scalar;
	v->n_bytes = sizeof(v->scalar);
}

#endif
