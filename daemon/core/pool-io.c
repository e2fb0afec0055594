/* See pool-io.h. */
#include "core/pool-io.h"

#include <assert.h>

#include "core/pool-debts.h"
#include "core/pool-queues.h"
#include "core/pool-tasks.h"
#include "core/pool-tickets.h"
#include "core/pool-wake.h"
#include "util/clock.h"
#include "util/trace.h"

static void fetch_one(struct pool *p, struct pool_ticket *t)
{
	struct pool_job *job = t->job;
	bool skip = job->cancelled;
	assert(!job->finished && job->ops->fetch);
	pool_count_fetching(p, t, 1);
	pthread_mutex_unlock(&p->lock);
	uint64_t begun = trace_is_on() ? clock_now_ns() : 0;
	if (!skip)
		job->ops->fetch(job, t);
	if (begun && !skip)
		trace_add(TRACE_READ, begun, clock_now_ns(), (uintptr_t)job, t->n, t->row);
	pthread_mutex_lock(&p->lock);
	pool_count_fetching(p, t, -1);
	if (job->cancelled) {
		uint32_t n = t->n;
		pthread_mutex_unlock(&p->lock);
		pool_drop_input(p, t);
		pthread_mutex_lock(&p->lock);
		pool_give_ticket_back(p, t);
		assert(job->n_open >= n);
		job->n_open -= n;
		if (pool_finish_if_done(p, job))
			pool_tell_loop(p);
		if (p->starved)
			pool_serve_starved(p);
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

static void pool_io_run_task(struct pool *p, struct pool_task *t)
{
	pthread_mutex_unlock(&p->lock);
	uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	t->run(t);
	uint64_t ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
	pthread_mutex_lock(&p->lock);
	pool_debts_charge(p, t->owner, ns);
	pool_end_task(p, t);
	pool_tell_loop(p);
}

void *pool_io_main(void *arg)
{
	struct pool_thread *self = arg;
	struct pool *p = self->pool;
	pthread_mutex_lock(&p->lock);
	while (!p->stopping) {
		/* Tasks may run for minutes (an index): keep one thread for reads. */
		bool takes_tasks = p->tasks && (self->number > 0 || p->params.n_io == 1);
		struct pool_task *task = takes_tasks ? pool_take_task(p) : NULL;
		struct pool_ticket *ticket;
		if (task) {
			p->n_io_busy++;
			pool_io_run_task(p, task);
			p->n_io_busy--;
		} else if ((ticket = pool_take_to_fetch(p))) {
			p->n_io_busy++;
			fetch_one(p, ticket);
			p->n_io_busy--;
			if (p->tasks) /* one may run that could not beside this read */
				pthread_cond_broadcast(&p->io);
		} else {
			p->n_io_sleeping++;
			pthread_cond_wait(&p->io, &p->lock);
			p->n_io_sleeping--;
		}
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}
