/* A loader's batches on the GPU: where they are, how they become the trainer's tensor, and when their slots go back.
 *
 *   batchd_next       -> LENT      the trainer may begin work that reads the batch
 *   batchd_release    -> FREE      at once: the trainer has seen its work complete
 *   ..._cuda_release  -> PENDING   an event is recorded; FREE when it is seen complete, which is looked at during later calls
 *   ..._cuda_dlpack   -> EXPORTED  a tensor owns it
 *   its deleter       -> (list)    any thread, no CUDA call, no lock: noted in a list, PENDING when the list is next looked at
 *
 * A loader that is closed with batches still EXPORTED or PENDING lives on, connection included, until the last is gone; calls for any other
 * loader look after it. Everything here is under the loader's lock unless it says otherwise. */
#ifndef BATCHD_CLIENT_DELIVERY_H
#define BATCHD_CLIENT_DELIVERY_H

#include <stdatomic.h>

#include "cuda/copy.h"
#include "cuda/finish-plan.h"
#include "cuda/gpu.h"
#include "loader.h"

enum { DELIVERY_STREAMS = 8 }; /* that may read one batch */

struct device_lease {
	enum { DEVICE_FREE, DEVICE_LENT, DEVICE_EXPORTED, DEVICE_PENDING } state;
	uint32_t slot, n_rows;
	uint64_t generation;
	struct device_lease *next;     /* in the list of the returned, or of the pending */
	struct cuda_stream *stream[DELIVERY_STREAMS]; /* whose work must be complete before the slot goes back */
	struct cuda_event *event[DELIVERY_STREAMS];   /* made when first needed */
	unsigned n_streams;
};

struct delivery {
	/* Written once, while opening. */
	struct gpu gpu;
	bool wants_images;             /* dtype and layout below are for images; arrays arrive as they are */
	enum batchd_dtype dtype;
	enum batchd_layout layout;
	cuda_ptr imported;             /* the daemon's slab; 0: copied by ourselves */
	size_t stride;                 /* of its slots */
	struct copy *copy;
	char reason[640];              /* why there is no IPC; "" if there is */
	bool is_image;                 /* finishing makes another tensor of what is in the slot */
	struct finish_plan plan;       /* n_px, in and out are of each launch */
	struct cuda_module *module;    /* NULL: nothing to launch, or built without */
	struct cuda_function *kernel;

	struct device_lease *lease;    /* of each slot */
	_Atomic(struct device_lease *) returned; /* by deleters; any thread */
	atomic_uint n_coming;          /* returned or pending: nobody holds them, they come back by themselves */
	struct device_lease *pending, **pending_end;
	uint32_t n_exported;
	int lost;                      /* a CUDA result after which nothing works any more, or 0 */
	struct batchd_loader *next_closed; /* under process_lock */
};

/* ---- opening; the loader's thread, no lock needed yet ---- */

/* Whether o asks for a GPU; if so finds it. *out is NULL for the CPU. 0 or a batchd code with f. */
int delivery_create(struct delivery **out, const struct batchd_options *o, struct fault *f);
/* Says in Open on which GPU batches are wanted; Open refers to *d until it is sent. */
void delivery_ask(struct delivery *d, Batchd__Wire__Open *open);
/* Takes what the daemon offers and puts into l->info what this trainer will get. fd: the slab's, borrowed. 0 or a code with l->fault. */
int delivery_attach(struct batchd_loader *l, const Batchd__Wire__Opened *m, int fd);
/* Takes everything apart. No batch may be on loan. NULL is allowed. False: the daemon's memory is still mapped, as the GPU failed; only the
 * end of the process ends that. */
bool delivery_destroy(struct delivery *d, uint32_t n_slots);

/* ---- batches ---- */

/* batchd_next for loaders with a GPU. The loader's thread. */
int delivery_next(struct batchd_loader *l, struct batchd_batch *b, int timeout_ms);
/* Whether batchd_release may end the lease: not if a tensor has it or an event is waited for. */
bool delivery_may_release(struct delivery *d, uint32_t slot);
/* Gives back what is complete. more: something else may come back by itself. 0, or the CUDA result after which nothing works any more. */
int delivery_collect(struct batchd_loader *l, bool *more);
/* Slots that nobody holds any more and that are still on loan. Any thread. */
unsigned delivery_n_coming(const struct delivery *d);
/* Where a slot is on the GPU. */
cuda_ptr delivery_slot(const struct delivery *d, uint32_t slot);
/* The lease of a batch that the trainer may still begin work with, or NULL. */
struct device_lease *delivery_lease(struct batchd_loader *l, uint32_t slot, uint64_t generation);
/* Notes that stream reads the batch, and makes it wait for the batch's bytes. In the GPU's context. A CUDA result. */
int delivery_use(struct delivery *d, struct device_lease *lease, struct cuda_stream *stream);
/* A deleter's part: any thread, also without the lock. The lease must not be touched afterwards. */
void delivery_return(struct delivery *d, struct device_lease *lease);

/* ---- the end ---- */

/* batchd_close for loaders with a GPU: waits a little for what is pending, then closes or leaves that to delivery_reap. Not under the lock. */
void delivery_close(struct batchd_loader *l);
/* Closes loaders whose last batch has come back since. Not under any lock; any thread. */
void delivery_reap(void);

#endif
