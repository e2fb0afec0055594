/* See io.h. */
#include "batch/pool/io.h"

#include <assert.h>
#include <string.h>

#include "batch/pool/debts.h"
#include "batch/pool/queues.h"
#include "batch/pool/tasks.h"
#include "batch/pool/threads.h"
#include "batch/pool/tickets.h"
#include "batch/pool/wake.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread-kind.h"
#include "base/trace.h"

static void fetch_one(struct pool_lane *lane, struct pool_ticket *t)
{
	struct pool *p = lane->pool;
	struct pool_job *job = t->job;
	bool skip = job->cancelled;
	assert(!job->finished && job->ops->fetch);
	pool_count_fetching(t, 1);
	pthread_mutex_unlock(&p->lock);
	uint64_t begun = trace_is_on() ? clock_now_ns() : 0;
	if (!skip)
		job->ops->fetch(job, t);
	if (begun && !skip)
		trace_add(TRACE_READ, begun, clock_now_ns(), (uintptr_t)job, t->n, t->row);
	pthread_mutex_lock(&p->lock);
	pool_count_fetching(t, -1);
	if (job->cancelled) {
		uint32_t n = t->n;
		pthread_mutex_unlock(&p->lock);
		pool_drop_input(p, t);
		pthread_mutex_lock(&p->lock);
		pool_give_ticket_back(t);
		assert(job->n_open >= n);
		job->n_open -= n;
		if (pool_finish_if_done(p, job))
			pool_tell_loop(p);
		if (lane->starved)
			pool_serve_starved(p, lane);
		pool_wake_worker(p); /* a queue may have waited for the ticket */
		return;
	}
	struct pool_queue *q = job->queue;
	t->next = NULL;
	*(q->fetched ? &q->fetched_last->next : &q->fetched) = t;
	q->fetched_last = t;
	pool_list_or_unlist(p, q);
	pool_wake_worker(p);
}

static void pool_io_run_task(struct pool_lane *lane, struct pool_task *t)
{
	struct pool *p = lane->pool;
	pthread_mutex_unlock(&p->lock);
	uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	t->run(t);
	uint64_t ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
	pthread_mutex_lock(&p->lock);
	pool_debts_charge(p, t->owner, ns);
	pool_end_task(lane, t);
	pool_tell_loop(p);
}

static void *pool_io_main(void *arg);

/* False: the lane ends already. */
static bool count_in(struct pool_lane *lane)
{
	pthread_mutex_lock(&lane->pool->lock);
	bool goes_on = !lane->pool->stopping && !lane->ending;
	lane->n_io += goes_on;
	pthread_mutex_unlock(&lane->pool->lock);
	return goes_on;
}

static void count_out(struct pool_lane *lane)
{
	pthread_mutex_lock(&lane->pool->lock);
	lane->n_io--;
	pthread_mutex_unlock(&lane->pool->lock);
}

int pool_io_start(struct pool_lane *lane, unsigned first, unsigned n)
{
	assert(first + n <= lane->n_threads);
	int r = 0;
	for (unsigned i = first; i < first + n && r == 0 && count_in(lane); i++) {
		r = pool_thread_start(&lane->threads[i], pool_io_main, "batchd-io");
		if (r)
			count_out(lane);
	}
	return r;
}

/* The first thread of a lane of its own makes the others, so that the loop makes only one. */
static void start_others(struct pool_lane *lane)
{
	int r = pool_io_start(lane, 1, lane->n_threads - 1);
	if (r)
		log_record(
			LOG_LEVEL_WARNING, "io-threads",
			"a network file system has fewer than %u I/O threads: %s; raise the limit of threads (ulimit "
			"-u, TasksMax=), or lower io_threads",
			lane->n_threads, strerror(-r));
}

static void begin_busy(struct pool_thread *self)
{
	assert(!self->busy_since_ns && self->lane->n_io_busy < self->lane->n_io);
	self->lane->n_io_busy++;
	self->busy_since_ns = clock_now_ns();
}

static void end_busy(struct pool_thread *self)
{
	assert(self->busy_since_ns && self->lane->n_io_busy > 0);
	self->lane->n_io_busy--;
	self->busy_since_ns = 0;
}

/* One pass: a task, a row's input, or nothing to do. */
static void io_step(struct pool_thread *self)
{
	struct pool_lane *lane = self->lane;
	/* Tasks may run for minutes (an index): keep one thread for reads. */
	bool takes_tasks = lane->tasks && (self->number > 0 || lane->n_io == 1);
	struct pool_task *task = takes_tasks ? pool_take_task(lane) : NULL;
	struct pool_ticket *ticket;
	if (task) {
		begin_busy(self);
		pool_io_run_task(lane, task);
		end_busy(self);
	} else if ((ticket = pool_take_to_fetch(lane))) {
		begin_busy(self);
		fetch_one(lane, ticket);
		end_busy(self);
		if (lane->tasks) /* one may run that could not beside this read */
			pthread_cond_broadcast(&lane->io);
	} else {
		lane->n_io_sleeping++;
		pthread_cond_wait(&lane->io, &lane->pool->lock);
		lane->n_io_sleeping--;
	}
}

static void *pool_io_main(void *arg)
{
	struct pool_thread *self = arg;
	struct pool_lane *lane = self->lane;
	struct pool *p = self->pool;
	thread_kind = THREAD_IO;
	if (self->number == 0 && lane->filesystem)
		start_others(lane);
	pthread_mutex_lock(&p->lock);
	while (!p->stopping && !lane->ending)
		io_step(self);
	assert(lane->n_io > 0);
	if (--lane->n_io == 0 && lane->ending)
		pool_tell_loop(p);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}
