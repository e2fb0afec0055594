/* Which queue's rows a worker takes next, among the queues of one user: real threads, one worker, slow rows. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "batch/pool/pool.h"
#include "support/suite.h"

enum { MOST_ROWS = 400, ROW_NS = 1000000 };

struct fixture {
	uv_loop_t loop;
	struct pool *pool;
	uv_sem_t gate;           /* row 'g' waits for this */
	char log[3 * MOST_ROWS]; /* rows made, in order; only the single worker writes it */
	size_t n_logged;
	int n_left; /* jobs; the loop ends at 0 */
};

struct rows {
	struct pool_job job;
	struct fixture *f;
	char name;
};

static int run_row(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	struct rows *r = (struct rows *)job;
	(void)worker, (void)first, (void)n, (void)ticket;
	if (r->name == 'g')
		uv_sem_wait(&r->f->gate);
	for (uint64_t end = uv_hrtime() + ROW_NS; uv_hrtime() < end;)
		;
	r->f->log[r->f->n_logged++] = r->name;
	return 0;
}

static void on_done(struct pool_job *job)
{
	struct rows *r = (struct rows *)job;
	if (--r->f->n_left == 0)
		uv_stop(&r->f->loop);
}

static const struct pool_job_ops ops = { .run = run_row, .done = on_done };

static void *make_thing(void *arg)
{
	(void)arg;
	return calloc(1, 16);
}

static void setup(struct fixture *f)
{
	memset(f, 0, sizeof(*f));
	ck_assert_int_eq(uv_loop_init(&f->loop), 0);
	ck_assert_int_eq(uv_sem_init(&f->gate, 0), 0);
	struct pool_params params = { .max_workers = 1,
				      .n_io = 1,
				      .n_tickets = 2,
				      .worker_create = make_thing,
				      .worker_destroy = free,
				      .input_create = make_thing,
				      .input_destroy = free };
	ck_assert_int_eq(pool_create(&f->loop, &params, &f->pool), 0);
}

static void teardown(struct fixture *f)
{
	pool_close(f->pool, NULL, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	uv_sem_destroy(&f->gate);
	ck_assert_int_eq(uv_loop_close(&f->loop), 0);
}

static void submit(struct fixture *f, struct pool_queue *q, struct rows *r, char name, uint32_t n_rows)
{
	*r = (struct rows){ .job = { .ops = &ops, .n_rows = n_rows, .chunk = 1 }, .f = f, .name = name };
	f->n_left++;
	pool_submit(f->pool, q, &r->job);
}

START_TEST(test_a_queue_with_ready_batches_gets_its_share_beside_one_that_never_has_any)
{
	/* The trainer may have taken them since: the pool's count of ready batches may be out of date. */
	struct fixture f;
	struct pool_queue starving, ready;
	struct rows many, one;
	setup(&f);
	ck_assert_int_eq(pool_queue_add(f.pool, &starving, 0, 1, NULL), 0);
	ck_assert_int_eq(pool_queue_add(f.pool, &ready, 0, 1, NULL), 0);
	pool_queue_set_urgency(f.pool, &starving, 0, true);
	pool_queue_set_urgency(f.pool, &ready, 2, true);
	submit(&f, &starving, &many, 's', MOST_ROWS);
	submit(&f, &ready, &one, 'r', 1);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(f.n_logged, MOST_ROWS + 1);
	ck_assert_int_eq(f.log[f.n_logged - 1], 's');
	pool_queue_remove(f.pool, &starving);
	pool_queue_remove(f.pool, &ready);
	teardown(&f);
}
END_TEST

START_TEST(test_a_queue_that_had_the_machine_alone_does_not_wait_for_a_new_one_to_catch_up)
{
	/* The list was empty when the new queue got work, so there was no other queue to be equal with. */
	struct fixture f;
	struct pool_queue old, new;
	struct rows alone, gate, first, second;
	setup(&f);
	ck_assert_int_eq(pool_queue_add(f.pool, &old, 0, 1, NULL), 0);
	ck_assert_int_eq(pool_queue_add(f.pool, &new, 0, 1, NULL), 0);
	pool_queue_set_urgency(f.pool, &old, 0, true);
	pool_queue_set_urgency(f.pool, &new, 0, true);
	submit(&f, &old, &alone, 'o', 300);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	f.n_logged = 0;
	submit(&f, &new, &gate, 'g', 1);
	submit(&f, &new, &first, 'n', 200);
	submit(&f, &old, &second, 'o', 20);
	uv_sem_post(&f.gate);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	size_t last_old = 0;
	for (size_t i = 0; i < f.n_logged; i++)
		last_old = f.log[i] == 'o' ? i : last_old;
	ck_assert_uint_eq(f.n_logged, 221);
	ck_assert_uint_lt(last_old, 150);
	pool_queue_remove(f.pool, &old);
	pool_queue_remove(f.pool, &new);
	teardown(&f);
}
END_TEST

START_TEST(test_a_single_image_goes_before_the_rows_of_a_trainer)
{
	/* The queue of a client that loads an image now and then, beside that of a trainer that always has rows to make,
	 * with batches ahead or without: it waits for the row in work, and for no other. */
	struct fixture f;
	struct pool_queue trainer, images;
	struct rows gate, batch, image;
	setup(&f);
	ck_assert_int_eq(pool_queue_add(f.pool, &trainer, 0, 1, NULL), 0);
	ck_assert_int_eq(pool_queue_add(f.pool, &images, 0, 1, NULL), 0);
	pool_queue_set_urgency(f.pool, &images, 0, true);
	for (int round = 0; round < 10; round++) {
		pool_queue_set_urgency(f.pool, &trainer, round % 2 ? 3 : 0, true);
		f.n_logged = 0;
		submit(&f, &trainer, &gate, 'g', 1);
		submit(&f, &trainer, &batch, 's', 20);
		submit(&f, &images, &image, 'i', 1);
		uv_sem_post(&f.gate);
		uv_run(&f.loop, UV_RUN_DEFAULT);
		ck_assert_uint_eq(f.n_logged, 22);
		ck_assert(f.log[0] == 'i' || f.log[1] == 'i');
	}
	pool_queue_remove(f.pool, &trainer);
	pool_queue_remove(f.pool, &images);
	teardown(&f);
}
END_TEST

SUITE(pool_turns)
{
	Suite *s = suite_create("pool turns");
	TCase *tc = tcase_create("one user");
	tcase_add_test(tc, test_a_queue_with_ready_batches_gets_its_share_beside_one_that_never_has_any);
	tcase_add_test(tc, test_a_queue_that_had_the_machine_alone_does_not_wait_for_a_new_one_to_catch_up);
	tcase_add_test(tc, test_a_single_image_goes_before_the_rows_of_a_trainer);
	suite_add_tcase(s, tc);
	return s;
}
