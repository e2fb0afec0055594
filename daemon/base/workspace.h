/* Working memory: what decoders, ops and buffers for files read ahead take for the sample in hand. A client's files and
 * pipelines determine how much that is, so all of it comes out of one budget (struct work_memory).
 *
 * A thread enters its workspace before it works for a client, and its allocations by work_alloc are charged there. Most
 * of the budget is a reserve from which one workspace at a time may draw. A worker that needs more than the shared rest
 * waits until it may use the reserve, whatever memory it already has; the reserve is always enough for it to finish its
 * sample. So no worker waits for a waiting worker, and a sample is refused only if it alone needs more than the
 * reserve, however busy the other workers are.
 *
 * Between users: the last quarter of the shared part is for workers whose user has no other worker with memory at work,
 * so that the small samples of one do not wait for the large ones of another; and users have the reserve in turn. */
#ifndef BATCHD_WORKSPACE_H
#define BATCHD_WORKSPACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/stage.h"

struct workspace;

struct work_memory {
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t changed;
	struct workspace *waiting; /* in the order of their coming */
	unsigned n_waiting;
	struct workspace *in_use;  /* those that have memory and are not of files read ahead */
	uint64_t left_bytes;       /* of the shared part */
	uint64_t ahead_left_bytes; /* of the shared part, what files read ahead may still take */
	uint64_t used_bytes;       /* by all, the reserve included */
	uint64_t kept_bytes;       /* constant: of the shared part, what is for a user's first worker */
	uint64_t ahead_bytes;      /* constant: the most that files read ahead may take */
	uint64_t reserve_bytes;    /* constant: of the reserve; also the most that one workspace may have */
	struct workspace *holder;  /* the workspace that may draw from the reserve */
	uint64_t turn;             /* of the user that had it last: grows by two each time */
	long long last_user;       /* as struct workspace.user */
};

struct workspace {
	struct work_memory *of; /* NULL: no limit, and no waiting */
	bool ahead;             /* of a file that is read ahead: never waits; an allocation of up to
	                         * WORK_AHEAD_FREE_BYTES is not charged */
	atomic_llong user;      /* 1 + the id of the user for whom its thread works now; 0: for none. Any thread */
	atomic_uchar stage;     /* enum stage; any thread may read it */
	/* under the lock of `of` */
	struct workspace *next_waiting, *next_in_use;
	uint64_t turn; /* while it waits: of its user, for the reserve; the least is next */
	/* its thread's */
	uint64_t used_bytes;
	uint64_t reserved_bytes; /* of these, from the reserve */
	uint64_t refused_bytes;  /* what it would have used with the refused amount; 0: nothing was refused */
	bool holds;              /* it is the holder */
	/* While a recording runs: how long it has been in each stage, and when the present one began. */
	uint64_t stage_ns[N_STAGES], stage_began_ns;
};

enum { WORK_AHEAD_FREE_BYTES = 64 << 10 };

/* all_bytes: the whole budget, of which three quarters are the reserve. */
void work_memory_init(struct work_memory *m, uint64_t all_bytes);
void work_memory_finish(struct work_memory *m);
uint64_t work_memory_used(struct work_memory *m);

/* This thread works for the user: what it allocates is charged to ws until workspace_leave. */
void workspace_enter(struct workspace *ws, uid_t uid);
/* The sample is done. A workspace that holds the reserve must have returned everything that it drew from it. */
void workspace_leave(struct workspace *ws);
/* This thread begins another stage of the sample in hand. Returns the stage that it was in; without a workspace none. */
enum stage workspace_stage(enum stage to);

/* 64-byte aligned, not cleared. NULL: memory is short, or refused (then refused_bytes is set). Keep *payer for
 * work_free; NULL: no workspace is charged. */
void *work_alloc(size_t bytes, struct workspace **payer);
void work_free(void *p, size_t bytes, struct workspace *payer);
/* Whether this thread is in the workspace of a file that is read ahead. */
bool workspace_is_ahead(void);
/* For memory that a library allocates by itself. False: refused. */
bool work_borrow(uint64_t bytes, struct workspace **payer);
void work_return(uint64_t bytes, struct workspace *payer);

#endif
