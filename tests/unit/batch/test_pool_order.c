/* Which queue is picked, and that a pick costs little with many queues: the scheduler alone, without threads and with a
 * clock of the test's. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "batch/pool/debts.h"
#include "batch/pool/order.h"
#include "batch/pool/queues.h"
#include "batch/pool/tickets.h"
#include "batch/pool/turns.h"
#include "support/suite.h"

enum { MOST_QUEUES = 2000, USERS = 5, JOBS = 3, WORKERS = 6, TICKETS = 8, MS = 1000000, SLOW_MS = 30, CREDIT_MS = 400 };

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

/* Without queues. */
static struct fixture *setup_pool(void)
{
	struct fixture *f = calloc(1, sizeof(*f));
	ck_assert_ptr_nonnull(f);
	struct pool *p = &f->pool;
	p->params = (struct pool_params){ .max_workers = WORKERS, .n_io = 2, .n_tickets = TICKETS };
	p->target = WORKERS;
	p->local.pool = p;
	p->local.n_tickets = p->local.n_free_tickets = TICKETS;
	p->workers = f->threads;
	pthread_mutex_init(&p->lock, NULL);
	f->now = 1000000 * (uint64_t)MS;
	return f;
}

/* Jobs are told apart by an address. */
static void add_queue(struct fixture *f, uid_t user, unsigned job)
{
	static const char jobs[MOST_QUEUES];
	ck_assert_int_eq(pool_queue_add(&f->pool, &f->queues[f->n++], 0, user, jobs + job), 0);
}

/* The queues of each user are of a few jobs in turn. */
static struct fixture *setup(unsigned n, unsigned n_users)
{
	struct fixture *f = setup_pool();
	for (unsigned i = 0; i < n; i++)
		add_queue(f, i % n_users, i / n_users % JOBS);
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
	ck_assert_ptr_null(f->pool.all.ready.first);
	ck_assert_uint_eq(f->pool.all.n_listed, 0);
	pool_debts_finish(&f->pool);
	pthread_mutex_destroy(&f->pool.lock);
	free(f);
}

/* As pool_submit does. */
static void submit(struct fixture *f, unsigned i, const struct pool_job_ops *ops, uint32_t n_rows)
{
	struct pool_queue *q = &f->queues[i];
	struct pool_job *job = &f->jobs[i];
	*job = (struct pool_job){ .ops = ops, .n_rows = n_rows, .chunk = 1, .queue = q };
	if (!q->part.n_listed)
		pool_catch_up(q);
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
	pool_end_work(&f->threads[thread], q, f->now);
	pool_end_try(q, piece);
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

enum { USER, JOB, QUEUE, N_LEVELS };

static uint64_t turn_of(const struct fixture *f, const struct pool_queue *q, int level)
{
	const struct pool_part *part = level == USER ? &q->owner->part : level == JOB ? &q->user_job->part : &q->part;
	uint64_t credit = CREDIT_MS * (uint64_t)MS, ready = (uint64_t)q->n_ready * (uint64_t)q->batch_ns;
	uint64_t at = part->served_ns + elapsed(part->n_busy, part->begun_ns, f->now) + credit;
	at = at > part->of->level_ns ? at : part->of->level_ns;
	return level == QUEUE ? at + (ready < credit ? ready : credit) : at;
}

static bool is_last(const struct fixture *f, const struct pool_owner *o)
{
	unsigned n = f->pool.all.n_listed, share = n > 1 ? f->pool.target / n : f->pool.target;
	return n > 1 && o->part.n_busy >= (share ? share : 1) &&
	       elapsed(o->part.n_busy, o->part.begun_ns, f->now) > o->part.n_busy * (uint64_t)(SLOW_MS * MS);
}

static bool may_take(const struct pool_queue *q)
{
	if (!q->first || (q->max_busy && q->part.n_busy >= q->max_busy))
		return false;
	return !q->first->ops->fetch || pool_may_have_ticket(q) || (!q->reads.n_tickets && !q->n_trying);
}

/* Whether the picked queue is one that a search of all queues could have found: its user has the least turn of those that
 * have rows and are not last, its job of that user's, and it of that job's. */
static void expect_first(const struct fixture *f, const struct pool_queue *picked)
{
	bool any = false, any_not_last = false;
	for (unsigned i = 0; i < f->n; i++) {
		any |= may_take(&f->queues[i]);
		any_not_last |= may_take(&f->queues[i]) && !is_last(f, f->queues[i].owner);
	}
	ck_assert_int_eq(picked != NULL, any);
	if (!any)
		return;
	ck_assert(may_take(picked));
	ck_assert_int_eq(is_last(f, picked->owner), !any_not_last);
	for (unsigned i = 0; i < f->n; i++) {
		const struct pool_queue *q = &f->queues[i];
		if (!may_take(q) || is_last(f, q->owner) != !any_not_last)
			continue;
		ck_assert_uint_ge(turn_of(f, q, USER), turn_of(f, picked, USER));
		if (q->owner == picked->owner)
			ck_assert_uint_ge(turn_of(f, q, JOB), turn_of(f, picked, JOB));
		if (q->user_job == picked->user_job)
			ck_assert_uint_ge(turn_of(f, q, QUEUE), turn_of(f, picked, QUEUE));
	}
}

/* ---- tests ---- */

static void change(struct fixture *f)
{
	unsigned i = draw(f->n), thread = draw(2 * WORKERS);
	struct pool_queue *q = &f->queues[i];
	switch (draw(6)) {
	case 0:
		if (!q->first && !q->part.n_busy)
			submit(f, i, draw(2) ? &in_memory : &from_disk, 1 + draw(8));
		break;
	case 1:
		q->n_ready = (int)draw(4);
		pool_order_update(&f->pool, q);
		break;
	case 2: /* tickets come and go without the queue's doing */
		f->pool.local.n_free_tickets = f->pool.local.n_reserved + draw(TICKETS + 1 - f->pool.local.n_reserved);
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

/* All queues always want more, and rows take some milliseconds, of some queues ten times as long as of others. Returns
 * after so many of them; the parts' served_ns say who had what. */
static void work(struct fixture *f, unsigned n_rows)
{
	uint64_t ends[WORKERS] = { 0 };
	f->pool.target = WORKERS;
	for (unsigned i = 0; i < f->n; i++)
		submit(f, i, &in_memory, UINT32_MAX);
	for (unsigned row = 0; row < n_rows; row++) {
		unsigned t = 0;
		for (unsigned i = 1; i < WORKERS; i++)
			t = ends[i] < ends[t] ? i : t;
		f->now = ends[t] > f->now ? ends[t] : f->now;
		if (f->on[t])
			end(f, t);
		struct pool_queue *q = pool_pick_queue(&f->pool, f->now);
		begin(f, t, q);
		ends[t] = f->now + (1 + draw(2)) * (uint64_t)MS * ((q - f->queues) % 3 ? 1 : 10);
	}
	for (unsigned t = 0; t < WORKERS; t++) {
		f->now = ends[t] > f->now ? ends[t] : f->now;
		if (f->on[t])
			end(f, t);
	}
}

static void expect_equal(uint64_t a, uint64_t b)
{
	ck_assert_msg(a < b + b / 10 && b < a + a / 10, "%llu ns and %llu ns are not equal parts",
		      (unsigned long long)a, (unsigned long long)b);
}

START_TEST(test_users_have_equal_parts_whatever_they_open)
{
	/* One user has a job of one rank; another one job of many ranks, or many jobs, or both. */
	static const struct {
		unsigned jobs, ranks;
	} of[] = { { 1, 8 }, { 1, 32 }, { 10, 1 }, { 60, 1 }, { 8, 8 } };
	struct fixture *f = setup_pool();
	add_queue(f, 0, 0);
	for (unsigned i = 0; i < of[_i].jobs * of[_i].ranks; i++)
		add_queue(f, 1, i / of[_i].ranks);
	work(f, 20000);
	expect_equal(f->queues[0].owner->part.served_ns, f->queues[1].owner->part.served_ns);
	teardown(f);
}
END_TEST

START_TEST(test_a_users_jobs_have_equal_parts_and_so_have_a_jobs_ranks)
{
	struct fixture *f = setup_pool();
	add_queue(f, 0, 0);
	for (unsigned rank = 0; rank < 8; rank++)
		add_queue(f, 1, 1);
	add_queue(f, 1, 2);
	work(f, 40000);
	expect_equal(f->queues[1].user_job->part.served_ns, f->queues[9].user_job->part.served_ns);
	for (unsigned rank = 1; rank < 8; rank++)
		expect_equal(f->queues[1].part.served_ns, f->queues[1 + rank].part.served_ns);
	teardown(f);
}
END_TEST

START_TEST(test_a_user_gains_nothing_by_new_jobs)
{
	/* One user's job stays, the other's is replaced by a new one again and again: what is new starts level. */
	struct fixture *f = setup_pool();
	add_queue(f, 0, 0);
	add_queue(f, 1, 1);
	add_queue(f, 1, 2);
	struct pool_queue *renewed = &f->queues[2];
	uint64_t before = 0;
	for (unsigned i = 0; i < 100; i++) {
		work(f, 300);
		before = renewed->owner->part.served_ns;
		renewed->first = renewed->last = NULL;
		pool_list_or_unlist(&f->pool, renewed);
		pool_queue_remove(&f->pool, renewed);
		f->n--;
		add_queue(f, 1, 3 + i);
	}
	expect_equal(f->queues[0].owner->part.served_ns, before);
	teardown(f);
}
END_TEST

START_TEST(test_other_work_is_paid_with_worker_time)
{
	/* One user's opening and hanging up takes as much time as a third of the workers make rows in. */
	enum { ROUNDS = 100, CHARGE_NS = 250 * MS };
	struct fixture *f = setup_pool();
	add_queue(f, 0, 0);
	add_queue(f, 1, 1);
	for (unsigned i = 0; i < ROUNDS; i++) {
		work(f, 300);
		submit(f, 0, &in_memory, UINT32_MAX);
		pool_debts_charge(&f->pool, 1, CHARGE_NS);
	}
	expect_equal(f->queues[0].part.served_ns, f->queues[1].part.served_ns + (uint64_t)ROUNDS * CHARGE_NS);
	teardown(f);
}
END_TEST

/* The rows that two users have had after the second has come back, with what it was charged while it was away. */
static void come_back(bool others, uint64_t charged_ns, uint64_t rows_ns[2])
{
	struct fixture *f = setup_pool();
	add_queue(f, 0, 0);
	work(f, 1000);
	if (!others) {
		f->queues[0].first = f->queues[0].last = NULL;
		pool_list_or_unlist(&f->pool, &f->queues[0]);
	}
	for (unsigned i = 0; i < 10; i++)
		pool_debts_charge(&f->pool, 1, charged_ns / 10);
	uint64_t before = f->queues[0].part.served_ns;
	add_queue(f, 1, 1);
	work(f, 20000);
	rows_ns[0] = f->queues[0].part.served_ns - before;
	rows_ns[1] = f->queues[1].part.served_ns;
	teardown(f);
}

START_TEST(test_a_user_without_queues_owes_until_it_has_some)
{
	/* Nothing for what it had while no other user wanted any, and never more than two seconds. */
	const uint64_t second = 1000 * (uint64_t)MS;
	uint64_t rows[2];
	come_back(true, second, rows);
	ck_assert_uint_gt(rows[0], rows[1] + second * 8 / 10);
	ck_assert_uint_lt(rows[0], rows[1] + second * 12 / 10);
	come_back(true, 100 * second, rows);
	ck_assert_uint_gt(rows[0], rows[1] + second * 18 / 10);
	ck_assert_uint_lt(rows[0], rows[1] + second * 22 / 10);
	come_back(false, second, rows);
	ck_assert_uint_lt(rows[0], rows[1] + second * 2 / 10);
	ck_assert_uint_lt(rows[1], rows[0] + second * 2 / 10);
}
END_TEST

START_TEST(test_of_many_users_that_owe_the_least_are_forgotten)
{
	struct fixture *f = setup_pool();
	add_queue(f, 0, 0);
	submit(f, 0, &in_memory, UINT32_MAX);
	for (unsigned user = 1; user < 300; user++)
		pool_debts_charge(&f->pool, user, user * (uint64_t)MS);
	add_queue(f, 299, 0);
	add_queue(f, 1, 0);
	ck_assert_uint_eq(f->queues[1].owner->part.served_ns, 299 * (uint64_t)MS);
	ck_assert_uint_eq(f->queues[2].owner->part.served_ns, 0);
	teardown(f);
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
	tcase_add_loop_test(tc, test_users_have_equal_parts_whatever_they_open, 0, 5);
	tcase_add_test(tc, test_a_users_jobs_have_equal_parts_and_so_have_a_jobs_ranks);
	tcase_add_test(tc, test_a_user_gains_nothing_by_new_jobs);
	tcase_add_test(tc, test_other_work_is_paid_with_worker_time);
	tcase_add_test(tc, test_a_user_without_queues_owes_until_it_has_some);
	tcase_add_test(tc, test_of_many_users_that_owe_the_least_are_forgotten);
	suite_add_tcase(s, tc);
	TCase *timing = suite_timing();
	tcase_add_test(timing, test_a_pick_looks_at_few_of_many_queues);
	suite_add_tcase(s, timing);
	return s;
}
