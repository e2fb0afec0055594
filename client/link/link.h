/* A link: everything that lives and dies with one connection to a daemon.
 *
 * A loader has one link at a time. When its daemon goes away the loader opens another link and retires this one, which
 * lives on until its last batch is released: the leases that are out are a link's references. The link's id, in the
 * upper bits of the generation that the trainer sees, says which link lent a batch. */
#ifndef BATCHD_CLIENT_LINK_H
#define BATCHD_CLIENT_LINK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "batchd.h"
#include "link/connect.h"
#include "link/field.h"
#include "ring.h"
#include "link/slab.h"

/* The content of a Batch message, kept while it waits its turn. */
struct ready {
	uint64_t seek, generation, epoch, step;
	uint32_t slot, n_rows, n_padding, n_replaced;
	uint64_t n_skipped;
	uint64_t large_bytes; /* it lies in the memory of the next Large; 0: in its slot */
	bool last, apart;
};

/* A Large message: the memory of a batch that does not fit its slot. */
struct large {
	struct large *next;
	int fd;
	uint64_t generation, n_bytes;
	uint32_t slot;
};

/* A batch on loan. */
struct lease {
	uint64_t generation;
	uint64_t wait_ns; /* told to the daemon at release, for its statistics */
	uint32_t n_out;   /* slices of it that are with the trainer (1 of a whole batch), and tensors over it */
	bool more;        /* slices are still to be given out */
	bool held;
	void *large; /* where the batch lies, a mapping of large_bytes; NULL: in its slot */
	size_t large_bytes;
};

/* What a link needs from the loader that it belongs to. */
struct link_host {
	pthread_mutex_t *lock;
	bool (*is_closed)(const void *arg); /* every wait ends soon after it becomes true; any thread */
	/* Takes a Notice about other trainers of the job. 0, or a code with f that ends the call. */
	int (*on_notice)(void *arg, const Batchd__Wire__Notice *n, struct fault *f);
	void *arg;
};

struct link;

/* Whether the daemon's memory on the GPU is mapped here. */
enum link_gpu_mapping {
	LINK_GPU_NONE,     /* nothing is mapped that the daemon waits for */
	LINK_GPU_BUSY,     /* something is, and batches in it are read */
	LINK_GPU_UNMAPPED, /* unmapped by this call */
	LINK_GPU_STUCK,    /* unmapping failed; only the end of the process ends the mapping */
};

/* A link's half on a GPU (gpu/delivery.c). It calls on_free to give a slot back, and calls nothing else of the
 * link. */
struct link_gpu {
	const struct link_gpu_ops *ops;
	void (*on_free)(struct link *k, uint32_t slot); /* under the lock */
	bool looks_ahead;                               /* deliver looks at the next batch; written once */
	uint32_t n_pending;                             /* slots that wait only for the GPU's work; under the lock */
};

/* Called under the lock, unless they say otherwise. */
struct link_gpu_ops {
	/* Gives back slots that GPU work no longer reads. more: other slots may come back by themselves. 0, or
	 * BATCHD_E_GPU with f (which may be NULL): the GPU can no longer be used. */
	int (*collect)(struct link_gpu *g, bool *more, struct fault *f);
	/* Collects. True when neither the trainer nor a tensor has a batch, and nothing on the GPU reads one. */
	bool (*is_idle)(struct link_gpu *g);
	/* Slots of which the trainer or a tensor has a slice; without those that wait only for the GPU. */
	uint32_t (*n_held)(const struct link_gpu *g);
	/* Makes room on the GPU for another batch (next: the one that comes, or NULL: not known). 0; BATCHD_AGAIN: there
	 * will be room when work that is queued there is done; or BATCHD_E_NOMEM or BATCHD_E_GPU with f. The loader's
	 * thread, not under the lock. */
	int (*make_room)(struct link_gpu *g, const struct ready *next, struct fault *f);
	/* Notes that a slice of b has just been lent, and copies the batch to the GPU if necessary, and the next batch
	 * (NULL: not there yet). *device_slot: where the slot is on the GPU. 0, or a code with f. The loader's thread,
	 * not under the lock. */
	int (*deliver)(struct link_gpu *g, const struct ready *b, const struct ready *next, void **device_slot,
		       struct fault *f);
	/* Notes that batchd_release gives a slice back; false if the trainer has none of this slot. */
	bool (*may_release)(struct link_gpu *g, uint32_t slot);
	/* No slice of the slot's batch is out any more: frees it, at once or after the GPU's work. */
	void (*release)(struct link_gpu *g, uint32_t slot);
	/* Unmaps the daemon's memory as soon as this half is idle, when the daemon waits for that. The loader's thread,
	 * not under the lock. */
	enum link_gpu_mapping (*unmap)(struct link_gpu *g);
	/* Releases everything; no batch may be on loan. False: the daemon's memory is still mapped, as the GPU failed;
	 * only the end of the process unmaps it. With or without the lock. */
	bool (*close)(struct link_gpu *g);
};

/* A generation has the wire's generation in its lower bits and the link's id in those above. */
enum { LINK_ID_SHIFT = 48 };
static const uint64_t LINK_GENERATIONS = ((uint64_t)1 << LINK_ID_SHIFT) - 1;

struct finish;

struct link {
	/* Written once, before the loader has it. */
	struct link_host host;
	uint64_t id;
	uint32_t n_slots;
	struct link_fields fields;
	size_t labels_offset, indices_offset;
	uint64_t row_bytes, label_bytes; /* of the first dense field, which lies at 0, and of the labels; 0: there is
	                                  * none */
	uint64_t content_id, pipeline_id;
	char left_out[WIRE_MAX_REASON + 1];
	struct batchd_info info;
	struct finish *finish; /* of each view: the CPU makes numbers of the pixels; NULL: the daemon or the GPU does */
	uint32_t n_finish;
	struct link_gpu *gpu;  /* NULL: batches are delivered to host memory only */
	bool without_ipc;      /* memory on the GPU that the daemon has just offered could not be opened by CUDA IPC */
	const char *no_device; /* why the daemon need not copy batches to the GPU for this link; NULL: it has to */

	/* the loader's thread */
	bool continues;     /* the daemon continues with the next epoch by itself */
	bool said_waiting;  /* the mark in the page is set, as far as is known */
	bool stale_wake;    /* a Wake is in the socket, or will be, that no call waits for any more */
	struct ring ring;   /* batches: the loader's thread; releases: under the lock */
	struct ready early; /* while has_early: a batch that was taken before its turn */
	bool has_early;
	struct large *large_first, *large_last; /* received, each for a batch that is still to be lent or refused */

	/* under the lock */
	bool ends_job;    /* Close says so: the loader is closed, and no other trainer can come to its job */
	bool comes_again; /* Close says so: this process opens another link at once, to be served in another way */
	struct slab *slab;
	struct lease *lease; /* of each slot */
	uint32_t n_leased;
	bool detached;                /* slots on loan are this process's copies; the daemon is not told of their end */
	struct connection connection; /* receiving: the loader's thread; sending: under the lock */
	struct link *next;            /* in the loader's list of retired links */
};

/* A link without a connection, or NULL. */
struct link *link_create(const struct link_host *host);
/* Takes the GPU's half apart, unmaps the slab, and sends Close where the daemon may still be waiting for that. No batch
 * may be on loan. link_destroy does the same first; NULL is allowed there. */
void link_leave(struct link *k);
void link_destroy(struct link *k);

/* ---- messages; the loader's thread, unless they say otherwise ---- */

/* Sends one message under the lock. 0, or a code with f. */
int link_send(struct link *k, Batchd__Wire__ClientMessage *m, struct fault *f);
/* connection_recv for a link that is open: notices about other trainers go to the host, the memory of large batches is
 * kept, the caller gets all other messages. */
int link_recv(struct link *k, int flags, const Batchd__Wire__ServerMessage **m, struct fault *f);
/* Receives one message that nothing waits for, and handles it. 0; BATCHD_AGAIN as connection_recv; or a code with f. */
int link_listen(struct link *k, int flags, struct fault *f);
/* Sends a request and waits for the message that answers it. what: "a join", for the text of an error. answer is valid
 * until the next message. 0 or a code with f. */
int link_call(struct link *k, Batchd__Wire__ClientMessage *request, const char *what,
	      Batchd__Wire__ServerMessage__BodyCase expected, const Batchd__Wire__ServerMessage **answer,
	      struct fault *f);
/* The next batch, b, is about to be lent: maps its memory, if it does not fit its slot (NULL: it does). 0 or a code
 * with f. */
int link_take_large(struct link *k, const struct ready *b, void **out, struct fault *f);
/* The same for a batch that is refused: closes it. */
int link_drop_large(struct link *k, const struct ready *b, struct fault *f);
/* Notes that a Wake was received, in any call. */
void link_heard_wake(struct link *k);
/* Sends Wake to the daemon, which sleeps. Under the lock. 0 or a negative errno. */
int link_wake(struct link *k);
/* Sends Close, if there still is a connection. Under the lock. */
void link_send_close(struct link *k);

/* ---- leases; under the lock ---- */

/* Lends the slot to this process; large: what link_take_large gave, which it takes unless it fails. False: the daemon
 * lends a slot that it cannot lend. */
bool link_lend(struct link *k, const struct ready *b, void *large, uint64_t wait_ns);
/* The trainer gives back a slice, or the whole batch. generation: the wire's. False: the trainer does not have it. */
bool link_release(struct link *k, uint32_t slot, uint64_t generation);
/* No part of a slot's batch is out any more: ends its lease, at once or, where the GPU may still read it, as soon as
 * that is over. */
void link_let_go(struct link *k, uint32_t slot);
/* Ends the lease on a slot that is on loan and tells the daemon, if the daemon is still there. */
void link_end_lease(struct link *k, uint32_t slot);
/* Tells the daemon that a slot is free. 0 or a negative errno. */
int link_free_slot(struct link *k, uint32_t slot, uint64_t generation, uint64_t wait_ns);
/* Replaces the batches on loan by copies of this process's own, so that the daemon need not keep the slots. False:
 * memory was short, and some slots still are the daemon's. Only the first call has an effect. */
bool link_detach(struct link *k);

/* The daemon has gone or is about to go: unmaps its memory on the GPU as soon as nothing reads a batch there, and then
 * sends Close, for which a daemon that stops waits a little. True: nothing is left to unmap. The loader's thread, not
 * under the lock. */
bool link_drain(struct link *k);

/* Where the batch on loan in this slot lies, and how many bytes it may have of a producer's. */
static inline char *link_data(const struct link *k, uint32_t slot)
{
	return k->lease[slot].large ? k->lease[slot].large : slab_slot(k->slab, slot);
}

static inline size_t link_room(const struct link *k, uint32_t slot)
{
	return k->lease[slot].large ? k->lease[slot].large_bytes : (size_t)k->row_bytes;
}

/* A slice was given back. Returns whether it was the last: none is out and none is still to come. n_out is not 0. */
static inline bool lease_ends(struct lease *lease)
{
	lease->n_out--;
	return !lease->n_out && !lease->more;
}

/* The generation that the trainer sees, from the wire's. */
static inline uint64_t link_stamp(const struct link *k, uint64_t generation)
{
	return generation | k->id << LINK_ID_SHIFT;
}

/* What Seek and Join tell the daemon about the GPU. */
static inline char *link_no_device(const struct link *k)
{
	return (char *)(k->no_device ? k->no_device : "");
}

#endif
