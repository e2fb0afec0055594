/* The worker pool on a machine with two NUMA nodes: which processors workers are bound to, and which rows they prefer.
 * The nodes are made up of two of this machine's processors. */
#include <check.h>
#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch/pool/pool.h"
#include "base/nodes.h"
#include "support/suite.h"

enum { MOST_ROWS = 64 };

struct fixture {
	uv_loop_t loop;
	struct pool *pool;
	struct pool_queue queue;
	struct nodes *nodes;
	int processor[2];
	char log[MOST_ROWS + 1]; /* a letter of its job for each row, in the order in which they were begun */
	atomic_int n_logged;
	int n_left; /* jobs */
};

struct batch {
	struct pool_job job;
	struct fixture *f;
	char name;
	bool would_block;
	atomic_bool *held; /* the fetch or the row waits until this is false */
	atomic_int n_begun, n_fetched;
};

/* A worker's own state: the thread that made it. */
static void *make_thing(void *arg)
{
	pid_t *tid = calloc(1, sizeof(*tid));
	(void)arg;
	*tid = gettid();
	return tid;
}

static int run_row(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	struct batch *b = (struct batch *)job;
	(void)first, (void)n;
	ck_assert_int_eq(*(pid_t *)worker, gettid());
	if (b->would_block && !ticket)
		return POOL_WOULD_BLOCK;
	b->f->log[atomic_fetch_add(&b->f->n_logged, 1)] = b->name;
	atomic_fetch_add(&b->n_begun, 1);
	while (!b->would_block && b->held && atomic_load(b->held))
		sched_yield();
	return 0;
}

static void fetch_row(struct pool_job *job, struct pool_ticket *ticket)
{
	struct batch *b = (struct batch *)job;
	(void)ticket;
	while (b->held && atomic_load(b->held))
		sched_yield();
	atomic_fetch_add(&b->n_fetched, 1);
}

static void on_done(struct pool_job *job)
{
	struct fixture *f = ((struct batch *)job)->f;
	if (--f->n_left == 0)
		uv_stop(&f->loop);
}

static const struct pool_job_ops ops = { .run = run_row, .fetch = fetch_row, .done = on_done };

/* False: this machine has only one processor. */
static bool find_processors(int processor[2])
{
	cpu_set_t set;
	int n = 0;
	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	for (int i = 0; i < CPU_SETSIZE && n < 2; i++) {
		if (CPU_ISSET(i, &set))
			processor[n++] = i;
	}
	if (n < 2)
		printf("skipped: this needs two processors\n");
	return n == 2;
}

static bool setup(struct fixture *f, unsigned workers, bool with_nodes)
{
	memset(f, 0, sizeof(*f));
	if (!find_processors(f->processor))
		return false;
	f->nodes = calloc(1, sizeof(*f->nodes) + 2 * sizeof(f->nodes->node[0]));
	f->nodes->n = f->nodes->n_memory = 2;
	for (unsigned i = 0; i < 2; i++) {
		unsigned at = (unsigned)f->processor[i];
		f->nodes->node[i] = (struct node){ .number = (int)i, .n_processors = 1 };
		f->nodes->node[i].processors[at / NODES_WORD_BITS] = 1UL << at % NODES_WORD_BITS;
	}
	ck_assert_int_eq(uv_loop_init(&f->loop), 0);
	struct pool_params params = { .max_workers = workers,
				      .n_io = 1,
				      .n_tickets = 64,
				      .worker_create = make_thing,
				      .worker_destroy = free,
				      .input_create = make_thing,
				      .input_destroy = free,
				      .nodes = with_nodes ? f->nodes : NULL };
	ck_assert_int_eq(pool_create(&f->loop, &params, &f->pool), 0);
	ck_assert_int_eq(pool_queue_add(f->pool, &f->queue, 0, 1, NULL), 0);
	return true;
}

static void teardown(struct fixture *f)
{
	pool_queue_remove(f->pool, &f->queue);
	pool_close(f->pool, NULL, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&f->loop), 0);
	free(f->nodes);
}

/* node: 1 and 2 are the first and the second; 0: any. */
static void submit(struct fixture *f, struct batch *b, char name, unsigned node, uint32_t n_rows)
{
	b->f = f;
	b->name = name;
	b->job = (struct pool_job){ .ops = &ops, .n_rows = n_rows, .chunk = 1, .node = node };
	f->n_left++;
	pool_submit(f->pool, &f->queue, &b->job);
}

/* Keeps the only worker that may work until *held is false. */
static void hold_worker(struct fixture *f, struct batch *gate, atomic_bool *held)
{
	gate->held = held;
	submit(f, gate, '.', 0, 1);
	while (!atomic_load(&gate->n_begun))
		sched_yield();
}

/* ---- processors ---- */

static void read_status(const char *task, const char *key, char *out, size_t size)
{
	char path[320], line[4096];
	snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
	FILE *f = fopen(path, "re");
	*out = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, key, strlen(key)))
			snprintf(out, size, "%.*s", (int)strcspn(line + strlen(key), "\n"), line + strlen(key));
	}
	if (f)
		fclose(f);
}

/* Counts the pool's threads by what they may run on: either processor alone, or what the process may. */
static void count_threads(const struct fixture *f, unsigned bound[2], unsigned *n_free)
{
	char name[64], on[4096], all[4096], one[2][16], main_task[16];
	DIR *tasks = opendir("/proc/self/task");
	bound[0] = bound[1] = *n_free = 0;
	for (int i = 0; i < 2; i++)
		snprintf(one[i], sizeof(one[i]), "%d", f->processor[i]);
	snprintf(main_task, sizeof(main_task), "%d", (int)getpid());
	read_status(main_task, "Cpus_allowed_list:\t", all, sizeof(all));
	for (struct dirent *e; (e = readdir(tasks));) {
		read_status(e->d_name, "Name:\t", name, sizeof(name));
		read_status(e->d_name, "Cpus_allowed_list:\t", on, sizeof(on));
		if (strncmp(name, "batchd-", 7) != 0)
			continue;
		bool worker = !strcmp(name, "batchd-worker");
		ck_assert_msg(!strcmp(on, all) || worker, "%s is on %s", name, on);
		*n_free += worker && !strcmp(on, all);
		bound[0] += worker && !strcmp(on, one[0]);
		bound[1] += worker && !strcmp(on, one[1]);
	}
	closedir(tasks);
}

START_TEST(test_workers_are_bound_to_their_nodes)
{
	/* All other threads may run anywhere. That each worker makes its state itself, run_row asserts. */
	struct fixture f;
	unsigned bound[2], n_free;
	if (!setup(&f, 4, true))
		return;
	count_threads(&f, bound, &n_free);
	ck_assert_uint_eq(bound[0], 2);
	ck_assert_uint_eq(bound[1], 2);
	ck_assert_uint_eq(n_free, 0);
	teardown(&f);
}
END_TEST

START_TEST(test_with_one_node_no_worker_is_bound)
{
	struct fixture f;
	struct batch a = { .name = 'a' };
	struct pool_stats s;
	unsigned bound[2], n_free;
	if (!setup(&f, 4, false))
		return;
	count_threads(&f, bound, &n_free);
	ck_assert_uint_eq(n_free, 4);
	submit(&f, &a, 'a', 0, 10);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	pool_get_stats(f.pool, &s);
	ck_assert_uint_eq(s.n_rows, 10);
	ck_assert_uint_eq(s.n_near, 0);
	teardown(&f);
}
END_TEST

START_TEST(test_a_worker_that_cannot_be_bound_works_all_the_same)
{
	struct fixture f;
	struct batch a = { .name = 'a' };
	if (!setup(&f, 1, false))
		return;
	teardown(&f);
	memset(&f, 0, sizeof(f));
	f.nodes = calloc(1, sizeof(*f.nodes) + 2 * sizeof(f.nodes->node[0]));
	f.nodes->n = f.nodes->n_memory = 2;
	for (unsigned i = 0; i < 2; i++) /* a processor that this machine does not have */
		f.nodes->node[i] = (struct node){ .n_processors = 1, .processors = { [NODES_WORDS - 1] = 1UL << 63 } };
	ck_assert_int_eq(uv_loop_init(&f.loop), 0);
	struct pool_params params = { .max_workers = 2,
				      .n_io = 1,
				      .n_tickets = 8,
				      .worker_create = make_thing,
				      .worker_destroy = free,
				      .input_create = make_thing,
				      .input_destroy = free,
				      .nodes = f.nodes };
	ck_assert_int_eq(pool_create(&f.loop, &params, &f.pool), 0);
	ck_assert_int_eq(pool_queue_add(f.pool, &f.queue, 0, 1, NULL), 0);
	ck_assert_int_ne(atomic_load(&f.nodes->bind_error), 0);
	submit(&f, &a, 'a', 1, 10);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_str_eq(f.log, "aaaaaaaaaa");
	teardown(&f);
}
END_TEST

/* ---- rows ---- */

START_TEST(test_a_worker_takes_rows_of_its_node_first)
{
	/* The worker of the first node has the choice of `a` on the second and `b` on its own. Afterwards it makes the
	 * rows of the other node. */
	struct fixture f;
	struct batch gate = { .name = '.' }, a = { .name = 'a' }, b = { .name = 'b' };
	atomic_bool held = true;
	struct pool_stats s;
	if (!setup(&f, 2, true))
		return;
	pool_set_target(f.pool, 1);
	hold_worker(&f, &gate, &held);
	submit(&f, &a, 'a', 2, 5);
	submit(&f, &b, 'b', 1, 5);
	atomic_store(&held, false);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_str_eq(f.log, ".bbbbbaaaaa");
	pool_get_stats(f.pool, &s);
	ck_assert_uint_eq(s.n_near, 5);
	teardown(&f);
}
END_TEST

START_TEST(test_a_worker_does_not_run_far_ahead)
{
	/* It looks at twice as many jobs as there are nodes: `e` is the fifth, until `a` is made. */
	struct fixture f;
	struct batch gate = { .name = '.' }, batch[5] = { { .name = 'a' } };
	atomic_bool held = true;
	if (!setup(&f, 2, true))
		return;
	pool_set_target(f.pool, 1);
	hold_worker(&f, &gate, &held);
	for (unsigned i = 0; i < 5; i++)
		submit(&f, &batch[i], (char)('a' + i), i < 4 ? 2 : 1, 2);
	atomic_store(&held, false);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_str_eq(f.log, ".aaeebbccdd");
	teardown(&f);
}
END_TEST

START_TEST(test_fetched_rows_of_its_node_come_first)
{
	struct fixture f;
	struct batch gate = { .name = '.' };
	atomic_bool held = true, fetching = true;
	struct batch a = { .would_block = true, .held = &fetching }, b = { .would_block = true, .held = &fetching };
	struct pool_stats s;
	if (!setup(&f, 2, true))
		return;
	pool_set_target(f.pool, 1);
	submit(&f, &a, 'a', 2, 2);
	do
		pool_get_stats(f.pool, &s);
	while (s.n_parked < 2);
	submit(&f, &b, 'b', 1, 2);
	do
		pool_get_stats(f.pool, &s);
	while (s.n_parked < 4);
	hold_worker(&f, &gate, &held);
	atomic_store(&fetching, false); /* a's rows are fetched before b's */
	do
		pool_get_stats(f.pool, &s);
	while (s.io_busy || atomic_load(&a.n_fetched) < 2 || atomic_load(&b.n_fetched) < 2);
	atomic_store(&held, false);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_str_eq(f.log, ".bbaa");
	teardown(&f);
}
END_TEST

static atomic_int n_together;

static int run_together(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *t)
{
	(void)job, (void)worker, (void)first, (void)n, (void)t;
	for (atomic_fetch_add(&n_together, 1); atomic_load(&n_together) < 4;)
		sched_yield();
	return 0;
}

START_TEST(test_rows_of_one_node_are_made_by_all_workers)
{
	/* Four rows that wait for one another, all on the second node: done only if the first node's workers make some,
	 * too. */
	static const struct pool_job_ops together = { .run = run_together, .done = on_done };
	struct fixture f;
	if (!setup(&f, 4, true))
		return;
	for (int i = 0; i < 50; i++) {
		struct batch b = { .f = &f, .job = { .ops = &together, .n_rows = 4, .chunk = 1, .node = 1 + i % 2 } };
		atomic_store(&n_together, 0);
		f.n_left = 1;
		pool_submit(f.pool, &f.queue, &b.job);
		uv_run(&f.loop, UV_RUN_DEFAULT);
	}
	teardown(&f);
}
END_TEST

SUITE(pool_nodes)
{
	Suite *s = suite_create("pool nodes");
	TCase *t = tcase_create("pool nodes");
	tcase_add_test(t, test_workers_are_bound_to_their_nodes);
	tcase_add_test(t, test_with_one_node_no_worker_is_bound);
	tcase_add_test(t, test_a_worker_that_cannot_be_bound_works_all_the_same);
	tcase_add_test(t, test_a_worker_takes_rows_of_its_node_first);
	tcase_add_test(t, test_a_worker_does_not_run_far_ahead);
	tcase_add_test(t, test_fetched_rows_of_its_node_come_first);
	tcase_add_test(t, test_rows_of_one_node_are_made_by_all_workers);
	suite_add_tcase(s, t);
	return s;
}
