/* See list-labels.h. */
#include "dataset/folder/list-labels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	if (n && l->wanted == LIST_ANY && list_exceeds_int64(text)) {
		snprintf(why, size,
			 "label: '%.60s' is too large for int64: name the kind, COLUMN:class or COLUMN:float", text);
		return -EINVAL;
	}
	if (n && list_exceeds_float32(text)) {
		snprintf(why, size, "label: '%.60s' is too large for float32", text);
		return -EINVAL;
	}
	if (!l->names.n) {
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

int list_labels_take(struct list_labels *l, const char *name, int64_t *label, char *why, size_t size)
{
	uint32_t number;
	int r;

	if (!*name) {
		snprintf(why, size, "no label");
		return -EINVAL;
	}
	r = name_set_find(&l->names, name, &number);
	if (!r && number == UINT32_MAX) {
		r = check_kind(l, name, why, size);
		r = r < 0 ? r : name_set_add(&l->names, name, &number);
	}
	if (!r)
		*label = number;
	return r;
}

/* ---- the end ---- */

/* class_of: the class of each name. */
static int sort_labels(const struct list_labels *l, struct manifest_builder *b, int64_t *class_of)
{
	uint32_t *order = calloc(l->names.n, sizeof(*order));
	int r = order ? 0 : -ENOMEM;

	if (!r)
		name_set_sort(&l->names, order);
	for (uint32_t i = 0; !r && i < l->names.n; i++) {
		class_of[order[i]] = i;
		r = manifest_add_class(b, name_set_get(&l->names, order[i]));
	}
	free(order);
	return r;
}

static int end_whole(const struct list_labels *l, struct manifest_builder *b)
{
	int64_t *value_of = calloc(l->names.n, sizeof(*value_of));
	int r = value_of ? 0 : -ENOMEM;

	for (uint32_t i = 0; !r && l->all_whole && i < l->names.n; i++)
		(void)list_whole(name_set_get(&l->names, i), &value_of[i]);
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
		(void)list_floats(name_set_get(&l->names, (uint32_t)b->labels[i]), values, l->width);
		r = columns_put(columns, columns->n - 1, values, l->width * sizeof(*values));
		b->labels[i] = (int64_t)i;
	}
	free(values);
	return r;
}

int list_labels_end(struct list_labels *l, struct manifest_builder *b, struct columns_builder *columns, char *why,
		    size_t size)
{
	if (!l->names.n)
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
	name_set_finish(&l->names);
}
