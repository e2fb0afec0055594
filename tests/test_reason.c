/* The daemon's reason for its end reaches the trainer, also where another part of the library took the message: while
 * replays of a measurement are awaited (client/headroom.h). */
#include "fake.h"

enum { RUN = 7 };

static void lend_marked(struct fake *f, uint64_t step)
{
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;

	b.seek = 1;
	b.step = b.slot = (uint32_t)step;
	b.generation = ++f->generation;
	b.n_rows = BATCH;
	b.replay = step ? 0 : RUN;
	b.replay_before = 1;
	b.replay_steps = 4;
	SAY(f, BATCH, &b);
}

static void shut_down_before_a_grant(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_marked(f, 0);
	lend_marked(f, 1);
	EXPECT(f, STEPPED);
	say_error(f, BATCHD__WIRE__ERROR_CODE__SHUTDOWN, "", "batchd stops: its machine is shut down for repairs");
}

static void the_end_comes_after_two_batches(void)
{
	next_is(0, 0);
	uint64_t first = batch.generation;
	next_is(0, 1);
	uint64_t second = batch.generation;
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_SHUTDOWN);
	ck_assert_int_eq(batchd_release(loader, 0, first), 0);
	ck_assert_int_eq(batchd_release(loader, 1, second), 0);
}

START_TEST(test_a_measurement_does_not_swallow_the_daemons_reason)
{
	options.headroom = 1;
	play(shut_down_before_a_grant);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	the_end_comes_after_two_batches();
	ck_assert_str_eq(batchd_error(loader), "batchd stops: its machine is shut down for repairs");
	finish();
}
END_TEST

static void refuse_unless_allowed(struct fake *f)
{
	greet(f);
	ck_assert(EXPECT(f, OPEN)->open->headroom);
	say_error(f, BATCHD__WIRE__ERROR_CODE__INVALID, "", "as the case wants it");
}

START_TEST(test_the_environment_is_asked_once)
{
	/* What Open said holds for the loader, whatever the program does to its environment later. */
	setenv("BATCHD_HEADROOM", "1", 1);
	play(refuse_unless_allowed);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_INVALID);
	pthread_join(d->thread, NULL);
	play(shut_down_before_a_grant);
	open_loader();
	unsetenv("BATCHD_HEADROOM");
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	the_end_comes_after_two_batches();
	finish();
}
END_TEST

SUITE(reason)
{
	Suite *s = suite_create("reason");
	TCase *t = tcase_create("reason");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, test_a_measurement_does_not_swallow_the_daemons_reason);
	tcase_add_test(t, test_the_environment_is_asked_once);
	suite_add_tcase(s, t);
	return s;
}
