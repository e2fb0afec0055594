/* Working memory: shared, bounded, without circular waits; and samples that need more than there is. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "batch/sample.h"
#include "dataset/cache/sample-cache.h"
#include "image/formats/decode.h"
#include "support/jpegs.h"
#include "support/datasets.h" /* after those: its fixture is called f */

enum { MIB = 1 << 20 };

static struct work_memory memory;

static void *get(struct workspace *ws, size_t bytes, struct workspace **payer)
{
	workspace_enter(ws, 1);
	return work_alloc(bytes, payer);
}

START_TEST(test_the_reserve_serves_a_worker_that_needs_more_than_is_left)
{
	/* Proves both sides of a workspace's limit, the text of a refusal, and that all memory comes back. */
	struct workspace a = { .of = &memory }, *payer[3];
	void *p[3];

	work_memory_init(&memory, 4 * MIB); /* 1 for all, 3 in reserve */
	p[0] = get(&a, MIB, &payer[0]);
	ck_assert(p[0] && !a.holds);
	p[1] = get(&a, MIB, &payer[1]);
	ck_assert(p[1] && a.holds);
	p[2] = get(&a, MIB + 1, &payer[2]);
	ck_assert_ptr_null(p[2]);
	ck_assert_uint_eq(a.refused_bytes, 3 * MIB + 1);
	p[2] = get(&a, MIB, &payer[2]);
	ck_assert_ptr_nonnull(p[2]);
	ck_assert_uint_eq(work_memory_used(&memory), 3 * MIB);
	for (int i = 0; i < 3; i++)
		work_free(p[i], MIB, payer[i]);
	workspace_leave(&a);
	ck_assert(!a.holds && a.used_bytes == 0 && memory.left_bytes == MIB);
	work_memory_finish(&memory);
}
END_TEST

START_TEST(test_no_bytes_at_all_are_no_memory)
{
	struct workspace a = { .of = &memory }, *payer[2];
	work_memory_init(&memory, 4 * MIB);
	for (int i = 0; i < 2; i++) {
		workspace_enter(&a, 1);
		ck_assert(work_borrow(0, &payer[i]));
		workspace_leave(&a);
	}
	for (int i = 0; i < 2; i++)
		work_return(0, payer[i]);
	work_memory_finish(&memory);
}
END_TEST

START_TEST(test_a_file_that_is_read_ahead_never_waits)
{
	/* Proves that it gets free memory, at most a quarter of it, nothing of the reserve, and small amounts
	 * always. */
	struct workspace worker = { .of = &memory }, ahead = { .of = &memory, .ahead = true }, *payer[3];
	void *p[3];

	work_memory_init(&memory, 4 * MIB);
	p[0] = get(&ahead, MIB / 4, &payer[0]);
	ck_assert_ptr_nonnull(p[0]);
	ck_assert_ptr_null(get(&ahead, WORK_AHEAD_FREE_BYTES + 1, &payer[1]));
	ck_assert_uint_gt(ahead.refused_bytes, 0);
	work_free(p[0], MIB / 4, payer[0]);
	p[0] = get(&worker, MIB, &payer[0]);
	p[1] = get(&ahead, WORK_AHEAD_FREE_BYTES, &payer[1]);
	ck_assert(p[1] && !payer[1]);
	ck_assert_ptr_null(get(&ahead, WORK_AHEAD_FREE_BYTES + 1, &payer[2]));
	work_free(p[1], WORK_AHEAD_FREE_BYTES, payer[1]);
	work_free(p[0], MIB, payer[0]);
	ck_assert_uint_eq(memory.ahead_left_bytes, MIB / 4);
	work_memory_finish(&memory);
}
END_TEST

static atomic_uint n_over;

static void *work(void *arg)
{
	struct workspace ws = { .of = &memory };
	unsigned dice = (unsigned)(uintptr_t)arg;

	for (int sample = 0; sample < 300; sample++) {
		struct workspace *payer[6];
		size_t n[6];
		void *p[6];

		workspace_enter(&ws, 1);
		for (int i = 0; i < 6; i++) { /* up to 3 MiB, in steps: each holds some while it waits for more */
			n[i] = (size_t)rand_r(&dice) % (MIB / 2) + 1;
			p[i] = work_alloc(n[i], &payer[i]);
			atomic_fetch_add(&n_over, !p[i] || work_memory_used(&memory) > 4 * MIB);
		}
		for (int i = 0; i < 6; i++)
			work_free(p[i], n[i], payer[i]);
		workspace_leave(&ws);
	}
	return NULL;
}

START_TEST(test_workers_that_hold_some_and_want_more_all_finish)
{
	/* Proves that workers do not wait for each other in a circle: eight workers, each of which may take three
	 * quarters of all memory, bit by bit. And that no more than all of it is ever in use. */
	pthread_t t[8];

	work_memory_init(&memory, 4 * MIB);
	for (uintptr_t i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, work, (void *)(i + 1)), 0);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(atomic_load(&n_over), 0);
	work_memory_finish(&memory);
}
END_TEST

/* ---- between users ---- */

enum { ALICE = 1, BOB = 2, CAROL = 3, MOST_WAITERS = 8 };

static char order[2 * MOST_WAITERS];
static atomic_uint n_in_order;

struct waiter {
	pthread_t thread;
	struct workspace ws;
	uid_t uid;
	size_t bytes;
	char name;
};

static void *take_and_leave(void *arg)
{
	struct waiter *w = arg;
	struct workspace *payer;
	workspace_enter(&w->ws, w->uid);
	void *p = work_alloc(w->bytes, &payer);
	order[atomic_fetch_add(&n_in_order, 1)] = w->name;
	work_free(p, w->bytes, payer);
	workspace_leave(&w->ws);
	return NULL;
}

static unsigned n_waiting(void)
{
	pthread_mutex_lock(&memory.lock);
	unsigned n = memory.n_waiting;
	pthread_mutex_unlock(&memory.lock);
	return n;
}

/* A thread that waits for so much memory, once it does. */
static void begin_waiting(struct waiter *w, uid_t uid, char name, size_t bytes)
{
	unsigned before = n_waiting();
	*w = (struct waiter){ .ws = { .of = &memory }, .uid = uid, .name = name, .bytes = bytes };
	ck_assert_int_eq(pthread_create(&w->thread, NULL, take_and_leave, w), 0);
	while (n_waiting() == before)
		sched_yield();
	ck_assert_int_eq(atomic_load(&w->ws.stage), STAGE_MEMORY);
}

static void expect_order(const char *expected, struct waiter *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		pthread_join(w[i].thread, NULL);
		ck_assert_int_eq(atomic_load(&w[i].ws.stage), STAGE_NONE);
	}
	ck_assert_uint_eq(atomic_load(&n_in_order), n);
	order[n] = '\0';
	ck_assert_str_eq(order, expected);
	atomic_store(&n_in_order, 0);
}

START_TEST(test_users_have_the_reserve_in_turn)
{
	/* Alice's row has it, and more of hers wait; then Bob's and Carol's come: one of each, in the order of their
	 * coming, before the second of any. */
	struct waiter w[6];
	struct workspace alice = { .of = &memory }, *payer;
	work_memory_init(&memory, 4 * MIB); /* 1 for all, 3 in reserve */
	workspace_enter(&alice, ALICE);
	void *p = work_alloc(2 * MIB, &payer);
	ck_assert(p && alice.holds);
	begin_waiting(&w[0], ALICE, 'a', 2 * MIB);
	begin_waiting(&w[1], ALICE, 'A', 2 * MIB);
	begin_waiting(&w[2], BOB, 'b', 2 * MIB);
	begin_waiting(&w[3], BOB, 'B', 2 * MIB);
	begin_waiting(&w[4], CAROL, 'c', 2 * MIB);
	begin_waiting(&w[5], CAROL, 'C', 2 * MIB);
	work_free(p, 2 * MIB, payer);
	workspace_leave(&alice);
	expect_order("bcaBCA", w, 6);
	work_memory_finish(&memory);
}
END_TEST

START_TEST(test_a_row_that_fits_does_not_wait_behind_one_that_does_not)
{
	struct waiter large, small;
	struct workspace alice = { .of = &memory }, other = { .of = &memory }, *payer[2];
	work_memory_init(&memory, 4 * MIB);
	workspace_enter(&other, ALICE);
	void *shared = work_alloc(MIB / 4 * 3, &payer[1]);
	void *reserved = get(&alice, 2 * MIB, &payer[0]);
	ck_assert(shared && !other.holds && reserved && alice.holds);
	begin_waiting(&large, ALICE, 'l', 2 * MIB);
	begin_waiting(&small, ALICE, 's', MIB / 8); /* the rest is for other users */
	work_free(shared, MIB / 4 * 3, payer[1]);
	pthread_join(small.thread, NULL);
	ck_assert_uint_eq(n_waiting(), 1);
	work_free(reserved, 2 * MIB, payer[0]);
	workspace_leave(&alice);
	pthread_join(large.thread, NULL);
	ck_assert_mem_eq(order, "sl", 2);
	atomic_store(&n_in_order, 0);
	work_memory_finish(&memory);
}
END_TEST

START_TEST(test_small_rows_of_one_user_do_not_wait_for_large_ones_of_another)
{
	/* Alice has the reserve and all that her other workers can get of the rest: Bob's first worker gets the last
	 * quarter of that all the same, also if it has worked for Alice before and kept memory. */
	struct workspace a = { .of = &memory }, b = { .of = &memory }, bobs = { .of = &memory }, *payer[4];
	struct waiter more;
	work_memory_init(&memory, 4 * MIB);
	void *kept = (workspace_enter(&bobs, ALICE), work_alloc(MIB / 16, &payer[3]));
	workspace_leave(&bobs);
	workspace_enter(&a, ALICE);
	void *reserved = work_alloc(2 * MIB, &payer[0]);
	workspace_enter(&b, ALICE);
	void *shared = work_alloc(MIB / 8 * 5, &payer[1]);
	ck_assert(reserved && a.holds && shared && !b.holds);
	begin_waiting(&more, ALICE, 'm', MIB / 8);
	workspace_enter(&bobs, BOB);
	void *p = work_alloc(MIB / 4, &payer[2]);
	ck_assert(p && !bobs.holds);
	work_free(p, MIB / 4, payer[2]);
	work_free(kept, MIB / 16, payer[3]);
	workspace_leave(&bobs);
	work_free(shared, MIB / 8 * 5, payer[1]);
	work_free(reserved, 2 * MIB, payer[0]);
	workspace_leave(&b);
	workspace_leave(&a);
	expect_order("m", &more, 1);
	work_memory_finish(&memory);
}
END_TEST

/* ---- samples ---- */

static void put_jpeg(const char *name, uint32_t edge, bool progressive)
{
	struct jpeg_recipe recipe = { .width = edge,
				      .height = edge,
				      .n_components = 3,
				      .h = 1,
				      .v = 1,
				      .quality = 20,
				      .progressive = progressive };
	size_t n;
	uint8_t *bytes = jpeg_make(&recipe, 7, &n);

	put_bytes(name, bytes, n, 0644);
	free(bytes);
}

static struct recipe make_recipe(const char *list, const char *transform)
{
	struct pipeline_error err;
	struct recipe r = { 0 };

	put("list", list);
	r.dataset = open_trusted("files", in_root("list"));
	ck_assert_msg(pipeline_parse(transform, DTYPE_UINT8, LAYOUT_NHWC, &r.pipeline, &err) == 0, "%s", err.text);
	return r;
}

static int make_one(const struct recipe *r, struct sample_worker *w, uint64_t index, struct sample_error *err)
{
	uint8_t row[8 * 8 * 3];

	ck_assert_uint_eq(pipeline_row_bytes(r->pipeline), sizeof(row));
	return sample_make(r, w, (struct sample_key){ 1, 0, index }, NULL, true, (void *[]){ row }, err);
}

START_TEST(test_an_opening_decodes_no_image)
{
	/* How large the decoded pixels are follows from the headers, so no image has to be decoded for it, which here would
	 * take longer than an image may. */
	struct cache_config config = { .budget_bytes = { 1 << 20, 1 << 20 } };
	struct cache *cache;
	struct decode_limits limits = decode_limits_default;
	struct recipe r;
	limits.max_ns = 1;
	ck_assert_int_eq(cache_create(&config, &cache), 0);
	put_jpeg("a.jpg", 320, false);
	r = make_recipe("a.jpg 0\n", "[[\"Resize\",[8,8]]]");
	ck_assert_int_eq(recipe_attach(&r, cache, 1 << 20, true, &limits), 0);
	ck_assert_ptr_nonnull(r.decoded);
	recipe_finish(&r);
	r = make_recipe("a.jpg 0\n", "[[\"RandomResizedCrop\",8]]"); /* the whole image is kept: 300 KiB */
	ck_assert_int_eq(recipe_attach(&r, cache, 200 << 10, true, &limits), 0);
	ck_assert_ptr_null(r.decoded);
	recipe_finish(&r);
	cache_destroy(cache);
}
END_TEST

START_TEST(test_an_image_that_needs_too_much_is_bad_data_whatever_came_before)
{
	/* Proves that a picture that fits alone is made in memory that earlier ones left, that a picture beyond the
	 * limit is bad data with a text that names what it needs, and that after it small ones are made and nothing
	 * large is kept. */
	struct decode_limits limits = decode_limits_default;
	struct recipe r = make_recipe("small.jpg 0\nfits.jpg 1\nlarge.jpg 2\n", "[[\"Resize\",[8,8]]]");
	struct sample_error err;

	limits.memory = &memory;
	limits.keep_bytes = 6 * MIB;
	put_jpeg("small.jpg", 700, true);
	put_jpeg("fits.jpg", 1200, true); /* 8.6 MB of coefficients */
	put_jpeg("large.jpg", 1700, true);
	work_memory_init(&memory, 24 * MIB); /* 18 for one */

	struct sample_worker *w = sample_worker_create(&limits);

	for (int round = 0; round < 3; round++) {
		ck_assert_int_eq(make_one(&r, w, 0, &err), 0);
		ck_assert_uint_gt(work_memory_used(&memory), MIB);
		ck_assert_int_eq(make_one(&r, w, 1, &err), 0);
		ck_assert_uint_le(work_memory_used(&memory), 6 * MIB);
		ck_assert_int_eq(make_one(&r, w, 0, &err), 0);
		ck_assert_int_eq(make_one(&r, w, 2, &err), SAMPLE_E_BAD);
		ck_assert_msg(strstr(err.text, "large.jpg: needs at least ") &&
				      strstr(err.text, "there is 18.0 MiB for one image"),
			      "%s", err.text);
	}
	sample_worker_destroy(w);
	recipe_finish(&r);
	work_memory_finish(&memory);
}
END_TEST

START_TEST(test_what_ops_need_is_given_back_after_the_sample)
{
	/* Proves that images between ops use the same memory: they are freed with their sample, and a pipeline that
	 * needs more makes bad data instead. */
	struct decode_limits limits = decode_limits_default;
	struct recipe modest =
		make_recipe("a.jpg 0\n", "[[\"Resize\",[1500,1500]],[\"Resize\",[1499,1499]],[\"Resize\",[8,8]]]");
	struct recipe greedy =
		make_recipe("a.jpg 0\n", "[[\"Resize\",[8000,8000]],[\"Resize\",[7999,7999]],[\"Resize\",[8,8]]]");
	struct sample_error err;

	limits.memory = &memory;
	limits.keep_bytes = MIB;
	put_jpeg("a.jpg", 64, false);
	work_memory_init(&memory, 32 * MIB);

	struct sample_worker *w = sample_worker_create(&limits);

	ck_assert_int_eq(make_one(&modest, w, 0, &err), 0);
	ck_assert_uint_le(work_memory_used(&memory), MIB);
	ck_assert_int_eq(make_one(&greedy, w, 0, &err), SAMPLE_E_BAD);
	ck_assert_msg(strstr(err.text, "a.jpg: needs at least 18"), "%s", err.text);
	ck_assert_uint_le(work_memory_used(&memory), MIB);
	sample_worker_destroy(w);
	recipe_finish(&modest);
	recipe_finish(&greedy);
	work_memory_finish(&memory);
}
END_TEST

START_TEST(test_a_file_too_large_to_read_ahead_is_read_by_the_worker)
{
	/* Proves that a ticket without room passes its sample on, and that the sample is unchanged; and that a large
	 * buffer does not stay with the ticket. */
	struct decode_limits limits = decode_limits_default;
	struct recipe r = make_recipe("a.jpg 0\nb.jpg 0\n", "[[\"Resize\",[8,8]]]");
	uint8_t direct[8 * 8 * 3], later[sizeof(direct)];
	struct sample_error err;

	limits.memory = &memory;
	put_jpeg("a.jpg", 64, false);
	put_jpeg("b.jpg", 64, false);
	ck_assert_int_eq(truncate(in_root("a.jpg"), 3 * MIB), 0); /* zeros after its end */
	ck_assert_int_eq(truncate(in_root("b.jpg"), MIB), 0);
	work_memory_init(&memory,
			 16 * MIB); /* 1 MiB for everything that is read ahead, less than b.jpg and the zeros after it
			             * need */

	struct sample_worker *w = sample_worker_create(&limits);
	struct sample_input *in = sample_input_create(&limits);

	for (uint64_t i = 0; i < 2; i++) {
		sample_fetch(&r, i, in);
		ck_assert(in->later);
		ck_assert_int_eq(
			sample_make(&r, w, (struct sample_key){ 1, 0, i }, in, false, (void *[]){ later }, &err), 0);
		ck_assert_int_eq(
			sample_make(&r, w, (struct sample_key){ 1, 0, i }, NULL, true, (void *[]){ direct }, &err), 0);
		ck_assert_mem_eq(later, direct, sizeof(direct));
	}
	ck_assert_int_eq(truncate(in_root("b.jpg"), 200 << 10), 0);
	sample_fetch(&r, 1, in);
	ck_assert(!in->later && in->result == 0);
	ck_assert_int_eq(sample_make(&r, w, (struct sample_key){ 1, 0, 1 }, in, false, (void *[]){ later }, &err), 0);
	ck_assert_mem_eq(later, direct, sizeof(direct));
	sample_input_destroy(in);
	sample_worker_destroy(w);
	recipe_finish(&r);
	work_memory_finish(&memory);
}
END_TEST

SUITE(workspace)
{
	Suite *s = suite_create("workspace");
	TCase *t = tcase_create("workspace");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, test_the_reserve_serves_a_worker_that_needs_more_than_is_left);
	tcase_add_test(t, test_no_bytes_at_all_are_no_memory);
	tcase_add_test(t, test_a_file_that_is_read_ahead_never_waits);
	tcase_add_test(t, test_workers_that_hold_some_and_want_more_all_finish);
	tcase_add_test(t, test_users_have_the_reserve_in_turn);
	tcase_add_test(t, test_a_row_that_fits_does_not_wait_behind_one_that_does_not);
	tcase_add_test(t, test_small_rows_of_one_user_do_not_wait_for_large_ones_of_another);
	tcase_add_test(t, test_an_opening_decodes_no_image);
	tcase_add_test(t, test_an_image_that_needs_too_much_is_bad_data_whatever_came_before);
	tcase_add_test(t, test_what_ops_need_is_given_back_after_the_sample);
	tcase_add_test(t, test_a_file_too_large_to_read_ahead_is_read_by_the_worker);
	suite_add_tcase(s, t);
	return s;
}
