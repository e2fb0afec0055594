/* The order of an epoch: what makes a list of all samples is no work for the loop's thread. */
#include <string.h>

#include "support/consumers.h"
#include "batch/loader.h"
#include "batch/slots.h"
#include "dataset/dataset.h"
#include "support/loaders.h"
#include "support/suite.h"

enum { BATCH = 4, SLOTS = 2 };

static struct {
	uv_loop_t loop;
	struct pool *pool;
	struct loader *loader;
	struct consumer c;
	bool closed;
} t;

static int on_publish(struct consumer *c, const struct slot *slot)
{
	(void)c, (void)slot;
	return 0;
}

static const struct consumer_ops consumer_ops = { .publish = on_publish, .look = consumer_look, .arm = consumer_arm };

static void on_closed(struct loader *l)
{
	(void)l;
	t.closed = true;
}

static const struct loader_ops loader_ops = { .failed = loaders_on_failed,
					      .published = loaders_on_published,
					      .closed = on_closed };

/* Orders that an I/O thread makes; their end comes by the loop, which has not run yet. */
static unsigned n_tasks(void)
{
	unsigned n = 0;
	for (unsigned i = 0; i < 4; i++)
		n += t.loader->plans[i].in_use && !t.loader->plans[i].plan;
	return n;
}

static void *make_nothing(void *arg)
{
	(void)arg;
	return malloc(1);
}

/* Begins an epoch. */
static void begin(const char *dataset, uint32_t shuffle)
{
	struct pool_params params = { .max_workers = 1,
				      .n_io = 1,
				      .n_tickets = 1,
				      .worker_create = make_nothing,
				      .worker_destroy = free,
				      .input_create = make_nothing,
				      .input_destroy = free };
	struct data_access access = { .trusted = true };
	struct dataset_source source = { .spec = dataset, .access = &access };
	struct dataset_error err;
	struct recipe recipe = { .dataset = NULL };
	struct loader_spec copy, spec = { .job = (char *)"j",
					  .dataset = (char *)dataset,
					  .transform = (char *)"",
					  .fields = (char *)"",
					  .batch_size = BATCH,
					  .world_size = 1,
					  .shuffle = shuffle };
	struct slots *slots;

	memset(&t, 0, sizeof(t));
	t.c.ops = &consumer_ops;
	ck_assert_msg(dataset_open(&source, &recipe.dataset, &err) == 0, "%s", err.text);
	uv_loop_init(&t.loop);
	ck_assert_int_eq(pool_create(&t.loop, &params, &t.pool), 0);
	ck_assert_int_eq(loader_spec_copy(&spec, &copy), 0);
	ck_assert_int_eq(loader_create(t.pool, &copy, &recipe, 0, &loader_ops, NULL, &t.loader), 0);
	ck_assert_int_eq(slots_create(&t.loader->layout, SLOTS, SLOTS, &slots), 0);
	stream_set_slots(loader_stream(t.loader, 0), slots);
	ck_assert_int_eq(loader_attach(t.loader, &t.c, 0), 0);
	loader_seek(&t.c, 1, &(struct position){ 0 });
}

static void end(void)
{
	loader_finish_consumer(&t.c);
	loader_close(t.loader);
	while (!t.closed)
		uv_run(&t.loop, UV_RUN_ONCE);
	pool_close(t.pool, NULL, NULL);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	uv_loop_close(&t.loop);
}

static const char *const large[] = {
	"blend:3*random:length=500000,shape=1,dtype=uint8;;1*random:length=500000,shape=1,dtype=uint8",
	"random:length=1000000,shape=1,dtype=uint8",
};

START_TEST(test_long_lists_are_made_by_a_task)
{
	/* Proves that the loop makes neither the list of a blend with weights, nor a shuffled one, of many samples. */
	begin(large[0], 0);
	ck_assert_uint_gt(n_tasks(), 0);
	ck_assert_uint_gt(loader_order_bytes(t.loader, UINT64_C(1) << 30), 0);
	end();
	begin(large[1], 1);
	ck_assert_uint_gt(n_tasks(), 0);
	end();
}
END_TEST

START_TEST(test_an_order_without_a_list_needs_no_task)
{
	begin(large[1], 0);
	ck_assert_uint_eq(n_tasks(), 0);
	ck_assert_uint_eq(loader_order_bytes(t.loader, UINT64_C(1) << 30), 0);
	end();
}
END_TEST

SUITE(loader_order)
{
	TCase *c = tcase_create("loader order");
	Suite *s = suite_create("loader order");

	tcase_add_test(c, test_long_lists_are_made_by_a_task);
	tcase_add_test(c, test_an_order_without_a_list_needs_no_task);
	suite_add_tcase(s, c);
	return s;
}
