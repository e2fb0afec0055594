/* A loader: a data set, a pipeline, a batch size, an order and a mode, with the streams of its ranks. The first session
 * of a job makes it.
 *
 * Loop thread only. */
#ifndef BATCHD_LOADER_H
#define BATCHD_LOADER_H

#include "batch/fields.h"
#include "batch/group.h"
#include "batch/loader-spec.h"
#include "batch/pool/rows.h"
#include "batch/pool/pool.h"
#include "batch/sample.h"
#include "batch/streams.h"

/* LOADER_MAX_SERVED: ranks for which one producer makes batches; all of them connect to this daemon. */
enum {
	LOADER_MAX_SHARE = GROUP_MAX_PLACES,
	LOADER_MAX_WORLD = 4096,
	LOADER_MAX_SERVED = 256,
	LOADER_MAX_REPEATS = 65536
};

struct loader;

struct loader_ops {
	void (*failed)(struct loader *l);                 /* l->error says why; the loader makes no more batches */
	void (*published)(struct loader *l, bool waited); /* a batch went out; whether its trainer was waiting for it */
	void (*closed)(struct loader *l);                 /* everything has ended; the loader is about to be freed */
	/* What the loader's user pays for; NULL: nothing is charged. charge: begins c or lets it grow, for `what`; 0,
	 * or LOADER_E_MEMORY with the reason in why. With must_be, memory that is no longer in use is freed to make
	 * room. */
	int (*charge)(struct loader *l, const char *what, uint64_t bytes, bool must_be, struct charge *c, char *why,
		      size_t size);
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
	struct pool_rows rows; /* what the pool makes */
	uint64_t id;           /* hash of what the loader makes; the same after a restart */
	uint64_t pipeline_id;  /* hash of the pipeline of an image and of the kind of key of its random draws, without
	                          * dtype and layout; 0: arrays */

	struct field *fields; /* owned; layout.n_fields of them */
	struct slot_layout layout;

	struct streams streams;
	bool is_async;      /* a share group that does not keep step */
	struct group group; /* if it is one */
	struct plan_entry plans[4];
	uint64_t plan_clock;

	bool failed, closing;
	char error[4096];

	uint64_t n_batches_taken, n_rows_taken; /* by trainers that have left */
	uint64_t created_ns;
};

/* Takes the recipe and the spec (contents move). 0; or ACCOUNT_E_ of pool_lane_join, or negative errno: then the caller
 * keeps both. */
int loader_create(struct pool *pool, struct loader_spec *spec, struct recipe *recipe, double bad_budget,
		  const struct loader_ops *ops, void *owner, struct loader **out);
/* Begins and publishes no more batches; used while sessions are told that the daemon stops. */
void loader_stop(struct loader *l);
/* No consumer may be attached. The loader frees itself when the last row in work is done, after ops->closed. */
void loader_close(struct loader *l);

/* The number of ranks for which there will be streams. */
uint32_t loader_n_ranks(const struct loader *l);
/* The rank's stream, made if there is none. NULL: out of memory. */
struct stream *loader_stream(struct loader *l, uint32_t rank);
/* NULL: the rank has not come yet. */
struct stream *loader_find_stream(const struct loader *l, uint32_t rank);
/* A trainer arrives. The rank has its stream, and the stream has its slots. 0, STREAM_E_TAKEN, -ENOMEM. */
int loader_attach(struct loader *l, struct consumer *c, uint32_t rank);
/* Ends delivery to the consumer, if it is attached; slots that it holds stay held until released. */
void loader_detach(struct consumer *c);
/* Where the consumer wants to go on; see stream_seek. */
int loader_seek(struct consumer *c, uint64_t seek, const struct position *to);
/* loader_detach, and consumer_finish. */
void loader_finish_consumer(struct consumer *c);
/* The memory that another stream takes. */
size_t loader_stream_bytes(const struct loader *l);
/* Rows of a whole epoch, of all ranks together, without padding; not for a served data set. */
uint64_t loader_epoch_rows(const struct loader *l);
/* Of an epoch, for each rank, after base rows. */
uint64_t loader_n_batches(const struct loader *l, uint64_t base);

/* The memory that the orders to be kept (of this epoch and the next) will take in addition to existing ones. An order
 * that would take more than most of free_bytes counts as 0, because it will be refused, or will be alone. */
uint64_t loader_order_bytes(const struct loader *l, uint64_t free_bytes);
/* For a producer, before the first trainer arrives: this source makes the batches instead of the pool. */
void loader_set_source(struct loader *l, struct batch_source *source);
/* For that source: a submitted slot is filled, or it is cancelled and no longer written to. */
void loader_source_done(struct loader *l, struct slot *slot);
void loader_fail(struct loader *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
