/* The worker pool: threads that fill the rows of batches, one or a few rows at a time.
 *
 * Work comes as jobs, one per batch, in queues, one per stream of batches. Jobs of a queue are worked on in order.
 * While users want more than there is, they have equal parts of the workers' time; a user's jobs (loaders) have equal
 * parts of that, and the queues of such a job (its ranks) equal parts of that: order.h. Among the queues of a job
 * the one with the fewest ready batches goes first. A row whose input would block is parked: an
 * I/O thread fetches the input while the worker continues with the next row. Workers never wait for input. A queue
 * without work costs nothing: it is in no list.
 *
 * A row cannot be interrupted. If the rows of a user take long, that user's queues go behind those of other users while
 * it has its share of the workers, so that it does not keep the workers from them. If it already has all workers,
 * relief threads bring each other user up to its share: they work beyond the target for as long as rows take long, and
 * sleep otherwise.
 *
 * I/O threads and tickets come in *lanes*, as bulkheads: one lane for all local disks, and one for each file system that
 * a server provides, from the first job that reads from it to the last. A server that does not answer takes nothing but
 * its own lane.
 *
 * Threads: pool_* functions are the loop thread's; struct pool_job_ops says where each callback runs. One mutex guards
 * queues, jobs' counters and the lists; no other lock is taken while it is held. */
#ifndef BATCHD_POOL_H
#define BATCHD_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <uv.h>

#include "base/account.h"
#include "base/heap.h"
#include "base/stage.h"

struct nodes;
struct pool;
struct pool_job;
struct pool_lane;
struct pool_task;

/* Rows that wait for their input. Made once per lane and reused. */
struct pool_ticket {
	struct pool_job *job;
	struct pool_ticket *next; /* in the lane's lists, under the pool's lock */
	uint32_t row, n;          /* the first, and how many */
	uint32_t n_slow;          /* likewise */
	uint32_t stage;           /* run's own, for fetch: 0 at first. A row may need several inputs, one by one */
	void *input;              /* made by pool_params.input_create; the I/O thread fills it, then the worker reads
	                           * it */
};

enum { POOL_WOULD_BLOCK = 1, POOL_LANE_NAME = 256 };

struct pool_job_ops {
	/* Worker thread: makes n rows from `first` on. ticket: with the fetched input, else NULL. Returns 0, or
	 * POOL_WOULD_BLOCK when the input is not at hand; the same rows will be offered again, with a ticket. It never
	 * waits for a disk. */
	int (*run)(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket);
	/* I/O thread: fetches the input of a ticket's rows; run finds failures in ticket->input. NULL: run never
	 * returns POOL_WOULD_BLOCK. */
	void (*fetch)(struct pool_job *job, struct pool_ticket *ticket);
	/* Loop thread: every row is made, or the job was cancelled and no row is being made any more. */
	void (*done)(struct pool_job *job);
};

/* Rows that wait for their input, each with a ticket, and how many of them an I/O thread is fetching. */
struct pool_reads {
	unsigned n_tickets, n_fetching;
};

/* A part of the workers' time: that of all users, of a user, of a user's job, or of one of the job's queues. Each part is
 * divided equally among those of its parts that want more (order.h). Under the pool's lock. */
struct pool_part {
	struct pool_part *of;  /* NULL: all */
	struct heap_node turn; /* in of->ready, while it has rows to take */
	struct heap ready;     /* its parts that have rows to take, by their turns */
	unsigned n_listed;     /* its parts that have rows to take, fetched rows or rows in work; of a queue: 0 or 1 */
	unsigned n_busy;       /* workers on its rows */
	uint64_t begun_ns;     /* the sum of the times at which those began */
	uint64_t served_ns;    /* worker time received; without rows in work */
	uint64_t level_ns;     /* the highest worker time of any of its parts when one of that part's rows was taken */
};

/* A user of a lane. */
struct pool_lane_user {
	struct pool_lane_user *next;
	struct pool_lane *lane;
	uid_t uid;
	unsigned n_joined; /* pool_lane_join's that have not been left; freed at 0. The loop thread's, like the next */
	struct charge charge;
	unsigned n_queues; /* under the pool's lock, like all that follows */
	struct pool_reads reads;
	struct pool_ticket *to_fetch,
		**to_fetch_end; /* rows that wait for an I/O thread, in the order of their coming */
};

/* A user with queues. */
struct pool_owner {
	struct pool_owner *next;
	uid_t uid;
	unsigned n_queues;
	struct pool_user_job *jobs;
	struct pool_lane_user local; /* in the lane of the local disks */
	struct pool_part part;       /* under the pool's lock, like all that follows */
	struct pool_owner *next_aside;
};

/* Rows that a worker has taken. */
struct pool_piece {
	struct pool_job *job;
	struct pool_ticket *ticket; /* NULL: new rows */
	uint32_t first, n;
	bool reserved; /* a ticket is kept free for new rows */
};

struct pool_queue {
	struct pool_owner *owner;
	struct pool_user_job *user_job;
	struct pool_part part;                      /* under the pool's lock, like all that follows */
	struct pool_queue *next, *previous;         /* while it has rows to take */
	struct pool_queue *next_aside;              /* during a search */
	struct pool_job *first, *last;              /* jobs with rows that no thread has taken */
	struct pool_ticket *fetched, *fetched_last; /* rows whose input is here */
	bool took_fetched;                          /* the last row taken was a fetched row */
	struct pool_reads reads;
	int64_t batch_ns;                 /* worker time that a batch takes, an average over rows */
	int n_ready;                      /* batches ready for the trainer: fewer is more urgent */
	atomic_bool waited_for;           /* whether the loop must be woken as soon as a job is done. Any thread may
	                                     * read it; written under the pool's lock */
	unsigned max_busy;                /* workers on this queue; 0: no maximum */
	unsigned n_trying;                /* new rows in work without a reserved ticket: at most 1 begins */
	struct pool_piece returned;       /* a new row that needs a ticket and cannot have one yet */
	struct pool_queue *next_starved;  /* while it has a returned row */
	struct pool_lane_user *lane_user; /* its user in the lane that reads its files */
};

struct pool_job {
	const struct pool_job_ops *ops; /* set by the owner before pool_submit, like the next two */
	uint32_t n_rows;
	uint32_t chunk;           /* rows a worker takes at once */
	unsigned node;            /* 1 + the place in pool_params.nodes of the node where its rows lie; 0: any. Set
	                           * before pool_submit */
	struct pool_queue *queue; /* under the pool's lock, like all that follows */
	struct pool_job *next;
	uint32_t n_taken, n_open; /* rows handed out; handed out and not finished */
	bool cancelled, finished;
};

struct pool_params {
	unsigned max_workers;               /* at least 1; as many threads again are made for relief */
	unsigned n_io;                      /* I/O threads for local disks, at least 1 */
	unsigned n_tickets;                 /* rows that may wait for input from local disks at once */
	unsigned n_lane_io, n_lane_tickets; /* the same for each other lane; 0: as many */
	unsigned max_lanes;                 /* other lanes; 0: no maximum */
	struct accounts *accounts;          /* charged for each lane of a user (ACCOUNT_FILE_SYSTEMS); NULL: nothing */
	void *(*worker_create)(void *arg);  /* a worker's own state, made before pool_create returns, by the worker's
	                                    * thread or for a relief thread; NULL: out of memory */
	void (*worker_destroy)(void *worker);
	void *(*input_create)(void *arg);
	void (*input_drop)(void *input); /* the fetched input will not be read; NULL: nothing to do */
	void (*input_destroy)(void *input);
	/* Any thread: what the worker does. NULL: not known. */
	enum stage (*worker_stage)(const void *worker);
	unsigned nice;         /* of workers and relief threads, see batch/pool/priority.h */
	unsigned n_processors; /* that the workers have; 0: one for each */
	struct nodes *nodes;   /* the workers are bound to them and prefer jobs there; NULL: there is one. It outlives
	                        * the pool */
	void *arg;
};

/* 0 or negative errno. The loop must run until pool_close's callback. */
int pool_create(uv_loop_t *loop, const struct pool_params *params, struct pool **out);
/* Stops the threads (every job and task must be done) and frees the pool; on_closed may be NULL. Blocks for as long as
 * a row or a task takes. */
void pool_close(struct pool *p, void (*on_closed)(void *arg), void *arg);

/* owner: the user for which the rows are made. job: an address that tells the user's jobs apart; NULL: those rows that
 * belong to no job. 0 or -ENOMEM. */
int pool_queue_add(struct pool *p, struct pool_queue *q, unsigned max_busy, uid_t owner, const void *job);
/* Before the first job, for a queue whose files come from the lane's file system and not from local disks. The queue has
 * to be removed before the lane is left. */
void pool_queue_set_lane(struct pool *p, struct pool_queue *q, struct pool_lane_user *u);
void pool_queue_remove(struct pool *p, struct pool_queue *q); /* it must be empty */
/* n_ready: batches that its trainers have still to take. waited_for: a trainer waits, so the loop is woken as soon as a
 * job is done; otherwise done jobs stay in the pool until pool_drain, which saves one wake-up of the loop per batch. */
void pool_queue_set_urgency(struct pool *p, struct pool_queue *q, int n_ready, bool waited_for);
/* Any thread: what pool_queue_set_urgency said last. */
static inline bool pool_queue_is_waited_for(const struct pool_queue *q)
{
	return atomic_load_explicit(&q->waited_for, memory_order_relaxed);
}
/* Whether a worker has still to take rows of the queue's jobs. */
bool pool_queue_has_rows(struct pool *p, const struct pool_queue *q);
/* Calls ops->done of every job that has finished, and done of every task that has finished. */
void pool_drain(struct pool *p);

void pool_submit(struct pool *p, struct pool_queue *q, struct pool_job *job);
/* Rows that no thread has taken yet will not be made; ops->done is called as usual, when the rows in work are
 * finished. */
void pool_cancel(struct pool *p, struct pool_job *job);

/* Whether every row of a submitted job is made; its `done` may not have been called yet. */
bool pool_is_finished(struct pool *p, const struct pool_job *job);

/* Work that may block, run once on an I/O thread; then done runs on the loop thread. The caller owns the task, and keeps
 * it and sets its members until done. A user's tasks wait for each other, not for another user's: tasks.c. */
struct pool_task {
	void (*run)(struct pool_task *t);
	void (*done)(struct pool_task *t);
	uid_t owner;
	bool opens;                       /* it reads files of the owner, which may never answer */
	struct pool_lane_user *lane_user; /* the lane that runs it; NULL: that of the local disks */
	struct pool_task *next;           /* the pool's, like the next */
	uint64_t round;
};
void pool_run_task(struct pool *p, struct pool_task *t);
/* Whether the task was still waiting for a thread; then it will neither run nor be done. */
bool pool_drop_task(struct pool *p, struct pool_task *t);
/* The user has had so much of the processors for work that no task and no row did. Any thread. */
void pool_charge(struct pool *p, uid_t owner, uint64_t ns);
/* Calls only t->done, in the loop's next iteration. */
void pool_call(struct pool *p, struct pool_task *t);

/* A job of this user reads from a file system that a server provides: makes the file system's lane if it is the first.
 * filesystem: a number that tells file systems apart, not 0. 0; ACCOUNT_E_USER, ACCOUNT_E_ALL: there are as many lanes as
 * this user, or all, may have; or a negative errno: there is no memory (-ENOMEM), or no thread may be made (-EAGAIN). */
int pool_lane_join(struct pool *p, uint64_t filesystem, uid_t owner, struct pool_lane_user **out);
/* What its file system is called in the status, if it has no name yet. */
void pool_lane_set_name(struct pool_lane_user *u, const char *name);
/* Never waits for the lane's threads: the last of them ends the lane. u may be NULL. */
void pool_lane_leave(struct pool *p, struct pool_lane_user *u);

/* How many workers may work; 1..max. Takes effect as rows finish. */
void pool_set_target(struct pool *p, unsigned n);

struct pool_stats {
	unsigned max, target, busy; /* busy: more than target, while rows take long */
	unsigned n_io, io_busy;     /* of all lanes */
	unsigned n_processors;
	uint64_t n_rows, n_parked, n_wakes; /* since the start: rows made, rows that had to wait for input, workers
	                                       * woken */
	uint64_t n_near;                    /* rows that a worker of their node took; 0 with one node */
};
void pool_get_stats(struct pool *p, struct pool_stats *s);

/* Whether the workers make progress, as far as earlier calls tell: call it at intervals. */
struct pool_progress {
	uint64_t idle_ns; /* how long a worker has been at one row without using its processor, waiting for memory
	                   * apart, or has not woken up; the longest */
	uint64_t row_ns;  /* processor time that a row in work has taken; the most */
};
void pool_get_progress(struct pool *p, struct pool_progress *out);

/* How long an I/O thread has been at one read or task; the longest. A server that hangs makes it grow. */
uint64_t pool_io_oldest_ns(struct pool *p);
struct pool_lane_stats {
	char name[POOL_LANE_NAME];
	unsigned n_io, io_busy, n_waiting; /* rows and tasks that wait for a thread */
	uint64_t oldest_ns;                /* as pool_io_oldest_ns, of this lane */
	bool is_users;                     /* `user` reads from it */
};
/* Of lane i; 0: local disks. False: there are no more. */
bool pool_get_lane_stats(struct pool *p, unsigned i, uid_t user, struct pool_lane_stats *out);

/* What the workers do now: whether a queue's rows wait for workers or for their input. */
struct pool_look {
	unsigned n_at[N_STAGES];   /* workers at the queue's rows, by what they do */
	unsigned n_others;         /* workers at other rows */
	unsigned n_others_running; /* of these, those that do not wait for memory */
	unsigned n_workers;        /* that may work on the queue */
	unsigned n_idle;           /* of these, those that have no row */
	unsigned n_processors;     /* that the workers have */
	unsigned n_tickets;        /* rows of the queue that wait for input */
};
void pool_look(struct pool *p, const struct pool_queue *q, struct pool_look *out);

#endif
