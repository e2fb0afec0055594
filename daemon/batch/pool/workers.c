/* See workers.h.
 *
 * Relief: one of the relief threads is the watcher. While several users have queues and there is work, it checks every
 * WATCH_NS whether rows have been in work for so long that a user is kept from its share. Then it takes a row of that
 * user, and another relief thread becomes the watcher. The watcher sleeps without a timeout when the pool has been idle
 * for a while, or has only one user, so that a pool with one user has no additional wake-ups. */
#include "batch/pool/workers.h"

#include <assert.h>
#include <string.h>

#include "batch/pool/nodes.h"
#include "batch/pool/queues.h"
#include "batch/pool/tickets.h"
#include "batch/pool/turns.h"
#include "batch/pool/wake.h"
#include "base/clock.h"
#include "base/log.h"
#include "batch/pool/priority.h"
#include "base/thread-kind.h"
#include "base/trace.h"

enum {
	WATCH_NS = 30000000,
	IDLE_WATCHES = 32, /* before the watcher sleeps without a timeout: work comes in bursts */
};

/* Returns the time. */
static uint64_t run_piece(struct pool *p, struct pool_thread *self, struct pool_queue *q, struct pool_piece *piece,
			  uint64_t now)
{
	assert(piece->n > 0 && piece->job->queue == q);
	void *worker = self->worker;
	struct pool_job *job = piece->job;
	struct pool_lane *lane = q->lane_user->lane;
	uint64_t begun = now;
	pool_begin_work(p, self, q, now);
	bool skip = job->cancelled;
	bool wake = p->n_sleeping > 0 && pool_any_has_rows(p) && pool_must_wake(p);
	pthread_mutex_unlock(&p->lock);
	if (wake)
		pthread_cond_signal(&p->work);

	if (skip && piece->ticket)
		pool_drop_input(p, piece->ticket);
	int r = skip ? 0 : job->ops->run(job, worker, piece->first, piece->n, piece->ticket);
	now = clock_now_ns();
	if (trace_is_on() && r == 0)
		trace_add(TRACE_ROWS, begun, now, (uintptr_t)job, piece->n, piece->first);

	pthread_mutex_lock(&p->lock);
	pool_end_work(self, q, now);
	bool tell = false;
	if (r == POOL_WOULD_BLOCK && !job->cancelled) {
		pool_wait_for_input(p, q, piece);
	} else {
		pool_end_try(q, piece);
		if (piece->ticket)
			pool_give_ticket_back(piece->ticket);
		assert(job->n_open >= piece->n && job->n_taken >= piece->first + piece->n);
		p->n_rows += piece->n;
		job->n_open -= piece->n;
		pool_learn_batch_ns(q, job, piece->n > 1 ? (now - begun) / piece->n : now - begun);
		tell = pool_finish_if_done(p, job);
	}
	pool_list_or_unlist(p, q);
	if (lane->starved)
		pool_serve_starved(p, lane);
	if (tell)
		pool_tell_loop(p);
	return now;
}

/* By its own thread, because a page lies near the thread that touches it first. */
static bool make_worker(struct pool *p, struct pool_thread *self)
{
	if (self->node)
		pool_nodes_bind(self);
	self->worker = p->params.worker_create(p->params.arg);
	pthread_mutex_lock(&p->lock);
	self->ready = self->worker != NULL;
	p->n_began++;
	pthread_cond_signal(&p->began);
	pthread_mutex_unlock(&p->lock);
	return self->worker;
}

/* One record, though all fail alike. */
static void yield_to_trainers(const struct pool_thread *self)
{
	int r = priority_yield_thread((int)self->pool->params.nice);
	if (r && self == self->pool->workers)
		log_record(
			LOG_LEVEL_WARNING, "workers-not-nice",
			"workers displace trainers that compute, as they cannot have SCHED_BATCH and a niceness of %u: %s",
			self->pool->params.nice, strerror(-r));
}

void *pool_worker_main(void *arg)
{
	struct pool_thread *self = arg;
	struct pool *p = self->pool;
	thread_kind = THREAD_WORKER;
	yield_to_trainers(self);
	if (!make_worker(p, self))
		return NULL;
	pthread_mutex_lock(&p->lock);
	uint64_t now = clock_now_ns();
	while (!p->stopping) {
		if (self->number >= p->target) {
			if (pool_any_has_rows(p))
				pool_wake_worker(p); /* a wake-up that this thread received was meant for a worker below
				                      * the target */
			pthread_cond_wait(&p->spare, &p->lock);
			now = clock_now_ns();
			continue;
		}
		struct pool_queue *q = pool_pick_queue(p, now);
		struct pool_piece piece;
		if (q && pool_take_piece(p, self, q, &piece)) {
			now = run_piece(p, self, q, &piece, now);
			continue;
		}
		assert(p->n_sleeping + p->n_waking < p->params.max_workers); /* ARCHITECTURE.md, "Wake-ups" */
		p->n_sleeping++;
		pthread_cond_wait(&p->work, &p->lock);
		now = clock_now_ns();
		if (p->n_waking > 0)
			p->n_waking--;
		else
			p->n_sleeping--; /* not woken by a signal */
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* ---- relief ---- */

/* Returns when it is time to look again. */
static void pool_workers_watch(struct pool *p)
{
	struct timespec t;
	p->watching = true;
	p->n_idle_watches = p->all.n_listed ? 0 : p->n_idle_watches + 1;
	if (p->n_owners < 2 || p->n_idle_watches > IDLE_WATCHES) {
		p->watch_asleep = true;
		pthread_cond_wait(&p->watch, &p->lock);
		p->watch_asleep = false;
	} else {
		uint64_t at = clock_now_ns() + WATCH_NS;
		t.tv_sec = (time_t)(at / 1000000000);
		t.tv_nsec = (long)(at % 1000000000);
		pthread_cond_timedwait(&p->watch, &p->lock, &t);
	}
	p->watching = false;
}

void *pool_relief_main(void *arg)
{
	struct pool_thread *self = arg;
	struct pool *p = self->pool;
	thread_kind = THREAD_WORKER;
	yield_to_trainers(self);
	pthread_mutex_lock(&p->lock);
	while (!p->stopping) {
		uint64_t now = clock_now_ns();
		struct pool_queue *q = pool_pick_deprived(p, now);
		struct pool_piece piece;
		if (q && pool_take_piece(p, self, q, &piece)) {
			pthread_cond_signal(&p->relief); /* another thread becomes the watcher */
			run_piece(p, self, q, &piece, now);
		} else if (p->watching) {
			pthread_cond_wait(&p->relief, &p->lock);
		} else {
			pool_workers_watch(p);
		}
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}
