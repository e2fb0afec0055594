/* What the threads of a pool do: workers take rows, I/O threads fetch files for them and run tasks.
 *
 * The awkward corner is parking: a taken row is either with a worker, with an I/O thread, or in its queue's `fetched` list, and in each
 * case counted in job->n_open, so that a job is done exactly when all rows are taken (or it is cancelled) and n_open is 0. Whoever makes that true moves the
 * job to the done list, once (`finished`).
 *
 * Why a mutex and not lock-free queues: a row of pixels takes some 700 us, taking the mutex 20 ns; rows of arrays are taken in chunks. */
#include "core/pool-impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- under the lock ---- */

/* Whether a worker is to be woken for new work, by pthread_cond_signal(&p->work) as soon as the lock is free. One at a time is enough: whoever has been woken
 * looks at everything there is, and wakes the next (pool_worker_main) when there is more than it takes. So who brings work pays for one wake-up and no more. */
bool pool_must_wake(struct pool *p)
{
	if (p->n_sleeping == 0 || p->n_waking > 0)
		return false;
	p->n_sleeping--;
	p->n_waking++;
	p->waking_since_ns = now_ns();
	p->n_wakes++;
	return true;
}

static void wake_worker(struct pool *p)
{
	if (pool_must_wake(p))
		pthread_cond_signal(&p->work);
}

/* Wakes the loop to drain, once until it has. */
void pool_tell_loop(struct pool *p)
{
	uint64_t one = 1;
	if (p->told)
		return;
	p->told = true;
	while (write(p->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void pool_unlink_job(struct pool_queue *q, struct pool_job *job)
{
	struct pool_job **at = &q->first, *before = NULL;
	for (; *at && *at != job; at = &(*at)->next)
		before = *at;
	if (!*at)
		return;
	*at = job->next;
	if (q->last == job)
		q->last = before;
	job->next = NULL;
}

/* Moves the job to the done list if nothing of it is left to do. Returns whether the loop must be told now (wake-ups merge, so twice does no harm). */
bool pool_finish_if_done(struct pool *p, struct pool_job *job)
{
	if (job->finished || job->n_open > 0 || (!job->cancelled && job->n_taken < job->n_rows))
		return false;
	job->finished = true;
	bool tell = job->cancelled || job->queue->waited_for;
	job->next = p->done;
	p->done = job;
	return tell;
}

static bool more_urgent(const struct pool_queue *a, const struct pool_queue *b)
{
	if (a->n_ready != b->n_ready)
		return a->n_ready < b->n_ready;
	return a->served_ns < b->served_ns;
}

/* A queue may have as many tickets as it leaves free: alone it gets half of them, two get a third each, and there are always some for one whose files are at
 * hand, however slow the others' disks are. Who has none may always try; a row that then finds no ticket waits in the worker. */
static bool may_read_ahead(const struct pool *p, const struct pool_queue *q)
{
	return q->first && (q->n_tickets == 0 || q->n_tickets < p->n_free_tickets);
}

static struct pool_queue *pick_queue(struct pool *p)
{
	struct pool_queue *best = NULL;
	for (struct pool_queue *q = p->queues; q; q = q->next) {
		if ((!q->fetched && !may_read_ahead(p, q)) || (q->max_busy && q->n_busy >= q->max_busy))
			continue;
		if (!best || more_urgent(q, best))
			best = q;
	}
	return best;
}

struct piece {
	struct pool_job *job;
	struct pool_ticket *ticket;
	uint32_t first, n;
};

/* Fetched rows and new ones in turn: a new row that has to be parked costs next to nothing, and keeps the disk as busy as the decoders. */
static bool take_piece(const struct pool *p, struct pool_queue *q, struct piece *out)
{
	bool fetched = q->fetched && !(q->took_fetched && may_read_ahead(p, q));
	q->took_fetched = fetched;
	if (fetched) {
		struct pool_ticket *t = q->fetched;
		q->fetched = t->next;
		*out = (struct piece){ t->job, t, t->row, 1 };
		return true;
	}
	struct pool_job *job = q->first;
	if (!job)
		return false;
	uint32_t left = job->n_rows - job->n_taken;
	*out = (struct piece){ job, NULL, job->n_taken, left < job->chunk ? left : job->chunk };
	job->n_taken += out->n;
	job->n_open += out->n;
	if (job->n_taken == job->n_rows)
		pool_unlink_job(q, job);
	return true;
}

static void give_ticket_back(struct pool *p, struct pool_ticket *t)
{
	t->job->queue->n_tickets--;
	t->next = p->free_tickets;
	p->free_tickets = t;
	p->n_free_tickets++;
}

/* Hands the row to an I/O thread. False when every ticket is out: then the worker has to wait itself, which bounds the memory. */
static bool park(struct pool *p, const struct piece *piece)
{
	struct pool_ticket *t = p->free_tickets;
	if (!t)
		return false;
	p->free_tickets = t->next;
	p->n_free_tickets--;
	piece->job->queue->n_tickets++;
	t->next = NULL;
	t->job = piece->job;
	t->row = piece->first;
	*p->to_fetch_end = t;
	p->to_fetch_end = &t->next;
	p->n_parked++;
	if (p->n_io_sleeping)
		pthread_cond_signal(&p->io);
	return true;
}

/* ---- threads ---- */

static void run_piece(struct pool *p, struct thread *self, struct pool_queue *q, struct piece *piece)
{
	void *worker = self->worker;
	struct pool_job *job = piece->job;
	uint64_t begin = now_ns();
	q->n_busy++;
	p->n_busy++;
	self->busy_since_ns = begin;
	bool skip = job->cancelled;
	bool may_wait = p->free_tickets == NULL;
	bool wake = p->n_sleeping > 0 && pick_queue(p) && pool_must_wake(p);
	pthread_mutex_unlock(&p->lock);
	if (wake)
		pthread_cond_signal(&p->work);

	int r = skip ? 0 : job->ops->run(job, worker, piece->first, piece->n, piece->ticket, may_wait);
	uint64_t took = now_ns() - begin;

	pthread_mutex_lock(&p->lock);
	q->served_ns += took;
	if (r == POOL_WOULD_BLOCK && !job->cancelled && !park(p, piece)) {
		pthread_mutex_unlock(&p->lock);
		job->ops->run(job, worker, piece->first, piece->n, piece->ticket, true);
		pthread_mutex_lock(&p->lock);
		r = 0;
	}
	q->n_busy--;
	p->n_busy--;
	self->busy_since_ns = 0;
	if (piece->ticket)
		give_ticket_back(p, piece->ticket);
	bool tell = false;
	if (r != POOL_WOULD_BLOCK || job->cancelled) {
		p->n_rows += piece->n;
		job->n_open -= piece->n;
		tell = pool_finish_if_done(p, job);
	}
	if (tell)
		pool_tell_loop(p);
}

void *pool_worker_main(void *arg)
{
	struct thread *self = arg;
	struct pool *p = self->pool;
	pthread_mutex_lock(&p->lock);
	while (!p->stopping) {
		if (self->number >= p->target) {
			if (pick_queue(p))
				wake_worker(p); /* the wake-up that it may have had was meant for one that works */
			pthread_cond_wait(&p->spare, &p->lock);
			continue;
		}
		struct pool_queue *q = pick_queue(p);
		struct piece piece;
		if (q && take_piece(p, q, &piece)) {
			run_piece(p, self, q, &piece);
			continue;
		}
		p->n_sleeping++;
		pthread_cond_wait(&p->work, &p->lock);
		if (p->n_waking > 0)
			p->n_waking--;
		else
			p->n_sleeping--; /* woken by nobody */
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* The first row to fetch whose queue has no I/O thread yet, or fewer than three times as many as it would leave free: a disk that does not answer at all
 * holds up who reads from it, and nobody else. */
static struct pool_ticket *take_to_fetch(struct pool *p)
{
	unsigned left = p->params.n_io - p->n_io_busy - 1;
	for (struct pool_ticket **at = &p->to_fetch; *at; at = &(*at)->next) {
		struct pool_ticket *t = *at;
		if (t->job->queue->n_fetching > 0 && t->job->queue->n_fetching >= 3 * left)
			continue;
		*at = t->next;
		if (p->to_fetch_end == &t->next)
			p->to_fetch_end = at;
		return t;
	}
	return NULL;
}

static void fetch_one(struct pool *p, struct pool_ticket *t)
{
	struct pool_job *job = t->job;
	bool skip = job->cancelled;
	job->queue->n_fetching++;
	pthread_mutex_unlock(&p->lock);
	if (!skip)
		job->ops->fetch(job, t);
	pthread_mutex_lock(&p->lock);
	job->queue->n_fetching--;
	if (job->cancelled) {
		give_ticket_back(p, t);
		job->n_open--;
		if (pool_finish_if_done(p, job))
			pool_tell_loop(p);
		wake_worker(p); /* somebody may have waited for the ticket */
		return;
	}
	struct pool_ticket **at = &job->queue->fetched;
	while (*at)
		at = &(*at)->next;
	t->next = NULL;
	*at = t;
	wake_worker(p);
}

static void run_task(struct pool *p, struct pool_task *t)
{
	pthread_mutex_unlock(&p->lock);
	t->run(t);
	pthread_mutex_lock(&p->lock);
	t->next = p->tasks_done;
	p->tasks_done = t;
	pool_tell_loop(p);
}

void *pool_io_main(void *arg)
{
	struct thread *self = arg;
	struct pool *p = self->pool;
	pthread_mutex_lock(&p->lock);
	while (!p->stopping) {
		struct pool_task *task = p->tasks;
		struct pool_ticket *ticket;
		/* Tasks may run for minutes (an index): keep one thread for reads. */
		if (task && (self->number > 0 || p->params.n_io == 1)) {
			p->tasks = task->next;
			p->n_io_busy++;
			run_task(p, task);
			p->n_io_busy--;
		} else if ((ticket = take_to_fetch(p))) {
			p->n_io_busy++;
			fetch_one(p, ticket);
			p->n_io_busy--;
		} else {
			p->n_io_sleeping++;
			pthread_cond_wait(&p->io, &p->lock);
			p->n_io_sleeping--;
		}
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}
