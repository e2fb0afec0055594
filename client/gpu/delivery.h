/* A loader's batches on the GPU: where they are, how they become the trainer's tensor, and when their slots go back.
 *
 *   batchd_next       -> lent      the trainer may begin work that reads the batch
 *   batchd_release    -> free      at once: the trainer has seen its work complete
 *   ..._cuda_release  -> pending   an event is recorded; free when a later call finds it complete
 *   ..._cuda_dlpack   -> exported  a tensor owns it
 *   its deleter       -> (list)    any thread, no CUDA call, no lock; pending when a later call reads the list
 *
 * In share mode several slices of one slot may be in different states; the slot is pending when no slice is lent or
 * exported any more and none is still to come.
 *
 * It is the GPU's half of a link (struct link_gpu), reads the link's leases and sizes, and calls the link only to say
 * that a slot is free. Everything here is under the loader's lock unless it says otherwise. */
#ifndef BATCHD_CLIENT_DELIVERY_H
#define BATCHD_CLIENT_DELIVERY_H

#include <stdatomic.h>

#include "../daemon/gpu/vmm.h"
#include "gpu/copy.h"
#include "finish/convert-plan.h"
#include "gpu/gpu.h"
#include "link/link.h"

enum { DELIVERY_STREAMS = 8 }; /* most streams that may read one batch */

struct device_lease {
	uint64_t generation;         /* as the trainer sees it; of the batch lent last */
	unsigned n_lent, n_exported; /* slices (1 for a whole batch) that the trainer or a tensor has */
	atomic_uint n_returned;      /* exported slices whose tensors are gone, not collected yet; any thread */
	bool deferred;               /* a slice was given back after a stream's work */
	bool pending;                /* only that work keeps the slot */
	bool recorded;               /* events tell when the work is over; false while one of the streams captures a
	                              * CUDA graph */
	struct device_lease *next;   /* in the list of pending leases */
	struct cuda_stream *stream[DELIVERY_STREAMS]; /* their work must be complete before the slot goes back */
	pthread_t thread[DELIVERY_STREAMS];           /* the thread that named it; for CUDA_STREAM_PER_THREAD */
	struct cuda_event *event[DELIVERY_STREAMS];   /* made when first needed */
	unsigned n_streams;
	cuda_ptr large; /* this process's memory for a batch that does not fit its slot; 0: none */
};

/* A tensor that is gone: its own memory carries the message. */
struct returned {
	struct returned *next;
	uint32_t slot;
};

struct delivery {
	struct link_gpu gpu_half; /* first: delivery_from */
	struct link *link;
	/* Written once, while opening. */
	struct gpu gpu;
	unsigned fork_generation; /* process_generation() */
	bool wants_images;        /* dtype and layout below are for images; arrays arrive as they are */
	enum batchd_dtype dtype;
	enum batchd_layout layout;
	struct daemon_memory {
		cuda_ptr address; /* the daemon's slab; 0: this process copies */
		struct vmm vmm;   /* how it is mapped, if it came as a descriptor; zeroed: by CUDA IPC */
	} imported;
	size_t stride; /* of its slots */
	struct copy *copy;
	char reason[640]; /* why the daemon's slab is not mapped; "" if it is */
	bool refused;     /* this process could not open what the daemon offers */
	bool offers_ipc;  /* it was asked for memory that CUDA IPC opens, too */
	struct finishing {
		bool is_image;            /* finishing makes another tensor of the slot's content */
		bool has_numbers;         /* that content is finished numbers, of the tensor's layout */
		struct convert_plan plan; /* n_px, in and out are set for each launch */
		uint32_t width;           /* of an image */
		struct cuda_function *kernel;
	} *finishing;                        /* of each field; owned */
	bool any_image, has_kernel;          /* of any field; for all that need one */
	bool mixes;                          /* rows are mixed while they are finished */
	struct cuda_module *module;          /* NULL: nothing to launch, or built without */
	struct cuda_function *target_kernel; /* if it mixes */
	char no_kernel[192];                 /* why the driver does not take the built-in kernel, or "" */

	struct device_lease *lease;          /* of each slot */
	_Atomic(struct returned *) returned; /* filled by deleters; any thread */
	struct device_lease *pending, **pending_end;
	uint32_t n_exported;
	int lost; /* a CUDA result after which the GPU is unusable, or 0 */
};

static inline struct delivery *delivery_from(struct link_gpu *g)
{
	return (struct delivery *)g;
}

/* NULL: the link delivers to no GPU. */
static inline struct delivery *delivery_of(const struct link *k)
{
	return delivery_from(k->gpu);
}

/* ---- opening; the loader's thread, no lock needed yet ---- */

/* Whether o asks for a GPU; if so finds it and creates k->gpu. 0 or a batchd code with f. */
int delivery_create(struct link *k, const struct batchd_options *o, struct fault *f);
/* What the daemon makes of images whose numbers no pixel has, for a result of this dtype. */
enum batchd_dtype delivery_numbers(enum batchd_dtype dtype);
/* Writes into Open on which GPU batches are wanted; Open refers to *d until it is sent. */
void delivery_ask(struct delivery *d, Batchd__Wire__Open *open);
/* Takes the daemon's offer and puts into k->info what this trainer will get. slab_fd: the host slab's; device_fd: that
 * of its memory on the GPU, or -1; both borrowed. 0, DELIVERY_E_OTHER_WAY or a code with f. */
int delivery_attach(struct link *k, const Batchd__Wire__Opened *m, int slab_fd, int device_fd, struct fault *f);
/* CUDA IPC does not work in this process, which was not known before: opened once more, the link is offered memory that
 * comes as a descriptor. */
enum { DELIVERY_E_OTHER_WAY = -1000 };

/* ---- batches ---- */

/* Where a slot's batch is on the GPU. */
cuda_ptr delivery_slot(const struct delivery *d, uint32_t slot);
/* The lease of a batch that the trainer may still queue work on, or NULL. */
struct device_lease *delivery_lease(struct link *k, uint32_t slot, uint64_t generation);
/* Whether work queued on the stream becomes part of a CUDA graph, so that nothing may be recorded or waited for in it.
 * In the GPU's context. A CUDA result. */
int delivery_is_capturing(const struct delivery *d, struct cuda_stream *stream, bool *capturing);
/* Notes that stream, which must not be capturing, reads the batch, and makes it wait for the batch's bytes. In the
 * GPU's context. A CUDA result. */
int delivery_use(struct delivery *d, struct device_lease *lease, struct cuda_stream *stream);
/* The result as one that ended the GPU for this process, or CUDA_OK if it did not. Drivers also say CONTEXT_IS_DESTROYED
 * of a stream or an event that is gone; then the context is asked, which waits for its work. In the GPU's context. */
int delivery_believe(const struct delivery *d, int result);
/* A deleter's part: any thread, also without the lock. The call that collects node frees it; the caller may touch
 * neither node nor d afterwards. */
void delivery_return(struct delivery *d, struct returned *node);
/* batchd_cuda_release: gives back a slice that work queued on stream still reads. 0 or a code with f. */
int delivery_release_behind(struct delivery *d, struct device_lease *lease, struct cuda_stream *stream,
			    struct fault *f);

#endif
