/* A batch as a DLPack tensor for another library, without a copy: the lease lives as long as the tensor.
 *
 * The deleter may be called by any thread, with or without an interpreter's lock, in a garbage collection, at exit, or
 * in a forked child, where it does nothing but free its own memory. In host memory it is a batchd_release. On the GPU it
 * takes no lock, calls no CUDA and waits for nothing: it puts the lease on a list, and a later call records the
 * events. */
#include "loader/dlpack.h"

#include <stdlib.h>

#include "gpu/delivery.h"
#include "loader/links.h"
#include "link/process.h"

enum { MAX_DIMS = WIRE_MAX_DIMS + 1 };

struct export {
	union {
		struct dl_managed plain;
		struct dl_managed_versioned versioned;
	} as;
	int64_t shape[MAX_DIMS], strides[MAX_DIMS];
	struct delivery *delivery;    /* on the GPU: not the loader, which may have another connection by then */
	struct batchd_loader *loader; /* in host memory; it lives until its last lease ends */
	uint32_t slot;
	uint64_t generation; /* in host memory */
};

static void give_up_on_gpu(struct export *e)
{
	struct delivery *d = e->delivery;
	struct returned *node = (struct returned *)e; /* the memory is reused as the message */
	uint32_t slot = e->slot;

	if (d->fork_generation != process_generation()) {
		free(e);
		return;
	}
	node->slot = slot;
	delivery_return(d, node);
}

static void dlpack_give_up(struct export *e)
{
	if (e->delivery) {
		give_up_on_gpu(e);
		return;
	}
	batchd_release(e->loader, e->slot, e->generation);
	free(e);
}

static void delete_plain(struct dl_managed *m)
{
	dlpack_give_up(m->context);
}

static void delete_versioned(struct dl_managed_versioned *m)
{
	dlpack_give_up(m->context);
}

/* ---- the content of the slot ---- */

static const struct {
	uint8_t code, bits;
} types[] = {
	[BATCHD_UINT8] = { DL_UINT, 8 },
	[BATCHD_FLOAT16] = { DL_FLOAT, 16 },
	[BATCHD_FLOAT32] = { DL_FLOAT, 32 },
	[BATCHD_INT32] = { DL_INT, 32 },
	[BATCHD_INT64] = { DL_INT, 64 },
	[BATCHD_FLOAT64] = { DL_FLOAT, 64 },
	[BATCHD_INT16] = { DL_INT, 16 },
	[BATCHD_BOOL] = { DL_BOOL, 8 },
	[BATCHD_INT8] = { DL_INT, 8 },
	[BATCHD_UINT16] = { DL_UINT, 16 },
	[BATCHD_UINT32] = { DL_UINT, 32 },
	[BATCHD_UINT64] = { DL_UINT, 64 },
	[BATCHD_COMPLEX64] = { DL_COMPLEX, 64 },
	[BATCHD_COMPLEX128] = { DL_COMPLEX, 128 },
	[BATCHD_BFLOAT16] = { DL_BFLOAT, 16 },
	[BATCHD_FLOAT8_E4M3] = { DL_FLOAT8_E4M3FN, 8 },
	[BATCHD_FLOAT8_E5M2] = { DL_FLOAT8_E5M2, 8 },
};

static bool dlpack_has_type(enum batchd_dtype dtype)
{
	return (unsigned)dtype < sizeof types / sizeof *types;
}

static void set_type(struct dl_tensor *t, enum batchd_dtype dtype)
{
	t->type_code = types[dtype].code;
	t->type_bits = types[dtype].bits;
	t->type_lanes = 1;
}

/* A producer's batch is a row of bytes that contains its arrays. */
static void describe_bytes(const struct link *k, uint32_t slot, struct export *e, struct dl_tensor *t)
{
	t->n_dims = 1;
	set_type(t, BATCHD_UINT8);
	e->shape[0] = (int64_t)link_room(k, slot);
	e->strides[0] = 1;
}

static void set_strides(struct export *e, struct dl_tensor *t)
{
	int64_t stride = 1;

	for (int32_t i = t->n_dims; i-- > 0; stride *= e->shape[i])
		e->strides[i] = stride;
}

static void describe_on_gpu(const struct link *k, const struct batchd_batch *b, struct export *e, struct dl_tensor *t)
{
	uint32_t n = k->info.n_dims;

	*t = (struct dl_tensor){ .data = b->device_data,
				 .device_type = DL_CUDA,
				 .device_id = delivery_of(k)->gpu.ordinal,
				 .n_dims = (int32_t)n + 1,
				 .shape = e->shape,
				 .strides = e->strides };
	if (k->info.served) {
		describe_bytes(k, b->slot, e, t);
		return;
	}
	set_type(t, k->info.stored_dtype);
	e->shape[0] = b->n_rows;
	for (uint32_t i = 0; i < n; i++)
		e->shape[i + 1] = k->info.stored_shape[i];
	set_strides(e, t);
}

static void describe_array(const struct batchd_array *a, struct export *e, struct dl_tensor *t)
{
	*t = (struct dl_tensor){ .data = a->data,
				 .device_type = DL_CPU,
				 .n_dims = (int32_t)a->n_dims,
				 .shape = e->shape,
				 .strides = e->strides };
	set_type(t, a->dtype);
	for (uint32_t i = 0; i < a->n_dims; i++)
		e->shape[i] = (int64_t)a->shape[i];
	set_strides(e, t);
}

/* An export whose tensor, *t, is still to be described. NULL: out of memory. */
static struct export *dlpack_make(uint32_t slot, int versioned, bool read_only, struct dl_tensor **t)
{
	struct export *e = calloc(1, sizeof *e);

	if (!e)
		return NULL;
	e->slot = slot;
	if (versioned) {
		e->as.versioned = (struct dl_managed_versioned){ .major = 1,
								 .context = e,
								 .deleter = delete_versioned,
								 .flags = read_only ? DL_FLAG_READ_ONLY : 0 };
		*t = &e->as.versioned.tensor;
	} else {
		e->as.plain = (struct dl_managed){ .context = e, .deleter = delete_plain };
		*t = &e->as.plain.tensor;
	}
	return e;
}

static struct export *make_on_gpu(struct link *k, const struct batchd_batch *b, int versioned)
{
	struct dl_tensor *t;
	struct export *e = dlpack_make(b->slot, versioned, true, &t);

	if (!e)
		return NULL;
	e->delivery = delivery_of(k);
	describe_on_gpu(k, b, e, t);
	return e;
}

static int give_reason(struct batchd_loader *l, bool has_lease)
{
	struct fault f;
	int r = has_lease ? fault_set(&f, BATCHD_E_NOMEM, "out of memory")
			  : fault_set(&f, BATCHD_E_INVALID,
				      "this batch is no longer on loan, so there is nothing to make a tensor of");

	pthread_mutex_lock(&l->lock);
	loader_tell(l, &f);
	pthread_mutex_unlock(&l->lock);
	return r;
}

static int export_on_gpu(struct batchd_loader *l, const struct batchd_batch *b, int versioned, void *stream,
			 void **managed)
{
	int r = batchd_cuda_wait(l, b->slot, b->generation, stream);
	struct device_lease *lease;
	struct export *e;
	struct link *k;

	if (r < 0)
		return r;
	pthread_mutex_lock(&l->lock);
	k = l->link;
	lease = k ? delivery_lease(k, b->slot, b->generation) : NULL;
	e = lease ? make_on_gpu(k, b, versioned) : NULL;
	if (e) {
		lease->n_lent--;
		lease->n_exported++;
		delivery_of(k)->n_exported++;
	}
	pthread_mutex_unlock(&l->lock);
	if (!e)
		return give_reason(l, lease != NULL);
	*managed = &e->as;
	return 0;
}

int batchd_cuda_dlpack(struct batchd_loader *l, const struct batchd_batch *b, int versioned, void *stream,
		       void **managed)
{
	int r = loader_enter_with_batch(l);

	*managed = NULL;
	if (r < 0)
		return r;
	r = export_on_gpu(l, b, versioned, stream, managed);
	loader_leave_with_batch(l);
	return r;
}

/* ---- in host memory ---- */

/* Under the loader's lock. 0 or a code with f; a code without a text: as give_reason. */
static int export_array(struct batchd_loader *l, const struct batchd_batch *b, const struct batchd_array *a,
			int versioned, struct export **out)
{
	struct link *k = links_find(l, b->generation);
	struct lease *lease = k && b->slot < k->n_slots ? &k->lease[b->slot] : NULL;
	struct dl_tensor *t;
	struct export *e;

	if (!lease || !lease->held || lease->generation != (b->generation & LINK_GENERATIONS) || !lease->n_out)
		return BATCHD_E_INVALID;
	e = dlpack_make(b->slot, versioned, !l->options.writable, &t);
	if (!e)
		return BATCHD_E_NOMEM;
	e->loader = l;
	e->generation = b->generation;
	describe_array(a, e, t);
	lease->n_out++;
	*out = e;
	return 0;
}

int batchd_dlpack(struct batchd_loader *l, const struct batchd_batch *b, const struct batchd_array *a, int versioned,
		  void **managed)
{
	struct export *e = NULL;
	struct fault f = { 0 };
	int r;

	*managed = NULL;
	if (loader_is_foreign(l))
		return BATCHD_E_FORKED;
	pthread_mutex_lock(&l->lock);
	if (l->link && l->link->gpu)
		r = fault_set(&f, BATCHD_E_INVALID,
			      "batchd_dlpack: this loader's batches are on a GPU: batchd_cuda_dlpack");
	else if (a->n_dims > MAX_DIMS || !dlpack_has_type(a->dtype))
		r = fault_set(&f, BATCHD_E_INVALID, "batchd_dlpack: this array is none that batchd_get_field gave");
	else
		r = export_array(l, b, a, versioned, &e);
	loader_tell(l, &f);
	pthread_mutex_unlock(&l->lock);
	if (r < 0)
		return f.code ? r : give_reason(l, r == BATCHD_E_NOMEM);
	*managed = &e->as;
	return 0;
}

/* ---- other streams on the GPU ---- */

enum { NO_BATCH = -1, CAPTURING = -2 };

/* Under the loader's lock. A CUDA result, or one of the above. */
static int add_stream(struct link *owner, uint32_t slot, uint64_t generation, struct cuda_stream *stream)
{
	struct device_lease *lease =
		owner && owner->gpu && slot < owner->n_slots ? &delivery_of(owner)->lease[slot] : NULL;
	struct gpu_visit visit;
	bool capturing = false;
	int r;

	if (!lease || lease->generation != generation || !(lease->n_lent || lease->n_exported))
		return NO_BATCH;
	r = gpu_enter(&delivery_of(owner)->gpu, &visit);
	if (r == CUDA_OK) {
		r = delivery_is_capturing(delivery_of(owner), stream, &capturing);
		if (r == CUDA_OK)
			r = capturing ? CAPTURING : delivery_use(delivery_of(owner), lease, stream);
		gpu_leave(&delivery_of(owner)->gpu, &visit);
	}
	return r;
}

int batchd_cuda_add_stream(struct batchd_loader *l, uint32_t slot, uint64_t generation, void *stream)
{
	struct link *owner;
	struct fault f = { 0 };
	int r;

	if (loader_is_foreign(l))
		return BATCHD_E_FORKED;
	pthread_mutex_lock(&l->lock);
	owner = links_find(l, generation);
	r = add_stream(owner, slot, generation, stream);
	if (r > 0) {
		gpu_fault_on_stream(&delivery_of(owner)->gpu, r, &f, "batchd_cuda_add_stream cannot note the stream");
		f.code = r == CUDA_INVALID_VALUE ? BATCHD_E_INVALID : BATCHD_E_GPU;
	} else if (r < 0) {
		fault_set(
			&f, BATCHD_E_INVALID, "batchd_cuda_add_stream: %s",
			r == NO_BATCH
				? "this batch is no longer on loan"
				: "not inside the capture of a CUDA graph; a graph would read the slot long after it has gone back");
	}
	loader_tell(l, &f);
	pthread_mutex_unlock(&l->lock);
	return f.code;
}
