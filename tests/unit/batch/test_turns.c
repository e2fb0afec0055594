/* A stream whose trainers always have new work for it: it lets other streams have their turn, and loses nothing. */
#include "support/streams.h"

enum { NEWS = 1000 };

static unsigned n_armed;

static void look(struct consumer *c)
{
	(void)c;
}

/* As if a message had come since `look`, a thousand times. */
static bool arm(struct consumer *c, uint32_t wake_at)
{
	(void)c, (void)wake_at;
	return ++n_armed < NEWS;
}

static const struct consumer_ops restless = { .publish = on_publish, .look = look, .arm = arm };

START_TEST(test_a_stream_goes_round_so_often_and_then_lets_the_loop_on)
{
	/* The trainers cannot choose how many rounds a call takes; the rest comes in later turns of the loop. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 2, .world_size = 1 }, 100);
	struct trainer *t = attach(with_slots(&f, 0, 2), 0);
	t->c.ops = &restless;
	n_armed = 0;
	ck_assert_int_eq(loader_seek(&t->c, 1, &(struct position){ 0 }), 0);
	ck_assert_uint_gt(n_armed, 1);
	ck_assert_uint_lt(n_armed, 100);
	while (n_armed < NEWS) {
		unsigned before = n_armed;
		uv_run(&f.loop, UV_RUN_ONCE);
		ck_assert_uint_lt(n_armed, before + 100);
	}
	leave(t);
	teardown(&f);
}
END_TEST

START_TEST(test_a_loader_may_close_before_the_streams_next_turn)
{
	/* The pending turn finds the stream closing. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 2, .world_size = 1 }, 100);
	struct trainer *t = attach(with_slots(&f, 0, 2), 0);
	t->c.ops = &restless;
	n_armed = 0;
	ck_assert_int_eq(loader_seek(&t->c, 1, &(struct position){ 0 }), 0);
	leave(t);
	teardown(&f);
	ck_assert_uint_lt(n_armed, NEWS);
}
END_TEST

SUITE(turns)
{
	Suite *s = suite_create("turns");
	TCase *t = tcase_create("turns");
	tcase_add_test(t, test_a_stream_goes_round_so_often_and_then_lets_the_loop_on);
	tcase_add_test(t, test_a_loader_may_close_before_the_streams_next_turn);
	suite_add_tcase(s, t);
	return s;
}
