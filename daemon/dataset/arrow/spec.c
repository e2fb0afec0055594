/* See spec.h. */
#include "dataset/arrow/spec.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* ---- columns ---- */

static json_t *features_of(const struct arrow_schema *s)
{
	return s->features ? json_loads(s->features, 0, NULL) : NULL;
}

static json_t *feature(json_t *all, const char *column)
{
	return json_object_get(json_object_get(json_object_get(all, "info"), "features"), column);
}

static bool is_feature(json_t *all, const char *column, const char *type)
{
	const char *found = json_string_value(json_object_get(feature(all, column), "_type"));

	return found && !strcmp(found, type);
}

int arrow_classes(const struct arrow_schema *s, const char *column, int (*fn)(void *arg, const char *name), void *arg)
{
	json_t *all = features_of(s), *names, *name;
	size_t i;
	int r = 0;

	names = is_feature(all, column, "ClassLabel") ? json_object_get(feature(all, column), "names") : NULL;
	json_array_foreach (names, i, name) {
		const char *text = json_string_value(name);

		r = r ? r : fn(arg, text ? text : "");
	}
	json_decref(all);
	return r;
}

int arrow_find(const struct arrow_schema *s, const char *column)
{
	for (unsigned i = 0; i < s->n; i = s->fields[i].next) {
		if (!strcmp(s->fields[i].name, column))
			return (int)i;
	}
	return -1;
}

static bool is_blob(const struct arrow_field *f)
{
	return !f->is_encoded && (f->type == ARROW_BINARY || f->type == ARROW_LARGE_BINARY);
}

bool arrow_is_picture(const struct arrow_schema *s, unsigned number, unsigned *bytes, unsigned *path)
{
	const struct arrow_field *f = &s->fields[number];
	bool has_bytes = false, has_path = false;

	for (unsigned i = number + 1; f->type == ARROW_STRUCT && i < f->next; i = s->fields[i].next) {
		const struct arrow_field *child = &s->fields[i];

		if (!strcmp(child->name, "bytes") && is_blob(child)) {
			has_bytes = true;
			*bytes = i;
		} else if (!strcmp(child->name, "path") && !child->is_encoded &&
			   (child->type == ARROW_UTF8 || child->type == ARROW_LARGE_UTF8)) {
			has_path = true;
			*path = i;
		} else {
			return false;
		}
	}
	return has_bytes && has_path;
}

/* Sounds are kept in the same way as pictures. */
static bool is_image_column(const struct arrow_schema *s, json_t *all, unsigned number)
{
	unsigned bytes, path;

	return arrow_is_picture(s, number, &bytes, &path) && !is_feature(all, s->fields[number].name, "Audio");
}

/* ---- choosing ---- */

static void list_columns(const struct arrow_schema *s, json_t *all, char *text, size_t size)
{
	size_t n = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < s->n && n < size; i = s->fields[i].next)
		n += (size_t)snprintf(text + n, size - n, "%s%.64s (%s)", i ? ", " : "", s->fields[i].name,
				      is_image_column(s, all, i) ? "image" : arrow_type_name(&s->fields[i]));
}

static int choose_fail(const struct arrow_schema *s, json_t *all, const char *file, const char *why,
		       struct dataset_error *err)
{
	char columns[260];

	list_columns(s, all, columns, sizeof(columns));
	return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "%.80s: %s; its columns: %s", file, why, columns);
}

static void add_choice(struct arrow_choices *out, const char *name, const char *column)
{
	struct arrow_choice *c = &out->list[out->n++];

	snprintf(c->name, sizeof(c->name), "%s", name);
	snprintf(c->column, sizeof(c->column), "%s", column);
}

static int choose_label(const struct arrow_schema *s, json_t *all, const char *file, int *label,
			struct dataset_error *err)
{
	*label = -1;
	for (unsigned i = 0; i < s->n; i = s->fields[i].next) {
		if (!is_feature(all, s->fields[i].name, "ClassLabel"))
			continue;
		if (*label >= 0)
			return choose_fail(s, all, file, "two columns of class labels: name the columns in fields",
					   err);
		*label = (int)i;
	}
	*label = *label < 0 ? arrow_find(s, "label") : *label;
	return *label >= 0
		       ? 0
		       : choose_fail(s, all, file,
				     "no column of class labels and none named label: name the columns in fields", err);
}

/* Without pictures, as of the package's own data sets: every column. */
static int choose_all(const struct arrow_schema *s, json_t *all, const char *file, struct arrow_choices *out,
		      struct dataset_error *err)
{
	out->image = -1;
	for (unsigned i = 0; i < s->n; i = s->fields[i].next) {
		if (out->n == DATASET_MAX_FIELDS)
			return choose_fail(s, all, file, "more than 64 columns: name those that you want in fields",
					   err);
		add_choice(out, s->fields[i].name, s->fields[i].name);
	}
	return 0;
}

static int choose_plain(const struct arrow_schema *s, json_t *all, const char *file, struct arrow_choices *out,
			struct dataset_error *err)
{
	int image = -1, label, r;

	for (unsigned i = 0; i < s->n; i = s->fields[i].next) {
		if (!is_image_column(s, all, i))
			continue;
		if (image >= 0)
			return choose_fail(s, all, file, "two columns of images: name the columns in fields", err);
		image = (int)i;
	}
	if (image < 0)
		return choose_all(s, all, file, out, err);
	r = choose_label(s, all, file, &label, err);
	if (r < 0)
		return r;
	add_choice(out, "image", s->fields[image].name);
	add_choice(out, "label", s->fields[label].name);
	out->image = 0;
	return 0;
}

static int add_listed(const struct arrow_schema *s, json_t *all, const char *file, const struct SourcePair *item,
		      struct arrow_choices *out, struct dataset_error *err)
{
	struct arrow_choice *c = &out->list[out->n];
	char why[160];
	int number;

	if (!*item->name || !*item->value || strlen(item->name) >= sizeof(c->name) ||
	    strlen(item->value) >= sizeof(c->column) || out->n == DATASET_MAX_FIELDS)
		return choose_fail(s, all, file, "expected fields as NAME=COLUMN,..., at most 64 of 63 characters each",
				   err);
	strcpy(c->name, item->name);
	strcpy(c->column, item->value);
	number = arrow_find(s, c->column);
	if (number < 0) {
		snprintf(why, sizeof(why), "there is no column '%.64s'", c->column);
		return choose_fail(s, all, file, why, err);
	}
	if (is_image_column(s, all, (unsigned)number)) {
		if (out->image >= 0)
			return choose_fail(s, all, file, "two columns of images, and a sample has one: leave one out",
					   err);
		out->image = (int)out->n;
	}
	out->n++;
	return 0;
}

static int choose_listed(const struct arrow_schema *s, json_t *all, const struct Source *source, const char *file,
			 struct arrow_choices *out, struct dataset_error *err)
{
	int r = 0;

	for (size_t i = 0; !r && i < source->n_field; i++)
		r = add_listed(s, all, file, source->field[i], out, err);
	/* Plain bytes may be a picture; their name says so. */
	for (unsigned k = 0; !r && out->image < 0 && k < out->n; k++) {
		if (!strcmp(out->list[k].name, "image") && is_blob(&s->fields[arrow_find(s, out->list[k].column)]))
			out->image = (int)k;
	}
	return r;
}

int arrow_choose(const struct arrow_schema *s, const struct Source *source, const char *file, struct arrow_choices *out,
		 struct dataset_error *err)
{
	json_t *all = features_of(s);
	int r;

	*out = (struct arrow_choices){ .image = -1 };
	r = source->n_field ? choose_listed(s, all, source, file, out, err) : choose_plain(s, all, file, out, err);
	json_decref(all);
	return r;
}
