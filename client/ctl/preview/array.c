/* See array.h. */
#include "ctl/preview/array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctl/preview/fields.h"

int preview_array_open(struct preview_array *a, const struct dataset *ds, char *why, size_t size)
{
	int r = pixels_of(dataset_field(ds, 0), &a->pixels, why, size);

	if (r < 0)
		return r;
	a->row = malloc(pixels_bytes(&a->pixels));
	a->image = malloc((size_t)a->pixels.form.width * a->pixels.form.height * pixel_bytes(PIXEL_FLOAT32));
	snprintf(why, size, "out of memory for an image of %ux%u", a->pixels.form.width, a->pixels.form.height);
	return a->row && a->image ? 0 : -ENOMEM;
}

int preview_array_image(struct preview_array *a, struct dataset *ds, uint64_t index, enum pixel to, struct image *out,
			struct dataset_error *err)
{
	void *rows[DATASET_MAX_FIELDS] = { a->row };
	int r = dataset_gather(ds, &index, 1, rows, err);

	if (r < 0)
		return r;
	*out = pixels_image(&a->pixels, a->row, to, a->image);
	return 0;
}

void preview_array_finish(struct preview_array *a)
{
	free(a->row);
	free(a->image);
}

json_t *preview_array_numbers(struct dataset *ds, const uint64_t *order, uint64_t n)
{
	json_t *indices = json_array(), *fields = json_array();

	for (uint64_t i = 0; i < n; i++) {
		json_array_append_new(indices, json_integer((json_int_t)order[i]));
		json_array_append_new(fields, preview_fields_json(ds, order[i], 0));
	}
	return json_pack("{s:o, s:o}", "indices", indices, "fields", fields);
}
