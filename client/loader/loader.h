/* A loader, as its files share it: its options, its position, its present link and those of earlier connections whose
 * batches are still on loan. loader.c has its life and its calls. */
#ifndef BATCHD_CLIENT_LOADER_H
#define BATCHD_CLIENT_LOADER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "link/backoff.h"
#include "batchd.h"
#include "link/error.h"
#include "link/job.h"
#include "link/link.h"
#include "link/source.h"

/* The batch that is given out in slices. */
struct slice_cursor {
	struct ready batch;
	uint32_t row; /* first row of the next slice; batch.n_rows: none is left */
	bool first;
};

struct mix;
struct pending;

/* A daemon that went away. */
struct outage {
	bool lost;        /* the daemon is away; the connection is closed */
	bool no_progress; /* it came back, and no batch has come since */
	struct fault why;
	uint64_t since_ns, next_try_ns;
	uint64_t earlier_ns; /* earlier outages since the last batch, in all */
	struct backoff backoff;
};

/* Strings of struct batchd_info, which live as long as the loader: each link overwrites those of the last. */
struct info_text {
	char socket[ADDRESS_MAX_BYTES], daemon_version[WIRE_MAX_PROGRAM + 1];
	char device[16], device_reason[640], finish_reason[256], left_out[WIRE_MAX_REASON + 1];
	struct batchd_field field[WIRE_MAX_FIELDS];
	char field_name[WIRE_MAX_FIELDS][WIRE_MAX_FIELD_NAME + 1];
};

/* Where the loader is in its epoch; position_move makes each change.
 *
 *     REST --batchd_start, or batchd_join--> RUNNING --its last batch is given out--> OVER
 *                                            JOINED --the first batch--> RUNNING
 */
enum epoch_state {
	EPOCH_REST, /* nothing is asked for, and the epoch has not been finished */
	EPOCH_RUNNING,
	EPOCH_JOINED, /* served: the same, but it has joined an epoch at work, has had no batch of it and does not know
	               * whether there is another one */
	EPOCH_OVER,   /* the epoch's last batch was given out, or it has none */
};

/* A loader's life goes one way: OPEN, CLOSED, ENDING, HUSK. Changed under the lock. */
enum loader_life {
	LOADER_OPEN,
	LOADER_CLOSED, /* batchd_close was called: freed with the last call in progress, lease and reference */
	LOADER_ENDING, /* one thread has begun to take it apart, or to wait for its GPU */
	LOADER_HUSK,   /* only what the last reference frees is left */
};

struct batchd_loader {
	/* Written once, by batchd_open. */
	unsigned generation; /* process_generation() */
	bool own_batches, share, drop_last, served;
	struct batchd_options options;       /* its strings are the loader's own, dataset is source.text */
	struct source source;                /* its paths are absolute: the working directory may change */
	const char *wanted[WIRE_MAX_FIELDS]; /* options.fields */
	char wanted_text[WIRE_MAX_FIELDS][WIRE_MAX_FIELD_NAME + 1];
	uint64_t born_ns;
	uint64_t repeats, epoch_rows; /* of an epoch's order; repeats is at least 1, epoch_rows 0: all */
	uint32_t group_rows;          /* of the batches that come; info.batch_size, the trainer's own, divides it */
	struct mix *mix;              /* NULL: rows are not mixed */
	bool floats_in_slots;         /* slots have finished floats, as the pipeline writes numbers that no pixel has */
	struct job job;

	/* The thread that the loader belongs to. */
	struct fault fault; /* code: every later call returns it as well; 0 while all is well */
	struct outage outage;
	uint64_t seek; /* of the last Seek sent; 0: none yet */
	uint64_t epoch, base;
	uint64_t next_step; /* the only step that may come next */
	enum epoch_state epoch_state;
	uint64_t n_given;                 /* batches given out, over all resumes */
	uint64_t order;                   /* own_batches: hash of this epoch's batches up to next_step */
	struct batchd_position resumed;   /* by batchd_resume; compared with batchd_start's arguments */
	struct slice_cursor slice_cursor; /* under lock */
	uint64_t n_missed;                /* own batches missed since the last given out, by the group's policy */
	uint64_t n_pushed;                /* own_batches: the first step not pushed yet */
	bool pushed_all;
	struct pending *pending_first, *pending_last; /* own_batches: steps next_step to n_pushed - 1 */
	char **classes;                               /* n_classes of them once fetched */
	uint32_t n_classes;

	/* Calls that use the loader exclusively: one at a time. Taken before `lock`, and again by a callback of the
	 * same thread. */
	pthread_mutex_t turn;

	/* Any thread, under lock: sending, the links' slabs and leases, the end. */
	pthread_mutex_t lock;
	atomic_bool mixing_off;    /* batchd_mixing(l, 0): batches that are finished now have clean rows */
	atomic_uint life;          /* enum loader_life */
	unsigned n_calls;          /* in progress between loader_enter and loader_leave, or waiting for their turn */
	unsigned n_refs;           /* by batchd_ref */
	pthread_t consumer_thread; /* the thread that opened it or took a batch last; `fault` is that thread's */
	struct link *link;         /* NULL: a husk. Changed by the loader's thread */
	struct link *retired;      /* links of earlier connections: detached, with batches on loan */
	struct info_text text;
	struct batchd_loader *next_closed; /* under process_lock */
};

/* Whether batchd_close was called. */
static inline bool loader_is_closed(const struct batchd_loader *l)
{
	return atomic_load(&l->life) >= LOADER_CLOSED;
}

/* Whether this is a child of the process that opened the loader. */
bool loader_is_foreign(const struct batchd_loader *l);
/* Begin and end of a call that uses the loader exclusively; enter waits for its turn. The loader outlives a call that
 * has begun. 0, or a code after which there must be no leave: BATCHD_E_FORKED, BATCHD_E_CLOSED. */
int loader_enter(struct batchd_loader *l);
/* The same for work on a batch, which may be on loan after its loader is closed. It takes no turn: another thread may
 * be waiting for the next batch, which does not come before this one is released. BATCHD_E_FORKED only. */
int loader_enter_with_batch(struct batchd_loader *l);
void loader_leave_with_batch(struct batchd_loader *l);
/* Writes the error text of a call that any thread may make, but only in the thread that takes batches: a mistake of
 * another thread must not change the text while this thread reads it. The loader can still be used. Under the lock. */
void loader_tell(struct batchd_loader *l, const struct fault *f);
/* loader_leave_with_batch at the end of a call with this result, which it returns; f is told if that is an error. Not under
 * the lock. */
int loader_end_with_batch(struct batchd_loader *l, int r, const struct fault *f);
/* Returns the call's result, given r: BATCHD_E_CLOSED if the loader was closed meanwhile. */
int loader_leave(struct batchd_loader *l, int r);
/* The first check of every call: 0, or the code that every call returns from now on. The loader's thread. */
int loader_check(const struct batchd_loader *l);
/* A mistake of the caller: writes the text; the loader can still be used. Returns code. The loader's thread. */
int loader_misuse(struct batchd_loader *l, int code, const char *text);

/* Frees closed loaders with a GPU whose last batch has come back meanwhile. Not under any lock; any thread. */
void loader_reap(void);
/* Frees the names that batchd_class has fetched, if any. */
void loader_free_classes(struct batchd_loader *l);

/* Calls options.on_event. */
static inline void loader_event(struct batchd_loader *l, int event, const char *text)
{
	if (l->options.on_event)
		l->options.on_event(l->options.event_arg, event, text);
}

#endif
