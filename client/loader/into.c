/* batchd_next_into: fields of a batch, written to memory of the caller's. It calls what batchd.h offers, as a trainer
 * would. */
#include <string.h>

#include "loader/links.h"
#include "loader/loader.h"

/* What a field is in the caller's memory: finished images and soft targets differ from what a slot has. */
struct wanted {
	uint32_t number; /* of the field in info.fields */
	enum batchd_dtype dtype;
	uint64_t n_bytes, n_rows; /* of a whole batch */
	bool ragged, is_first, is_finished, is_targets;
};

static const char *const into_dtype[] = {
	"uint8",    "float16", "float32", "int32",  "int64",  "float64",   "int16",      "bool",
	"bfloat16", "int8",    "uint16",  "uint32", "uint64", "complex64", "complex128",
};

static uint64_t n_bytes_of(enum batchd_dtype dtype, const uint32_t *shape, uint32_t n_dims)
{
	static const uint8_t sizes[] = { 1, 2, 4, 4, 8, 8, 2, 1, 2, 1, 2, 4, 8, 8, 16 };
	uint64_t n = sizes[dtype];

	for (uint32_t i = 0; i < n_dims; i++)
		n *= shape[i]; /* the daemon's own slots hold such rows, so the product fits */
	return n;
}

static struct wanted wanted_of(const struct batchd_loader *l, const struct link *k, uint32_t number)
{
	const struct batchd_info *info = &k->info;
	const struct batchd_field *f = &k->fields.list[number].is;
	bool is_first = &k->fields.list[number] == fields_first(&k->fields);
	bool is_finished = k->gpu ? is_first || f->view : number < k->n_finish || (is_first && info->needs_finish);
	struct wanted w = { .number = number,
			    .dtype = f->dtype,
			    .n_rows = info->batch_size,
			    .ragged = f->ragged,
			    .is_first = is_first,
			    .is_finished = is_finished };

	w.is_targets = l->mix && info->n_mix_classes && &k->fields.list[number] == fields_label(&k->fields);
	if (w.is_targets) {
		w.dtype = BATCHD_FLOAT32;
		w.n_bytes = (uint64_t)info->batch_size * info->n_mix_classes * sizeof(float);
		return w;
	}
	if (is_finished)
		w.dtype = info->dtype;
	w.n_bytes = n_bytes_of(w.dtype, f->shape, f->n_dims) * (f->ragged ? f->most_values : info->batch_size);
	return w;
}

static int check_target(const struct batchd_target *t, const struct wanted *w, struct fault *f)
{
	if (t->dtype != w->dtype)
		return fault_set(f, BATCHD_E_INVALID, "field '%s' is %s, and its target is %s", t->field,
				 into_dtype[w->dtype],
				 (unsigned)t->dtype < sizeof into_dtype / sizeof *into_dtype ? into_dtype[t->dtype]
											     : "of no known type");
	if (!t->data || t->n_bytes < w->n_bytes)
		return fault_set(f, BATCHD_E_INVALID,
				 "field '%s' takes up to %llu bytes in a batch, and its target has %llu", t->field,
				 (unsigned long long)w->n_bytes, (unsigned long long)(t->data ? t->n_bytes : 0));
	if (w->ragged != (t->offsets != NULL))
		return fault_set(f, BATCHD_E_INVALID,
				 w->ragged ? "field '%s' is ragged: its target needs offsets, of batch_size + 1 numbers"
					   : "field '%s' is not ragged: its target has no offsets",
				 t->field);
	if (w->ragged && t->n_offsets <= w->n_rows)
		return fault_set(f, BATCHD_E_INVALID,
				 "field '%s' takes %llu offsets in a batch, and its target has room for %llu", t->field,
				 (unsigned long long)w->n_rows + 1, (unsigned long long)t->n_offsets);
	return 0;
}

/* Finds the target's field of the daemon's own batches. Not under the lock: a loader's fields stay. */
static int find_wanted(const struct batchd_loader *l, const struct link *k, const struct batchd_target *t,
		       struct wanted *out, struct fault *f)
{
	const struct link_field *found = t->field ? fields_find(&k->fields, t->field) : NULL;

	if (!found)
		return fault_set(f, BATCHD_E_INVALID, "target '%s': this loader's batches have no such field",
				 t->field ? t->field : "");
	*out = wanted_of(l, k, (uint32_t)(found - k->fields.list));
	return check_target(t, out, f);
}

/* The call's result with its text; a batch that has come stays on loan. */
static int into_fail(struct batchd_loader *l, int code, const struct fault *f)
{
	pthread_mutex_lock(&l->lock);
	loader_tell(l, f);
	pthread_mutex_unlock(&l->lock);
	return code;
}

/* ---- writing ---- */

/* The offsets are checked as copied: a producer's process could write over its own. */
static int write_ragged(const struct batchd_array *a, const struct batchd_target *t, struct fault *f)
{
	int64_t first = a->offsets[0];
	uint64_t n_rows = a->n_rows;
	bool ok = true;

	t->offsets[0] = 0;
	for (uint64_t i = 1; i <= n_rows; i++) {
		t->offsets[i] = (int64_t)((uint64_t)a->offsets[i] - (uint64_t)first);
		ok = ok && t->offsets[i] >= t->offsets[i - 1];
	}
	if (!ok || (uint64_t)t->offsets[n_rows] != a->shape[0])
		return fault_set(f, BATCHD_E_PROTOCOL, "the offsets of field '%s' have been overwritten", t->field);
	memcpy(t->data, a->data, a->n_bytes);
	return 0;
}

static int write_field(struct batchd_loader *l, const struct batchd_batch *b, const struct batchd_target *t,
		       const struct wanted *w, bool on_gpu, void *stream, struct fault *f)
{
	struct batchd_array a;
	int r;

	if (w->is_targets)
		return on_gpu ? batchd_cuda_targets(l, b, t->data, stream) : batchd_targets(l, b, t->data);
	if (w->is_finished && !on_gpu)
		return batchd_finish_field(l, b, w->number, t->data);
	if (w->is_finished && w->is_first) /* which mixes */
		return batchd_cuda_finish(l, b, t->data, stream);
	if (w->is_finished)
		return batchd_cuda_finish_field(l, b, w->number, t->data, stream);
	r = batchd_get_field_at(l, b, w->number, &a);
	if (r < 0)
		return r;
	if (w->ragged)
		return write_ragged(&a, t, f);
	if (on_gpu)
		return batchd_cuda_array(l, b, &a, t->data, stream);
	memcpy(t->data, a.data, a.n_bytes);
	return 0;
}

/* A producer says with each batch what it has. */
static int write_served(struct batchd_loader *l, const struct batchd_batch *b, const struct batchd_target *t,
			bool on_gpu, void *stream, struct fault *f)
{
	struct batchd_array a;
	struct wanted w;
	int r = t->field ? batchd_get_field(l, b, t->field, &a)
			 : fault_set(f, BATCHD_E_INVALID, "a target names no field");

	if (r < 0)
		return r;
	w = (struct wanted){ .dtype = a.dtype, .n_bytes = a.n_bytes, .n_rows = a.n_rows, .ragged = a.offsets };
	if ((unsigned)a.dtype >= sizeof into_dtype / sizeof *into_dtype)
		return fault_set(f, BATCHD_E_INVALID, "field '%s' has a type that only batchd_get_field gives",
				 t->field);
	r = check_target(t, &w, f);
	if (r == 0 && w.ragged && a.n_rows != b->n_rows)
		r = fault_set(f, BATCHD_E_INVALID, "field '%s' has %llu rows in a batch of %u", t->field,
			      (unsigned long long)a.n_rows, b->n_rows);
	if (r < 0)
		return r;
	if (w.ragged)
		return write_ragged(&a, t, f);
	if (on_gpu)
		return batchd_cuda_array(l, b, &a, t->data, stream);
	memcpy(t->data, a.data, a.n_bytes);
	return 0;
}

/* k: the link that lent the batch, which lives as long as the batch is on loan; NULL: it is not. */
static int write_target(struct batchd_loader *l, const struct link *k, const struct batchd_batch *b,
			const struct batchd_target *t, void *stream)
{
	struct fault f = { 0 };
	struct wanted w;
	int r;

	if (!k)
		r = fault_set(&f, BATCHD_E_INVALID, "batchd_into: this batch is no longer on loan");
	else if (k->info.served)
		r = write_served(l, b, t, k->gpu, stream, &f);
	else {
		r = find_wanted(l, k, t, &w, &f);
		r = r < 0 ? r : write_field(l, b, t, &w, k->gpu, stream, &f);
	}
	return r < 0 && f.code ? into_fail(l, r, &f) : r;
}

int batchd_into(struct batchd_loader *l, const struct batchd_batch *b, const struct batchd_target *targets, uint32_t n,
		void *stream)
{
	struct link *k;
	int r = loader_enter_with_batch(l);

	if (r < 0)
		return r;
	pthread_mutex_lock(&l->lock);
	k = links_find(l, b->generation);
	pthread_mutex_unlock(&l->lock);
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = write_target(l, k, b, &targets[i], stream);
	loader_leave_with_batch(l);
	return r;
}

/* ---- the next batch ---- */

/* Refuses targets before a batch is taken. */
static int check_targets(struct batchd_loader *l, const struct batchd_target *targets, uint32_t n)
{
	struct fault f = { 0 };
	struct wanted w;
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0 && !l->served; i++)
		r = find_wanted(l, l->link, &targets[i], &w, &f);
	return r < 0 ? into_fail(l, r, &f) : 0;
}

int batchd_next_into(struct batchd_loader *l, struct batchd_batch *b, const struct batchd_target *targets, uint32_t n,
		     void *stream, int timeout_ms)
{
	int r = loader_enter(l);

	if (r < 0)
		return r;
	b->generation = 0;
	r = check_targets(l, targets, n);
	r = r < 0 ? r : batchd_next(l, b, timeout_ms);
	if (r == BATCHD_OK)
		r = batchd_into(l, b, targets, n, stream);
	if (r == BATCHD_OK && b->generation) {
		r = l->link->gpu ? batchd_cuda_release(l, b->slot, b->generation, stream)
				 : batchd_release(l, b->slot, b->generation);
		b->generation = 0;
		b->data = b->labels = NULL;
		b->indices = NULL;
	}
	return loader_leave(l, r);
}
