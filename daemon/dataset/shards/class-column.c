/* See class-column.h. */
#include "dataset/shards/class-column.h"

#include <errno.h>
#include <string.h>

#include "dataset/name-set.h"
#include "dataset/name.h"

const char *class_column_wrong(const char *value, size_t n)
{
	return !n                        ? "empty"
	       : n > CLASS_NAME_BYTES    ? "longer than a class's name, which has 255 bytes at most"
	       : memchr(value, '\0', n)  ? "no text: it has a zero byte"
	       : !name_is_utf8(value, n) ? "not UTF-8"
					 : NULL;
}

static int number_names(const struct columns *columns, unsigned k, struct name_set *set, uint32_t *labels)
{
	char name[CLASS_NAME_BYTES + 1];
	int r = 0;

	for (uint64_t i = 0; !r && i < columns->n_rows; i++) {
		size_t n;
		const char *value = columns_value(columns, k, i, &n);

		n = n < sizeof(name) ? n : sizeof(name) - 1;
		memcpy(name, value, n);
		name[n] = '\0';
		r = name_set_find(set, name, &labels[i]);
		r = r || labels[i] != UINT32_MAX ? r : name_set_add(set, name, &labels[i]);
	}
	return r;
}

/* Takes the names over in their order, and gives each sample its class. */
static int sort_names(struct name_set *set, struct classes *out)
{
	uint32_t *order = calloc(set->n, sizeof(*order)), *class_of = calloc(set->n, sizeof(*class_of));
	int r = block_grow(set->meter, &out->names, &out->capacity, set->n, sizeof(*out->names));

	r = r ? r : order && class_of ? 0 : -ENOMEM;
	if (!r) {
		name_set_sort(set, order);
		for (uint32_t i = 0; i < set->n; i++) {
			class_of[order[i]] = i;
			out->names[i] = set->at[order[i]];
		}
		for (uint64_t i = 0; i < out->n_samples; i++)
			out->labels[i] = class_of[out->labels[i]];
		out->n = set->n;
		out->text = set->text;
		set->text = (struct text){ 0 };
	}
	free(order);
	free(class_of);
	return r;
}

int class_column_make(const struct columns *columns, unsigned k, struct meter *meter, struct classes *out)
{
	struct name_set set = { .meter = meter };
	int r = meter_take(meter, columns->n_rows * sizeof(*out->labels));

	*out = (struct classes){ .labels = r ? NULL : malloc(columns->n_rows * sizeof(*out->labels)) };
	out->n_samples = out->labels ? columns->n_rows : 0;
	r = r ? r : out->labels ? 0 : -ENOMEM;
	r = r ? r : number_names(columns, k, &set, out->labels);
	r = r ? r : sort_names(&set, out);
	name_set_finish(&set);
	return r;
}
