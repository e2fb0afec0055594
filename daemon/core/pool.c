/* See pool.h. The awkward corner is parking: a taken row is either with a worker, with an I/O thread, or in its queue's
 * `fetched` list, and in each case counted in job->n_open, so that a job is done exactly when all rows are taken (or it
 * is cancelled) and n_open is 0. Whoever makes that true moves the job to the done list, once (`finished`).
 *
 * Why a mutex and not lock-free queues: a row of pixels takes some 700 us, taking the mutex 20 ns; rows of arrays are
 * taken in chunks. */
#include "core/pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

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
	int wake_fd;           /* an eventfd: uv_async_send would have the loop spin until the sender, which it may
	                        * just have preempted, runs again */
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
	unsigned n_sleeping, n_waking; /* together exactly who is in pthread_cond_wait(&p->work); the latter have
	                                * been signalled */
	uint64_t waking_since_ns;      /* while n_waking: since when the last of them was */
	unsigned target, n_io_sleeping, n_busy, n_io_busy;
	uint64_t n_rows, n_parked, n_wakes;
	bool told;             /* the loop has been woken and has not drained since */
	bool stopping;

	struct pool_ticket *tickets; /* all of them */
	void (*on_closed)(void *arg);
	void *on_closed_arg;
};

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- under the lock ---- */

/* Whether a worker is to be woken for new work, by pthread_cond_signal(&p->work) as soon as the lock is free. One at a
 * time is enough: whoever has been woken looks at everything there is, and wakes the next (worker_main) when there is
 * more than it takes. So who brings work pays for one wake-up and no more. */
static bool must_wake(struct pool *p)
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
	if (must_wake(p))
		pthread_cond_signal(&p->work);
}

/* Wakes the loop to drain, once until it has. */
static void tell_loop(struct pool *p)
{
	uint64_t one = 1;
	if (p->told)
		return;
	p->told = true;
	while (write(p->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void unlink_job(struct pool_queue *q, struct pool_job *job)
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

/* Moves the job to the done list if nothing of it is left to do. Returns whether the loop must be told now (wake-ups
 * merge, so twice does no harm). */
static bool finish_if_done(struct pool *p, struct pool_job *job)
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

/* A queue may have as many tickets as it leaves free: alone it gets half of them, two get a third each, and there are
 * always some for one whose files are at hand, however slow the others' disks are. Who has none may always try; a row
 * that then finds no ticket waits in the worker. */
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

/* Fetched rows and new ones in turn: a new row that has to be parked costs next to nothing, and keeps the disk as busy
 * as the decoders. */
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
		unlink_job(q, job);
	return true;
}

static void give_ticket_back(struct pool *p, struct pool_ticket *t)
{
	t->job->queue->n_tickets--;
	t->next = p->free_tickets;
	p->free_tickets = t;
	p->n_free_tickets++;
}

/* Hands the row to an I/O thread. False when every ticket is out: then the worker has to wait itself, which bounds the
 * memory. */
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
	bool wake = p->n_sleeping > 0 && pick_queue(p) && must_wake(p);
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
		tell = finish_if_done(p, job);
	}
	if (tell)
		tell_loop(p);
}

static void *worker_main(void *arg)
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

/* The first row to fetch whose queue has no I/O thread yet, or fewer than three times as many as it would leave free: a
 * disk that does not answer at all holds up who reads from it, and nobody else. */
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
		if (finish_if_done(p, job))
			tell_loop(p);
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
	tell_loop(p);
}

static void *io_main(void *arg)
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

/* ---- the loop thread ---- */

static void finish_tasks(struct pool *p);

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
}

void pool_drain(struct pool *p)
{
	pthread_mutex_lock(&p->lock);
	struct pool_job *jobs = p->done;
	p->done = NULL;
	p->told = false;
	pthread_mutex_unlock(&p->lock);
	while (jobs) {
		struct pool_job *next = jobs->next;
		jobs->next = NULL;
		jobs->ops->done(jobs);
		jobs = next;
	}
}

/* Not part of pool_drain: a task's end may end the very session that the caller of that is busy with. */
static void finish_tasks(struct pool *p)
{
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

static int start_threads(struct pool *p, struct thread *threads, unsigned n, void *(*main_fn)(void *))
{
	for (unsigned i = 0; i < n; i++) {
		threads[i].pool = p;
		threads[i].number = i;
		int r = pthread_create(&threads[i].id, NULL, main_fn, &threads[i]);
		if (r)
			return -r;
		/* for top, perf and debuggers */
		pthread_setname_np(threads[i].id, main_fn == worker_main ? "batchd-worker" : "batchd-io");
		threads[i].started = true;
	}
	return 0;
}

static void join_threads(struct thread *threads, unsigned n)
{
	for (unsigned i = 0; threads && i < n; i++) {
		if (threads[i].started)
			pthread_join(threads[i].id, NULL);
	}
}

static void stop_threads(struct pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->work);
	pthread_cond_broadcast(&p->spare);
	pthread_cond_broadcast(&p->io);
	pthread_mutex_unlock(&p->lock);
	join_threads(p->workers, p->params.max_workers);
	join_threads(p->io_threads, p->params.n_io);
}

static void free_pool(struct pool *p)
{
	for (unsigned i = 0; p->tickets && i < p->params.n_tickets; i++) {
		if (p->tickets[i].input)
			p->params.input_destroy(p->tickets[i].input);
	}
	for (unsigned i = 0; p->workers && i < p->params.max_workers; i++) {
		if (p->workers[i].worker)
			p->params.worker_destroy(p->workers[i].worker);
	}
	if (p->wake_fd >= 0)
		close(p->wake_fd);
	pthread_cond_destroy(&p->io);
	pthread_cond_destroy(&p->spare);
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	free(p->tickets);
	free(p->workers);
	free(p->io_threads);
	free(p);
}

static void on_poll_closed(uv_handle_t *h)
{
	struct pool *p = h->data;
	void (*fn)(void *) = p->on_closed;
	void *arg = p->on_closed_arg;
	free_pool(p);
	if (fn)
		fn(arg);
}

static int make_workers(struct pool *p)
{
	for (unsigned i = 0; i < p->params.max_workers; i++) {
		p->workers[i].worker = p->params.worker_create(p->params.arg);
		if (!p->workers[i].worker)
			return -ENOMEM;
	}
	return 0;
}

static int make_tickets(struct pool *p)
{
	for (unsigned i = 0; i < p->params.n_tickets; i++) {
		struct pool_ticket *t = &p->tickets[i];
		t->input = p->params.input_create(p->params.arg);
		if (!t->input)
			return -ENOMEM;
		t->next = p->free_tickets;
		p->free_tickets = t;
		p->n_free_tickets++;
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
	struct pool *p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->wake_fd = -1;
	p->params = *params;
	p->target = params->max_workers;
	p->to_fetch_end = &p->to_fetch;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->spare, NULL);
	pthread_cond_init(&p->io, NULL);
	p->workers = calloc(params->max_workers, sizeof(*p->workers));
	p->io_threads = calloc(params->n_io, sizeof(*p->io_threads));
	p->tickets = calloc(params->n_tickets ? params->n_tickets : 1, sizeof(*p->tickets));
	int r = p->workers && p->io_threads && p->tickets ? make_tickets(p) : -ENOMEM;
	if (r == 0)
		r = make_workers(p);
	if (r == 0)
		r = start_listening(p, loop);
	if (r) {
		free_pool(p);
		return r;
	}
	/* Signals are the loop thread's business. */
	sigset_t all, old;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = start_threads(p, p->workers, params->max_workers, worker_main);
	if (r == 0)
		r = start_threads(p, p->io_threads, params->n_io, io_main);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		pool_close(p, NULL, NULL);
		return r;
	}
	*out = p;
	return 0;
}

void pool_close(struct pool *p, void (*on_closed)(void *arg), void *arg)
{
	stop_threads(p);
	assert(!p->queues && !p->done && !p->tasks && !p->tasks_done);
	p->on_closed = on_closed;
	p->on_closed_arg = arg;
	uv_close((uv_handle_t *)&p->poll, on_poll_closed);
}

/* A queue that begins to have work starts level with the working one served least, or it would have the machine to
 * itself until it had caught up with what it did not ask for. */
static void catch_up(struct pool *p, struct pool_queue *q)
{
	uint64_t least = UINT64_MAX;
	for (struct pool_queue *other = p->queues; other; other = other->next) {
		if (other != q && (other->first || other->n_busy) && other->served_ns < least)
			least = other->served_ns;
	}
	if (least != UINT64_MAX && least > q->served_ns)
		q->served_ns = least;
}

void pool_queue_add(struct pool *p, struct pool_queue *q, unsigned max_busy)
{
	*q = (struct pool_queue){ .max_busy = max_busy, .waited_for = true };
	pthread_mutex_lock(&p->lock);
	q->next = p->queues;
	p->queues = q;
	pthread_mutex_unlock(&p->lock);
}

void pool_queue_remove(struct pool *p, struct pool_queue *q)
{
	pthread_mutex_lock(&p->lock);
	assert(!q->first && !q->fetched && !q->n_busy);
	struct pool_queue **at = &p->queues;
	while (*at && *at != q)
		at = &(*at)->next;
	if (*at)
		*at = q->next;
	pthread_mutex_unlock(&p->lock);
}

void pool_queue_set_urgency(struct pool *p, struct pool_queue *q, int n_ready, bool waited_for)
{
	pthread_mutex_lock(&p->lock);
	q->n_ready = n_ready;
	q->waited_for = waited_for;
	if (waited_for && p->done) /* done while nobody waited yet */
		tell_loop(p);
	pthread_mutex_unlock(&p->lock);
}

void pool_submit(struct pool *p, struct pool_queue *q, struct pool_job *job)
{
	assert(job->n_rows > 0 && job->chunk > 0);
	job->queue = q;
	job->next = NULL;
	job->n_taken = job->n_open = 0;
	job->cancelled = job->finished = false;
	pthread_mutex_lock(&p->lock);
	if (!q->first && !q->fetched && !q->n_busy)
		catch_up(p, q);
	if (q->first)
		q->last->next = job;
	else
		q->first = job;
	q->last = job;
	bool wake = must_wake(p);
	pthread_mutex_unlock(&p->lock);
	if (wake)
		pthread_cond_signal(&p->work);
}

void pool_cancel(struct pool *p, struct pool_job *job)
{
	pthread_mutex_lock(&p->lock);
	bool tell = job->finished; /* perhaps nobody was woken for it */
	if (!tell) {
		job->cancelled = true;
		unlink_job(job->queue, job);
		tell = finish_if_done(p, job);
	}
	if (tell)
		tell_loop(p);
	pthread_mutex_unlock(&p->lock);
}

bool pool_is_finished(struct pool *p, const struct pool_job *job)
{
	pthread_mutex_lock(&p->lock);
	bool finished = job->finished;
	pthread_mutex_unlock(&p->lock);
	return finished;
}

void pool_run_task(struct pool *p, struct pool_task *t)
{
	pthread_mutex_lock(&p->lock);
	t->next = NULL;
	if (p->tasks)
		p->tasks_last->next = t;
	else
		p->tasks = t;
	p->tasks_last = t;
	/* Thread 0 does not take tasks: wake them all rather than maybe only that one. */
	pthread_cond_broadcast(&p->io);
	pthread_mutex_unlock(&p->lock);
}

void pool_set_target(struct pool *p, unsigned n)
{
	pthread_mutex_lock(&p->lock);
	p->target = n < 1 ? 1 : n > p->params.max_workers ? p->params.max_workers : n;
	p->n_waking += p->n_sleeping;
	p->n_sleeping = 0;
	p->waking_since_ns = now_ns();
	pthread_cond_broadcast(&p->work);
	pthread_cond_broadcast(&p->spare);
	pthread_mutex_unlock(&p->lock);
}

void pool_get_stats(struct pool *p, struct pool_stats *s)
{
	uint64_t now = now_ns();
	pthread_mutex_lock(&p->lock);
	*s = (struct pool_stats){ .max = p->params.max_workers, .target = p->target, .busy = p->n_busy,
				  .n_io = p->params.n_io, .io_busy = p->n_io_busy, .n_rows = p->n_rows,
				  .n_parked = p->n_parked, .n_wakes = p->n_wakes };
	for (unsigned i = 0; i < p->params.max_workers; i++) {
		uint64_t since = p->workers[i].busy_since_ns;
		if (since && now > since && now - since > s->oldest_busy_ns)
			s->oldest_busy_ns = now - since;
	}
	/* Everybody relies on the one that has been woken to wake the next. */
	if (p->n_waking && now > p->waking_since_ns && now - p->waking_since_ns > s->oldest_busy_ns)
		s->oldest_busy_ns = now - p->waking_since_ns;
	pthread_mutex_unlock(&p->lock);
}
