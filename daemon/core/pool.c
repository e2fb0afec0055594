/* See pool.h. The awkward corner is parking: a taken row is either with a worker, with an I/O thread, in its queue's
 * `fetched` list, or its queue's `returned` row, and in each case counted in job->n_open, so that a job is done exactly
 * when all rows are taken (or it is cancelled) and n_open is 0. Whoever makes that true moves the job to the done list,
 * once (`finished`).
 *
 * No worker ever waits for a disk. A worker that takes a new row reserves a ticket for it. Where a queue may not have
 * one more, one worker at a time tries a row without: what is in memory needs no ticket. A row that turns out to need
 * one is then returned to its queue, which gives out no other until it has got a ticket (`starved`).
 *
 * Why a mutex and not lock-free queues: a row of pixels takes some 700 us, taking the mutex 20 ns; rows of arrays are
 * taken in chunks.
 *
 * Relief: one of the relief threads is the watcher. While several users have queues and there is work it looks every
 * WATCH_NS whether rows have been in work for so long that a user is kept from its share. Then it takes a row of that
 * user, and another relief thread becomes the watcher. It sleeps for good when the pool has been idle for a while, or
 * has one user, so that a pool that nobody shares never has a wake-up more. */
#include "core/pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
	SLOW_NS = 30000000,       /* a row in work for longer takes long */
	WATCH_NS = 30000000,
	IDLE_WATCHES = 32,        /* before the watcher sleeps for good: work comes in bursts */
	/* Worker time: */
	FIRST_BATCH_NS = 100000000, /* what a batch takes, until one was made */
	CREDIT_NS = 400000000,    /* how far behind the others a queue may be and still catch up */
};

struct thread {
	pthread_t id;
	struct pool *pool;
	unsigned number;
	bool started;
	void *worker;           /* pool_params.worker_create's; workers only */
	uint64_t busy_since_ns; /* 0: idle; under the lock */
};

/* A file system for which a server answers: another machine, or a process. */
struct pool_filesystem {
	struct pool_filesystem *next;
	uint64_t number;
	unsigned n_queues;     /* freed at 0 */
	struct pool_reads reads;
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
	pthread_cond_t watch;  /* for the watcher */
	pthread_cond_t relief; /* for the other relief threads */
	struct thread *workers, *io_threads; /* workers: max_workers of them, then as many relief threads */
	struct pool_owner *owners; /* the loop thread's */

	/* under the lock */
	struct pool_queue *queues;     /* those that are listed */
	uint64_t level_ns;     /* the most worker time that a queue had received when a row of it was taken */
	unsigned n_owners, n_listed_owners; /* users with queues; with listed ones */
	struct pool_ticket *free_tickets, *to_fetch, **to_fetch_end;
	unsigned n_free_tickets;
	unsigned n_reserved;   /* tickets that rows in work may take; never more than are free */
	struct pool_filesystem *filesystems, any; /* the last where memory is short */
	struct pool_reads far; /* of queues that have a file system */
	struct pool_queue *starved;
	struct pool_task *tasks, *tasks_last, *tasks_done;
	struct pool_job *done;
	unsigned n_sleeping, n_waking; /* together exactly who is in pthread_cond_wait(&p->work); the latter have
	                                * been signalled */
	uint64_t waking_since_ns;      /* while n_waking: since when the last of them was */
	unsigned target, n_io_sleeping, n_busy, n_io_busy;
	uint64_t n_rows, n_parked, n_wakes;
	bool told;             /* the loop has been woken and has not drained since */
	bool watching, watch_asleep; /* there is a watcher; it waits to be woken */
	unsigned n_idle_watches;
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

/* The same for the watcher and &p->watch. */
static bool must_wake_watch(struct pool *p)
{
	if (!p->watch_asleep || p->n_owners < 2)
		return false;
	p->watch_asleep = false;
	p->n_idle_watches = 0;
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

/* A queue is in the list exactly while it has rows to take, fetched rows or rows in work; so what is walked per row is
 * as long as there is work, whatever else there is. */
static void list_or_unlist(struct pool *p, struct pool_queue *q)
{
	bool listed = q->first || q->fetched || q->n_busy;
	if (listed == q->listed)
		return;
	q->listed = listed;
	if (listed) {
		q->previous = NULL;
		q->next = p->queues;
		if (p->queues)
			p->queues->previous = q;
		p->queues = q;
		p->n_listed_owners += q->owner->n_listed++ == 0;
		return;
	}
	*(q->previous ? &q->previous->next : &p->queues) = q->next;
	if (q->next)
		q->next->previous = q->previous;
	p->n_listed_owners -= --q->owner->n_listed == 0;
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

/* How long n rows have been in work together. `now` may be older than the youngest: it was taken before the lock. */
static uint64_t elapsed(unsigned n, uint64_t begun_ns, uint64_t now)
{
	int64_t ns = (int64_t)(n * now - begun_ns);
	return ns > 0 ? (uint64_t)ns : 0;
}

/* Worker time of a queue, rows in work included. */
static uint64_t served(const struct pool_queue *q, uint64_t now)
{
	return q->served_ns + elapsed(q->n_busy, q->begun_ns, now);
}

/* How many workers are one user's share, while several have work. */
static unsigned share(const struct pool *p)
{
	unsigned n = p->n_listed_owners > 1 ? p->target / p->n_listed_owners : p->target;
	return n ? n : 1;
}

/* Its rows in work take long, and it has its share of the workers. */
static bool has_enough(const struct pool_owner *o, unsigned share, uint64_t now)
{
	return o->n_busy >= share && elapsed(o->n_busy, o->begun_ns, now) > (uint64_t)o->n_busy * SLOW_NS;
}

/* The queue with the least is next: start-time fair queueing (Goyal, Vin, Cheng 1996) by worker time. Batches that are
 * ready count as service received, so a queue without any goes first, but not for ever: what the pool knows of them may
 * be old, as a trainer that goes to sleep does not always say so. A queue that wants less than its share gets all that
 * it wants, however many others have no batch ready. */
static uint64_t turn(const struct pool *p, const struct pool_queue *q, uint64_t now)
{
	uint64_t at = served(q, now) + CREDIT_NS, ready_ns = (uint64_t)q->n_ready * (uint64_t)q->batch_ns;
	return (at > p->level_ns ? at : p->level_ns) + (ready_ns < CREDIT_NS ? ready_ns : CREDIT_NS);
}

static bool more_urgent(const struct pool *p, const struct pool_queue *a, const struct pool_queue *b, uint64_t now)
{
	if (a->owner != b->owner) {
		bool enough = has_enough(a->owner, share(p), now);
		if (enough != has_enough(b->owner, share(p), now))
			return !enough;
	}
	return turn(p, a, now) < turn(p, b, now);
}

/* How many tickets, and how many I/O threads, queues with a file system may have together: the rest is for queues whose files
 * are on local disks, however many other machines hang. */
static unsigned far_tickets(const struct pool *p)
{
	return p->params.n_tickets > 1 ? p->params.n_tickets / 2 : 1;
}

static unsigned far_threads(const struct pool *p)
{
	unsigned n = p->params.n_io * 5 / 8;
	return n > 0 ? n : 1;
}

/* A queue may have as many tickets as it leaves free: alone it gets half of them, two get a third each, and there are
 * always some for one whose files are at hand, however slow the others' disks are. One of several users leaves a quarter
 * to the others, however many queues it has: its disk may never answer. Where a server has to answer, a user and a file
 * system leave as many free as they have: neither many jobs nor many mounts get more. */
static bool may_have_ticket(const struct pool *p, const struct pool_queue *q)
{
	unsigned left = p->n_free_tickets - p->n_reserved;
	unsigned owned = q->owner->reads.n_tickets;
	if (p->n_owners > 1 && owned > 0 && owned >= 3 * left)
		return false;
	if (!q->filesystem)
		return q->reads.n_tickets < left;
	unsigned far = far_tickets(p);
	unsigned far_left = p->far.n_tickets < far ? far - p->far.n_tickets : 0;
	left = left < far_left ? left : far_left;
	return q->reads.n_tickets < left && q->owner->far.n_tickets < left && q->filesystem->reads.n_tickets < left;
}

/* A queue without tickets may always try, with one worker. */
static bool may_take_new(const struct pool *p, const struct pool_queue *q)
{
	if (!q->first)
		return false;
	if (!q->first->ops->fetch)
		return true;
	return !q->returned.job && (may_have_ticket(p, q) || (q->reads.n_tickets == 0 && q->n_trying == 0));
}

static bool has_rows(const struct pool *p, const struct pool_queue *q)
{
	return (q->fetched || may_take_new(p, q)) && (!q->max_busy || q->n_busy < q->max_busy);
}

static struct pool_queue *pick_queue(const struct pool *p, uint64_t now)
{
	struct pool_queue *best = NULL;
	for (struct pool_queue *q = p->queues; q; q = q->next) {
		if (has_rows(p, q) && (!best || more_urgent(p, q, best, now)))
			best = q;
	}
	return best;
}

static bool any_has_rows(const struct pool *p)
{
	const struct pool_queue *q = p->queues;
	while (q && !has_rows(p, q))
		q = q->next;
	return q != NULL;
}

/* For a relief thread: a queue of a user that rows that take long keep from its share of the workers. Threads that are
 * in long rows go on beside the relief threads, so that it takes as many of these for a user to have its share of the
 * processors. */
static struct pool_queue *pick_deprived(const struct pool *p, uint64_t now)
{
	struct pool_queue *best = NULL;
	unsigned n_slow = 0;
	for (unsigned i = 0; i < 2 * p->params.max_workers; i++) {
		uint64_t since = p->workers[i].busy_since_ns;
		n_slow += since && now > since + SLOW_NS;
	}
	if (p->n_listed_owners < 2 || !n_slow || p->n_busy - n_slow >= p->target)
		return NULL; /* nobody to share with, or as many get on as there are to be */
	unsigned most = n_slow / (p->n_listed_owners - 1) > share(p) ? n_slow / (p->n_listed_owners - 1) : share(p);
	for (struct pool_queue *q = p->queues; q; q = q->next) {
		if (has_rows(p, q) && q->owner->n_busy < most && (!best || more_urgent(p, q, best, now)))
			best = q;
	}
	return best;
}

/* Fetched rows and new ones in turn: a new row that has to be parked costs next to nothing, and keeps the disk as busy
 * as the decoders. */
static bool take_piece(struct pool *p, struct pool_queue *q, struct pool_piece *out)
{
	bool fetched = q->fetched && !(q->took_fetched && may_take_new(p, q));
	q->took_fetched = fetched;
	if (fetched) {
		struct pool_ticket *t = q->fetched;
		q->fetched = t->next;
		if (!q->fetched)
			q->fetched_last = NULL;
		*out = (struct pool_piece){ .job = t->job, .ticket = t, .first = t->row, .n = t->n };
		return true;
	}
	struct pool_job *job = q->first;
	if (!job)
		return false;
	uint32_t left = job->n_rows - job->n_taken;
	*out = (struct pool_piece){ .job = job, .first = job->n_taken, .n = left < job->chunk ? left : job->chunk };
	if (job->ops->fetch) {
		out->reserved = may_have_ticket(p, q);
		p->n_reserved += out->reserved;
		q->n_trying += !out->reserved;
	}
	job->n_taken += out->n;
	job->n_open += out->n;
	if (job->n_taken == job->n_rows)
		unlink_job(q, job);
	return true;
}

/* The row is made, or will not be: what was held for it is free. */
static void end_try(struct pool *p, struct pool_queue *q, struct pool_piece *piece)
{
	if (piece->ticket || !piece->job->ops->fetch)
		return;
	p->n_reserved -= piece->reserved;
	q->n_trying -= !piece->reserved;
	piece->reserved = false;
}

/* Hands a row with its ticket to an I/O thread. */
static void fetch_later(struct pool *p, struct pool_ticket *t)
{
	t->next = NULL;
	*p->to_fetch_end = t;
	p->to_fetch_end = &t->next;
	p->n_parked++;
	if (p->n_io_sleeping)
		pthread_cond_signal(&p->io);
}

/* By that many more tickets, and more that an I/O thread is at. */
static void count_reads(struct pool *p, struct pool_queue *q, int tickets, int fetching)
{
	struct pool_reads *of[] = { &q->reads, &q->owner->reads, &q->owner->far, &p->far,
				    q->filesystem ? &q->filesystem->reads : NULL };
	unsigned n = q->filesystem ? 5 : 2;
	for (unsigned i = 0; i < n; i++) {
		of[i]->n_tickets += (unsigned)tickets;
		of[i]->n_fetching += (unsigned)fetching;
	}
}

static void park(struct pool *p, struct pool_queue *q, const struct pool_piece *piece)
{
	struct pool_ticket *t = p->free_tickets;
	p->free_tickets = t->next;
	p->n_free_tickets--;
	count_reads(p, q, 1, 0);
	t->job = piece->job;
	t->row = piece->first;
	t->n = piece->n;
	t->stage = t->n_slow = 0;
	fetch_later(p, t);
}

static void unlink_starved(struct pool *p, struct pool_queue *q)
{
	struct pool_queue **at = &p->starved;
	while (*at != q)
		at = &(*at)->next_starved;
	*at = q->next_starved;
	q->returned = (struct pool_piece){ 0 };
}

/* Tickets have become free, or may be taken by others than before. The list is empty unless something hangs. */
static void serve_starved(struct pool *p)
{
	for (struct pool_queue *q = p->starved, *next; q && p->n_free_tickets > p->n_reserved; q = next) {
		next = q->next_starved;
		if (may_have_ticket(p, q)) {
			struct pool_piece piece = q->returned;
			unlink_starved(p, q);
			park(p, q, &piece);
		}
	}
}

static void give_ticket_back(struct pool *p, struct pool_ticket *t)
{
	count_reads(p, t->job->queue, -1, 0);
	t->next = p->free_tickets;
	p->free_tickets = t;
	p->n_free_tickets++;
}

/* A row whose input has to be fetched (again, if it has a ticket). */
static void wait_for_input(struct pool *p, struct pool_queue *q, struct pool_piece *piece)
{
	bool reserved = piece->reserved;
	end_try(p, q, piece);
	if (piece->ticket) {
		fetch_later(p, piece->ticket);
	} else if (reserved || may_have_ticket(p, q)) {
		park(p, q, piece);
	} else {
		struct pool_queue **at = &p->starved;
		while (*at)
			at = &(*at)->next_starved;
		q->returned = *piece;
		q->next_starved = NULL;
		*at = q;
	}
}

/* ---- threads ---- */

/* Not under the lock: it may free much. */
static void drop_input(const struct pool *p, const struct pool_ticket *t)
{
	if (p->params.input_drop)
		p->params.input_drop(t->input);
}

static void begin_work(struct pool *p, struct thread *self, struct pool_queue *q, uint64_t now)
{
	uint64_t start = served(q, now);
	if (start + CREDIT_NS < p->level_ns)
		q->served_ns += p->level_ns - CREDIT_NS - start;
	if (start > p->level_ns)
		p->level_ns = start;
	q->n_busy++;
	q->begun_ns += now;
	q->owner->n_busy++;
	q->owner->begun_ns += now;
	p->n_busy++;
	self->busy_since_ns = now;
}

static void end_work(struct pool *p, struct thread *self, struct pool_queue *q, uint64_t now)
{
	uint64_t begun = self->busy_since_ns;
	q->n_busy--;
	q->begun_ns -= begun;
	q->served_ns += now - begun;
	q->owner->n_busy--;
	q->owner->begun_ns -= begun;
	p->n_busy--;
	self->busy_since_ns = 0;
	list_or_unlist(p, q);
}

static void learn_batch_ns(struct pool_queue *q, const struct pool_job *job, uint64_t row_ns)
{
	q->batch_ns += ((int64_t)(row_ns * job->n_rows) - q->batch_ns) / 8;
}

/* Returns the time. */
static uint64_t run_piece(struct pool *p, struct thread *self, struct pool_queue *q, struct pool_piece *piece,
			  uint64_t now)
{
	void *worker = self->worker;
	struct pool_job *job = piece->job;
	uint64_t begun = now;
	begin_work(p, self, q, now);
	bool skip = job->cancelled;
	bool wake = p->n_sleeping > 0 && any_has_rows(p) && must_wake(p);
	pthread_mutex_unlock(&p->lock);
	if (wake)
		pthread_cond_signal(&p->work);

	if (skip && piece->ticket)
		drop_input(p, piece->ticket);
	int r = skip ? 0 : job->ops->run(job, worker, piece->first, piece->n, piece->ticket);
	now = now_ns();

	pthread_mutex_lock(&p->lock);
	end_work(p, self, q, now);
	bool tell = false;
	if (r == POOL_WOULD_BLOCK && !job->cancelled) {
		wait_for_input(p, q, piece);
	} else {
		end_try(p, q, piece);
		if (piece->ticket)
			give_ticket_back(p, piece->ticket);
		p->n_rows += piece->n;
		job->n_open -= piece->n;
		learn_batch_ns(q, job, (now - begun) / piece->n);
		tell = finish_if_done(p, job);
	}
	if (p->starved)
		serve_starved(p);
	if (tell)
		tell_loop(p);
	return now;
}

static void *worker_main(void *arg)
{
	struct thread *self = arg;
	struct pool *p = self->pool;
	pthread_mutex_lock(&p->lock);
	uint64_t now = now_ns();
	while (!p->stopping) {
		if (self->number >= p->target) {
			if (any_has_rows(p))
				wake_worker(p); /* the wake-up that it may have had was meant for one that works */
			pthread_cond_wait(&p->spare, &p->lock);
			now = now_ns();
			continue;
		}
		struct pool_queue *q = pick_queue(p, now);
		struct pool_piece piece;
		if (q && take_piece(p, q, &piece)) {
			now = run_piece(p, self, q, &piece, now);
			continue;
		}
		p->n_sleeping++;
		pthread_cond_wait(&p->work, &p->lock);
		now = now_ns();
		if (p->n_waking > 0)
			p->n_waking--;
		else
			p->n_sleeping--; /* woken by nobody */
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* ---- relief ---- */

/* Until it is time to look again. */
static void watch(struct pool *p)
{
	struct timespec t;
	p->watching = true;
	p->n_idle_watches = p->queues ? 0 : p->n_idle_watches + 1;
	if (p->n_owners < 2 || p->n_idle_watches > IDLE_WATCHES) {
		p->watch_asleep = true;
		pthread_cond_wait(&p->watch, &p->lock);
		p->watch_asleep = false;
	} else {
		uint64_t at = now_ns() + WATCH_NS;
		t.tv_sec = (time_t)(at / 1000000000);
		t.tv_nsec = (long)(at % 1000000000);
		pthread_cond_timedwait(&p->watch, &p->lock, &t);
	}
	p->watching = false;
}

static void *relief_main(void *arg)
{
	struct thread *self = arg;
	struct pool *p = self->pool;
	pthread_mutex_lock(&p->lock);
	while (!p->stopping) {
		uint64_t now = now_ns();
		struct pool_queue *q = pick_deprived(p, now);
		struct pool_piece piece;
		if (q && take_piece(p, q, &piece)) {
			pthread_cond_signal(&p->relief); /* for another to be the watcher */
			run_piece(p, self, q, &piece, now);
		} else if (p->watching) {
			pthread_cond_wait(&p->relief, &p->lock);
		} else {
			watch(p);
		}
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* ---- I/O threads ---- */

/* A queue, and its user if there are several, has no I/O thread yet, or fewer than three times as many as it would leave
 * free: a disk that does not answer at all holds up those who read from it, and no other user, however many queues read
 * from it. The same for users and file systems where a server has to answer, within the threads that are for those. */
static bool may_fetch(const struct pool *p, const struct pool_ticket *t)
{
	const struct pool_queue *q = t->job->queue;
	unsigned left = p->params.n_io - p->n_io_busy - 1;
	unsigned n = q->reads.n_fetching, owned = q->owner->reads.n_fetching;
	if ((n > 0 && n >= 3 * left) || (p->n_owners > 1 && owned > 0 && owned >= 3 * left))
		return false;
	if (!q->filesystem)
		return true;
	unsigned far = far_threads(p);
	unsigned far_left = p->far.n_fetching < far ? far - p->far.n_fetching : 0;
	return q->owner->far.n_fetching < 3 * far_left && q->filesystem->reads.n_fetching < 3 * far_left;
}

static struct pool_ticket *take_to_fetch(struct pool *p)
{
	for (struct pool_ticket **at = &p->to_fetch; *at; at = &(*at)->next) {
		struct pool_ticket *t = *at;
		if (!may_fetch(p, t))
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
	count_reads(p, job->queue, 0, 1);
	pthread_mutex_unlock(&p->lock);
	if (!skip)
		job->ops->fetch(job, t);
	pthread_mutex_lock(&p->lock);
	count_reads(p, job->queue, 0, -1);
	if (job->cancelled) {
		uint32_t n = t->n;
		pthread_mutex_unlock(&p->lock);
		drop_input(p, t);
		pthread_mutex_lock(&p->lock);
		give_ticket_back(p, t);
		job->n_open -= n;
		if (finish_if_done(p, job))
			tell_loop(p);
		if (p->starved)
			serve_starved(p);
		wake_worker(p); /* somebody may have waited for the ticket */
		return;
	}
	struct pool_queue *q = job->queue;
	t->next = NULL;
	*(q->fetched ? &q->fetched_last->next : &q->fetched) = t;
	q->fetched_last = t;
	list_or_unlist(p, q);
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
		pthread_setname_np(threads[i].id, main_fn == worker_main   ? "batchd-worker"
						  : main_fn == relief_main ? "batchd-relief"
									   : "batchd-io");
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
	pthread_cond_broadcast(&p->watch);
	pthread_cond_broadcast(&p->relief);
	pthread_mutex_unlock(&p->lock);
	join_threads(p->workers, 2 * p->params.max_workers);
	join_threads(p->io_threads, p->params.n_io);
}

static void free_pool(struct pool *p)
{
	for (unsigned i = 0; p->tickets && i < p->params.n_tickets; i++) {
		if (p->tickets[i].input)
			p->params.input_destroy(p->tickets[i].input);
	}
	for (unsigned i = 0; p->workers && i < 2 * p->params.max_workers; i++) {
		if (p->workers[i].worker)
			p->params.worker_destroy(p->workers[i].worker);
	}
	if (p->wake_fd >= 0)
		close(p->wake_fd);
	pthread_cond_destroy(&p->relief);
	pthread_cond_destroy(&p->watch);
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
	for (unsigned i = 0; i < 2 * p->params.max_workers; i++) {
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
	pthread_cond_init(&p->relief, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->watch, &attr);
	pthread_condattr_destroy(&attr);
	p->workers = calloc((size_t)2 * params->max_workers, sizeof(*p->workers));
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
		r = start_threads(p, p->workers + params->max_workers, params->max_workers, relief_main);
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
	assert(!p->owners && !p->queues && !p->done && !p->tasks && !p->tasks_done);
	p->on_closed = on_closed;
	p->on_closed_arg = arg;
	uv_close((uv_handle_t *)&p->poll, on_poll_closed);
}

static struct pool_owner *find_or_make_owner(struct pool *p, uid_t uid)
{
	struct pool_owner *o = p->owners;
	while (o && o->uid != uid)
		o = o->next;
	if (o || !(o = calloc(1, sizeof(*o))))
		return o;
	o->uid = uid;
	o->next = p->owners;
	p->owners = o;
	return o;
}

int pool_queue_add(struct pool *p, struct pool_queue *q, unsigned max_busy, uid_t owner)
{
	struct pool_owner *o = find_or_make_owner(p, owner);
	if (!o)
		return -ENOMEM;
	*q = (struct pool_queue){ .owner = o, .max_busy = max_busy, .waited_for = true, .batch_ns = FIRST_BATCH_NS };
	if (o->n_queues++ == 0) {
		pthread_mutex_lock(&p->lock);
		p->n_owners++;
		pthread_mutex_unlock(&p->lock);
	}
	return 0;
}

static struct pool_filesystem *join_filesystem(struct pool *p, uint64_t number)
{
	struct pool_filesystem *f = p->filesystems;
	while (f && f->number != number)
		f = f->next;
	if (!f && (f = calloc(1, sizeof(*f)))) {
		*f = (struct pool_filesystem){ .next = p->filesystems, .number = number };
		p->filesystems = f;
	}
	f = f ? f : &p->any;
	f->n_queues++;
	return f;
}

static void leave_filesystem(struct pool *p, struct pool_filesystem *f)
{
	struct pool_filesystem **at = &p->filesystems;
	if (!f || --f->n_queues > 0 || f == &p->any)
		return;
	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	free(f);
}

void pool_queue_set_origin(struct pool *p, struct pool_queue *q, uint64_t filesystem)
{
	pthread_mutex_lock(&p->lock);
	assert(!q->filesystem && !q->first && !q->reads.n_tickets);
	q->filesystem = join_filesystem(p, filesystem);
	pthread_mutex_unlock(&p->lock);
}

void pool_queue_remove(struct pool *p, struct pool_queue *q)
{
	struct pool_owner *o = q->owner, **at = &p->owners;
	pthread_mutex_lock(&p->lock);
	assert(!q->listed && !q->reads.n_tickets && !q->returned.job);
	leave_filesystem(p, q->filesystem);
	p->n_owners -= o->n_queues == 1;
	pthread_mutex_unlock(&p->lock);
	if (--o->n_queues > 0)
		return;
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	free(o);
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
	/* A queue that begins to have work starts level with the others, or it would have the machine to itself until it
	 * had caught up with what it did not ask for. */
	if (!q->listed && q->served_ns < p->level_ns)
		q->served_ns = p->level_ns;
	if (q->first)
		q->last->next = job;
	else
		q->first = job;
	q->last = job;
	list_or_unlist(p, q);
	bool wake = must_wake(p), watch = must_wake_watch(p);
	pthread_mutex_unlock(&p->lock);
	if (wake)
		pthread_cond_signal(&p->work);
	if (watch)
		pthread_cond_signal(&p->watch);
}

void pool_cancel(struct pool *p, struct pool_job *job)
{
	pthread_mutex_lock(&p->lock);
	bool tell = job->finished; /* perhaps nobody was woken for it */
	if (!tell) {
		job->cancelled = true;
		unlink_job(job->queue, job);
		list_or_unlist(p, job->queue);
		if (job->queue->returned.job == job) {
			job->n_open -= job->queue->returned.n;
			unlink_starved(p, job->queue);
		}
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

void pool_call(struct pool *p, struct pool_task *t)
{
	pthread_mutex_lock(&p->lock);
	t->next = p->tasks_done;
	p->tasks_done = t;
	tell_loop(p);
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
	for (unsigned i = 0; i < 2 * p->params.max_workers; i++) {
		uint64_t since = p->workers[i].busy_since_ns;
		if (since && now > since && now - since > s->oldest_busy_ns)
			s->oldest_busy_ns = now - since;
	}
	/* Everybody relies on the one that has been woken to wake the next. */
	if (p->n_waking && now > p->waking_since_ns && now - p->waking_since_ns > s->oldest_busy_ns)
		s->oldest_busy_ns = now - p->waking_since_ns;
	pthread_mutex_unlock(&p->lock);
}
