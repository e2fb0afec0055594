/* The worker pool with a real loop and real threads: every row once, parking, cancelling, fairness, tasks. */
#include <check.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "batch/pool/pool.h"
#include "support/suite.h"

enum { ROWS = 500 };

struct fixture {
	uv_loop_t loop;
	struct pool *pool;
	struct pool_queue queue;
};

struct batch {
	struct pool_job job;
	struct fixture *f;
	atomic_int made[ROWS];
	atomic_int fetched, tried;
	int would_block_every; /* rows whose number this divides are not in memory; 0: all are */
	bool cancel_at_first;
	int n_done;
};

static int run_row(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	struct batch *b = (struct batch *)job;
	ck_assert_ptr_nonnull(worker);
	atomic_fetch_add(&b->tried, 1);
	if (b->would_block_every && first % (uint32_t)b->would_block_every == 0 && !ticket)
		return POOL_WOULD_BLOCK;
	if (ticket)
		ck_assert_uint_eq(*(uint32_t *)ticket->input, first);
	for (uint32_t i = 0; i < n; i++)
		atomic_fetch_add(&b->made[first + i], 1);
	return 0;
}

static void fetch_row(struct pool_job *job, struct pool_ticket *ticket)
{
	*(uint32_t *)ticket->input = ticket->row;
	atomic_fetch_add(&((struct batch *)job)->fetched, 1);
}

static void on_done(struct pool_job *job)
{
	struct batch *b = (struct batch *)job;
	b->n_done++;
	uv_stop(&b->f->loop);
}

static const struct pool_job_ops ops = { .run = run_row, .fetch = fetch_row, .done = on_done };

static void *make_thing(void *arg)
{
	(void)arg;
	return calloc(1, 16);
}

static void setup_with(struct fixture *f, unsigned workers, unsigned n_io, unsigned n_tickets)
{
	memset(f, 0, sizeof(*f));
	ck_assert_int_eq(uv_loop_init(&f->loop), 0);
	struct pool_params params = { .max_workers = workers,
				      .n_io = n_io,
				      .n_tickets = n_tickets,
				      .worker_create = make_thing,
				      .worker_destroy = free,
				      .input_create = make_thing,
				      .input_destroy = free };
	ck_assert_int_eq(pool_create(&f->loop, &params, &f->pool), 0);
	ck_assert_int_eq(pool_queue_add(f->pool, &f->queue, 0, 1, NULL), 0);
}

static void setup(struct fixture *f, unsigned workers)
{
	setup_with(f, workers, 3, 8);
}

static void teardown(struct fixture *f)
{
	pool_queue_remove(f->pool, &f->queue);
	pool_close(f->pool, NULL, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&f->loop), 0); /* no handle is left open */
}

static struct batch *make_batch(struct fixture *f, uint32_t chunk)
{
	struct batch *b = calloc(1, sizeof(*b));
	b->f = f;
	b->job.ops = &ops;
	b->job.n_rows = ROWS;
	b->job.chunk = chunk;
	return b;
}

static void check_all_made_once(const struct batch *b)
{
	for (int i = 0; i < ROWS; i++)
		ck_assert_int_eq(atomic_load(&b->made[i]), 1);
	ck_assert_int_eq(b->n_done, 1);
}

START_TEST(test_every_row_is_made_once_in_any_chunks)
{
	/* Chunks that do and do not divide the rows. */
	static const uint32_t chunks[] = { 1, 7, 100, ROWS, 4 * ROWS };
	struct fixture f;
	setup(&f, 4);
	for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
		struct batch *b = make_batch(&f, chunks[i]);
		pool_submit(f.pool, &f.queue, &b->job);
		uv_run(&f.loop, UV_RUN_DEFAULT);
		check_all_made_once(b);
		free(b);
	}
	teardown(&f);
}
END_TEST

START_TEST(test_rows_that_would_block_are_fetched_by_io_threads)
{
	/* Each such row is made from its own input; none is lost when tickets run out. */
	struct fixture f;
	setup(&f, 2);
	struct batch *b = make_batch(&f, 1);
	b->would_block_every = 2;
	pool_submit(f.pool, &f.queue, &b->job);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	check_all_made_once(b);
	ck_assert_int_eq(atomic_load(&b->fetched), ROWS / 2);
	struct pool_stats s;
	pool_get_stats(f.pool, &s);
	ck_assert_uint_eq(s.n_rows, ROWS);
	ck_assert_uint_eq(s.n_parked, (uint64_t)atomic_load(&b->fetched));
	free(b);
	teardown(&f);
}
END_TEST

struct stuck {
	struct batch batch;
	struct hung *hung;
	uv_sem_t answer; /* posted when its disk answers again */
	atomic_int n_asked;
};

static void fetch_stuck(struct pool_job *job, struct pool_ticket *ticket)
{
	struct stuck *s = (struct stuck *)job;
	atomic_fetch_add(&s->n_asked, 1);
	uv_sem_wait(&s->answer);
	uv_sem_post(&s->answer);
	fetch_row(job, ticket);
}

static const struct pool_job_ops stuck_ops = { .run = run_row, .fetch = fetch_stuck, .done = on_done };

START_TEST(test_a_disk_that_does_not_answer_holds_up_no_other_job)
{
	/* One queue's reads hang: meanwhile all rows of another queue are made, those that have to be read from disk
	 * too. Then the disk answers and nothing is lost. */
	struct fixture f;
	struct pool_queue other;
	struct stuck *hung = calloc(1, sizeof(*hung));
	setup(&f, 2);
	ck_assert_int_eq(pool_queue_add(f.pool, &other, 0, 1, NULL), 0);
	ck_assert_int_eq(uv_sem_init(&hung->answer, 0), 0);
	hung->batch = (struct batch){ .f = &f,
				      .would_block_every = 1,
				      .job = { .ops = &stuck_ops, .n_rows = ROWS, .chunk = 1 } };
	pool_submit(f.pool, &f.queue, &hung->batch.job);
	while (atomic_load(&hung->n_asked) < 2) /* it has all that it can get */
		sched_yield();
	struct batch *b = make_batch(&f, 1);
	b->would_block_every = 3;
	pool_submit(f.pool, &other, &b->job);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	check_all_made_once(b);
	ck_assert_int_gt(atomic_load(&b->fetched), 0);
	ck_assert_int_eq(hung->batch.n_done, 0);
	uv_sem_post(&hung->answer);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	check_all_made_once(&hung->batch);
	uv_sem_destroy(&hung->answer);
	free(hung);
	free(b);
	pool_queue_remove(f.pool, &other);
	teardown(&f);
}
END_TEST

/* Queues of one user on a disk that does not answer. */
enum { HUNG = 24 };

struct hung {
	struct pool_queue queue[HUNG];
	struct stuck job[HUNG];
	atomic_int n_asked;
	uv_sem_t answer;
	int n_done;
};

static void fetch_hung(struct pool_job *job, struct pool_ticket *ticket)
{
	struct hung *h = ((struct stuck *)job)->hung;
	atomic_fetch_add(&h->n_asked, 1);
	uv_sem_wait(&h->answer);
	uv_sem_post(&h->answer);
	fetch_row(job, ticket);
}

static void hung_done(struct pool_job *job)
{
	struct stuck *s = (struct stuck *)job;
	s->batch.n_done++;
	if (++s->hung->n_done == HUNG)
		uv_stop(&s->batch.f->loop);
}

static const struct pool_job_ops hung_ops = { .run = run_row, .fetch = fetch_hung, .done = hung_done };

/* Returns when that many threads hang. */
static struct hung *hang(struct fixture *f, int n_threads)
{
	struct hung *h = calloc(1, sizeof(*h));
	ck_assert_int_eq(uv_sem_init(&h->answer, 0), 0);
	for (int i = 0; i < HUNG; i++) {
		ck_assert_int_eq(pool_queue_add(f->pool, &h->queue[i], 0, 1, NULL), 0);
		h->job[i].hung = h;
		h->job[i].batch = (struct batch){ .f = f,
						  .would_block_every = 1,
						  .job = { .ops = &hung_ops, .n_rows = 4, .chunk = 1 } };
		pool_submit(f->pool, &h->queue[i], &h->job[i].batch.job);
	}
	while (atomic_load(&h->n_asked) < n_threads)
		sched_yield();
	return h;
}

static void end_hang(struct fixture *f, struct hung *h)
{
	uv_sem_post(&h->answer);
	while (h->n_done < HUNG)
		uv_run(&f->loop, UV_RUN_ONCE);
	for (int i = 0; i < HUNG; i++) {
		for (int row = 0; row < 4; row++)
			ck_assert_int_eq(atomic_load(&h->job[i].batch.made[row]), 1);
		pool_queue_remove(f->pool, &h->queue[i]);
	}
	uv_sem_destroy(&h->answer);
	free(h);
}

static void make_one_batch(struct fixture *f, struct pool_queue *q, int would_block_every)
{
	struct batch *b = make_batch(f, 1);
	b->would_block_every = would_block_every;
	pool_submit(f->pool, q, &b->job);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	check_all_made_once(b);
	free(b);
}

static void wait_for_parked(struct fixture *f, uint64_t n)
{
	struct pool_stats s;
	do
		pool_get_stats(f->pool, &s);
	while (s.n_parked < n);
}

START_TEST(test_rows_at_hand_are_made_when_every_ticket_is_out)
{
	/* Jobs on local disks hang in every I/O thread and hold every ticket: no worker waits with them, rows that need
	 * no ticket are made, and rows that found none are made once a ticket is free. */
	struct fixture f;
	setup_with(&f, 2, 2, 8);
	struct hung *h = hang(&f, 2);
	wait_for_parked(&f, 8);
	make_one_batch(&f, &f.queue, 0);
	struct batch *later = make_batch(&f, 1);
	later->would_block_every = ROWS / 2;
	pool_submit(f.pool, &f.queue, &later->job);
	struct pool_stats s;
	do
		pool_get_stats(f.pool, &s);
	while (s.busy > 0 || atomic_load(&later->tried) == 0);
	ck_assert_int_eq(later->n_done, 0);
	uv_sem_post(&h->answer);
	while (h->n_done < HUNG || !later->n_done)
		uv_run(&f.loop, UV_RUN_ONCE);
	check_all_made_once(later);
	free(later);
	end_hang(&f, h);
	teardown(&f);
}
END_TEST

START_TEST(test_a_row_without_a_ticket_can_be_cancelled)
{
	/* Every ticket is in use and a row has been returned: its job, cancelled, completes at once, and once. */
	struct fixture f;
	setup_with(&f, 1, 2, 8);
	struct hung *h = hang(&f, 2);
	wait_for_parked(&f, 8);
	struct batch *b = make_batch(&f, 1);
	b->would_block_every = 1;
	pool_submit(f.pool, &f.queue, &b->job);
	struct pool_stats s;
	do
		pool_get_stats(f.pool, &s);
	while (s.busy > 0 || atomic_load(&b->tried) == 0);
	ck_assert_int_eq(atomic_load(&b->tried), 1);
	pool_cancel(f.pool, &b->job);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(b->n_done, 1);
	make_one_batch(&f, &f.queue, 0);
	end_hang(&f, h);
	ck_assert_int_eq(b->n_done, 1);
	free(b);
	teardown(&f);
}
END_TEST

static int run_twice(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	struct batch *b = (struct batch *)job;
	(void)worker;
	if (!ticket)
		return POOL_WOULD_BLOCK;
	ck_assert_uint_eq(*(uint32_t *)ticket->input, first + ticket->stage);
	if (ticket->stage < 2) {
		ticket->stage++;
		return POOL_WOULD_BLOCK;
	}
	for (uint32_t i = 0; i < n; i++)
		atomic_fetch_add(&b->made[first + i], 1);
	return 0;
}

static void fetch_stage(struct pool_job *job, struct pool_ticket *ticket)
{
	*(uint32_t *)ticket->input = ticket->row + ticket->stage;
	atomic_fetch_add(&((struct batch *)job)->fetched, 1);
}

static const struct pool_job_ops twice_ops = { .run = run_twice, .fetch = fetch_stage, .done = on_done };

START_TEST(test_a_row_may_need_several_inputs)
{
	/* An I/O thread fetches each row with the row's ticket; several rows may share a ticket. */
	static const uint32_t chunks[] = { 1, 7 };
	for (size_t i = 0; i < 2; i++) {
		struct fixture f;
		setup(&f, 2);
		struct batch *b = make_batch(&f, chunks[i]);
		b->job.ops = &twice_ops;
		pool_submit(f.pool, &f.queue, &b->job);
		uv_run(&f.loop, UV_RUN_DEFAULT);
		check_all_made_once(b);
		ck_assert_int_eq(atomic_load(&b->fetched), (int)(3 * ((ROWS + chunks[i] - 1) / chunks[i])));
		free(b);
		teardown(&f);
	}
}
END_TEST

START_TEST(test_a_cancelled_job_is_done_once_and_leaves_the_rest_unmade)
{
	/* Cancelled before, during and after; done comes exactly once each time. */
	struct fixture f;
	setup(&f, 2);
	for (int i = 0; i < 200; i++) {
		struct batch *b = make_batch(&f, 1);
		b->would_block_every = i % 3;
		pool_submit(f.pool, &f.queue, &b->job);
		for (int spin = 0; spin < i * 50; spin++)
			__asm__ volatile("" ::: "memory");
		pool_cancel(f.pool, &b->job);
		while (!b->n_done)
			uv_run(&f.loop, UV_RUN_ONCE);
		ck_assert_int_eq(b->n_done, 1);
		for (int row = 0; row < ROWS; row++)
			ck_assert_int_le(atomic_load(&b->made[row]), 1);
		free(b);
	}
	teardown(&f);
}
END_TEST

struct order {
	struct pool_job job;
	struct fixture *f;
	char name;
	int *n_left;
	char *log;
	atomic_int *at;
};

static int run_order(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *t)
{
	struct order *o = (struct order *)job;
	(void)worker, (void)first, (void)n, (void)t;
	o->log[atomic_fetch_add(o->at, 1)] = o->name;
	return 0;
}

static void order_done(struct pool_job *job)
{
	struct order *o = (struct order *)job;
	if (--*o->n_left == 0)
		uv_stop(&o->f->loop);
}

static const struct pool_job_ops order_ops = { .run = run_order, .fetch = NULL, .done = order_done };

START_TEST(test_the_queue_with_fewer_ready_batches_goes_first)
{
	/* One worker, held back until both queues have work: all of the urgent queue's rows come before the other's. */
	struct fixture f;
	struct pool_queue other;
	char log[128] = "";
	atomic_int at = 0;
	int n_left = 2;
	setup(&f, 1);
	ck_assert_int_eq(pool_queue_add(f.pool, &other, 0, 1, NULL), 0);
	struct batch *gate = make_batch(&f, 1);
	struct order a = { .job = { .ops = &order_ops, .n_rows = 20, .chunk = 1 },
			   .f = &f,
			   .name = 'a',
			   .n_left = &n_left,
			   .log = log,
			   .at = &at };
	struct order b = a;
	b.name = 'b';
	pool_queue_set_urgency(f.pool, &f.queue, 3, true);
	pool_queue_set_urgency(f.pool, &other, 0, true);
	gate->job.n_rows = 1;
	pool_submit(f.pool, &f.queue, &gate->job);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	/* Cancelling and submitting while the queues run would race; the lock makes the pair of submits the only
	 * window. */
	pool_submit(f.pool, &other, &b.job);
	pool_submit(f.pool, &f.queue, &a.job);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(strlen(log), 40);
	ck_assert_ptr_nonnull(strstr(log, "bbbbbbbbbbbbbbbbbbbb"));
	ck_assert_int_eq(log[0], 'b');
	free(gate);
	pool_queue_remove(f.pool, &other);
	teardown(&f);
}
END_TEST

START_TEST(test_a_job_that_no_trainer_waits_for_is_found_by_draining)
{
	/* Completion sends no wake-up; a caller that needs the result drains the queue. */
	struct fixture f;
	setup(&f, 2);
	struct batch *b = make_batch(&f, 7);
	pool_queue_set_urgency(f.pool, &f.queue, 2, false);
	pool_submit(f.pool, &f.queue, &b->job);
	struct pool_stats s;
	do
		pool_get_stats(f.pool, &s);
	while (s.n_rows < ROWS);
	uv_run(&f.loop, UV_RUN_NOWAIT);
	ck_assert_int_eq(b->n_done, 0);
	pool_drain(f.pool);
	check_all_made_once(b);
	uv_run(&f.loop, UV_RUN_NOWAIT); /* lets on_done's uv_stop take effect */
	/* A consumer starts to wait after completion: its done comes without a drain. */
	memset(b->made, 0, sizeof(b->made));
	b->n_done = 0;
	pool_submit(f.pool, &f.queue, &b->job);
	do
		pool_get_stats(f.pool, &s);
	while (s.n_rows < 2 * ROWS);
	pool_queue_set_urgency(f.pool, &f.queue, 0, true);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	check_all_made_once(b);
	pool_queue_set_urgency(f.pool, &f.queue, 0, false);
	/* Cancelled after completion: its done comes without a drain. */
	memset(b->made, 0, sizeof(b->made));
	b->n_done = 0;
	pool_submit(f.pool, &f.queue, &b->job);
	do
		pool_get_stats(f.pool, &s);
	while (s.n_rows < 3 * ROWS);
	pool_cancel(f.pool, &b->job);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	check_all_made_once(b);
	free(b);
	teardown(&f);
}
END_TEST

/* ---- waking workers ---- */

static int run_slowly(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	struct batch *b = (struct batch *)job;
	/* Rows that wait for each other: done only when two workers run them. */
	for (atomic_fetch_add(&b->fetched, 1); atomic_load(&b->fetched) < 4;)
		sched_yield();
	return run_row(job, worker, first, n, ticket);
}

static const struct pool_job_ops slow_ops = { .run = run_slowly, .fetch = fetch_row, .done = on_done };

START_TEST(test_workers_wake_one_another)
{
	/* A submit wakes one worker; four rows that need each other are made all the same, because each worker wakes
	 * the next. */
	struct fixture f;
	setup(&f, 4);
	for (int i = 0; i < 100; i++) {
		struct batch *b = make_batch(&f, 1);
		b->job.ops = &slow_ops;
		b->job.n_rows = 4;
		pool_submit(f.pool, &f.queue, &b->job);
		uv_run(&f.loop, UV_RUN_DEFAULT);
		ck_assert_int_eq(b->n_done, 1);
		free(b);
	}
	teardown(&f);
}
END_TEST

struct job_task {
	struct pool_task task;
	struct fixture *f;
	int ran, done;
};

static void task_run(struct pool_task *t)
{
	((struct job_task *)t)->ran++;
}

static void task_done(struct pool_task *t)
{
	struct job_task *task = (struct job_task *)t;
	task->done++;
	uv_stop(&task->f->loop);
}

START_TEST(test_a_task_runs_once_off_the_loop_and_comes_back_to_it)
{
	/* The I/O thread writes `ran`, the loop thread writes `done`; ThreadSanitizer checks the hand-over. */
	struct fixture f;
	setup(&f, 1);
	struct job_task t = { .task = { .run = task_run, .done = task_done }, .f = &f };
	pool_run_task(f.pool, &t.task);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(t.ran, 1);
	ck_assert_int_eq(t.done, 1);
	teardown(&f);
}
END_TEST

START_TEST(test_work_goes_on_while_the_number_of_workers_changes)
{
	/* A wake-up that reached a resting worker would be lost and the loop would hang. */
	struct fixture f;
	setup(&f, 4);
	for (unsigned i = 0; i < 100; i++) {
		struct batch *b = make_batch(&f, 3);
		pool_set_target(f.pool, 1 + i % 4);
		pool_submit(f.pool, &f.queue, &b->job);
		uv_run(&f.loop, UV_RUN_DEFAULT);
		check_all_made_once(b);
		free(b);
	}
	teardown(&f);
}
END_TEST

SUITE(pool)
{
	Suite *s = suite_create("pool");
	TCase *t = tcase_create("pool");
	tcase_add_test(t, test_every_row_is_made_once_in_any_chunks);
	tcase_add_test(t, test_rows_that_would_block_are_fetched_by_io_threads);
	tcase_add_test(t, test_a_disk_that_does_not_answer_holds_up_no_other_job);
	tcase_add_test(t, test_rows_at_hand_are_made_when_every_ticket_is_out);
	tcase_add_test(t, test_a_row_without_a_ticket_can_be_cancelled);
	tcase_add_test(t, test_a_row_may_need_several_inputs);
	tcase_add_test(t, test_a_cancelled_job_is_done_once_and_leaves_the_rest_unmade);
	tcase_add_test(t, test_the_queue_with_fewer_ready_batches_goes_first);
	tcase_add_test(t, test_a_job_that_no_trainer_waits_for_is_found_by_draining);
	tcase_add_test(t, test_workers_wake_one_another);
	tcase_add_test(t, test_a_task_runs_once_off_the_loop_and_comes_back_to_it);
	tcase_add_test(t, test_work_goes_on_while_the_number_of_workers_changes);
	suite_add_tcase(s, t);
	return s;
}
