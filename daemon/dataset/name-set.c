/* See name-set.h. */
#include "dataset/name-set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "dataset/name.h"

/* Where the name is in the table, or would be. */
static size_t place_of(const struct name_set *s, const char *name)
{
	size_t at = XXH3_64bits(name, strlen(name)) & (s->n_table - 1);

	while (s->table[at] && strcmp(name_set_get(s, s->table[at] - 1), name) != 0)
		at = (at + 1) & (s->n_table - 1);
	return at;
}

static int name_set_grow(struct name_set *s)
{
	size_t n = s->n_table ? s->n_table * 2 : 256;
	int r = meter_take(s->meter, n * sizeof(*s->table));
	uint32_t *larger = r ? NULL : calloc(n, sizeof(*larger));

	if (!larger)
		return r ? r : -ENOMEM;
	meter_give(s->meter, s->n_table * sizeof(*s->table));
	free(s->table);
	s->table = larger;
	s->n_table = n;
	for (uint32_t i = 0; i < s->n; i++)
		larger[place_of(s, name_set_get(s, i))] = i + 1;
	return 0;
}

int name_set_find(struct name_set *s, const char *name, uint32_t *number)
{
	int r = s->n * 2 >= s->n_table ? name_set_grow(s) : 0;

	if (!r)
		*number = s->table[place_of(s, name)] - 1; /* UINT32_MAX of an empty place */
	return r;
}

int name_set_add(struct name_set *s, const char *name, uint32_t *number)
{
	int r = s->n < UINT32_MAX - 1 ? block_grow(s->meter, &s->at, &s->capacity, s->n + 1, sizeof(*s->at)) : -EFBIG;

	s->text.meter = s->meter;
	r = r ? r : text_add(&s->text, name, strlen(name), &s->at[s->n]);
	if (r)
		return r;
	*number = (uint32_t)s->n;
	s->table[place_of(s, name)] = (uint32_t)++s->n;
	return 0;
}

static int by_name_in_set(const void *a, const void *b, void *set)
{
	return name_compare(name_set_get(set, *(const uint32_t *)a), name_set_get(set, *(const uint32_t *)b));
}

void name_set_sort(const struct name_set *s, uint32_t *order)
{
	for (uint32_t i = 0; i < s->n; i++)
		order[i] = i;
	if (s->n)
		qsort_r(order, s->n, sizeof(*order), by_name_in_set, (void *)(uintptr_t)s);
}

void name_set_finish(struct name_set *s)
{
	meter_give(s->meter, s->text.capacity + s->capacity * sizeof(*s->at) + s->n_table * sizeof(*s->table));
	free(s->text.bytes);
	free(s->at);
	free(s->table);
}
