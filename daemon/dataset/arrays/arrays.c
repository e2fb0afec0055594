/* See arrays.h. */
#include "dataset/arrays/arrays.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/arrays/gather.h"
#include "dataset/servers.h"

static void arrays_destroy(struct dataset *ds)
{
	struct arrays *a = (struct arrays *)ds;

	for (unsigned i = 0; i < a->n_files; i++)
		mapped_finish(&a->files[i]);
	for (unsigned i = 0; i < a->n_arrays; i++)
		free(a->arrays[i].owned);
	free(a->files);
	free(a->arrays);
	free(a->ranges);
	free(a);
}

static void data_arrays_copy_rows(const struct arrays *a, const uint64_t *indices, size_t n, void *const rows[])
{
	for (unsigned k = 0; k < a->n_arrays; k++) {
		const struct array *from = &a->arrays[k];

		if (rows[k] && from->widened)
			gather_int64(rows[k], from->rows, from->dtype, indices, n);
		else if (rows[k])
			gather_rows(rows[k], from->rows, from->row_bytes, indices, n);
	}
}

static bool is_read(const struct arrays *a, const struct sigbus_range *file, void *const rows[])
{
	for (unsigned k = 0; k < a->n_arrays; k++) {
		if (rows[k] && a->arrays[k].rows >= file->begin && a->arrays[k].rows < file->end)
			return true;
	}
	return false;
}

/* Of the files that hold the wanted arrays: a picture's worker gathers it and its label one after the other. */
static int data_arrays_check_whole(const struct arrays *a, void *const rows[], struct dataset_error *err)
{
	for (unsigned i = 0; i < a->n_files; i++) {
		if (is_read(a, &a->ranges[i], rows) && !mapped_is_whole(&a->files[i]))
			return mapped_cut_short(&a->files[i], err);
	}
	return 0;
}

static int arrays_gather(struct dataset *ds, const uint64_t *indices, size_t n, void *const rows[],
			 struct dataset_error *err)
{
	struct arrays *a = (struct arrays *)ds;
	struct sigbus_guard guard = { .ranges = a->ranges, .n_ranges = a->n_files };

	if (!n)
		return 0;
	if (sigsetjmp(guard.landing, 0)) {
		int r = data_arrays_check_whole(a, rows, err);

		return r < 0 ? r : dataset_fail(err, DATASET_E_BAD_DATA, -EIO, "%s: cannot be read", a->name);
	}
	sigbus_guard_enter(&guard);
	data_arrays_copy_rows(a, indices, n, rows);
	sigbus_guard_leave();
	return data_arrays_check_whole(a, rows, err);
}

static void arrays_name(const struct dataset *ds, uint64_t index, char *buf, size_t size)
{
	snprintf(buf, size, "%s[%llu]", ((const struct arrays *)ds)->name, (unsigned long long)index);
}

const struct dataset_ops arrays_ops = { .destroy = arrays_destroy, .gather = arrays_gather, .name = arrays_name };

/* ---- making ---- */

struct arrays *arrays_create(const struct dataset_source *source, unsigned n, const char *name,
			     struct dataset_error *err)
{
	uint64_t bytes = sizeof(struct arrays) +
			 n * (sizeof(struct array) + sizeof(struct mapped) + sizeof(struct sigbus_range));
	struct arrays *a = NULL;
	int r;

	if (n > DATASET_MAX_FIELDS) {
		dataset_fail(err, DATASET_E_LIMIT, -EFBIG, "%.200s: a sample has at most %d fields", name,
			     DATASET_MAX_FIELDS);
		return NULL;
	}
	r = meter_take(source->meter, bytes);
	a = r < 0 ? NULL : calloc(1, sizeof(*a));
	if (!a) {
		dataset_fail_errno(err, r < 0 ? -r : ENOMEM, name);
		return NULL;
	}
	a->base.ops = &arrays_ops;
	a->base.memory_bytes = bytes;
	atomic_init(&a->base.refs, 1);
	snprintf(a->name, sizeof(a->name), "%s", name);
	a->arrays = calloc(n, sizeof(*a->arrays));
	a->files = calloc(n, sizeof(*a->files));
	a->ranges = calloc(n, sizeof(*a->ranges));
	a->n_allocated = n;
	if (!a->arrays || !a->files || !a->ranges) {
		dataset_fail_errno(err, ENOMEM, name);
		dataset_destroy(&a->base);
		return NULL;
	}
	return a;
}

struct mapped *arrays_add_file(struct arrays *a)
{
	struct mapped *m = &a->files[a->n_files++];

	m->fd = -1;
	return m;
}

/* Losses and indexing need int64 labels: whatever type they were saved as, labels are widened if int64 holds them
 * all. */
static bool is_widened(enum dtype t)
{
	return t == DTYPE_UINT8 || t == DTYPE_INT8 || t == DTYPE_INT16 || t == DTYPE_UINT16 || t == DTYPE_INT32 ||
	       t == DTYPE_UINT32 || t == DTYPE_INT64;
}

static int data_arrays_add_field(struct arrays *a, const char *name, enum dtype dtype, unsigned n_dims,
				 const uint64_t *shape, bool widened, struct dataset_error *err)
{
	struct field *f = dataset_add_field(&a->base, name, widened ? DTYPE_INT64 : dtype, err);

	if (!f)
		return -EINVAL;
	f->n_dims = n_dims - 1;
	for (unsigned i = 0; i < f->n_dims; i++) {
		if (shape[i + 1] > UINT32_MAX)
			return dataset_fail(err, DATASET_E_LIMIT, -EFBIG, "%s: %s: a dimension is larger than 2^32 - 1",
					    a->name, name);
		f->shape[i] = (uint32_t)shape[i + 1];
	}
	return 0;
}

int arrays_add(struct arrays *a, const char *name, enum dtype dtype, unsigned n_dims, const uint64_t *shape,
	       const char *rows, void *owned, bool may_widen, struct dataset_error *err)
{
	struct array *to = &a->arrays[a->n_arrays];
	bool widened = may_widen && n_dims == 1 && is_widened(dtype);

	a->n_arrays++;
	*to = (struct array){ .rows = rows, .owned = owned, .dtype = dtype, .widened = widened };
	if (!n_dims || n_dims > FIELD_MAX_DIMS + 1 || !shape[0])
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				    "%s: %s: %s: expected an array whose first dimension counts samples", a->name, name,
				    n_dims ? "no sample" : "a single number");
	if (a->n_arrays == 1)
		a->base.n = shape[0];
	if (shape[0] != a->base.n)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				    "%s: '%s' has %llu samples, '%s' %llu: expected as many", a->name,
				    a->base.fields[0].name, (unsigned long long)a->base.n, name,
				    (unsigned long long)shape[0]);
	to->row_bytes = dtype_bytes(dtype);
	for (unsigned i = 1; i < n_dims; i++)
		to->row_bytes *= shape[i]; /* the caller has checked the whole array's size */
	return data_arrays_add_field(a, name, dtype, n_dims, shape, widened, err);
}

int arrays_add_npy(struct arrays *a, const char *name, const struct npy *npy, const char *from, void *owned,
		   bool may_widen, struct dataset_error *err)
{
	return arrays_add(a, name, npy->dtype, npy->n_dims, npy->shape, from + npy->data_offset_bytes, owned, may_widen,
			  err);
}

void arrays_end(struct arrays *a, const char *text, uint64_t content, struct dataset **out)
{
	struct dataset *ds = &a->base;

	for (unsigned i = 0; i < a->n_files; i++) {
		a->ranges[i] = mapped_range(&a->files[i]);
		ds->server = servers_both(ds->server, a->files[i].server);
		ds->memory_bytes += a->files[i].held_bytes;
	}
	ds->content_id = content;
	ds->id = XXH3_64bits_withSeed(text, strlen(text), content);
	*out = ds;
}
