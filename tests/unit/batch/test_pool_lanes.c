/* Lanes of the worker pool: a server that does not answer takes the threads and tickets of its own lane, and no other
 * file system notices. Real threads; a read that hangs does so until the test lets it go. */
#include <check.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "batch/pool/impl.h"
#include "batch/pool/pool.h"
#include "support/suite.h"

enum { ALICE = 1, BOB = 2, DEAD = 7, OTHER = 8, N_IO = 8, LANE_IO = 6, TICKETS = 16, MOST_ROWS = 100 };
enum { MOST_LANES = 5, MOST_OF_USER = 3 };

struct fixture {
	uv_loop_t loop;
	struct pool *pool;
	struct accounts accounts;
	char log[4 * MOST_ROWS]; /* rows fetched, in order */
	atomic_int n_logged;
};

/* Rows of a user on a file system; each has to be fetched. */
struct reader {
	struct pool_job job;
	struct fixture *f;
	struct pool_queue queue;
	struct pool_lane_user *lane;
	char name;
	bool hangs;
	uv_sem_t answer;
	atomic_int n_asked;
	bool done;
};

static int run_rows(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	(void)job, (void)worker, (void)first, (void)n;
	return ticket ? 0 : POOL_WOULD_BLOCK;
}

static void fetch_row(struct pool_job *job, struct pool_ticket *ticket)
{
	struct reader *r = (struct reader *)job;
	(void)ticket;
	r->f->log[atomic_fetch_add(&r->f->n_logged, 1)] = r->name;
	atomic_fetch_add(&r->n_asked, 1);
	if (r->hangs) {
		uv_sem_wait(&r->answer);
		uv_sem_post(&r->answer);
	}
}

static void on_done(struct pool_job *job)
{
	((struct reader *)job)->done = true;
}

static const struct pool_job_ops ops = { .run = run_rows, .fetch = fetch_row, .done = on_done };

static void *make_thing(void *arg)
{
	(void)arg;
	return calloc(1, 16);
}

static void setup_with(struct fixture *f, unsigned n_lane_io)
{
	memset(f, 0, sizeof(*f));
	f->accounts.limit_per_user[ACCOUNT_FILE_SYSTEMS] = MOST_OF_USER;
	ck_assert_int_eq(uv_loop_init(&f->loop), 0);
	struct pool_params params = { .max_workers = 2,
				      .n_io = N_IO,
				      .n_tickets = TICKETS,
				      .n_lane_io = n_lane_io,
				      .max_lanes = MOST_LANES,
				      .accounts = &f->accounts,
				      .worker_create = make_thing,
				      .worker_destroy = free,
				      .input_create = make_thing,
				      .input_destroy = free };
	ck_assert_int_eq(pool_create(&f->loop, &params, &f->pool), 0);
}

static void setup(struct fixture *f)
{
	setup_with(f, LANE_IO);
}

static struct pool_stats stats(const struct fixture *f)
{
	struct pool_stats s;
	pool_get_stats(f->pool, &s);
	return s;
}

static void teardown(struct fixture *f)
{
	pool_close(f->pool, NULL, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&f->loop), 0);
	ck_assert(accounts_balanced(&f->accounts));
}

/* filesystem 0: a local disk. */
static struct reader *begin(struct fixture *f, uid_t user, uint64_t filesystem, uint32_t n_rows, char name, bool hangs)
{
	struct reader *r = calloc(1, sizeof(*r));
	*r = (struct reader){ .f = f, .name = name, .hangs = hangs };
	ck_assert_int_eq(uv_sem_init(&r->answer, 0), 0);
	ck_assert_int_eq(pool_queue_add(f->pool, &r->queue, 0, user, NULL), 0);
	if (filesystem) {
		ck_assert_int_eq(pool_lane_join(f->pool, filesystem, user, &r->lane), 0);
		pool_queue_set_lane(f->pool, &r->queue, r->lane);
	}
	r->job = (struct pool_job){ .ops = &ops, .n_rows = n_rows, .chunk = 1 };
	pool_submit(f->pool, &r->queue, &r->job);
	return r;
}

static void wait_until_asked(const struct reader *r, int n)
{
	while (atomic_load(&r->n_asked) < n)
		sched_yield();
}

static void finish(struct reader *r)
{
	struct fixture *f = r->f;
	uv_sem_post(&r->answer);
	while (!r->done)
		uv_run(&f->loop, UV_RUN_ONCE);
	ck_assert_int_eq(atomic_load(&r->n_asked), (int)r->job.n_rows);
	pool_queue_remove(f->pool, &r->queue);
	pool_lane_leave(f->pool, r->lane);
	uv_sem_destroy(&r->answer);
	free(r);
}

START_TEST(test_a_dead_server_takes_no_thread_and_no_ticket_of_another_file_system)
{
	/* A hundred of Alice's reads wait for a dead server, which has all that its lane has. Her local disk and another
	 * server still give her as many threads at once as if it were not there, and so they do another user. */
	struct fixture f;
	setup(&f);
	struct reader *dead = begin(&f, ALICE, DEAD, 100, 'd', true);
	wait_until_asked(dead, LANE_IO);
	for (uid_t user = ALICE; user <= BOB; user++) {
		struct reader *local = begin(&f, user, 0, 20, 'l', true), *far = begin(&f, user, OTHER, 20, 'f', true);
		wait_until_asked(far, LANE_IO);
		wait_until_asked(local, 6); /* of 8: of local disks there may be several, so a queue leaves some */
		ck_assert_uint_eq(stats(&f).io_busy, 2 * LANE_IO + 6);
		finish(local);
		finish(far);
	}
	ck_assert_int_eq(atomic_load(&dead->n_asked), LANE_IO);
	ck_assert(!dead->done);
	finish(dead);
	teardown(&f);
}
END_TEST

START_TEST(test_two_users_of_one_file_system_have_its_threads_in_turn)
{
	/* The lane has one thread, and Bob's rows wait for it before Alice's do. */
	struct fixture f;
	setup_with(&f, 1);
	struct reader *first = begin(&f, BOB, OTHER, 1, 'x', true);
	wait_until_asked(first, 1);
	struct reader *his = begin(&f, BOB, OTHER, 4, 'b', false);
	while (stats(&f).n_parked < 5)
		sched_yield();
	struct reader *hers = begin(&f, ALICE, OTHER, 4, 'a', false);
	while (stats(&f).n_parked < 9)
		sched_yield();
	finish(first);
	finish(hers);
	finish(his);
	ck_assert_mem_eq(f.log, "xabababab", 9);
	teardown(&f);
}
END_TEST

START_TEST(test_one_user_of_a_file_system_leaves_threads_for_another)
{
	/* All of Bob's reads hang: as Alice reads there too, he has three of the four threads, and hers are answered. */
	struct fixture f;
	setup_with(&f, 4);
	struct reader *hers = begin(&f, ALICE, OTHER, 1, 'a', false);
	wait_until_asked(hers, 1);
	struct reader *his = begin(&f, BOB, OTHER, 20, 'b', true);
	wait_until_asked(his, 3);
	struct reader *more = begin(&f, ALICE, OTHER, 10, 'c', false);
	finish(more);
	ck_assert_int_eq(atomic_load(&his->n_asked), 3);
	finish(hers);
	finish(his);
	teardown(&f);
}
END_TEST

START_TEST(test_a_lane_ends_with_its_last_job)
{
	/* Two jobs of two users share a lane; its threads run until both have left, then the pool has none of them. A
	 * lane of the same file system that comes at once is a new one. */
	struct fixture f;
	setup(&f);
	for (int round = 0; round < 20; round++) {
		struct reader *hers = begin(&f, ALICE, OTHER, 3, 'a', false);
		struct reader *his = begin(&f, BOB, OTHER, 3, 'b', false);
		ck_assert_ptr_ne(hers->lane, his->lane);
		ck_assert_ptr_eq(hers->lane->lane, his->lane->lane);
		finish(hers);
		ck_assert(!his->lane->lane->ending);
		finish(his);
	}
	while (stats(&f).n_io > N_IO || f.pool->lanes)
		uv_run(&f.loop, UV_RUN_ONCE);
	teardown(&f);
}
END_TEST

START_TEST(test_a_user_has_so_many_lanes_and_all_users_together_too)
{
	/* A lane that a user has already costs nothing more, another user's lane is no new one, and one that was left
	 * makes room. */
	struct fixture f;
	struct pool_lane_user *hers[MOST_OF_USER], *his[MOST_OF_USER], *u;
	setup(&f);
	for (unsigned i = 0; i < MOST_OF_USER; i++)
		ck_assert_int_eq(pool_lane_join(f.pool, 10 + i, ALICE, &hers[i]), 0);
	ck_assert_int_eq(pool_lane_join(f.pool, 10, ALICE, &u), 0);
	ck_assert_ptr_eq(u, hers[0]);
	ck_assert_int_eq(pool_lane_join(f.pool, 20, ALICE, &u), ACCOUNT_E_USER);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pool_lane_join(f.pool, 10 + i, BOB, &his[i]), 0);
	pool_lane_leave(f.pool, his[1]);
	for (unsigned i = 1; i < MOST_OF_USER; i++)
		ck_assert_int_eq(pool_lane_join(f.pool, 20 + i, BOB, &his[i]), 0);
	ck_assert_int_eq(pool_lane_join(f.pool, 30, 3, &u), ACCOUNT_E_ALL);
	ck_assert_int_eq(pool_lane_join(f.pool, 10, 3, &u), 0);
	pool_lane_leave(f.pool, u);
	pool_lane_leave(f.pool, hers[2]);
	ck_assert_int_eq(pool_lane_join(f.pool, 30, 3, &u), 0);
	pool_lane_leave(f.pool, u);
	pool_lane_leave(f.pool, hers[0]);
	for (unsigned i = 0; i < 2; i++)
		pool_lane_leave(f.pool, hers[i]);
	for (unsigned i = 0; i < MOST_OF_USER; i++)
		pool_lane_leave(f.pool, his[i]);
	teardown(&f);
}
END_TEST

START_TEST(test_a_lane_shows_what_it_does)
{
	/* While its threads still begin: local disks come first, the name is the first that it was given, and a user
	 * learns whether it reads there. */
	struct fixture f;
	struct pool_lane_stats s;
	setup(&f);
	struct reader *dead = begin(&f, ALICE, DEAD, 10, 'd', true);
	pool_lane_set_name(dead->lane, "nfs4 at /data");
	pool_lane_set_name(dead->lane, "another");
	do
		ck_assert(pool_get_lane_stats(f.pool, 1, ALICE, &s));
	while (s.n_io < LANE_IO || s.io_busy < LANE_IO || s.oldest_ns < 1000000 || s.n_waiting == 0);
	ck_assert_str_eq(s.name, "nfs4 at /data");
	ck_assert(s.is_users && s.n_io == LANE_IO && s.io_busy == LANE_IO && s.n_waiting <= 10 - LANE_IO);
	ck_assert_uint_ge(pool_io_oldest_ns(f.pool), s.oldest_ns);
	ck_assert(pool_get_lane_stats(f.pool, 1, BOB, &s) && !s.is_users);
	ck_assert(pool_get_lane_stats(f.pool, 0, ALICE, &s) && s.n_io == N_IO && s.io_busy == 0 && s.oldest_ns == 0);
	ck_assert(!pool_get_lane_stats(f.pool, 2, ALICE, &s));
	finish(dead);
	ck_assert_uint_eq(pool_io_oldest_ns(f.pool), 0);
	teardown(&f);
}
END_TEST

START_TEST(test_a_pool_is_closed_while_a_lane_ends)
{
	/* The loop has not heard of the lane's end yet, and perhaps its threads have not begun. */
	for (int round = 0; round < 20; round++) {
		struct fixture f;
		struct pool_lane_user *u;
		setup(&f);
		ck_assert_int_eq(pool_lane_join(f.pool, OTHER, ALICE, &u), 0);
		pool_lane_leave(f.pool, u);
		teardown(&f);
	}
}
END_TEST

/* ---- tasks ---- */

struct opening {
	struct pool_task task;
	uv_sem_t *answer; /* NULL: it does not hang */
	atomic_int *n_begun;
	bool done;
};

static void run_opening(struct pool_task *task)
{
	struct opening *o = (struct opening *)task;
	atomic_fetch_add(o->n_begun, 1);
	if (o->answer) {
		uv_sem_wait(o->answer);
		uv_sem_post(o->answer);
	}
}

static void opening_done(struct pool_task *task)
{
	((struct opening *)task)->done = true;
}

static void open_in(struct fixture *f, struct opening *o, struct pool_lane_user *lane, uv_sem_t *answer,
		    atomic_int *n_begun)
{
	*o = (struct opening){
		.task = { .run = run_opening, .done = opening_done, .owner = ALICE, .opens = true, .lane_user = lane },
		.answer = answer,
		.n_begun = n_begun,
	};
	pool_run_task(f->pool, &o->task);
}

START_TEST(test_openings_that_hang_leave_all_openings_elsewhere_alone)
{
	/* Alice opens twenty data sets of a dead server. Meanwhile she opens others, on local disks and on another
	 * server, and reads of the dead one still have threads of its lane. */
	enum { N = 20 };
	struct fixture f;
	struct opening hung[N], here, there;
	struct pool_lane_user *dead, *other;
	atomic_int n_hung = 0, n_else = 0;
	uv_sem_t answer;
	setup(&f);
	ck_assert_int_eq(uv_sem_init(&answer, 0), 0);
	ck_assert_int_eq(pool_lane_join(f.pool, DEAD, ALICE, &dead), 0);
	ck_assert_int_eq(pool_lane_join(f.pool, OTHER, ALICE, &other), 0);
	for (int i = 0; i < N; i++)
		open_in(&f, &hung[i], dead, &answer, &n_hung);
	while (atomic_load(&n_hung) < 1)
		sched_yield();
	open_in(&f, &here, NULL, NULL, &n_else);
	open_in(&f, &there, other, NULL, &n_else);
	while (!here.done || !there.done)
		uv_run(&f.loop, UV_RUN_ONCE);
	struct reader *r = begin(&f, ALICE, DEAD, 10, 'd', false);
	finish(r);
	ck_assert_int_eq(atomic_load(&n_hung), 1); /* a quarter of six threads */
	uv_sem_post(&answer);
	for (int i = 0; i < N; i++) {
		while (!hung[i].done)
			uv_run(&f.loop, UV_RUN_ONCE);
	}
	pool_lane_leave(f.pool, dead);
	pool_lane_leave(f.pool, other);
	uv_sem_destroy(&answer);
	teardown(&f);
}
END_TEST

SUITE(pool_lanes)
{
	Suite *s = suite_create("pool lanes");
	TCase *t = tcase_create("pool lanes");
	tcase_add_test(t, test_a_dead_server_takes_no_thread_and_no_ticket_of_another_file_system);
	tcase_add_test(t, test_two_users_of_one_file_system_have_its_threads_in_turn);
	tcase_add_test(t, test_one_user_of_a_file_system_leaves_threads_for_another);
	tcase_add_test(t, test_a_lane_ends_with_its_last_job);
	tcase_add_test(t, test_a_user_has_so_many_lanes_and_all_users_together_too);
	tcase_add_test(t, test_a_lane_shows_what_it_does);
	tcase_add_test(t, test_a_pool_is_closed_while_a_lane_ends);
	tcase_add_test(t, test_openings_that_hang_leave_all_openings_elsewhere_alone);
	suite_add_tcase(s, t);
	return s;
}
