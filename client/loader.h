/* A loader, as its files share it: what it was opened with, where it stands, the link that it has now and those of
 * earlier connections whose batches are still on loan. loader.c has its life and its calls. */
#ifndef BATCHD_CLIENT_LOADER_H
#define BATCHD_CLIENT_LOADER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "batchd.h"
#include "error.h"
#include "job.h"
#include "link.h"

/* The batch that is given out in slices. */
struct cut {
	struct ready batch;
	uint32_t row; /* the next slice's first; batch.n_rows: none is left */
	bool first;
};

struct pending;

/* A daemon that went away. */
struct absence {
	bool lost;   /* it has; the connection is closed */
	bool barren; /* it came back, and no batch has come since */
	struct fault why;
	uint64_t since_ns, next_try_ns;
	uint64_t before_ns; /* how long it was away before, all the times since the last batch */
	unsigned n_tries;
};

/* Strings of struct batchd_info, which live as long as the loader: each link writes its own over the last one's. */
struct info_text {
	char socket[ADDRESS_MAX_BYTES], daemon_version[WIRE_MAX_PROGRAM + 1];
	char device[16], device_reason[640], convert_reason[256];
};

struct batchd_loader {
	/* Written once, by batchd_open. */
	unsigned generation; /* process_generation() */
	bool own_batches, share, drop_last, served;
	struct batchd_options options; /* its strings are the loader's own; dataset as the daemon wants it */
	uint64_t born_ns;
	uint32_t group_rows; /* of the batches that come; info.batch_size, the trainer's own, divides it */
	struct job job;

	/* The thread that the loader belongs to. */
	struct fault fault; /* code: what every later call returns as well; 0 while all is well */
	struct absence absence;
	uint64_t seek; /* of the last Seek sent; 0: none yet */
	uint64_t epoch, base;
	uint64_t next_step; /* the only one that may come next */
	bool streaming;     /* between batchd_start and the epoch's end */
	bool at_end;        /* the epoch's last batch was given out, or it has none */
	bool joined_within; /* served: it has come into an epoch at work and has had nothing of it, nor knows
	                        * whether there is more */
	uint64_t n_given;   /* batches given out, over all resumes */
	uint64_t order;     /* own_batches: hash of this epoch's batches up to next_step */
	struct batchd_position resumed; /* by batchd_resume; what batchd_start is compared with */
	struct cut cut;                 /* under lock */
	uint64_t n_missed;              /* own batches since the last that was given out, by the group's policy */
	uint64_t n_pushed;              /* own_batches: the first step not pushed yet */
	bool pushed_all;
	struct pending *pending_first, *pending_last; /* own_batches: steps next_step to n_pushed - 1 */
	char **classes;                               /* n_classes of them once fetched */
	uint32_t n_classes;

	/* Calls that need the loader for themselves: one at a time. Taken before `lock`, and again by a callback of the
	 * same thread. */
	pthread_mutex_t turn;

	/* Any thread, under lock: sending, the links' slabs and leases, the end. */
	pthread_mutex_t lock;
	atomic_bool closed;   /* batchd_close was called: freed with the last call in progress, lease and reference.
	                        * Changed under lock */
	bool ended;           /* one thread has begun to take the loader apart, or to wait for its GPU */
	bool husk;            /* nothing is left but what the last reference frees */
	unsigned n_calls;     /* in progress between loader_enter and loader_leave, or waiting for their turn */
	unsigned n_refs;      /* by batchd_ref */
	pthread_t taker;      /* the thread that opened it or took a batch last; `fault` is that thread's */
	struct link *link;    /* NULL: a husk. Changed by the loader's thread */
	struct link *retired; /* of earlier connections: detached, with batches that are still on loan */
	struct info_text text;
	struct batchd_loader *next_closed; /* under process_lock */
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

/* Frees closed loaders with a GPU whose last batch has come back since. Not under any lock; any thread. */
void loader_reap(void);
/* Frees the names that batchd_class has fetched, if it has. */
void loader_free_classes(struct batchd_loader *l);

/* Tells options.on_event. */
static inline void loader_event(struct batchd_loader *l, int event, const char *text)
{
	if (l->options.on_event)
		l->options.on_event(l->options.event_arg, event, text);
}

#endif
