/* A pool as its files share it: pool.c is what the loop thread calls, pool-threads.c what workers and I/O threads do. */
#ifndef BATCHD_POOL_IMPL_H
#define BATCHD_POOL_IMPL_H

#include <pthread.h>
#include <time.h>

#include "core/pool.h"

struct thread {
	pthread_t id;
	struct pool *pool;
	unsigned number;
	bool started;
	void *worker;           /* pool_params.worker_create's; workers only */
	uint64_t busy_since_ns; /* 0: idle; under the lock */
};

struct pool {
	uv_poll_t poll;        /* of wake_fd */
	int wake_fd;           /* an eventfd: uv_async_send would have the loop spin until the sender, which it may just have preempted, runs again */
	struct pool_params params;
	pthread_mutex_t lock;
	pthread_cond_t work;   /* for workers below the target */
	pthread_cond_t spare;  /* for the others, so that a wake-up for work never reaches one that may not work */
	pthread_cond_t io;     /* for I/O threads */
	struct thread *workers, *io_threads;

	/* under the lock */
	struct pool_queue *queues;
	struct pool_ticket *free_tickets, *to_fetch, **to_fetch_end;
	unsigned n_free_tickets;
	struct pool_task *tasks, *tasks_last, *tasks_done;
	struct pool_job *done;
	unsigned n_sleeping, n_waking; /* together exactly who is in pthread_cond_wait(&p->work); the latter have been signalled */
	uint64_t waking_since_ns;      /* while n_waking: since when the last of them was */
	unsigned target, n_io_sleeping, n_busy, n_io_busy;
	uint64_t n_rows, n_parked, n_wakes;
	bool told;             /* the loop has been woken and has not drained since */
	bool stopping;

	struct pool_ticket *tickets; /* all of them */
	void (*on_closed)(void *arg);
	void *on_closed_arg;
};

static inline uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The mains of the threads; each gets its struct thread. */
void *pool_worker_main(void *arg);
void *pool_io_main(void *arg);

/* ---- under the lock ---- */

/* Whether a worker is to be woken for new work, by pthread_cond_signal(&p->work) as soon as the lock is free. */
bool pool_must_wake(struct pool *p);
/* Wakes the loop to drain, once until it has. */
void pool_tell_loop(struct pool *p);
/* Takes the job out of the queue's list of those with rows to take. */
void pool_unlink_job(struct pool_queue *q, struct pool_job *job);
/* Moves the job to the done list if nothing of it is left to do. Returns whether the loop must be told. */
bool pool_finish_if_done(struct pool *p, struct pool_job *job);

#endif
