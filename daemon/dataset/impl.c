/* See impl.h. */
#include "dataset/impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dataset_destroy(struct dataset *ds)
{
	free(ds->fields);
	ds->ops->destroy(ds);
}

int dataset_find_field(const struct dataset *ds, const char *name)
{
	for (unsigned i = 0; i < ds->n_fields; i++) {
		if (!strcmp(ds->fields[i].name, name))
			return (int)i;
	}
	return -1;
}

struct field *dataset_add_field(struct dataset *ds, const char *name, enum dtype dtype, struct dataset_error *err)
{
	struct field *more;

	if (!field_name_is_valid(name)) {
		dataset_fail(err, DATASET_E_INVALID, -EINVAL,
			     "field '%.64s': expected a name of 1 to %d printable ASCII characters without space, "
			     "comma, quote or backslash",
			     name, FIELD_NAME_BYTES - 1);
		return NULL;
	}
	if (dataset_find_field(ds, name) >= 0) {
		dataset_fail(err, DATASET_E_INVALID, -EINVAL, "field '%s' is there twice", name);
		return NULL;
	}
	if (ds->n_fields == DATASET_MAX_FIELDS) {
		dataset_fail(err, DATASET_E_LIMIT, -EFBIG, "field '%s': a sample has at most %d fields", name,
			     DATASET_MAX_FIELDS);
		return NULL;
	}
	more = realloc(ds->fields, (ds->n_fields + 1) * sizeof(*more));
	if (!more) {
		dataset_fail_errno(err, ENOMEM, name);
		return NULL;
	}
	ds->fields = more;
	if (ds->n_fields && !strcmp(name, "label"))
		ds->label = (int)ds->n_fields;
	more += ds->n_fields++;
	*more = (struct field){ .kind = FIELD_DENSE, .dtype = dtype };
	snprintf(more->name, sizeof(more->name), "%s", name);
	return more;
}

int dataset_add_image_fields(struct dataset *ds, struct dataset_error *err)
{
	return dataset_add_field(ds, "image", DTYPE_UINT8, err) && dataset_add_field(ds, "label", DTYPE_INT64, err)
		       ? 0
		       : -ENOMEM;
}
