/* What the watchdog is told of the workers: a row that waits for memory or computes makes progress, one that hangs does
 * not, and one that computes for ever is seen by the processor time that it has used. Real threads. */
#include <check.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "batch/pool/pool.h"
#include "support/suite.h"
#include "base/container.h"

enum { MS = 1000000 };

enum act { HANG, WAIT_FOR_MEMORY, COMPUTE };

struct fixture {
	uv_loop_t loop;
	struct pool *pool;
	struct pool_queue queue;
	struct pool_job job;
	struct pool_progress progress;
	bool done;
};

static atomic_int act;
static atomic_bool stop, begun;
static uv_sem_t gate;

static int run_row(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	(void)job, (void)worker, (void)first, (void)n, (void)ticket;
	atomic_store(&begun, true);
	if (atomic_load(&act) != COMPUTE)
		uv_sem_wait(&gate);
	while (!atomic_load(&stop))
		;
	return 0;
}

static void on_done(struct pool_job *job)
{
	struct fixture *f = container_of(job, struct fixture, job);
	f->done = true;
}

static const struct pool_job_ops ops = { .run = run_row, .done = on_done };

static void *make_thing(void *arg)
{
	(void)arg;
	return calloc(1, 16);
}

static enum stage stage_of_worker(const void *worker)
{
	(void)worker;
	return atomic_load(&act) == WAIT_FOR_MEMORY ? STAGE_MEMORY : STAGE_DECODE;
}

static void setup(struct fixture *f, enum act first)
{
	memset(f, 0, sizeof(*f));
	atomic_store(&act, first);
	atomic_store(&stop, false);
	atomic_store(&begun, false);
	ck_assert_int_eq(uv_sem_init(&gate, 0), 0);
	ck_assert_int_eq(uv_loop_init(&f->loop), 0);
	struct pool_params params = { .max_workers = 1,
				      .n_io = 1,
				      .n_tickets = 1,
				      .worker_create = make_thing,
				      .worker_destroy = free,
				      .input_create = make_thing,
				      .input_destroy = free,
				      .worker_stage = stage_of_worker };
	ck_assert_int_eq(pool_create(&f->loop, &params, &f->pool), 0);
	ck_assert_int_eq(pool_queue_add(f->pool, &f->queue, 0, 1, NULL), 0);
	f->job = (struct pool_job){ .ops = &ops, .n_rows = 1, .chunk = 1 };
	pool_submit(f->pool, &f->queue, &f->job);
	while (!atomic_load(&begun))
		sched_yield();
	pool_get_progress(f->pool, &f->progress); /* the first look */
}

static void teardown(struct fixture *f)
{
	atomic_store(&stop, true);
	uv_sem_post(&gate);
	while (!f->done)
		uv_run(&f->loop, UV_RUN_ONCE);
	pool_get_progress(f->pool, &f->progress);
	ck_assert_uint_eq(f->progress.idle_ns, 0);
	ck_assert_uint_eq(f->progress.row_ns, 0);
	pool_queue_remove(f->pool, &f->queue);
	pool_close(f->pool, NULL, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&f->loop), 0);
	uv_sem_destroy(&gate);
}

START_TEST(test_a_worker_that_hangs_makes_no_progress)
{
	struct fixture f;
	setup(&f, HANG);
	uint64_t began = uv_hrtime();
	do {
		uv_sleep(1);
		pool_get_progress(f.pool, &f.progress);
	} while (f.progress.idle_ns < 10 * MS);
	ck_assert_uint_le(f.progress.idle_ns, uv_hrtime() - began + 100 * MS);
	teardown(&f);
}
END_TEST

START_TEST(test_a_worker_that_waits_for_memory_is_not_stuck)
{
	struct fixture f;
	setup(&f, WAIT_FOR_MEMORY);
	for (uint64_t began = uv_hrtime(); uv_hrtime() - began < 50 * MS;) {
		uv_sleep(1);
		pool_get_progress(f.pool, &f.progress);
		ck_assert_uint_eq(f.progress.idle_ns, 0);
	}
	teardown(&f);
}
END_TEST

START_TEST(test_a_worker_that_computes_is_seen_by_what_it_has_used)
{
	/* However busy the machine is: it is not idle once it has used a millisecond since the last look. */
	struct fixture f;
	setup(&f, COMPUTE);
	while (f.progress.row_ns < 20 * MS) {
		uint64_t before = f.progress.row_ns;
		uv_sleep(1);
		pool_get_progress(f.pool, &f.progress);
		if (f.progress.row_ns >= before + 2 * MS)
			ck_assert_uint_eq(f.progress.idle_ns, 0);
	}
	teardown(&f);
}
END_TEST

SUITE(pool_progress)
{
	Suite *s = suite_create("pool progress");
	TCase *t = tcase_create("pool progress");
	tcase_add_test(t, test_a_worker_that_hangs_makes_no_progress);
	tcase_add_test(t, test_a_worker_that_waits_for_memory_is_not_stuck);
	tcase_add_test(t, test_a_worker_that_computes_is_seen_by_what_it_has_used);
	suite_add_tcase(s, t);
	return s;
}
