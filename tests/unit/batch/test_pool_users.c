/* The worker pool between users: rows that never end, disks that never answer and huge numbers of queues cost their own
 * user, and no other. Real threads; "never" means until the other user's rows are made. */
#include <check.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "batch/pool/pool.h"
#include "support/suite.h"

enum { ALICE = 1, BOB = 2, MOST_ROWS = 64 };

struct fixture {
	uv_loop_t loop;
	struct pool *pool;
	struct pool_queue alice, bob;
	uv_sem_t gate;           /* Bob's rows wait for this */
	uv_sem_t turn;           /* one of Alice's rows waits for this */
	atomic_int n_waiting;    /* rows that wait, or have waited */
	char log[4 * MOST_ROWS]; /* rows made, in order */
	atomic_int n_logged;
};

struct batch {
	struct pool_job job;
	struct fixture *f;
	char name;
	uv_sem_t *waits_for;   /* before each row */
	bool from_disk;        /* its rows are not in memory */
	uv_sem_t *hangs_until; /* its disk hangs until then */
	int n_done;
};

/* Once it is open it stays open. */
static void pass(struct fixture *f, uv_sem_t *gate)
{
	atomic_fetch_add(&f->n_waiting, 1);
	uv_sem_wait(gate);
	uv_sem_post(gate);
}

static int run_row(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	struct batch *b = (struct batch *)job;
	(void)worker, (void)first, (void)n;
	if (b->from_disk && !ticket)
		return POOL_WOULD_BLOCK;
	if (b->waits_for)
		pass(b->f, b->waits_for);
	b->f->log[atomic_fetch_add(&b->f->n_logged, 1)] = b->name;
	return 0;
}

static void fetch_row(struct pool_job *job, struct pool_ticket *ticket)
{
	struct batch *b = (struct batch *)job;
	(void)ticket;
	if (b->hangs_until)
		pass(b->f, b->hangs_until);
}

static void on_done(struct pool_job *job)
{
	((struct batch *)job)->n_done++;
}

static const struct pool_job_ops ops = { .run = run_row, .fetch = fetch_row, .done = on_done };

static void *make_thing(void *arg)
{
	(void)arg;
	return calloc(1, 16);
}

static void setup_with(struct fixture *f, unsigned workers, unsigned n_io)
{
	memset(f, 0, sizeof(*f));
	ck_assert_int_eq(uv_loop_init(&f->loop), 0);
	ck_assert_int_eq(uv_sem_init(&f->gate, 0), 0);
	ck_assert_int_eq(uv_sem_init(&f->turn, 0), 0);
	struct pool_params params = { .max_workers = workers,
				      .n_io = n_io,
				      .n_tickets = 8,
				      .worker_create = make_thing,
				      .worker_destroy = free,
				      .input_create = make_thing,
				      .input_destroy = free };
	ck_assert_int_eq(pool_create(&f->loop, &params, &f->pool), 0);
	ck_assert_int_eq(pool_queue_add(f->pool, &f->alice, 0, ALICE, NULL), 0);
	ck_assert_int_eq(pool_queue_add(f->pool, &f->bob, 0, BOB, NULL), 0);
}

static void setup(struct fixture *f, unsigned workers)
{
	setup_with(f, workers, 3);
}

static void teardown(struct fixture *f)
{
	pool_queue_remove(f->pool, &f->alice);
	pool_queue_remove(f->pool, &f->bob);
	pool_close(f->pool, NULL, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&f->loop), 0);
	uv_sem_destroy(&f->gate);
	uv_sem_destroy(&f->turn);
}

static void submit(struct fixture *f, struct pool_queue *q, struct batch *b, uint32_t n_rows)
{
	b->f = f;
	b->job.ops = &ops;
	b->job.n_rows = n_rows;
	b->job.chunk = 1;
	pool_submit(f->pool, q, &b->job);
}

static void wait_for(struct fixture *f, const struct batch *b)
{
	while (!b->n_done)
		uv_run(&f->loop, UV_RUN_ONCE);
}

/* Waits until that many rows have reached a gate. */
static void wait_for_rows(struct fixture *f, int n)
{
	while (atomic_load(&f->n_waiting) < n)
		sched_yield();
}

START_TEST(test_a_user_whose_rows_never_end_leaves_others_their_share_of_the_workers)
{
	/* Every worker runs one of Bob's rows, which end when all of Alice's are made: relief threads make hers. Relief
	 * threads make none of Bob's other rows. */
	struct fixture f;
	unsigned n_workers = _i ? 4 : 1;
	setup(&f, n_workers);
	struct batch hers = { .name = 'a' }, his = { .name = 'b', .waits_for = &f.gate };
	submit(&f, &f.bob, &his, MOST_ROWS);
	wait_for_rows(&f, (int)n_workers);
	submit(&f, &f.alice, &hers, MOST_ROWS);
	wait_for(&f, &hers);
	ck_assert_int_eq(atomic_load(&f.n_logged), MOST_ROWS);
	ck_assert_int_eq(atomic_load(&f.n_waiting), (int)n_workers);
	uv_sem_post(&f.gate);
	wait_for(&f, &his);
	teardown(&f);
}
END_TEST

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

START_TEST(test_a_user_with_its_share_of_the_workers_in_long_rows_goes_behind_others)
{
	/* One of Bob's rows is slow, and his queue is the more urgent one: the other worker makes all of Alice's rows
	 * first all the same, then his. */
	struct fixture f;
	setup(&f, 2);
	struct batch lasts = { .name = 'x', .waits_for = &f.gate }, his = { .name = 'b' },
		     first = { .name = 'f', .waits_for = &f.turn }, hers = { .name = 'a' };
	pool_queue_set_urgency(f.pool, &f.bob, 0, true);
	pool_queue_set_urgency(f.pool, &f.alice, 3, true);
	submit(&f, &f.bob, &lasts, 1);
	wait_for_rows(&f, 1);
	uint64_t begin = now_ns();
	submit(&f, &f.alice, &first, 1); /* occupies the other worker until both users have more rows */
	wait_for_rows(&f, 2);
	while (now_ns() < begin + 100000000) /* until the pool can see that his row is slow */
		sched_yield();
	submit(&f, &f.bob, &his, MOST_ROWS);
	submit(&f, &f.alice, &hers, MOST_ROWS);
	uv_sem_post(&f.turn);
	wait_for(&f, &hers);
	wait_for(&f, &his);
	ck_assert_int_eq(atomic_load(&f.n_logged), 1 + 2 * MOST_ROWS);
	for (int i = 1; i <= MOST_ROWS; i++)
		ck_assert_int_eq(f.log[i], 'a');
	uv_sem_post(&f.gate);
	wait_for(&f, &lasts);
	teardown(&f);
}
END_TEST

START_TEST(test_a_user_whose_disk_never_answers_leaves_others_threads_and_tickets)
{
	/* Bob has more queues than there are I/O threads and tickets, and every read of his hangs until all of Alice's
	 * rows are made, which need reads, too. */
	enum { QUEUES = 20 };
	struct fixture f;
	struct pool_queue queues[QUEUES];
	struct batch *his = calloc(QUEUES, sizeof(*his));
	setup(&f, 2);
	for (int i = 0; i < QUEUES; i++) {
		ck_assert_int_eq(pool_queue_add(f.pool, &queues[i], 0, BOB, NULL), 0);
		his[i] = (struct batch){ .name = 'b', .from_disk = true, .hangs_until = &f.gate };
		submit(&f, &queues[i], &his[i], 2);
	}
	wait_for_rows(&f, 2); /* as many I/O threads as he can get; workers wait for no disk */
	struct batch hers = { .name = 'a', .from_disk = true };
	submit(&f, &f.alice, &hers, MOST_ROWS);
	wait_for(&f, &hers);
	ck_assert_int_eq(atomic_load(&f.n_logged), MOST_ROWS);
	uv_sem_post(&f.gate);
	for (int i = 0; i < QUEUES; i++) {
		wait_for(&f, &his[i]);
		pool_queue_remove(f.pool, &queues[i]);
	}
	free(his);
	teardown(&f);
}
END_TEST

START_TEST(test_a_queue_is_in_the_pools_list_only_while_it_has_work)
{
	/* No thread walks the idle queues: a loader may have thousands. */
	enum { QUEUES = 4096 };
	struct fixture f;
	struct pool_queue *idle = calloc(QUEUES, sizeof(*idle));
	setup(&f, 2);
	for (int i = 0; i < QUEUES; i++)
		ck_assert_int_eq(pool_queue_add(f.pool, &idle[i], 0, BOB, NULL), 0);
	struct batch hers = { .name = 'a' }, his = { .name = 'b', .waits_for = &f.gate };
	submit(&f, &f.alice, &hers, MOST_ROWS);
	wait_for(&f, &hers);
	ck_assert(!f.alice.part.n_listed);
	submit(&f, &idle[7], &his, 1);
	wait_for_rows(&f, 1);
	ck_assert(idle[7].part.n_listed && !idle[7].next && !idle[7].previous);
	uv_sem_post(&f.gate);
	wait_for(&f, &his);
	for (int i = 0; i < QUEUES; i++) {
		ck_assert(!idle[i].part.n_listed);
		pool_queue_remove(f.pool, &idle[i]);
	}
	free(idle);
	teardown(&f);
}
END_TEST

/* ---- tasks of I/O threads ---- */

enum { IO_THREADS = 8 };

struct waiting_task {
	struct pool_task task;
	struct fixture *f;
	uv_sem_t *gate;
	char name;
	bool done;
};

static void run_task(struct pool_task *task)
{
	struct waiting_task *t = (struct waiting_task *)task;
	if (t->gate)
		pass(t->f, t->gate);
	t->f->log[atomic_fetch_add(&t->f->n_logged, 1)] = t->name;
}

static void task_done(struct pool_task *task)
{
	((struct waiting_task *)task)->done = true;
}

static void begin_task(struct fixture *f, struct waiting_task *t, uid_t owner, bool opens, uv_sem_t *gate)
{
	*t = (struct waiting_task){
		.task = { .run = run_task, .done = task_done, .owner = owner, .opens = opens },
		.f = f,
		.gate = gate,
		.name = owner == ALICE ? 'a' : 'b',
	};
	pool_run_task(f->pool, &t->task);
}

static void wait_for_task(struct fixture *f, const struct waiting_task *t)
{
	while (!t->done)
		uv_run(&f->loop, UV_RUN_ONCE);
}

START_TEST(test_one_users_tasks_leave_threads_for_another)
{
	/* Bob has more tasks than there are I/O threads, and none ends before both of Alice's have run. */
	enum { TASKS = 60 };
	struct fixture f;
	struct waiting_task *his = calloc(TASKS, sizeof(*his)), hers, opens;
	bool opening = _i;
	setup_with(&f, 2, IO_THREADS);
	for (int i = 0; i < TASKS; i++)
		begin_task(&f, &his[i], BOB, opening, &f.gate);
	wait_for_rows(&f, opening ? IO_THREADS / 4 : 1);
	begin_task(&f, &hers, ALICE, false, NULL);
	begin_task(&f, &opens, ALICE, true, NULL);
	wait_for_task(&f, &hers);
	wait_for_task(&f, &opens);
	ck_assert_int_eq(atomic_load(&f.n_logged), 2);
	if (opening)
		ck_assert_int_eq(atomic_load(&f.n_waiting), IO_THREADS / 4);
	else
		ck_assert_int_eq(atomic_load(&f.n_waiting), 1); /* of two workers */
	uv_sem_post(&f.gate);
	for (int i = 0; i < TASKS; i++)
		wait_for_task(&f, &his[i]);
	free(his);
	teardown(&f);
}
END_TEST

START_TEST(test_tasks_of_two_users_run_in_turn)
{
	/* One thread takes tasks, and Bob's are all there before Alice's two. */
	struct fixture f;
	struct waiting_task first, his[20], hers[2];
	setup_with(&f, 1, 2);
	begin_task(&f, &first, BOB, false, &f.gate);
	wait_for_rows(&f, 1);
	for (int i = 0; i < 20; i++)
		begin_task(&f, &his[i], BOB, false, NULL);
	begin_task(&f, &hers[0], ALICE, false, NULL);
	begin_task(&f, &hers[1], ALICE, false, NULL);
	uv_sem_post(&f.gate);
	for (int i = 0; i < 20; i++)
		wait_for_task(&f, &his[i]);
	for (int i = 0; i < 2; i++)
		wait_for_task(&f, &hers[i]);
	wait_for_task(&f, &first);
	ck_assert_mem_eq(f.log, "bbababbb", 8);
	teardown(&f);
}
END_TEST

static void use_processor(struct pool_task *task)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	for (time_t end = t.tv_sec * 1000 + t.tv_nsec / 1000000 + 20; t.tv_sec * 1000 + t.tv_nsec / 1000000 < end;)
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	run_task(task);
}

START_TEST(test_what_tasks_take_is_paid_with_workers_time)
{
	struct fixture f;
	struct waiting_task t;
	setup_with(&f, 1, 2);
	begin_task(&f, &t, BOB, false, &f.gate);
	uv_sem_post(&f.gate);
	wait_for_task(&f, &t);
	uint64_t before = f.bob.owner->part.served_ns;
	t = (struct waiting_task){ .task = { .run = use_processor, .done = task_done, .owner = BOB }, .f = &f };
	pool_run_task(f.pool, &t.task);
	wait_for_task(&f, &t);
	ck_assert_uint_ge(f.bob.owner->part.served_ns - before, 10000000);
	ck_assert_uint_eq(f.alice.owner->part.served_ns, 0);
	teardown(&f);
}
END_TEST

START_TEST(test_a_task_that_waits_can_be_dropped)
{
	struct fixture f;
	struct waiting_task first, second;
	setup_with(&f, 1, 2);
	begin_task(&f, &first, BOB, true, &f.gate);
	wait_for_rows(&f, 1);
	begin_task(&f, &second, BOB, true, NULL);
	ck_assert(!pool_drop_task(f.pool, &first.task));
	ck_assert(pool_drop_task(f.pool, &second.task));
	ck_assert(!pool_drop_task(f.pool, &second.task));
	uv_sem_post(&f.gate);
	wait_for_task(&f, &first);
	ck_assert(!second.done);
	ck_assert_int_eq(atomic_load(&f.n_logged), 1);
	teardown(&f);
}
END_TEST

SUITE(pool_users)
{
	Suite *s = suite_create("pool between users");
	TCase *t = tcase_create("pool between users");
	tcase_add_loop_test(t, test_a_user_whose_rows_never_end_leaves_others_their_share_of_the_workers, 0, 2);
	tcase_add_test(t, test_a_user_with_its_share_of_the_workers_in_long_rows_goes_behind_others);
	tcase_add_test(t, test_a_user_whose_disk_never_answers_leaves_others_threads_and_tickets);
	tcase_add_test(t, test_a_queue_is_in_the_pools_list_only_while_it_has_work);
	tcase_add_loop_test(t, test_one_users_tasks_leave_threads_for_another, 0, 2);
	tcase_add_test(t, test_tasks_of_two_users_run_in_turn);
	tcase_add_test(t, test_what_tasks_take_is_paid_with_workers_time);
	tcase_add_test(t, test_a_task_that_waits_can_be_dropped);
	suite_add_tcase(s, t);
	return s;
}
