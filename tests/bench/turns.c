/* What it costs to choose the next row: turns [ROWS]
 *
 * A pool with one worker, whose rows do nothing, has 1 to 1000 queues with rows to take, of one user or of a user each.
 * Prints the worker's CPU time for a row: choosing its queue, taking it and counting it. Instructions are counted by
 * valgrind --tool=callgrind, with `turns ROWS QUEUES` for one line of the table. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "batch/pool/pool.h"

enum { MOST_QUEUES = 1000, ROUNDS = 3 };

struct rows {
	struct pool_job job;
	struct pool_queue queue;
	struct fixture *f;
};

struct fixture {
	uv_loop_t loop;
	struct pool *pool;
	struct rows rows[MOST_QUEUES];
	uv_sem_t gate; /* the first row waits here until all queues have rows */
	unsigned n_left;
	bool begun;
	uint64_t begun_ns, ended_ns; /* CPU time of the worker */
};

static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int run_row(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	struct fixture *f = ((struct rows *)job)->f;
	(void)worker, (void)n, (void)ticket;
	if (!f->begun) {
		f->begun = true;
		uv_sem_wait(&f->gate);
		f->begun_ns = cpu_ns();
	}
	if (first + 1 == job->n_rows)
		f->ended_ns = cpu_ns();
	return 0;
}

static void on_done(struct pool_job *job)
{
	struct fixture *f = ((struct rows *)job)->f;
	if (--f->n_left == 0)
		uv_stop(&f->loop);
}

static void *make_thing(void *arg)
{
	(void)arg;
	return calloc(1, 16);
}

/* Nanoseconds for a row. */
static double measure(unsigned n_queues, unsigned n_users, unsigned n_rows)
{
	static const struct pool_job_ops ops = { .run = run_row, .done = on_done };
	struct fixture *f = calloc(1, sizeof(*f));
	struct pool_params params = { .max_workers = 1,
				      .n_io = 1,
				      .n_tickets = 2,
				      .worker_create = make_thing,
				      .worker_destroy = free,
				      .input_create = make_thing,
				      .input_destroy = free };
	if (!f || uv_loop_init(&f->loop) || uv_sem_init(&f->gate, 0) || pool_create(&f->loop, &params, &f->pool))
		abort();
	f->n_left = n_queues;
	for (unsigned i = 0; i < n_queues; i++) {
		struct rows *r = &f->rows[i];
		r->f = f;
		r->job = (struct pool_job){ .ops = &ops, .n_rows = n_rows / n_queues, .chunk = 1 };
		if (pool_queue_add(f->pool, &r->queue, 0, i % n_users, NULL))
			abort();
		pool_submit(f->pool, &r->queue, &r->job);
	}
	uv_sem_post(&f->gate);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	for (unsigned i = 0; i < n_queues; i++)
		pool_queue_remove(f->pool, &f->rows[i].queue);
	pool_close(f->pool, NULL, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	uv_loop_close(&f->loop);
	uv_sem_destroy(&f->gate);
	double ns = (double)(f->ended_ns - f->begun_ns) / n_rows;
	free(f);
	return ns;
}

/* The least of a few rounds: what else runs on the machine only adds to it. */
static void print(unsigned n_queues, unsigned n_rows)
{
	double one = 1e9, each = 1e9;
	for (unsigned round = 0; round < ROUNDS; round++) {
		double a = measure(n_queues, 1, n_rows), b = measure(n_queues, n_queues, n_rows);
		one = a < one ? a : one;
		each = b < each ? b : each;
	}
	printf("%4u queues: %7.0f ns a row; of a user each: %7.0f ns\n", n_queues, one, each);
}

int main(int argc, char **argv)
{
	static const unsigned n[] = { 1, 2, 4, 10, 100, MOST_QUEUES };
	unsigned n_rows = argc > 1 ? (unsigned)atoi(argv[1]) : 100000, only = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	if (only) {
		printf("%u queues: %.0f ns a row\n", only, measure(only > MOST_QUEUES ? MOST_QUEUES : only, 1, n_rows));
		return 0;
	}
	for (unsigned i = 0; i < sizeof(n) / sizeof(n[0]); i++)
		print(n[i], n_rows);
}
