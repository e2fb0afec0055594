/* Loaders of jobs with thousands of ranks, nearly all of which are on other machines: absent ranks cost nothing. */
#include "support/streams.h"

START_TEST(test_a_rank_has_a_stream_from_when_it_comes)
{
	/* Of 4096 ranks two come, the higher one first: two streams, in the order of ranks, each with its own
	 * samples. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 2, .world_size = 4096 }, 2 * 4096);
	ck_assert_uint_eq(f.loader->streams.n, 0);
	ck_assert_ptr_null(loader_find_stream(f.loader, 4095));
	struct trainer *last = attach(with_slots(&f, 4095, 2), 4095), *first = attach(with_slots(&f, 7, 2), 7);
	ck_assert_uint_eq(f.loader->streams.n, 2);
	ck_assert_uint_eq(f.loader->streams.list[0]->number, 7);
	ck_assert_uint_eq(f.loader->streams.list[1]->number, 4095);
	ck_assert_ptr_eq(loader_find_stream(f.loader, 4095), f.loader->streams.list[1]);
	ck_assert_ptr_null(loader_find_stream(f.loader, 8));
	ck_assert_int_eq(loader_seek(&last->c, 1, &(struct position){ 0 }), 0);
	ck_assert_int_eq(loader_seek(&first->c, 1, &(struct position){ 0 }), 0);
	consume(&f, last, 1);
	consume(&f, first, 1);
	for (int64_t row = 0; row < 2; row++) {
		ck_assert_int_eq(last->got[0].indices[row], 4095 + 4096 * row);
		ck_assert_int_eq(first->got[0].indices[row], 7 + 4096 * row);
	}
	leave(last);
	leave(first);
	teardown(&f);
}
END_TEST

START_TEST(test_every_rank_of_a_large_job_may_come_and_go)
{
	/* In any order; then the loader closes with all of their streams. */
	enum { WORLD = 509 };
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 1, .world_size = WORLD }, WORLD);
	for (uint32_t i = 0; i < WORLD; i++) {
		uint32_t rank = i * 101 % WORLD;
		struct trainer *t = attach(with_slots(&f, rank, 2), rank);
		ck_assert_int_eq(loader_seek(&t->c, 1, &(struct position){ 0 }), 0);
		consume(&f, t, 1);
		ck_assert_int_eq(t->got[0].indices[0], rank);
		leave(t);
	}
	ck_assert_uint_eq(f.loader->streams.n, WORLD);
	for (uint32_t i = 0; i < WORLD; i++)
		ck_assert_uint_eq(f.loader->streams.list[i]->number, i);
	teardown(&f);
}
END_TEST

SUITE(ranks)
{
	Suite *s = suite_create("ranks");
	TCase *t = tcase_create("ranks");
	tcase_add_test(t, test_a_rank_has_a_stream_from_when_it_comes);
	tcase_add_test(t, test_every_rank_of_a_large_job_may_come_and_go);
	suite_add_tcase(s, t);
	return s;
}
