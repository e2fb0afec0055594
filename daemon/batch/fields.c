/* See fields.h. */
#include "batch/fields.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for values that is not worth a closer look: any rows fit it, however often one comes. */
enum { SMALL_BYTES = 1 << 20 };

/* The next name of a list; false at its end. */
static bool next_name(const char **at, char name[FIELD_NAME_BYTES])
{
	size_t n = *at ? strcspn(*at, ",") : 0;

	if (!n || n >= FIELD_NAME_BYTES)
		return false;
	memcpy(name, *at, n);
	name[n] = '\0';
	*at += n + ((*at)[n] == ',');
	return true;
}

bool fields_wants(const char *list, const char *name)
{
	char each[FIELD_NAME_BYTES];

	if (!list || !*list)
		return true;
	while (next_name(&list, each)) {
		if (!strcmp(each, name))
			return true;
	}
	return false;
}

bool fields_check(const struct dataset *ds, const char *list, char *text, size_t size)
{
	char name[FIELD_NAME_BYTES];

	while (next_name(&list, name)) {
		size_t n;

		if (dataset_find_field(ds, name) >= 0)
			continue;
		n = (size_t)snprintf(text, size, "this data set has no field '%s': it has ", name);
		for (unsigned k = 0; k < dataset_n_fields(ds) && n < size; k++)
			n += (size_t)snprintf(text + n, size - n, "%s%s", k ? ", " : "", dataset_field(ds, k)->name);
		return false;
	}
	return true;
}

/* Room for the values of a batch. Rows of the built-in order are different ones, and one that makes all ranks equal. In a
 * caller's own order one row may come many times. */
static uint64_t room_for(const struct field *f, size_t item_bytes, uint64_t most_bytes, const struct loader_spec *spec)
{
	uint64_t longest = f->longest, each, different, bytes;

	if (most_bytes && item_bytes && longest > most_bytes / item_bytes)
		longest = most_bytes / item_bytes;
	if (__builtin_mul_overflow(longest, (uint64_t)spec->batch_size, &each))
		each = UINT64_MAX;
	if (spec->own_batches || (!__builtin_mul_overflow(each, (uint64_t)item_bytes, &bytes) && bytes <= SMALL_BYTES))
		return each;
	if (__builtin_add_overflow(field_most_values(f, spec->batch_size), longest, &different))
		return each;
	return different < each ? different : each;
}

static int fields_describe(const struct recipe *recipe, const struct loader_spec *spec, unsigned number,
			   struct field *f, struct slot_field *place)
{
	*f = *dataset_field(recipe->dataset, number);
	*place = (struct slot_field){ .number = number, .ragged = f->kind == FIELD_RAGGED };
	int r = field_item_bytes(f, &place->item_bytes);
	if (r == 0 && place->ragged)
		place->most_values = room_for(f, place->item_bytes, recipe->value_bytes, spec);
	return r;
}

/* What the pipeline makes of the data set's first field. */
static int describe_view(const struct recipe *recipe, const struct loader_spec *spec, unsigned k, struct field *f,
			 struct slot_field *place)
{
	const struct pipeline *view = views_at(recipe->pipeline, k);
	const struct field *first = dataset_field(recipe->dataset, 0);

	*f = (struct field){ .kind = FIELD_DENSE, .dtype = spec->dtype, .n_dims = 3 };
	(void)views_name(recipe->pipeline, k, first->name, f->name, sizeof(f->name));
	pipeline_shape(view, f->shape);
	*place = (struct slot_field){ .number = 0 };
	int r = field_item_bytes(f, &place->item_bytes);
	assert(r || place->item_bytes == pipeline_row_bytes(view));
	return r;
}

/* Which fields a loader has, in order: the views, then the others. */
static int describe_all(const struct recipe *recipe, const struct loader_spec *spec, struct field *f,
			struct slot_field *place, unsigned *n)
{
	unsigned n_views = recipe->pipeline ? views_n(recipe->pipeline) : 0;
	int r = 0;

	for (*n = 0; r == 0 && *n < n_views; ++*n)
		r = describe_view(recipe, spec, *n, &f[*n], &place[*n]);
	for (unsigned k = n_views > 0; r == 0 && k < dataset_n_fields(recipe->dataset); k++) {
		if (fields_wants(spec->fields, dataset_field(recipe->dataset, k)->name)) {
			r = fields_describe(recipe, spec, k, &f[*n], &place[*n]);
			++*n;
		}
	}
	return r;
}

int fields_make(const struct recipe *recipe, const struct loader_spec *spec, struct field **out,
		struct slot_layout *layout)
{
	assert(recipe->dataset);
	unsigned n_all = dataset_n_fields(recipe->dataset) + (recipe->pipeline ? views_n(recipe->pipeline) : 0), n;
	struct field *f = calloc(n_all, sizeof(*f));
	struct slot_field *place = calloc(n_all, sizeof(*place));
	int r = f && place ? describe_all(recipe, spec, f, place, &n) : -ENOMEM;

	if (r == 0)
		r = slot_layout_make(place, n, spec->batch_size, layout);
	free(place);
	if (r) {
		free(f);
		return r;
	}
	*out = f;
	return 0;
}

bool fields_check_views(const struct recipe *recipe, const char *list, char *text, size_t size)
{
	unsigned n_views = views_n(recipe->pipeline), n_fields = dataset_n_fields(recipe->dataset), n = n_views;
	const char *first = dataset_field(recipe->dataset, 0)->name;
	char name[FIELD_NAME_BYTES];

	for (unsigned k = 0; k < n_views; k++) {
		if (!views_name(recipe->pipeline, k, first, name, sizeof(name))) {
			snprintf(text, size, "view %u has a name of more than %d bytes", k + 1, FIELD_NAME_BYTES - 1);
			return false;
		}
		for (unsigned i = 1; i < n_fields; i++) {
			if (strcmp(name, dataset_field(recipe->dataset, i)->name) == 0) {
				snprintf(text, size,
					 "a view cannot be named '%s', as the data set has a field of that name", name);
				return false;
			}
		}
	}
	for (unsigned i = 1; i < n_fields; i++)
		n += fields_wants(list, dataset_field(recipe->dataset, i)->name);
	if (n > SLOT_MAX_FIELDS) {
		snprintf(text, size,
			 "%u views and %u other fields; a batch has %d fields at most: leave some out with fields",
			 n_views, n - n_views, SLOT_MAX_FIELDS);
	}
	return n <= SLOT_MAX_FIELDS;
}

void fields_explain(const struct field *fields, const struct slot_layout *layout, char *text, size_t size)
{
	*text = '\0';
	for (unsigned k = 0; k < layout->n_fields; k++) {
		const struct slot_field *f = &layout->field[k];

		if (f->ragged && f->most_values * f->item_bytes > layout->slot_bytes / 2) {
			snprintf(
				text, size,
				"; most of it is room for the longest values of field '%s': leave it out of fields, or "
				"lower limits.value_bytes",
				fields[k].name);
		}
	}
}
