/* Names, each once, numbered in the order in which they came. */
#ifndef BATCHD_NAME_SET_H
#define BATCHD_NAME_SET_H

#include <stddef.h>
#include <stdint.h>

#include "dataset/block.h"

/* Starts zeroed, except for meter. */
struct name_set {
	struct meter *meter; /* borrowed; NULL: nothing is counted */
	struct text text;
	uint64_t *at; /* of each, offset in text */
	size_t n, capacity;
	uint32_t *table; /* open addressing over names; number + 1 */
	size_t n_table;
};

/* *number: that of the name, or UINT32_MAX: it is not there. Makes room for one more. 0, -ENOMEM or the meter's error. */
int name_set_find(struct name_set *s, const char *name, uint32_t *number);
/* Behind name_set_find, which has not found it. 0, -ENOMEM, -EFBIG or the meter's error. */
int name_set_add(struct name_set *s, const char *name, uint32_t *number);
/* order: n numbers, which become those of the names in the order of Python's sorted() (name_compare). */
void name_set_sort(const struct name_set *s, uint32_t *order);
void name_set_finish(struct name_set *s);

static inline const char *name_set_get(const struct name_set *s, uint32_t number)
{
	return s->text.bytes + s->at[number];
}

#endif
