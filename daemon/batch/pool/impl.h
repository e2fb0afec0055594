/* What the parts of the pool share; pool.c describes the parts. */
#ifndef BATCHD_POOL_IMPL_H
#define BATCHD_POOL_IMPL_H

#include <pthread.h>

#include "batch/pool/pool.h"

struct pool_thread {
	pthread_t id;
	struct pool *pool;
	struct pool_lane *lane; /* of an I/O thread */
	unsigned number;
	bool started;
	void *worker;                /* pool_params.worker_create's; workers only */
	unsigned node;               /* of a bound worker: 1 + the place in pool_params.nodes; 0: it has no node, or the
	                         * machine has only one */
	bool ready;                  /* a worker that could be made; under the lock, like the next */
	uint64_t busy_since_ns;      /* the beginning of its row, read or task; 0: idle; under the lock */
	const struct pool_queue *at; /* the queue of its rows; NULL: idle; under the lock */
	/* pool_get_progress's, the loop thread's: the row that it saw last, the processor time of this thread when it
	 * first saw that row and when it last saw progress, and the moment of the latter. */
	uint64_t seen_row_ns, row_cpu_ns, seen_cpu_ns, seen_at_ns;
};

/* A job of a user: queues that share its part of the user's time. */
struct pool_user_job {
	struct pool_user_job *next;
	const void *job;
	unsigned n_queues; /* freed at 0 */
	struct pool_part part;
};

/* The I/O threads and tickets of one file system that a server (another machine, or a process) provides, or of all local
 * disks. */
struct pool_lane {
	struct pool_lane *next; /* of pool.lanes */
	struct pool *pool;
	uint64_t filesystem;       /* 0: the local disks */
	char name[POOL_LANE_NAME]; /* of the file system, like the next the loop thread's */
	struct pool_thread *threads;
	unsigned n_threads;
	struct pool_ticket *tickets; /* all of them */
	unsigned n_tickets;
	pthread_cond_t io; /* for its threads */

	/* all below: under the pool's lock */
	unsigned n_io;                /* threads that run; a lane that ends is freed at 0 */
	struct pool_lane_user *users; /* their turn to fetch next, the longest without one first */
	unsigned n_users;             /* those with queues */
	struct pool_ticket *free_tickets;
	unsigned n_free_tickets;
	unsigned n_reserved; /* tickets that rows in work may take; never more than are free */
	struct pool_queue *starved;
	struct pool_task *tasks, *tasks_running; /* tasks: they wait, in the order of their coming */
	uint64_t task_round;                     /* in which a user's next task begins, if it has none: tasks.c */
	unsigned n_io_sleeping, n_io_busy;
	bool ending; /* no user is left: its threads end */
};

struct pool {
	uv_poll_t poll; /* of wake_fd */
	int wake_fd;    /* an eventfd: with uv_async_send the loop would spin until the sender, which it may just have
	                 * preempted, runs again */
	struct pool_params params;
	pthread_mutex_t lock;
	pthread_cond_t work;   /* for workers below the target */
	pthread_cond_t spare;  /* for the other workers, so that a wake-up for work never reaches a worker that may not
	                        * work */
	pthread_cond_t watch;  /* for the watcher */
	pthread_cond_t relief; /* for the other relief threads */
	pthread_cond_t began;  /* for pool_create: a worker has begun */
	struct pool_thread *workers; /* max_workers of them, then as many relief threads */
	struct pool_owner *owners;   /* changed by the loop thread alone, under the lock, like the next */
	struct pool_lane local, *lanes;

	/* all below: under the lock */
	struct pool_queue *queues; /* those that may have rows to take */
	struct pool_part all;      /* its parts are the users */
	struct pool_debt *debts;   /* of users without queues: debts.h */
	unsigned n_owners;         /* users with queues */
	struct pool_task *tasks_done;
	struct pool_job *done;
	unsigned n_sleeping, n_waking; /* together exactly the threads in pthread_cond_wait(&p->work); the waking ones
	                                * have been signalled */
	uint64_t waking_since_ns;      /* while n_waking: when the last of them was signalled */
	unsigned target;
	uint64_t n_rows, n_parked, n_wakes, n_near;
	unsigned n_began;            /* workers that are ready, or could not be made */
	bool told;                   /* the loop has been woken and has not drained since */
	bool watching, watch_asleep; /* there is a watcher; it waits to be woken */
	unsigned n_idle_watches;
	bool stopping;

	void (*on_closed)(void *arg);
	void *on_closed_arg;
};

#endif
