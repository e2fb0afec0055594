/* Which queue is picked, and that a pick costs little with many queues: the scheduler alone, without threads and with a
 * clock of the test's. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/pool-order.h"
#include "core/pool-queues.h"
#include "core/pool-tickets.h"
#include "core/pool-turns.h"
#include "suite.h"

enum { MOST_QUEUES = 2000, USERS = 5, WORKERS = 6, TICKETS = 8, MS = 1000000, SLOW_MS = 30, CREDIT_MS = 400 };

struct fixture {
	struct pool pool;
	struct pool_thread threads[2 * WORKERS];
	struct pool_piece pieces[2 * WORKERS]; /* of threads that are at work */
	struct pool_queue *on[2 * WORKERS];
	struct pool_queue queues[MOST_QUEUES];
	struct pool_job jobs[MOST_QUEUES];
	unsigned n;
	uint64_t now;
};

static int run_row(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	(void)job, (void)worker, (void)first, (void)n, (void)ticket;
	return 0;
}

static void fetch_row(struct pool_job *job, struct pool_ticket *ticket)
{
	(void)job, (void)ticket;
}

static const struct pool_job_ops in_memory = { .run = run_row }, from_disk = { .run = run_row, .fetch = fetch_row };

static uint32_t draw(uint32_t n)
{
	static uint64_t state = 1;
	state = state * 6364136223846793005U + 1442695040888963407U;
	return (uint32_t)(state >> 33) % n;
}

static struct fixture *setup(unsigned n, unsigned n_users)
{
	struct fixture *f = calloc(1, sizeof(*f));
	ck_assert_ptr_nonnull(f);
	struct pool *p = &f->pool;
	p->params = (struct pool_params){ .max_workers = WORKERS, .n_io = 2, .n_tickets = TICKETS };
	p->target = WORKERS;
	p->n_free_tickets = TICKETS;
	p->workers = f->threads;
	pthread_mutex_init(&p->lock, NULL);
	f->n = n;
	f->now = 1000000 * (uint64_t)MS;
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(pool_queue_add(p, &f->queues[i], 0, i % n_users), 0);
	return f;
}

static void teardown(struct fixture *f)
{
	for (unsigned i = 0; i < f->n; i++) {
		f->queues[i].first = f->queues[i].last = NULL;
		pool_list_or_unlist(&f->pool, &f->queues[i]);
		pool_queue_remove(&f->pool, &f->queues[i]);
	}
	ck_assert_ptr_null(f->pool.owners);
	ck_assert_ptr_null(f->pool.queues);
	ck_assert_ptr_null(f->pool.owners_ready.first);
	pthread_mutex_destroy(&f->pool.lock);
	free(f);
}

/* As pool_submit does. */
static void submit(struct fixture *f, unsigned i, const struct pool_job_ops *ops, uint32_t n_rows)
{
	struct pool_queue *q = &f->queues[i];
	struct pool_job *job = &f->jobs[i];
	*job = (struct pool_job){ .ops = ops, .n_rows = n_rows, .chunk = 1, .queue = q };
	if (!q->listed)
		pool_catch_up(&f->pool, q);
	q->first = q->last = job;
	pool_list_or_unlist(&f->pool, q);
}

static void begin(struct fixture *f, unsigned thread, struct pool_queue *q)
{
	ck_assert(pool_take_piece(&f->pool, &f->threads[thread], q, &f->pieces[thread]));
	pool_begin_work(&f->pool, &f->threads[thread], q, f->now);
	f->on[thread] = q;
}

static void end(struct fixture *f, unsigned thread)
{
	struct pool_queue *q = f->on[thread];
	struct pool_piece *piece = &f->pieces[thread];
	uint64_t row_ns = f->now - f->threads[thread].busy_since_ns;
	pool_end_work(&f->pool, &f->threads[thread], q, f->now);
	pool_end_try(&f->pool, q, piece);
	piece->job->n_open--;
	pool_learn_batch_ns(q, piece->job, row_ns);
	pool_list_or_unlist(&f->pool, q);
	f->on[thread] = NULL;
}

/* ---- the definition ---- */

static uint64_t elapsed(unsigned n, uint64_t begun_ns, uint64_t now)
{
	return (int64_t)(n * now - begun_ns) > 0 ? n * now - begun_ns : 0;
}

static uint64_t turn_of(const struct fixture *f, const struct pool_queue *q)
{
	uint64_t credit = CREDIT_MS * (uint64_t)MS, ready = (uint64_t)q->n_ready * (uint64_t)q->batch_ns;
	uint64_t at = q->served_ns + elapsed(q->n_busy, q->begun_ns, f->now) + credit;
	return (at > f->pool.level_ns ? at : f->pool.level_ns) + (ready < credit ? ready : credit);
}

static bool is_last(const struct fixture *f, const struct pool_owner *o)
{
	unsigned n = f->pool.n_listed_owners, share = n > 1 ? f->pool.target / n : f->pool.target;
	return n > 1 && o->n_busy >= (share ? share : 1) &&
	       elapsed(o->n_busy, o->begun_ns, f->now) > o->n_busy * (uint64_t)(SLOW_MS * MS);
}

static bool may_take(const struct fixture *f, const struct pool_queue *q)
{
	if (!q->first || (q->max_busy && q->n_busy >= q->max_busy))
		return false;
	return !q->first->ops->fetch || pool_may_have_ticket(&f->pool, q) || (!q->reads.n_tickets && !q->n_trying);
}

/* Whether the picked queue is one that a search of all queues could have found. */
static void expect_first(const struct fixture *f, const struct pool_queue *picked)
{
	const struct pool_queue *best = NULL;
	bool best_last = false;
	for (unsigned i = 0; i < f->n; i++) {
		const struct pool_queue *q = &f->queues[i];
		if (!may_take(f, q))
			continue;
		bool last = is_last(f, q->owner);
		if (best && (last > best_last || (last == best_last && turn_of(f, q) >= turn_of(f, best))))
			continue;
		best = q;
		best_last = last;
	}
	ck_assert_int_eq(picked != NULL, best != NULL);
	if (!best)
		return;
	ck_assert(may_take(f, picked));
	ck_assert_int_eq(is_last(f, picked->owner), best_last);
	ck_assert_uint_eq(turn_of(f, picked), turn_of(f, best));
}

/* ---- tests ---- */

static void change(struct fixture *f)
{
	unsigned i = draw(f->n), thread = draw(2 * WORKERS);
	struct pool_queue *q = &f->queues[i];
	switch (draw(6)) {
	case 0:
		if (!q->first && !q->n_busy)
			submit(f, i, draw(2) ? &in_memory : &from_disk, 1 + draw(8));
		break;
	case 1:
		q->n_ready = (int)draw(4);
		pool_order_update(&f->pool, q);
		break;
	case 2: /* tickets come and go without the queue's doing */
		f->pool.n_free_tickets = f->pool.n_reserved + draw(TICKETS + 1 - f->pool.n_reserved);
		break;
	case 3:
		f->pool.target = 1 + draw(WORKERS);
		break;
	case 4:
		q->max_busy = draw(3);
		pool_list_or_unlist(&f->pool, q);
		break;
	default:
		if (f->on[thread])
			end(f, thread);
	}
}

static void follow_the_definition(unsigned n, unsigned n_users, unsigned steps)
{
	struct fixture *f = setup(n, n_users);
	unsigned n_picks = 0;
	for (unsigned step = 0; step < steps; step++) {
		unsigned thread = draw(2 * WORKERS);
		change(f);
		f->now += draw(10) ? draw(3 * MS) : draw(100 * MS);
		struct pool_queue *q = pool_pick_queue(&f->pool, f->now);
		expect_first(f, q);
		ck_assert_ptr_eq(pool_pick_queue(&f->pool, f->now) ? q : NULL, q); /* a pick removes none */
		if (q && !f->on[thread] && draw(4))
			begin(f, thread, q);
		n_picks += q != NULL;
	}
	ck_assert_uint_gt(n_picks, steps / 50);
	for (unsigned thread = 0; thread < 2 * WORKERS; thread++) {
		if (f->on[thread])
			end(f, thread);
	}
	teardown(f);
}

START_TEST(test_the_picked_queue_is_first_among_all)
{
	/* Against a search of all queues, after any order of jobs, rows, tickets, ready batches and shares. */
	follow_the_definition(1, 1, 2000);
	follow_the_definition(2, 1, 5000);
	follow_the_definition(3, 3, 10000);
	follow_the_definition(12, USERS, 40000);
	follow_the_definition(60, USERS, 40000);
}
END_TEST

static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* CPU time of a row of one of so many queues: the least of several measurements. */
static uint64_t row_cost_ns(unsigned n, unsigned n_users)
{
	enum { ROWS = 4 * MOST_QUEUES };
	uint64_t least = UINT64_MAX;
	for (int round = 0; round < 5; round++) {
		struct fixture *f = setup(n, n_users);
		for (unsigned i = 0; i < n; i++)
			submit(f, i, &in_memory, ROWS + 1);
		uint64_t began = cpu_ns();
		for (unsigned i = 0; i < ROWS; i++) {
			begin(f, 0, pool_pick_queue(&f->pool, f->now));
			f->now += MS;
			end(f, 0);
		}
		uint64_t ns = (cpu_ns() - began) / ROWS;
		least = ns < least ? ns : least;
		teardown(f);
	}
	return least;
}

START_TEST(test_a_pick_looks_at_few_of_many_queues)
{
	/* A search of all queues takes some 500 times as long with 2000 queues as with two. */
	uint64_t few = row_cost_ns(2, 1) + row_cost_ns(2, 2);
	uint64_t many = row_cost_ns(MOST_QUEUES, 1) + row_cost_ns(MOST_QUEUES, MOST_QUEUES);
	ck_assert_in_time(many < 60 * few, "%llu ns with many queues, %llu ns with few", (unsigned long long)many,
			  (unsigned long long)few);
}
END_TEST

SUITE(pool_order)
{
	Suite *s = suite_create("pool order");
	TCase *tc = tcase_create("order");
	tcase_add_test(tc, test_the_picked_queue_is_first_among_all);
	suite_add_tcase(s, tc);
	TCase *timing = suite_timing();
	tcase_add_test(timing, test_a_pick_looks_at_few_of_many_queues);
	suite_add_tcase(s, timing);
	return s;
}
