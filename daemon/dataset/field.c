/* See field.h. */
#include "dataset/field.h"

#include <errno.h>
#include <string.h>

enum { STEPS = 8, STEP_BITS = 3 }; /* size classes per power of two */

bool field_name_is_valid(const char *name)
{
	size_t n = strnlen(name, FIELD_NAME_BYTES);

	for (size_t i = 0; i < n; i++) {
		if (name[i] <= ' ' || name[i] > '~' || strchr("\"',\\", name[i]))
			return false;
	}
	return n > 0 && n < FIELD_NAME_BYTES;
}

int field_item_bytes(const struct field *f, size_t *out)
{
	size_t n = dtype_bytes(f->dtype);

	for (unsigned i = 0; i < f->n_dims; i++) {
		if (__builtin_mul_overflow(n, (size_t)f->shape[i], &n))
			return -EOVERFLOW;
	}
	*out = n;
	return 0;
}

uint64_t field_most_values(const struct field *f, uint64_t n_rows)
{
	unsigned k = n_rows > 1 ? 64 - (unsigned)__builtin_clzll(n_rows - 1) : 0;
	uint64_t each;

	if (__builtin_mul_overflow(f->longest, n_rows, &each))
		each = UINT64_MAX;
	return k < FIELD_SUMS && f->sum_longest[k] < each ? f->sum_longest[k] : each;
}

/* Lengths below STEPS have classes of their own. */
static unsigned data_field_class_of(uint64_t length)
{
	unsigned top;

	if (length < STEPS)
		return (unsigned)length;
	top = 63 - (unsigned)__builtin_clzll(length);
	return (top - STEP_BITS) * STEPS + STEPS + (unsigned)(length >> (top - STEP_BITS) & (STEPS - 1));
}

static uint64_t most_of_class(unsigned class)
{
	unsigned shift = class < 2 * STEPS ? 0 : class / STEPS - 1;
	uint64_t lead = class < STEPS ? class : STEPS + class % STEPS;

	return (lead << shift) + (((uint64_t)1 << shift) - 1);
}

void field_measure_add(struct field_measure *m, uint64_t n_values)
{
	m->count[data_field_class_of(n_values)]++;
	m->longest = n_values > m->longest ? n_values : m->longest;
}

static uint64_t sum_of_longest(const struct field_measure *m, uint64_t n_rows)
{
	uint64_t sum = 0, part;

	for (unsigned class = sizeof(m->count) / sizeof(m->count[0]); class-- > 0 && n_rows;) {
		uint64_t n = m->count[class] < n_rows ? m->count[class] : n_rows;
		uint64_t most = most_of_class(class);

		most = most < m->longest ? most : m->longest;
		if (__builtin_mul_overflow(n, most, &part) || __builtin_add_overflow(sum, part, &sum))
			return UINT64_MAX;
		n_rows -= n;
	}
	return sum;
}

void field_measure_end(const struct field_measure *m, struct field *f)
{
	f->longest = m->longest;
	for (unsigned k = 0; k < FIELD_SUMS; k++)
		f->sum_longest[k] = sum_of_longest(m, (uint64_t)1 << k);
}
