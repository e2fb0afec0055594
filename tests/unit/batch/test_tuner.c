/* How many workers work: how waiting trainers, and their absence, change the number. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "batch/pool/tuner.h"
#include "support/suite.h"

struct fixture {
	uv_loop_t loop;
	struct pool *pool;
	struct tuner t;
};

static void *make_thing(void *arg)
{
	(void)arg;
	return malloc(1);
}

static void setup(struct fixture *f, unsigned max, bool fixed)
{
	struct pool_params p = { .max_workers = max,
				 .n_io = 1,
				 .worker_create = make_thing,
				 .worker_destroy = free,
				 .input_create = make_thing,
				 .input_destroy = free };
	uv_loop_init(&f->loop);
	ck_assert_int_eq(pool_create(&f->loop, &p, &f->pool), 0);
	tuner_init(&f->t, f->pool, max, fixed);
}

static void teardown(struct fixture *f)
{
	pool_close(f->pool, NULL, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&f->loop), 0);
}

static unsigned in_force(struct fixture *f)
{
	struct pool_stats s;
	pool_get_stats(f->pool, &s);
	ck_assert_uint_eq(s.target, f->t.target);
	return s.target;
}

/* Calm batches until the number changes; returns how many that took, 0 for never. */
static unsigned calm_until_fewer(struct fixture *f)
{
	unsigned before = in_force(f);
	for (unsigned n = 1; n <= 100000; n++) {
		tuner_note(&f->t, false);
		if (in_force(f) < before)
			return n;
	}
	return 0;
}

START_TEST(test_workers_rest_while_no_trainer_waits_and_come_back_at_once)
{
	/* One by one down to one; a single wait brings one back. */
	struct fixture f;
	setup(&f, 4, false);
	ck_assert_uint_eq(in_force(&f), 4);
	for (unsigned left = 3; left >= 1; left--) {
		ck_assert_uint_gt(calm_until_fewer(&f), 1);
		ck_assert_uint_eq(in_force(&f), left);
	}
	ck_assert_uint_eq(calm_until_fewer(&f), 0);
	tuner_note(&f.t, true);
	ck_assert_uint_eq(in_force(&f), 2);
	ck_assert_ptr_nonnull(strstr(f.t.why, "waited"));
	for (int i = 0; i < 10; i++)
		tuner_note(&f.t, true);
	ck_assert_uint_eq(in_force(&f), 4);
	teardown(&f);
}
END_TEST

START_TEST(test_a_wrong_guess_makes_it_more_patient)
{
	/* Each time a resting worker is needed, the next one is sent to rest later: the number settles. */
	struct fixture f;
	setup(&f, 2, false);
	unsigned patience = 0;
	for (int i = 0; i < 4; i++) {
		unsigned n = calm_until_fewer(&f);
		ck_assert_uint_gt(n, patience);
		patience = n;
		tuner_note(&f.t, true);
		ck_assert_uint_eq(in_force(&f), 2);
	}
	teardown(&f);
}
END_TEST

START_TEST(test_a_fixed_number_stays_and_can_be_changed)
{
	/* The fixed number stays whatever happens, limited to the number of threads; 0 lets the tuner decide again. */
	struct fixture f;
	setup(&f, 3, true);
	ck_assert_uint_eq(calm_until_fewer(&f), 0);
	ck_assert_uint_eq(tuner_set(&f.t, 2), 2);
	ck_assert_uint_eq(in_force(&f), 2);
	tuner_note(&f.t, true);
	ck_assert_uint_eq(in_force(&f), 2);
	ck_assert_uint_eq(tuner_set(&f.t, 99), 3);
	ck_assert_uint_eq(tuner_set(&f.t, 0), 3);
	ck_assert_uint_gt(calm_until_fewer(&f), 0);
	teardown(&f);
}
END_TEST

SUITE(tuner)
{
	Suite *s = suite_create("tuner");
	TCase *t = tcase_create("tuner");
	tcase_add_test(t, test_workers_rest_while_no_trainer_waits_and_come_back_at_once);
	tcase_add_test(t, test_a_wrong_guess_makes_it_more_patient);
	tcase_add_test(t, test_a_fixed_number_stays_and_can_be_changed);
	suite_add_tcase(s, t);
	return s;
}
