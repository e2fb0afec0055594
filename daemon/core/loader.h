/* A loader: a data set, a pipeline, a batch size, an order and a mode, with the streams of its ranks. Made by the first
 * session of a job.
 *
 * Loop thread only. */
#ifndef BATCHD_LOADER_H
#define BATCHD_LOADER_H

#include "core/group.h"
#include "core/loader-spec.h"
#include "core/pool-source.h"
#include "core/pool.h"
#include "core/sample.h"
#include "core/streams.h"

/* LOADER_MAX_SERVED: ranks that one producer makes batches for, all of which come to this daemon. */
enum { LOADER_MAX_SHARE = GROUP_MAX_PLACES, LOADER_MAX_WORLD = 4096, LOADER_MAX_SERVED = 256 };

struct loader;

struct loader_ops {
	void (*failed)(struct loader *l);                 /* l->error says why; it makes no more batches */
	void (*published)(struct loader *l, bool waited); /* a batch went out; whether its trainer was waiting for it */
	void (*closed)(struct loader *l);                 /* everything has ended; about to be freed */
	/* What its user pays for; NULL: nothing is charged. charge: begins c or lets it grow, for `what`; 0, or
	 * LOADER_E_MEMORY with why it cannot be. With must_be, what nobody uses any more makes room. begin_task: whether an
	 * I/O thread may work for it now; else loader_retry is called when it may. end_task: it has. */
	int (*charge)(struct loader *l, const char *what, uint64_t bytes, bool must_be, struct charge *c, char *why,
		      size_t size);
	bool (*begin_task)(struct loader *l, struct charge *place);
	void (*end_task)(struct loader *l, struct charge *place);
};

enum { LOADER_E_MEMORY = 1 };

struct plan_entry {
	struct plan *plan; /* NULL while it is being made */
	uint64_t epoch, base, used;
	bool in_use;
};

struct loader {
	struct stream_host host;
	const struct loader_ops *ops;
	void *owner; /* for ops */
	struct loader_spec spec;
	struct recipe recipe;
	struct pool_source rows; /* what the pool makes */
	uint64_t id;             /* hash of what it makes; the same after a restart */
	uint64_t pipeline_id;    /* of what is made of one image and what its draws are keyed by, apart from dtype and
	                             * layout; 0: arrays */

	/* one sample, one label */
	uint32_t shape[DATASET_MAX_DIMS], label_shape[DATASET_MAX_DIMS];
	unsigned n_dims, n_label_dims;
	enum dtype dtype, label_dtype;
	struct slot_layout layout;

	struct streams streams;
	bool is_loose;      /* a share group that need not keep step */
	struct group group; /* if it is one */
	struct plan_entry plans[4];
	uint64_t plan_clock;
	bool wants_task; /* begin_task said no */

	bool failed, closing;
	char error[4096];

	uint64_t n_batches_published, n_samples_published;
	uint64_t created_ns;
};

/* Takes the recipe and the spec (contents move). 0 or negative errno: then both are still the caller's. */
int loader_create(struct pool *pool, struct loader_spec *spec, struct recipe *recipe, double bad_budget,
		  const struct loader_ops *ops, void *owner, struct loader **out);
/* Begins and hands out no more batches; for the time in which its sessions are told that the daemon stops. */
void loader_stop(struct loader *l);
/* No consumer may be attached. Frees itself when the last row in work is done; then ops->closed. */
void loader_close(struct loader *l);

/* Of how many ranks there will be streams. */
uint32_t loader_n_ranks(const struct loader *l);
/* The rank's stream, made if there is none. NULL: out of memory. */
struct stream *loader_stream(struct loader *l, uint32_t rank);
/* NULL: the rank has not come yet. */
struct stream *loader_find_stream(const struct loader *l, uint32_t rank);
/* A trainer comes. The rank has its stream, and that its slots. 0, STREAM_E_TAKEN, -ENOMEM. */
int loader_attach(struct loader *l, struct consumer *c, uint32_t rank);
/* No more batches for it, if it is attached; what it holds stays held until released. */
void loader_detach(struct consumer *c);
/* Where it wants to go on; see stream_seek. */
int loader_seek(struct consumer *c, uint64_t seek, const struct position *to);
/* loader_detach, and consumer_finish. */
void loader_finish_consumer(struct consumer *c);
/* The memory that another stream takes. */
size_t loader_stream_bytes(const struct loader *l);
/* Of an epoch, for each rank, after base samples. */
uint64_t loader_n_batches(const struct loader *l, uint64_t base);

/* What the orders that it will keep (this epoch's and the next's) will take beside those that are there; of an epoch's
 * order that would take more than most of free_bytes nothing, as it will be refused, or alone. */
uint64_t loader_order_bytes(const struct loader *l, uint64_t free_bytes);
/* An I/O thread may work for it now. */
void loader_retry(struct loader *l);
/* For a producer's feed, before any trainer has come: it makes the batches instead of the pool. */
void loader_set_source(struct loader *l, struct batch_source *source);
/* For that source: a slot that was submitted to it is filled, or cancelled and written to by nobody. */
void loader_source_done(struct loader *l, struct slot *slot);
/* Keeps it from being freed in between; loop thread. */
void loader_ref(struct loader *l);
void loader_unref(struct loader *l);
void loader_fail(struct loader *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
