/* See fields.h. */
#include "ctl/preview/fields.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"

enum { SHOWN_VALUES = 64 };

/* False: a type that JSON has no number for. */
static bool as_double(enum dtype t, const char *at, double *out)
{
	union {
		uint8_t u8;
		int8_t i8;
		uint16_t u16;
		int16_t i16;
		uint32_t u32;
		int32_t i32;
		uint64_t u64;
		float f32;
		double f64;
	} v;

	memcpy(&v, at, dtype_bytes(t) < sizeof v ? dtype_bytes(t) : sizeof v);
	switch (t) {
	case DTYPE_UINT8:
		return *out = v.u8, true;
	case DTYPE_INT8:
		return *out = v.i8, true;
	case DTYPE_UINT16:
		return *out = v.u16, true;
	case DTYPE_INT16:
		return *out = v.i16, true;
	case DTYPE_UINT32:
		return *out = v.u32, true;
	case DTYPE_INT32:
		return *out = v.i32, true;
	case DTYPE_UINT64:
		return *out = (double)v.u64, true;
	case DTYPE_FLOAT32:
		return *out = (double)v.f32, true;
	case DTYPE_FLOAT64:
		return *out = v.f64, true;
	default:
		return false;
	}
}

static json_t *number(enum dtype t, const char *at)
{
	int64_t whole;
	double d;

	if (t == DTYPE_INT64) {
		memcpy(&whole, at, sizeof whole);
		return json_integer((json_int_t)whole);
	}
	if (t == DTYPE_BOOL8)
		return json_boolean(*at);
	if (!as_double(t, at, &d))
		return json_null();
	if (t != DTYPE_FLOAT32 && t != DTYPE_FLOAT64)
		return json_integer((json_int_t)d);
	return d - d == 0 ? json_real(d) : json_null(); /* neither infinite nor NaN */
}

static json_t *counted(const char *what, size_t n)
{
	return json_pack("{s:I}", what, (json_int_t)n);
}

static json_t *field_json(const struct field *f, const struct field_value *v)
{
	size_t each = dtype_bytes(f->dtype), n = v->n_bytes / each;
	json_t *list;

	if (f->text)
		return json_stringn(v->bytes, v->n_bytes);
	if (f->kind == FIELD_RAGGED && f->dtype == DTYPE_UINT8 && !f->n_dims)
		return counted("bytes", v->n_bytes);
	if (f->kind == FIELD_DENSE && !f->n_dims)
		return number(f->dtype, v->bytes);
	if (n > SHOWN_VALUES)
		return counted("values", n);
	list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, number(f->dtype, (const char *)v->bytes + i * each));
	return list;
}

/* `own` is the caller's to free: the value's memory where the data set has it in a file. 0 or negative errno with err. */
static int take_value(struct dataset *ds, uint64_t index, unsigned k, struct field_value *v, void **own,
		      struct dataset_error *err)
{
	const struct field *f = dataset_field(ds, k);
	void *rows[DATASET_MAX_FIELDS] = { NULL };
	int r;

	*own = NULL;
	if (f->kind != FIELD_DENSE || dataset_is_image(ds)) {
		dataset_value(ds, index, k, v);
		return 0;
	}
	r = field_item_bytes(f, &v->n_bytes);
	*own = r ? NULL : malloc(v->n_bytes + !v->n_bytes);
	if (!*own)
		return dataset_fail_errno(err, r ? -r : ENOMEM, f->name);
	v->bytes = rows[k] = *own;
	return dataset_gather(ds, &index, 1, rows, err);
}

json_t *preview_fields_json(struct dataset *ds, uint64_t index, unsigned first)
{
	json_t *all = json_object();

	for (unsigned k = first; k < dataset_n_fields(ds); k++) {
		const struct field *f = dataset_field(ds, k);
		struct dataset_error err = { .text = "" };
		struct field_value v;
		void *own;
		int r = take_value(ds, index, k, &v, &own, &err);

		json_object_set_new(all, f->name,
				    r < 0 ? json_pack("{s:o}", "error", ctl_json_text(err.text)) : field_json(f, &v));
		free(own);
	}
	return all;
}

/* Numbers of a vector, as many as fit. */
static void write_vector(const struct field *f, const struct field_value *v, char *text, size_t size)
{
	size_t each = dtype_bytes(f->dtype), at = 0;
	double d;

	for (size_t i = 0; (i + 1) * each <= v->n_bytes && at < size; i++) {
		if (f->dtype == DTYPE_INT64 || !as_double(f->dtype, (const char *)v->bytes + i * each, &d))
			return;
		at += (size_t)snprintf(text + at, size - at, " %g", d);
	}
}

/* False: it is no whole number. */
static bool whole_label(const struct field *f, const struct field_value *v, int64_t *label)
{
	if (f->dtype != DTYPE_INT64 || f->n_dims || v->n_bytes != sizeof *label)
		return false;
	memcpy(label, v->bytes, sizeof *label);
	return true;
}

void preview_fields_label(struct dataset *ds, uint64_t index, char *text, size_t size)
{
	int k = dataset_find_field(ds, "label");
	struct field_value v;
	struct dataset_error err;
	void *own = NULL;
	int64_t label;
	size_t at;

	*text = '\0';
	if (k <= 0 || take_value(ds, index, (unsigned)k, &v, &own, &err) < 0) {
		free(own);
		return;
	}
	if (!whole_label(dataset_field(ds, (unsigned)k), &v, &label)) {
		at = (size_t)snprintf(text, size, "label");
		write_vector(dataset_field(ds, (unsigned)k), &v, text + at, size - at);
	} else if (label >= 0 && label < dataset_n_classes(ds)) {
		snprintf(text, size, "%s", dataset_class(ds, (uint32_t)label));
	} else {
		snprintf(text, size, "label %" PRId64, label);
	}
	free(own);
}
