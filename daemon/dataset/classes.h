/* Classes of samples, numbered in the order of their names. */
#ifndef BATCHD_CLASSES_H
#define BATCHD_CLASSES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "dataset/block.h"

struct classes {
	uint32_t *labels; /* owned, of each sample; NULL: samples have no classes */
	struct text text;
	uint64_t *names; /* owned: offsets in text, sorted */
	size_t n, n_samples, capacity;
};

static inline const char *classes_name(const struct classes *c, size_t i)
{
	return c->text.bytes + c->names[i];
}

static inline uint64_t classes_memory_bytes(const struct classes *c)
{
	return c->n_samples * sizeof(*c->labels) + c->capacity * sizeof(*c->names) + c->text.capacity;
}

static inline void classes_finish(struct classes *c)
{
	free(c->labels);
	free(c->names);
	free(c->text.bytes);
	*c = (struct classes){ 0 };
}

#endif
