/* See list-labels.h. */
#include "data/list-labels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "data/name.h"

enum {
	MAX_LABEL_BYTES = 255,
	MAX_NUMBERS_BYTES = 1 << 16
}; /* as of folders: a client takes no longer name of a class */

/* ---- what a cell holds ---- */

/* Numbers in a cell; 0: it is a name, as "nan", "0x1p3" and 1e99 are. */
static size_t count_numbers(const char *text)
{
	size_t n = strlen(text);
	float value;

	if (strspn(text, "+-0123456789.eE [],") != n || list_floats(text, &value, 1) == 0)
		return 0;
	n = list_floats(text, NULL, COLUMN_MAX_WIDTH);
	if (n == 1) {
		(void)list_floats(text, &value, 1);
		return value - value == 0 ? 1 : 0;
	}
	return n == SIZE_MAX ? 0 : n;
}

/* "nan", "NaN", "-inf": a number that is missing in a column of numbers, rather than the name of a class. */
static bool is_special(const char *text)
{
	float value;

	return strspn(text, "+-0123456789.eE [],") != strlen(text) && list_floats(text, &value, 1) == 1 &&
	       value - value != 0;
}

static int refuse_label(const char *text, const char *is, const char *others, char *why, size_t size)
{
	snprintf(why, size,
		 "label: '%.60s' is %s, and the rows above have %s: name the kind, COLUMN:class or COLUMN:float", text,
		 is, others);
	return -EINVAL;
}

static int check_wanted(const struct list_labels *l, const char *text, size_t n, char *why, size_t size)
{
	int64_t whole;
	bool fits = l->wanted == LIST_INT ? list_whole(text, &whole) : n > 0;

	if (!fits)
		snprintf(why, size, "label: '%.60s' is no %s", text, l->wanted == LIST_INT ? "whole number" : "number");
	return fits ? 0 : -EINVAL;
}

/* Of each new name: whether it is of the kind of the names before. */
static int check_kind(struct list_labels *l, const char *text, char *why, size_t size)
{
	size_t n = l->wanted == LIST_CLASS ? 0 : count_numbers(text);
	int64_t whole;
	int r = l->wanted == LIST_INT || l->wanted == LIST_FLOAT ? check_wanted(l, text, n, why, size) : 0;

	if (r < 0)
		return r;
	if (strlen(text) > (size_t)(n > 1 ? MAX_NUMBERS_BYTES : MAX_LABEL_BYTES)) {
		snprintf(why, size, "a label of more than %d bytes", n > 1 ? MAX_NUMBERS_BYTES : MAX_LABEL_BYTES);
		return -EINVAL;
	}
	if (!l->n_names) {
		l->width = n;
		l->all_whole = n == 1;
		l->all_special = l->wanted != LIST_CLASS;
	}
	if (l->width && !n && is_special(text)) {
		snprintf(why, size, "label: '%.60s' is not finite, and the rows above have numbers", text);
		return -EINVAL;
	}
	if (n != l->width && !n)
		return refuse_label(text, "no number", "numbers", why, size);
	if (n && !l->width && l->all_special) {
		snprintf(
			why, size,
			"label: '%.60s' is a number, and all rows above have nan or inf: a label is finite, or a class "
			"of COLUMN:class",
			text);
		return -EINVAL;
	}
	l->all_special = l->all_special && is_special(text);
	if (n != l->width && !l->width)
		return refuse_label(text, "a number", "names of classes", why, size);
	if (n != l->width) {
		snprintf(why, size, "label: '%.60s' has %zu numbers, and the rows above have %zu", text, n, l->width);
		return -EINVAL;
	}
	l->all_whole = l->all_whole && l->wanted != LIST_FLOAT && list_whole(text, &whole);
	return 0;
}

/* ---- names ---- */

static size_t label_place(const struct list_labels *l, const char *name)
{
	size_t at = XXH3_64bits(name, strlen(name)) & (l->n_table - 1);

	while (l->table[at] && strcmp(l->names.bytes + l->name_at[l->table[at] - 1], name) != 0)
		at = (at + 1) & (l->n_table - 1);
	return at;
}

static int grow_labels(struct list_labels *l)
{
	size_t n = l->n_table ? l->n_table * 2 : 256;
	int r = meter_take(l->meter, n * sizeof(*l->table));
	uint32_t *larger = r ? NULL : calloc(n, sizeof(*larger));

	if (!larger)
		return r ? r : -ENOMEM;
	meter_give(l->meter, l->n_table * sizeof(*l->table));
	free(l->table);
	l->table = larger;
	l->n_table = n;
	for (size_t i = 0; i < l->n_names; i++)
		larger[label_place(l, l->names.bytes + l->name_at[i])] = (uint32_t)i + 1;
	return 0;
}

static int add_label(struct list_labels *l, const char *name, size_t at)
{
	int r = l->n_names < UINT32_MAX - 1
			? block_grow(l->meter, &l->name_at, &l->names_capacity, l->n_names + 1, sizeof(*l->name_at))
			: -EFBIG;

	l->names.meter = l->meter;
	r = r ? r : text_add(&l->names, name, strlen(name), &l->name_at[l->n_names]);
	if (r == 0)
		l->table[at] = (uint32_t)++l->n_names;
	return r;
}

int list_labels_take(struct list_labels *l, const char *name, int64_t *label, char *why, size_t size)
{
	size_t at;
	int r = l->n_names * 2 >= l->n_table ? grow_labels(l) : 0;

	if (r < 0)
		return r;
	if (!*name) {
		snprintf(why, size, "no label");
		return -EINVAL;
	}
	at = label_place(l, name);
	if (!l->table[at]) {
		r = check_kind(l, name, why, size);
		r = r < 0 ? r : add_label(l, name, at);
		if (r < 0)
			return r;
	}
	*label = (int64_t)l->table[at] - 1;
	return 0;
}

/* ---- the end ---- */

static _Thread_local const struct list_labels *sorting;

static int label_by_name(const void *a, const void *b)
{
	const struct list_labels *l = sorting;

	return name_compare(l->names.bytes + l->name_at[*(const uint32_t *)a],
			    l->names.bytes + l->name_at[*(const uint32_t *)b]);
}

/* class_of: the class of each name. */
static int sort_labels(const struct list_labels *l, struct manifest_builder *b, int64_t *class_of)
{
	uint32_t *order = calloc(l->n_names, sizeof(*order));
	int r = order ? 0 : -ENOMEM;

	for (uint32_t i = 0; !r && i < l->n_names; i++)
		order[i] = i;
	sorting = l;
	if (!r)
		qsort(order, l->n_names, sizeof(*order), label_by_name);
	for (uint32_t i = 0; !r && i < l->n_names; i++) {
		class_of[order[i]] = i;
		r = manifest_add_class(b, l->names.bytes + l->name_at[order[i]]);
	}
	free(order);
	return r;
}

static int end_whole(const struct list_labels *l, struct manifest_builder *b)
{
	int64_t *value_of = calloc(l->n_names, sizeof(*value_of));
	int r = value_of ? 0 : -ENOMEM;

	for (size_t i = 0; !r && l->all_whole && i < l->n_names; i++)
		(void)list_whole(l->names.bytes + l->name_at[i], &value_of[i]);
	r = r || l->all_whole ? r : sort_labels(l, b, value_of);
	for (size_t i = 0; !r && i < b->n_files; i++)
		b->labels[i] = value_of[b->labels[i]];
	free(value_of);
	return r;
}

static int end_floats(const struct list_labels *l, struct manifest_builder *b, struct columns_builder *columns)
{
	int r = columns_add(columns, "label", COLUMN_FLOAT32, (uint32_t)l->width);
	float *values = r ? NULL : malloc(l->width * sizeof(*values));

	if (!values)
		return r ? r : -ENOMEM;
	for (size_t i = 0; !r && i < b->n_files; i++) {
		(void)list_floats(l->names.bytes + l->name_at[b->labels[i]], values, l->width);
		r = columns_put(columns, columns->n - 1, values, l->width * sizeof(*values));
		b->labels[i] = (int64_t)i;
	}
	free(values);
	return r;
}

int list_labels_end(struct list_labels *l, struct manifest_builder *b, struct columns_builder *columns, char *why,
		    size_t size)
{
	if (!l->n_names)
		return 0;
	if (l->all_special) {
		snprintf(why, size,
			 "label: every one is nan or inf: name the kind, COLUMN:class, if these are classes");
		return -EINVAL;
	}
	return l->width && !l->all_whole ? end_floats(l, b, columns) : end_whole(l, b);
}

void list_labels_finish(struct list_labels *l)
{
	meter_give(l->meter,
		   l->names.capacity + l->names_capacity * sizeof(*l->name_at) + l->n_table * sizeof(*l->table));
	free(l->names.bytes);
	free(l->name_at);
	free(l->table);
}
