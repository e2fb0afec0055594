/* A loader, as its files share it: open.c opens it, loader.c lends its batches and closes it, stream.c
 * moves batches, push.c has the trainer's own, reconnect.c puts another connection under it. */
#ifndef BATCHD_CLIENT_LOADER_H
#define BATCHD_CLIENT_LOADER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "batchd.h"
#include "connect.h"
#include "job.h"
#include "ring.h"
#include "slab.h"

/* What a Batch message says, kept while it waits its turn. */
struct ready {
	uint64_t seek, generation, epoch, step;
	uint32_t slot, n_rows, n_padding, n_replaced;
	uint64_t n_skipped;
	bool last, apart;
};

/* A batch on loan. */
struct lease {
	uint64_t generation;
	uint64_t wait_ns;      /* told to the daemon at release, for its statistics */
	uint32_t n_out;        /* slices of it that are with the trainer; 1 of a whole batch */
	bool more;             /* slices are still to be given out */
	bool held;
};

/* The batch that is given out in slices. */
struct cut {
	struct ready batch;
	uint32_t row;          /* the next slice's first; batch.n_rows: none is left */
	bool first;
};

/* What is given out next: these rows of a batch. */
struct slice {
	struct ready batch;
	uint32_t row, n_rows;
};

struct delivery;
/* own_batches: one that was pushed and has not come yet; sent again after a reconnect. */
struct pending {
	struct pending *next;
	uint32_t n;
	uint64_t index[];
};

/* A daemon that went away. */
struct absence {
	bool lost;             /* it has; the connection is closed */
	bool barren;           /* it came back, and no batch has come since */
	struct fault why;
	uint64_t since_ns, next_try_ns;
	uint64_t before_ns;    /* how long it was away before, all the times since the last batch */
	unsigned n_tries;
};

/* Batches are told apart over reconnects by the upper bits of the generation that the trainer sees; the wire's has the
 * lower ones. */
enum { ERA_SHIFT = 48 };

struct batchd_loader {
	/* Written once, by batchd_open. */
	unsigned generation;   /* process_generation() */
	bool own_batches, share, drop_last, served;
	struct batchd_options options; /* its strings are the loader's own; dataset as the daemon wants it */
	uint64_t born_ns;

	/* The thread that the loader belongs to. */
	struct fault fault;    /* code: what every later call returns as well; 0 while all is well */
	struct absence absence;
	uint64_t seek;         /* of the last Seek sent; 0: none yet */
	uint64_t epoch, base;
	uint64_t next_step;    /* the only one that may come next */
	bool streaming;        /* between batchd_start and the epoch's end */
	bool at_end;           /* the epoch's last batch was given out, or it has none */
	bool joined_within;    /* served: it has come into an epoch at work and has had nothing of it, nor knows
	                        * whether there is more */
	uint64_t n_given;      /* batches given out, over all resumes */
	uint64_t order;        /* own_batches: hash of this epoch's batches up to next_step */
	struct batchd_position resumed; /* by batchd_resume; what batchd_start is compared with */
	uint32_t group_rows;   /* of the batches that come; info.batch_size, the trainer's own, divides it. Written
	                        * once */
	struct cut cut;        /* lease[].n_out and more: under lock */
	uint64_t n_missed;     /* own batches since the last that was given out, by the group's policy */
	uint64_t n_pushed;     /* own_batches: the first step not pushed yet */
	bool pushed_all;
	struct pending *pending_first, *pending_last; /* own_batches: steps next_step to n_pushed - 1 */
	char **classes;        /* info.n_classes of them once fetched */

	/* Calls that need the loader for themselves: one at a time. Taken before `lock`, and again by a callback of the
	 * same thread. */
	pthread_mutex_t turn;

	/* Any thread, under lock: sending, the slab, the leases, the end. */
	pthread_mutex_t lock;
	atomic_bool closed;    /* batchd_close was called: freed with the last call in progress, lease and reference.
	                        * Changed under lock */
	bool ended;            /* one thread has begun to take the loader apart, or to wait for its GPU */
	bool husk;             /* nothing is left but what the last reference frees */
	unsigned n_calls;      /* in progress between loader_enter and loader_leave, or waiting for their turn */
	unsigned n_refs;       /* by batchd_ref */
	pthread_t taker;       /* the thread that opened it or took a batch last; `fault` is that thread's */
	uint64_t era;          /* reconnects so far, of what lies between link_begin and link_end */
	struct batchd_loader *former; /* earlier connections whose batches are still on loan: closed, chained by
	                               * this, with locks that nobody uses */

	struct job job;

	/* What belongs to one connection, up to link_end: reconnect.c exchanges it as bytes, so nothing in it may be
	 * pointed at from outside this struct. Written once unless it says otherwise. */
	char link_begin;
	uint32_t n_slots;
	size_t labels_offset, indices_offset;
	uint64_t row_bytes, label_bytes;
	uint64_t content_id, pipeline_id;
	uint8_t print[WIRE_PRINT_BYTES];
	size_t n_print_bytes;  /* 0: there is none */
	struct batchd_info info;
	struct delivery *delivery; /* to a GPU; NULL: none (cuda/delivery.h). */
	/* the loader's thread */
	bool continues;        /* the daemon is going on to epoch + 1 by itself */
	bool said_waiting;     /* since the last batch came */
	bool stale_wake;       /* a Wake is in the socket, or will be, that nobody waits for any more */
	/* The control page; none: batches and releases go as packets. Batches: the loader's thread; releases: under
	 * lock. */
	struct ring ring;
	struct ready *early;   /* ring of n_slots: batches that came while something else was waited for */
	uint32_t n_early, first_early;
	/* under lock */
	struct slab *slab;
	struct lease *lease;   /* of each slot */
	atomic_uint n_leased;  /* changed under lock */
	bool detached;         /* slots on loan are copies of our own, and the daemon need not hear of their end */
	struct connection connection; /* receiving: the loader's thread; sending: under lock */
	char link_end;
};

/* Whether this is a child of the process that opened the loader. */
bool loader_is_foreign(const struct batchd_loader *l);
/* Begin and end of a call that needs the loader for itself, waiting for its turn. The loader outlives a call that has
 * begun. 0, or a code, and then there is nothing to leave: BATCHD_E_FORKED, BATCHD_E_CLOSED. */
int loader_enter(struct batchd_loader *l);
/* The same for work on a batch, which may be on loan longer than its loader is open. It takes no turn: another thread
 * may be waiting for the next batch, which does not come before this one goes back. BATCHD_E_FORKED only. */
int loader_enter_with_batch(struct batchd_loader *l);
void loader_leave_with_batch(struct batchd_loader *l);
/* Says what went wrong in a call that any thread may make, but only in the thread that takes batches: another's
 * mistakes are its own, and the text is not to change under whoever reads it here. The loader goes on. Under the lock.
 */
void loader_tell(struct batchd_loader *l, const struct fault *f);
/* Returns what the call is to return, given r: a loader that was closed meanwhile has failed for that. */
int loader_leave(struct batchd_loader *l, int r);
/* What every call does next: 0, or the code that every call returns from now on. The loader's thread. */
int loader_check(const struct batchd_loader *l);
/* A mistake of the caller's: said, but the loader goes on. Returns code. The loader's thread. */
int loader_misuse(struct batchd_loader *l, int code, const char *text);
/* Sends one message under the lock. 0, or a code with l->fault. The loader's thread. */
int loader_send(struct batchd_loader *l, Batchd__Wire__ClientMessage *m);
/* connection_recv for an opened loader: notices about others go to options.on_event, everything else comes. */
int loader_recv(struct batchd_loader *l, int flags, const Batchd__Wire__ServerMessage **m);

/* Sends a request and waits for the message that answers it; batches that come first are kept. what: "a join", for the
 * text of an error. answer is valid until the next message. 0 or a code with l->fault. The loader's thread. */
int loader_call(struct batchd_loader *l, Batchd__Wire__ClientMessage *request, const char *what,
		Batchd__Wire__ServerMessage__BodyCase expected, const Batchd__Wire__ServerMessage **answer);

/* Says Close, if there still is a connection. */
void loader_send_close(struct batchd_loader *l);
/* Ends the lease on a slot that is on loan and tells the daemon, if it is still there. Under the lock. */
void loader_end_lease(struct batchd_loader *l, uint32_t slot);
/* Nobody has any of a slot's batch any more: ends its lease, or, where the GPU may still read it, as soon as that is
 * over. Under the lock. */
void loader_let_go(struct batchd_loader *l, uint32_t slot);
/* The very end: nothing is on loan any more, and no call is in progress. */
void loader_finish(struct batchd_loader *l);

/* batchd_next itself; began_ns: when the caller began to wait (CLOCK_MONOTONIC). */
int stream_next(struct batchd_loader *l, struct batchd_batch *b, int timeout_ms, uint64_t began_ns);
/* The batch that the next stream_next will give, if it has arrived; it stays where it is. NULL: not yet, or something
 * else came, which the next call will say. */
const struct ready *stream_peek(struct batchd_loader *l);
/* Opens with o as it is, dataset and job as the daemon is to see them when `again` (after a reconnect). 0, or a code
 * with f and *out NULL. address (ADDRESS_MAX_BYTES): the only place to look for a daemon, "" for where o says; after a
 * failure it has the one that was looked at last. */
int loader_open(const struct batchd_options *o, uint64_t born_ns, bool again, char *address,
		struct batchd_loader **out, struct fault *f);
/* Frees it, but for what a reference still needs: nothing is on loan any more, no call is in progress, and no former
 * connection is left. */
void loader_destroy(struct batchd_loader *l);

/* r is what a call to the daemon gave: whether that means that the daemon went away and will be waited for. Then the
 * connection is closed. */
bool loader_is_lost(struct batchd_loader *l, int r);
/* While lost: tries to get a connection and to go on where the loader stands. 0; BATCHD_AGAIN: not yet, timeout_ms (as
 * for batchd_next) has passed; or a code with l->fault: it has stayed away for too long, or refuses us. */
int loader_reconnect(struct batchd_loader *l, int timeout_ms);
/* Tells options.on_event. */
void loader_event(struct batchd_loader *l, int event, const char *text);
uint64_t loader_now_ns(void);

struct token;
/* What is different from the data set of the token, in words. 0 or a code with l->fault. */
int resume_name_change(struct batchd_loader *l, const struct token *t, char *text, size_t size);

/* Asks the daemon, in a connection just made, for what the trainer is waiting for. 0 or a code with l->fault. */
int stream_begin_again(struct batchd_loader *l);

/* push.c, own batches; the loader's thread. Sends those again that have not come back. 0 or a code with l->fault. */
int push_again(struct batchd_loader *l);
/* The first has come back. Nothing if there is none. */
void push_forget_first(struct batchd_loader *l);
void push_drop_all(struct batchd_loader *l);

/* Frees the names that batchd_class has fetched, if it has. */
void classes_free(struct batchd_loader *l);

/* handover.c: the next batch from the ring, within timeout_ms as in batchd_next. 0, BATCHD_AGAIN, or a code with
 * l->fault. The loader's thread. */
int handover_take(struct batchd_loader *l, int timeout_ms, struct ready *out);
/* The same if there is one now; does not say that anybody waits. */
int handover_poll(struct batchd_loader *l, struct ready *out);
/* A Wake has come, whoever received it. BATCHD_AGAIN: this is no answer to anything else. */
int handover_heard_wake(struct batchd_loader *l);
/* Tells the daemon that a slot is free again, through the ring if there is one. Under the lock. 0 or a negative errno.
 */
int handover_release(struct batchd_loader *l, uint32_t slot, uint64_t generation, uint64_t wait_ns);

/* slices.c. The loader's thread. */
uint32_t slices_per_batch(const struct batchd_loader *l);
/* This batch, just lent, is given out from the loader's next_step on. */
void slices_begin(struct batchd_loader *l, const struct ready *batch);
/* The next slice; false: there is none. */
bool slices_next(struct batchd_loader *l, struct slice *out);
/* What has not been given out will not be. Under the lock. */
void slices_stop(struct batchd_loader *l);
/* A release: whether the slot is to go back. n_out is not 0. Under the lock. */
bool lease_ends(struct lease *lease);

struct ready stream_ready_from(const Batchd__Wire__Batch *b);
/* Keeps a batch that came while its turn was not yet. 0 or a code with l->fault. */
int stream_keep_early(struct batchd_loader *l, const Batchd__Wire__Batch *b);
/* Batches of an epoch from base on, and rows of it for one rank. */
uint64_t stream_n_rows(const struct batchd_loader *l, uint64_t base);
uint64_t stream_n_batches(const struct batchd_loader *l, uint64_t base);

#endif
