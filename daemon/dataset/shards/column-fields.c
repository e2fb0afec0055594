/* See column-fields.h. */
#include "dataset/shards/column-fields.h"

#include <errno.h>

static void column_fields_measure(const struct columns *columns, unsigned k, struct field *f)
{
	struct field_measure m = { 0 };

	for (uint64_t i = 0; i < columns->n_rows; i++) {
		size_t n;

		(void)columns_value(columns, k, i, &n);
		field_measure_add(&m, n);
	}
	f->kind = FIELD_RAGGED;
	f->text = columns->list[k].kind == COLUMN_TEXT;
	f->bytes = !f->text;
	field_measure_end(&m, f);
}

static const enum dtype dtypes[] = {
	[COLUMN_INT64] = DTYPE_INT64, [COLUMN_FLOAT32] = DTYPE_FLOAT32, [COLUMN_BYTES] = DTYPE_UINT8,
	[COLUMN_TEXT] = DTYPE_UINT8,  [COLUMN_UINT64] = DTYPE_UINT64,   [COLUMN_FLOAT64] = DTYPE_FLOAT64,
	[COLUMN_CLASS] = DTYPE_INT64,
};

int column_fields_add(struct dataset *ds, const struct columns *columns, struct dataset_error *err)
{
	for (unsigned k = 0; k < columns->n; k++) {
		const struct column *column = &columns->list[k];
		enum dtype dtype = dtypes[column->kind];
		struct field *f = dataset_add_field(ds, column->name, dtype, err);

		if (!f)
			return -EINVAL;
		if (dtype == DTYPE_UINT8) {
			column_fields_measure(columns, k, f);
		} else if (dtype == DTYPE_FLOAT32 && column->width > 1) {
			f->n_dims = 1;
			f->shape[0] = column->width;
		}
	}
	return 0;
}
