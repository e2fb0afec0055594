/* See field.h. */
#include "link/field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By enum batchd_dtype; connection_recv lets no other number through. */
static const size_t dtype_bytes[] = { 1, 2, 4, 4, 8, 8, 2, 1, 2, 1, 2, 4, 8, 8, 16 };

size_t field_dtype_bytes(unsigned dtype)
{
	return dtype < sizeof dtype_bytes / sizeof *dtype_bytes ? dtype_bytes[dtype] : 0;
}

/* Whether `count` items of `size` fit between offset and the slot's end. */
static bool field_fits(uint64_t offset, uint64_t count, uint64_t size, uint64_t slot_bytes)
{
	uint64_t n;

	return !__builtin_mul_overflow(count, size, &n) && offset <= slot_bytes && n <= slot_bytes - offset;
}

/* False: a row is larger than 64 bits can say. */
static bool field_take(const Batchd__Wire__Field *m, struct link_field *f)
{
	bool ok = true;

	snprintf(f->name, sizeof f->name, "%s", m->name);
	f->is = (struct batchd_field){ .name = f->name,
				       .dtype = (enum batchd_dtype)m->dtype,
				       .ragged = m->kind == BATCHD__WIRE__FIELD_KIND__RAGGED,
				       .text = m->text,
				       .bytes = m->bytes,
				       .n_dims = (uint32_t)m->n_shape,
				       .most_values = m->most_values,
				       .view = m->view,
				       .has_normalize = m->n_mean > 0 };
	f->to_tensor = m->to_tensor;
	if (m->n_mean) { /* wire.c has checked that they fit */
		memcpy(f->is.mean, m->mean, m->n_mean * sizeof *m->mean);
		memcpy(f->is.std, m->std, m->n_mean * sizeof *m->std);
	}
	f->item_bytes = dtype_bytes[m->dtype];
	for (size_t i = 0; i < m->n_shape; i++) {
		f->is.shape[i] = m->shape[i];
		ok = ok && !__builtin_mul_overflow(f->item_bytes, m->shape[i], &f->item_bytes);
	}
	f->offset = (size_t)m->offset;
	f->values_offset = (size_t)m->values_offset;
	return ok;
}

static const char *check(const struct link_field *f, uint32_t batch_size, uint64_t slot_bytes)
{
	const char *small = "slots that are too small for a batch";

	if (!f->is.ragged)
		return field_fits(f->offset, batch_size, f->item_bytes, slot_bytes) ? NULL : small;
	if (f->offset % sizeof(int64_t) || !f->item_bytes)
		return "a ragged field that cannot be read";
	return field_fits(f->offset, (uint64_t)batch_size + 1, sizeof(int64_t), slot_bytes) &&
			       field_fits(f->values_offset, f->is.most_values, f->item_bytes, slot_bytes)
		       ? NULL
		       : small;
}

const char *fields_take(const Batchd__Wire__Opened *m, uint32_t batch_size, struct link_fields *out, bool *no_memory)
{
	const char *wrong = NULL;

	*out = (struct link_fields){ .list = calloc(m->n_field ? m->n_field : 1, sizeof *out->list),
				     .n = (uint32_t)m->n_field };
	*no_memory = !out->list;
	if (!out->list)
		return "out of memory";
	for (uint32_t i = 0; i < out->n && !wrong; i++) {
		wrong = field_take(m->field[i], &out->list[i]) ? check(&out->list[i], batch_size, m->slot_bytes)
							       : "a shape that does not fit its rows";
		for (uint32_t k = 0; k < i && !wrong; k++)
			wrong = strcmp(out->list[i].name, out->list[k].name) ? NULL : "two fields of one name";
	}
	if (!wrong && fields_first(out) && fields_first(out)->offset)
		wrong = "slots that do not begin with a field";
	return wrong;
}

void fields_finish(struct link_fields *fields)
{
	free(fields->list);
	*fields = (struct link_fields){ 0 };
}

const struct link_field *fields_first(const struct link_fields *fields)
{
	for (uint32_t i = 0; i < fields->n; i++)
		if (!fields->list[i].is.ragged)
			return &fields->list[i];
	return NULL;
}

const struct link_field *fields_find(const struct link_fields *fields, const char *name)
{
	for (uint32_t i = 0; i < fields->n; i++)
		if (strcmp(fields->list[i].name, name) == 0)
			return &fields->list[i];
	return NULL;
}

const struct link_field *fields_label(const struct link_fields *fields)
{
	const struct link_field *f = fields_find(fields, "label");

	return f && !f->is.ragged ? f : NULL;
}

static bool read_ragged(const struct link_field *f, const char *slot, uint32_t row, uint32_t n_rows,
			struct batchd_array *out)
{
	const int64_t *offsets = (const int64_t *)(const void *)(slot + f->offset) + row;
	uint64_t before = (uint64_t)offsets[0];

	/* In the trainer's private view of the slot, which the trainer may have written to. */
	for (uint32_t i = 1; i <= n_rows; i++) {
		uint64_t next = (uint64_t)offsets[i];

		if (next < before || next > f->is.most_values)
			return false;
		before = next;
	}
	if ((uint64_t)offsets[0] > before)
		return false;
	out->offsets = offsets;
	out->shape[0] = (uint64_t)(offsets[n_rows] - offsets[0]);
	out->data = (void *)(uintptr_t)(slot + f->values_offset + (uint64_t)offsets[0] * f->item_bytes);
	return true;
}

bool field_read(const struct link_field *f, const char *slot, uint32_t row, uint32_t n_rows, struct batchd_array *out)
{
	*out = (struct batchd_array){
		.dtype = f->is.dtype, .n_dims = f->is.n_dims + 1, .text = f->is.text, .n_rows = n_rows
	};
	for (uint32_t i = 0; i < f->is.n_dims; i++)
		out->shape[i + 1] = f->is.shape[i];
	if (f->is.ragged) {
		if (!read_ragged(f, slot, row, n_rows, out))
			return false;
	} else {
		out->shape[0] = n_rows;
		out->data = (void *)(uintptr_t)(slot + f->offset + row * f->item_bytes);
	}
	out->n_bytes = out->shape[0] * f->item_bytes;
	return true;
}

void fields_rest(const struct link_fields *fields, uint32_t n_rows, size_t *offset, size_t *n_bytes)
{
	size_t begin = 0, end = 0;

	for (uint32_t i = 0; i < fields->n; i++) {
		const struct link_field *f = &fields->list[i];
		size_t last = f->offset + n_rows * (size_t)f->item_bytes;

		if (f->is.ragged || f == fields_first(fields))
			continue;
		begin = !begin || f->offset < begin ? f->offset : begin;
		end = last > end ? last : end;
	}
	*offset = begin;
	*n_bytes = end - begin;
}
