/* A batch on the GPU as a DLPack tensor for another library, without a copy: the lease lives as long as the tensor.
 *
 * The deleter may be called by any thread, with or without an interpreter's lock, in a garbage collection, at exit, or
 * in a forked child. So it takes no lock, calls no CUDA and waits for nothing: it puts the lease on a list, and a later
 * call records the events. In a forked child it does nothing. */
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
	struct delivery *delivery; /* not the loader, which may have another connection by then */
	uint32_t slot;
};

static void dlpack_give_up(struct export *e)
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

static void delete_plain(struct dl_managed *m)
{
	dlpack_give_up(m->context);
}

static void delete_versioned(struct dl_managed_versioned *m)
{
	dlpack_give_up(m->context);
}

/* ---- the content of the slot ---- */

static void set_type(struct dl_tensor *t, enum batchd_dtype dtype)
{
	static const struct {
		uint8_t code, bits;
	} types[] = {
		[BATCHD_UINT8] = { DL_UINT, 8 },         [BATCHD_FLOAT16] = { DL_FLOAT, 16 },
		[BATCHD_FLOAT32] = { DL_FLOAT, 32 },     [BATCHD_INT32] = { DL_INT, 32 },
		[BATCHD_INT64] = { DL_INT, 64 },         [BATCHD_FLOAT64] = { DL_FLOAT, 64 },
		[BATCHD_INT16] = { DL_INT, 16 },         [BATCHD_BOOL] = { DL_BOOL, 8 },
		[BATCHD_INT8] = { DL_INT, 8 },           [BATCHD_UINT16] = { DL_UINT, 16 },
		[BATCHD_UINT32] = { DL_UINT, 32 },       [BATCHD_UINT64] = { DL_UINT, 64 },
		[BATCHD_COMPLEX64] = { DL_COMPLEX, 64 }, [BATCHD_COMPLEX128] = { DL_COMPLEX, 128 },
	};

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

static void dlpack_describe(const struct link *k, const struct batchd_batch *b, struct export *e, struct dl_tensor *t)
{
	uint32_t n = k->info.n_dims;
	int64_t stride = 1;

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
	for (uint32_t i = n + 1; i-- > 0; stride *= e->shape[i])
		e->strides[i] = stride;
}

static struct export *dlpack_make(struct link *k, const struct batchd_batch *b, int versioned)
{
	struct export *e = calloc(1, sizeof *e);

	if (!e)
		return NULL;
	e->delivery = delivery_of(k);
	e->slot = b->slot;
	if (versioned) {
		e->as.versioned = (struct dl_managed_versioned){
			.major = 1, .context = e, .deleter = delete_versioned, .flags = DL_FLAG_READ_ONLY
		};
		dlpack_describe(k, b, e, &e->as.versioned.tensor);
	} else {
		e->as.plain = (struct dl_managed){ .context = e, .deleter = delete_plain };
		dlpack_describe(k, b, e, &e->as.plain.tensor);
	}
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

static int dlpack_export(struct batchd_loader *l, const struct batchd_batch *b, int versioned, void *stream,
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
	e = lease ? dlpack_make(k, b, versioned) : NULL;
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
	r = dlpack_export(l, b, versioned, stream, managed);
	loader_leave_with_batch(l);
	return r;
}

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
