/* See fields.h. */
#include "core/fields.h"

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

	if (!n || n >= FIELD_NAME_BYTES) {
		return false;
	}
	memcpy(name, *at, n);
	name[n] = '\0';
	*at += n + ((*at)[n] == ',');
	return true;
}

bool fields_wants(const char *list, const char *name)
{
	char each[FIELD_NAME_BYTES];

	if (!list || !*list) {
		return true;
	}
	while (next_name(&list, each)) {
		if (!strcmp(each, name)) {
			return true;
		}
	}
	return false;
}

bool fields_check(const struct dataset *ds, const char *list, char *text, size_t size)
{
	char name[FIELD_NAME_BYTES];

	while (next_name(&list, name)) {
		size_t n;

		if (dataset_find_field(ds, name) >= 0) {
			continue;
		}
		n = (size_t)snprintf(text, size, "this data set has no field '%s': it has ", name);
		for (unsigned k = 0; k < dataset_n_fields(ds) && n < size; k++) {
			n += (size_t)snprintf(text + n, size - n, "%s%s", k ? ", " : "", dataset_field(ds, k)->name);
		}
		return false;
	}
	return true;
}

/* Room for the values of a batch. Rows of the built-in order are different ones, and one that makes all ranks equal. In a
 * caller's own order one row may come many times. */
static uint64_t room_for(const struct field *f, size_t item_bytes, uint64_t most_bytes, const struct loader_spec *spec)
{
	uint64_t longest = f->longest, each, different, bytes;

	if (most_bytes && item_bytes && longest > most_bytes / item_bytes) {
		longest = most_bytes / item_bytes;
	}
	if (__builtin_mul_overflow(longest, (uint64_t)spec->batch_size, &each)) {
		each = UINT64_MAX;
	}
	if (spec->own_batches ||
	    (!__builtin_mul_overflow(each, (uint64_t)item_bytes, &bytes) && bytes <= SMALL_BYTES)) {
		return each;
	}
	if (__builtin_add_overflow(field_most_values(f, spec->batch_size), longest, &different)) {
		return each;
	}
	return different < each ? different : each;
}

static int fields_describe(const struct recipe *recipe, const struct loader_spec *spec, unsigned number,
			   struct field *f, struct slot_field *place)
{
	int r;

	*f = *dataset_field(recipe->dataset, number);
	if (recipe->pipeline && number == 0) {
		f->dtype = spec->dtype;
		f->n_dims = 3;
		pipeline_shape(recipe->pipeline, f->shape);
	}
	*place = (struct slot_field){ .number = number, .ragged = f->kind == FIELD_RAGGED };
	r = field_item_bytes(f, &place->item_bytes);
	assert(r || !recipe->pipeline || number || place->item_bytes == pipeline_row_bytes(recipe->pipeline));
	if (r == 0 && place->ragged) {
		place->most_values = room_for(f, place->item_bytes, recipe->value_bytes, spec);
	}
	return r;
}

int fields_make(const struct recipe *recipe, const struct loader_spec *spec, struct field **out,
		struct slot_layout *layout)
{
	unsigned n_all = dataset_n_fields(recipe->dataset), n = 0;
	struct field *f = calloc(n_all, sizeof(*f));
	struct slot_field *place = calloc(n_all, sizeof(*place));
	int r = f && place ? 0 : -ENOMEM;

	for (unsigned k = 0; r == 0 && k < n_all; k++) {
		if (fields_wants(spec->fields, dataset_field(recipe->dataset, k)->name)) {
			r = fields_describe(recipe, spec, k, &f[n], &place[n]);
			n++;
		}
	}
	if (r == 0) {
		r = slot_layout_make(place, n, spec->batch_size, layout);
	}
	free(place);
	if (r) {
		free(f);
		return r;
	}
	*out = f;
	return 0;
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
