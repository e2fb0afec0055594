/* Memory to work in: what decoders, ops and buffers of files read ahead take for the sample in hand. How much that is
 * a client's files and pipelines say, so all of it comes out of one budget (struct work_memory).
 *
 * A thread enters its workspace before it works for a client, and what it allocates by work_alloc is charged there. Most
 * of the budget is a reserve that one workspace at a time may draw from: a worker that needs more than is left for all
 * waits until it may, whatever it already has, and then there is always enough for it to finish its sample. So nobody
 * waits for a worker that waits, and a sample is refused only if it alone needs more than the reserve, however busy the
 * others are. */
#ifndef BATCHD_WORKSPACE_H
#define BATCHD_WORKSPACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct workspace;

struct work_memory {
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t changed;
	unsigned n_waiting;
	uint64_t left_bytes;       /* of what anybody may take */
	uint64_t ahead_left_bytes; /* of which files read ahead may still take so much */
	uint64_t used_bytes;       /* by all, the reserve included */
	uint64_t ahead_bytes;      /* constant: the most that files read ahead may take */
	uint64_t reserve_bytes;    /* constant: of the reserve; also the most that one workspace may have */
	struct workspace *holder;  /* who may draw from the reserve */
};

struct workspace {
	struct work_memory *of; /* NULL: no limit, nothing is waited for */
	bool ahead;             /* of a file that is read ahead: never waits, and takes its first WORK_AHEAD_FREE_BYTES
	                          * without a charge */
	/* its thread's */
	uint64_t used_bytes;
	uint64_t reserved_bytes; /* of these, from the reserve */
	uint64_t refused_bytes;  /* what it would have had with what was refused; 0: nothing was */
	bool holds;              /* it is the holder */
};

enum { WORK_AHEAD_FREE_BYTES = 64 << 10 };

/* all_bytes: reserve included, of which three quarters are that. */
void work_memory_init(struct work_memory *m, uint64_t all_bytes);
void work_memory_finish(struct work_memory *m);
uint64_t work_memory_used(struct work_memory *m);

/* What this thread allocates is charged to ws until workspace_leave. */
void workspace_enter(struct workspace *ws);
/* The sample is done. A workspace that holds the reserve must have given back what it drew from there. */
void workspace_leave(struct workspace *ws);

/* 64-byte aligned, not cleared. NULL: memory is short, or refused (then refused_bytes says so). *payer is to be kept for
 * work_free; NULL: nobody. */
void *work_alloc(size_t bytes, struct workspace **payer);
void work_free(void *p, size_t bytes, struct workspace *payer);
/* Whether this thread is in the workspace of a file that is read ahead. */
bool workspace_is_ahead(void);
/* For what a library allocates by itself. False: refused. */
bool work_borrow(uint64_t bytes, struct workspace **payer);
void work_return(uint64_t bytes, struct workspace *payer);

#endif
