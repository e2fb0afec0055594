/* A loader, as its files share it: loader.c opens and closes it, stream.c moves batches. */
#ifndef BATCHD_CLIENT_LOADER_H
#define BATCHD_CLIENT_LOADER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "batchd.h"
#include "connect.h"
#include "job.h"
#include "slab.h"

/* What a Batch message says, kept while it waits its turn. */
struct ready {
	uint64_t seek, generation, epoch, step;
	uint32_t slot, n_rows, n_padding, n_replaced;
	bool last;
};

/* A batch on loan. */
struct lease {
	uint64_t generation;
	uint64_t wait_ns;      /* told to the daemon at release, for its statistics */
	bool held;
};

struct delivery;

struct batchd_loader {
	/* Written once, by batchd_open. */
	unsigned generation;   /* process_generation() */
	bool own_batches, share, drop_last;
	uint32_t n_slots;
	size_t labels_offset, indices_offset;
	uint64_t row_bytes, label_bytes;
	struct batchd_info info;
	struct delivery *delivery; /* to a GPU; NULL: none (cuda/delivery.h) */

	/* The thread that the loader belongs to. */
	struct fault fault;    /* code: what every later call returns as well; 0 while all is well */
	uint64_t seek;         /* of the last Seek sent; 0: none yet */
	uint64_t epoch, base;
	uint64_t next_step;    /* the only one that may come next */
	bool streaming;        /* between batchd_start and the epoch's end */
	bool continues;        /* the daemon is going on to epoch + 1 by itself */
	bool said_waiting;     /* since the last batch came */
	uint64_t n_pushed;     /* own_batches: the first step not pushed yet */
	bool pushed_all;
	struct ready *early;   /* ring of n_slots: batches that came while something else was waited for */
	uint32_t n_early, first_early;
	char **classes;        /* info.n_classes of them once fetched */
	uint64_t *push_buffer; /* own_batches: up to batch_size indices on their way */

	/* Any thread, under lock: sending, the slab, the leases, the end. */
	pthread_mutex_t lock;
	struct slab *slab;
	struct lease *lease;   /* of each slot */
	atomic_uint n_leased;  /* changed under lock */
	bool closed;           /* batchd_close was called: freed with the last lease */

	struct connection connection; /* receiving: the loader's thread; sending: under lock */
	struct job job;
};

/* Whether this is a child of the process that opened the loader. */
bool loader_is_foreign(const struct batchd_loader *l);
/* Sends one message under the lock. 0, or a code with l->fault. The loader's thread. */
int loader_send(struct batchd_loader *l, Batchd__Wire__ClientMessage *m);

/* Ends the lease on a slot that is on loan and tells the daemon. 0 or BATCHD_E_LOST. Under the lock. */
int loader_end_lease(struct batchd_loader *l, uint32_t slot);
/* The very end: nothing is on loan any more, and nobody else knows the loader. */
void loader_finish(struct batchd_loader *l);

/* batchd_next itself; began_ns: when the caller began to wait (CLOCK_MONOTONIC). */
int stream_next(struct batchd_loader *l, struct batchd_batch *b, int timeout_ms, uint64_t began_ns);
/* The batch that the next stream_next will give, if it has arrived; it stays where it is. NULL: not yet, or something else came, which the next call will say. */
const struct ready *stream_peek(struct batchd_loader *l);

/* Keeps a batch that came while its turn was not yet. 0 or a code with l->fault. */
int stream_keep_early(struct batchd_loader *l, const Batchd__Wire__Batch *b);
/* Batches of an epoch from base on, and rows of it for one rank. */
uint64_t stream_n_rows(const struct batchd_loader *l, uint64_t base);
uint64_t stream_n_batches(const struct batchd_loader *l, uint64_t base);

#endif
