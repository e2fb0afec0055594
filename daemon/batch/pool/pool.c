/* See pool.h: the loop thread's functions, and the pool's life. Its parts, each calling only those before it:
 *
 *     threads        how threads begin and end
 *     wake           which threads are woken, and the loop
 *     order          the queues that have rows, by their turns
 *     debts          what else is done for users than rows
 *     queues         queues of jobs, their owners, when a job is done
 *     tickets        rows that wait for input
 *     nodes          which rows a worker prefers, on machines with several NUMA nodes
 *     turns          which row is next
 *     workers        workers and relief threads
 *     tasks          which task is next
 *     io             I/O threads
 *     lanes          the lanes of file systems: their threads and tickets
 *
 * The awkward corner is parking: a taken row is with a worker, with an I/O thread, in its queue's `fetched` list, or is
 * its queue's `returned` row. In each case it is counted in job->n_open, so that a job is done exactly when all rows
 * are taken (or it is cancelled) and n_open is 0. The thread that makes that true moves the job to the done list, once
 * (`finished`). No worker ever waits for a disk.
 *
 * Why a mutex and not lock-free queues: a row of pixels takes about 700 us, taking the mutex 20 ns; rows of arrays are
 * taken in chunks. */
#include "batch/pool/pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "batch/pool/debts.h"
#include "batch/pool/io.h"
#include "batch/pool/lanes.h"
#include "batch/pool/nodes.h"
#include "batch/pool/order.h"
#include "batch/pool/queues.h"
#include "batch/pool/tasks.h"
#include "batch/pool/threads.h"
#include "batch/pool/tickets.h"
#include "batch/pool/turns.h"
#include "batch/pool/wake.h"
#include "batch/pool/workers.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/thread-kind.h"

enum { PROGRESS_NS = 1000000 /* of processor time, between two looks at a worker */ };

void pool_drain(struct pool *p)
{
	assert(is_loop_thread());
	pthread_mutex_lock(&p->lock);
	struct pool_job *jobs = p->done;
	p->done = NULL;
	p->told = false;
	pthread_mutex_unlock(&p->lock);
	while (jobs) {
		struct pool_job *next = jobs->next;
		assert(jobs->finished && !jobs->n_open);
		jobs->next = NULL;
		jobs->ops->done(jobs);
		jobs = next;
	}
}

/* Not part of pool_drain, whose callers only look for batches: a task's end may attach trainers and close jobs. */
static void finish_tasks(struct pool *p)
{
	assert(is_loop_thread());
	pthread_mutex_lock(&p->lock);
	struct pool_task *tasks = p->tasks_done;
	p->tasks_done = NULL;
	p->told = false;
	pthread_mutex_unlock(&p->lock);
	while (tasks) {
		struct pool_task *next = tasks->next;
		tasks->done(tasks);
		tasks = next;
	}
}

static void on_told(uv_poll_t *poll, int status, int events)
{
	struct pool *p = poll->data;
	uint64_t n;
	(void)status;
	(void)events;
	while (read(p->wake_fd, &n, sizeof(n)) < 0 && errno == EINTR)
		;
	pool_drain(p);
	finish_tasks(p);
	pool_lanes_reap(p);
}

/* ---- threads ---- */

static int start_thread(struct pool *p, struct pool_thread *t, unsigned number, void *(*main)(void *), const char *name)
{
	t->pool = p;
	t->number = number;
	return pool_thread_start(t, main, name);
}

/* One after the other, so that what fails for want of memory fails in the same order each time. */
static int start_workers(struct pool *p)
{
	int r = p->params.nodes ? pool_nodes_assign(p) : 0;
	for (unsigned i = 0; r == 0 && i < p->params.max_workers; i++) {
		r = start_thread(p, &p->workers[i], i, pool_worker_main, "batchd-worker");
		if (r)
			return r;
		pthread_mutex_lock(&p->lock);
		while (p->n_began <= i)
			pthread_cond_wait(&p->began, &p->lock);
		r = p->workers[i].ready ? 0 : -ENOMEM;
		pthread_mutex_unlock(&p->lock);
	}
	return r;
}

static int start_relief(struct pool *p)
{
	int r = 0;
	for (unsigned i = 0; r == 0 && i < p->params.max_workers; i++)
		r = start_thread(p, &p->workers[p->params.max_workers + i], i, pool_relief_main, "batchd-relief");
	return r;
}

static void stop_threads(struct pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->work);
	pthread_cond_broadcast(&p->spare);
	pthread_cond_broadcast(&p->local.io);
	pthread_cond_broadcast(&p->watch);
	pthread_cond_broadcast(&p->relief);
	pthread_mutex_unlock(&p->lock);
	pool_threads_join(p->workers, 2 * p->params.max_workers);
	pool_threads_join(p->local.threads, p->local.n_threads);
	pool_lanes_stop(p);
}

/* ---- life ---- */

static void pool_free_pool(struct pool *p)
{
	pool_lane_finish(&p->local);
	for (unsigned i = 0; p->workers && i < 2 * p->params.max_workers; i++) {
		if (p->workers[i].worker)
			p->params.worker_destroy(p->workers[i].worker);
	}
	if (p->wake_fd >= 0)
		close(p->wake_fd);
	pthread_cond_destroy(&p->began);
	pthread_cond_destroy(&p->relief);
	pthread_cond_destroy(&p->watch);
	pthread_cond_destroy(&p->spare);
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	pool_debts_finish(p);
	free(p->workers);
	free(p);
}

static void on_poll_closed(uv_handle_t *h)
{
	struct pool *p = h->data;
	void (*fn)(void *) = p->on_closed;
	void *arg = p->on_closed_arg;
	pool_free_pool(p);
	if (fn)
		fn(arg);
}

/* The states of relief threads; workers make their own. */
static int make_relief(struct pool *p)
{
	for (unsigned i = p->params.max_workers; i < 2 * p->params.max_workers; i++) {
		p->workers[i].worker = p->params.worker_create(p->params.arg);
		if (!p->workers[i].worker)
			return -ENOMEM;
	}
	return 0;
}

static int start_listening(struct pool *p, uv_loop_t *loop)
{
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->wake_fd < 0)
		return -errno;
	int r = uv_poll_init(loop, &p->poll, p->wake_fd);
	if (r)
		return r;
	p->poll.data = p;
	uv_poll_start(&p->poll, UV_READABLE, on_told);
	return 0;
}

int pool_create(uv_loop_t *loop, const struct pool_params *params, struct pool **out)
{
	assert(is_loop_thread());
	assert(params->max_workers > 0 && params->n_io > 0);
	struct pool *p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->wake_fd = -1;
	p->params = *params;
	if (!p->params.n_processors)
		p->params.n_processors = params->max_workers;
	p->target = params->max_workers;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->spare, NULL);
	pthread_cond_init(&p->relief, NULL);
	pthread_cond_init(&p->began, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->watch, &attr);
	pthread_condattr_destroy(&attr);
	p->workers = calloc((size_t)2 * params->max_workers, sizeof(*p->workers));
	int r = p->workers ? pool_lane_init(p, &p->local, params->n_io, params->n_tickets) : -ENOMEM;
	if (r == 0)
		r = make_relief(p);
	if (r) {
		pool_free_pool(p);
		return r;
	}
	r = start_workers(p);
	if (r == 0)
		r = start_relief(p);
	if (r == 0)
		r = pool_io_start(&p->local, 0, params->n_io);
	if (r == 0)
		r = start_listening(p, loop);
	if (r) {
		stop_threads(p);
		pool_free_pool(p);
		return r;
	}
	*out = p;
	return 0;
}

void pool_close(struct pool *p, void (*on_closed)(void *arg), void *arg)
{
	assert(is_loop_thread());
	assert(!p->stopping);
	stop_threads(p);
	assert(!p->owners && !p->all.n_listed && !p->queues && !p->done && !p->tasks_done);
	assert(!p->local.tasks && !p->local.tasks_running && !p->local.users);
	p->on_closed = on_closed;
	p->on_closed_arg = arg;
	uv_close((uv_handle_t *)&p->poll, on_poll_closed);
}

/* ---- jobs ---- */

void pool_queue_set_urgency(struct pool *p, struct pool_queue *q, int n_ready, bool waited_for)
{
	assert(is_loop_thread());
	assert(n_ready >= 0);
	pthread_mutex_lock(&p->lock);
	q->n_ready = n_ready;
	q->waited_for = waited_for;
	pool_order_update(p, q);
	if (waited_for && p->done) /* done while no trainer waited yet */
		pool_tell_loop(p);
	pthread_mutex_unlock(&p->lock);
}

bool pool_queue_has_rows(struct pool *p, const struct pool_queue *q)
{
	assert(is_loop_thread());
	pthread_mutex_lock(&p->lock);
	bool has = q->first || q->fetched;
	pthread_mutex_unlock(&p->lock);
	return has;
}

void pool_submit(struct pool *p, struct pool_queue *q, struct pool_job *job)
{
	assert(is_loop_thread());
	assert(q->owner && q->lane_user);
	assert(job->n_rows > 0 && job->chunk > 0);
	job->queue = q;
	job->next = NULL;
	job->n_taken = job->n_open = 0;
	job->cancelled = job->finished = false;
	pthread_mutex_lock(&p->lock);
	if (!q->part.n_listed)
		pool_catch_up(q);
	if (q->first)
		q->last->next = job;
	else
		q->first = job;
	q->last = job;
	pool_list_or_unlist(p, q);
	bool wake = pool_must_wake(p), watch = pool_must_wake_watch(p);
	pthread_mutex_unlock(&p->lock);
	if (wake)
		pthread_cond_signal(&p->work);
	if (watch)
		pthread_cond_signal(&p->watch);
}

void pool_cancel(struct pool *p, struct pool_job *job)
{
	assert(is_loop_thread());
	assert(job->queue);
	pthread_mutex_lock(&p->lock);
	bool tell = job->finished; /* perhaps the loop was not woken for it */
	if (!tell) {
		job->cancelled = true;
		pool_unlink_job(job->queue, job);
		if (job->queue->returned.job == job) {
			job->n_open -= job->queue->returned.n;
			pool_unlink_starved(p, job->queue);
		}
		pool_list_or_unlist(p, job->queue);
		tell = pool_finish_if_done(p, job);
	}
	if (tell)
		pool_tell_loop(p);
	pthread_mutex_unlock(&p->lock);
}

bool pool_is_finished(struct pool *p, const struct pool_job *job)
{
	assert(is_loop_thread());
	pthread_mutex_lock(&p->lock);
	bool finished = job->finished;
	pthread_mutex_unlock(&p->lock);
	return finished;
}

/* ---- tasks ---- */

static struct pool_lane *lane_of(struct pool *p, const struct pool_task *t)
{
	assert(!t->lane_user || t->lane_user->uid == t->owner);
	return t->lane_user ? t->lane_user->lane : &p->local;
}

void pool_run_task(struct pool *p, struct pool_task *t)
{
	assert(is_loop_thread());
	assert(t->run && t->done);
	struct pool_lane *lane = lane_of(p, t);
	pthread_mutex_lock(&p->lock);
	pool_add_task(lane, t);
	/* Thread 0 does not take tasks, so waking only one thread might wake only that one: wake all. */
	pthread_cond_broadcast(&lane->io);
	pthread_mutex_unlock(&p->lock);
}

void pool_charge(struct pool *p, uid_t owner, uint64_t ns)
{
	pthread_mutex_lock(&p->lock);
	pool_debts_charge(p, owner, ns);
	pthread_mutex_unlock(&p->lock);
}

bool pool_drop_task(struct pool *p, struct pool_task *t)
{
	assert(is_loop_thread());
	struct pool_lane *lane = lane_of(p, t);
	pthread_mutex_lock(&p->lock);
	bool waits = list_has(&lane->tasks, t, next);
	if (waits)
		list_remove(&lane->tasks, t, next);
	pthread_mutex_unlock(&p->lock);
	return waits;
}

void pool_call(struct pool *p, struct pool_task *t)
{
	assert(is_loop_thread());
	assert(t->done);
	pthread_mutex_lock(&p->lock);
	list_push(&p->tasks_done, t, next);
	pool_tell_loop(p);
	pthread_mutex_unlock(&p->lock);
}

/* ---- how many work ---- */

void pool_set_target(struct pool *p, unsigned n)
{
	assert(is_loop_thread());
	pthread_mutex_lock(&p->lock);
	p->target = n < 1 ? 1 : n > p->params.max_workers ? p->params.max_workers : n;
	p->n_waking += p->n_sleeping;
	p->n_sleeping = 0;
	p->waking_since_ns = clock_now_ns();
	pthread_cond_broadcast(&p->work);
	pthread_cond_broadcast(&p->spare);
	pthread_mutex_unlock(&p->lock);
}

void pool_get_stats(struct pool *p, struct pool_stats *s)
{
	assert(is_loop_thread());
	pthread_mutex_lock(&p->lock);
	*s = (struct pool_stats){ .max = p->params.max_workers,
				  .target = p->target,
				  .busy = p->all.n_busy,
				  .n_processors = p->params.n_processors,
				  .n_io = p->local.n_io,
				  .io_busy = p->local.n_io_busy,
				  .n_rows = p->n_rows,
				  .n_parked = p->n_parked,
				  .n_wakes = p->n_wakes,
				  .n_near = p->n_near };
	for (const struct pool_lane *lane = p->lanes; lane; lane = lane->next) {
		s->n_io += lane->n_io;
		s->io_busy += lane->n_io_busy;
	}
	pthread_mutex_unlock(&p->lock);
}

static uint64_t cpu_ns_of(const struct pool_thread *t)
{
	clockid_t clock;
	return pthread_getcpuclockid(t->id, &clock) ? 0 : clock_ns(clock);
}

static enum stage stage_of(const struct pool *p, const struct pool_thread *t)
{
	return p->params.worker_stage ? p->params.worker_stage(t->worker) : STAGE_NONE;
}

/* A row that began before it was seen: what it had used by then is not known. */
static void look_at(const struct pool *p, struct pool_thread *t, uint64_t row, uint64_t now, struct pool_progress *out)
{
	uint64_t cpu = row ? cpu_ns_of(t) : 0;
	if (row != t->seen_row_ns)
		t->row_cpu_ns = cpu;
	if (row != t->seen_row_ns || cpu >= t->seen_cpu_ns + PROGRESS_NS || stage_of(p, t) == STAGE_MEMORY) {
		t->seen_row_ns = row;
		t->seen_cpu_ns = cpu;
		t->seen_at_ns = now;
	}
	if (!row)
		return;
	out->idle_ns = now - t->seen_at_ns > out->idle_ns ? now - t->seen_at_ns : out->idle_ns;
	out->row_ns = cpu - t->row_cpu_ns > out->row_ns ? cpu - t->row_cpu_ns : out->row_ns;
}

/* All sleeping workers rely on the woken worker to wake the next. */
void pool_get_progress(struct pool *p, struct pool_progress *out)
{
	assert(is_loop_thread());
	*out = (struct pool_progress){ 0 };
	pthread_mutex_lock(&p->lock);
	uint64_t now = clock_now_ns(), waking_ns = p->n_waking ? now - p->waking_since_ns : 0;
	for (unsigned i = 0; i < 2 * p->params.max_workers; i++)
		look_at(p, &p->workers[i], p->workers[i].busy_since_ns, now, out);
	pthread_mutex_unlock(&p->lock);
	out->idle_ns = waking_ns > out->idle_ns ? waking_ns : out->idle_ns;
}

void pool_look(struct pool *p, const struct pool_queue *q, struct pool_look *out)
{
	assert(is_loop_thread());
	*out = (struct pool_look){ .n_processors = p->params.n_processors };
	pthread_mutex_lock(&p->lock);
	unsigned n_own = 0;
	for (unsigned i = 0; i < 2 * p->params.max_workers; i++) {
		const struct pool_thread *t = &p->workers[i];
		if (!t->at)
			continue;
		enum stage stage = stage_of(p, t);
		bool own = t->at == q;
		n_own += own;
		out->n_at[stage] += own;
		out->n_others += !own;
		out->n_others_running += !own && stage != STAGE_MEMORY;
	}
	out->n_workers = q->max_busy && q->max_busy < p->target ? q->max_busy : p->target;
	out->n_tickets = q->reads.n_tickets;
	unsigned n_idle = p->target > n_own + out->n_others ? p->target - n_own - out->n_others : 0;
	unsigned n_more = out->n_workers > n_own ? out->n_workers - n_own : 0;
	pthread_mutex_unlock(&p->lock);
	out->n_idle = n_idle < n_more ? n_idle : n_more;
}
