/* State clocks: all of the time in exactly one state, periods that begin and end anywhere, and what a trainer's waiting
 * is counted as. */
#include <check.h>
#include <string.h>

#include "batch/clock-sample.h"
#include "batch/state-clock.h"
#include "support/suite.h"

#define S UINT64_C(1000000000)
#define US UINT64_C(1000000) /* of a second */

static struct state_clock c;

static uint64_t sum(const struct clock_times *t)
{
	uint64_t all = 0;
	for (int i = 0; i < CLOCK_N_STATES; i++)
		all += t->us[i];
	return all;
}

static struct clock_times last(unsigned n_seconds)
{
	struct clock_times t;
	state_clock_last(&c, n_seconds, &t);
	return t;
}

static void add(uint64_t now_ns, enum clock_state state)
{
	struct clock_sample sample = clock_sample_of(state);
	state_clock_add(&c, now_ns, &sample);
}

START_TEST(test_every_period_sums_to_its_length)
{
	/* Steps of all lengths, from nanoseconds to minutes, that end at, before and after a second, and states that share
	 * them. */
	static const uint64_t steps[] = { 1,         999,    1000000, S - 1,  S,      S + 1,
					  3 * S / 2, 10 * S, 63 * S,  64 * S, 65 * S, 600 * S };
	struct clock_sample sample = {
		.part = { [CLOCK_BUSY] = 1.0 / 7, [CLOCK_DECODE] = 1.0 / 3, [CLOCK_MEMORY] = 11.0 / 21 }
	};
	uint64_t now = 5 * S + 123456789, began = now;
	state_clock_begin(&c, now);
	for (unsigned i = 0; i < 2000; i++) {
		now += steps[i * 7 % (sizeof(steps) / sizeof(*steps))];
		state_clock_add(&c, now, &sample);
		ck_assert_uint_eq(sum(&c.total), now / 1000 - began / 1000);
		struct clock_times t = last(10);
		ck_assert_uint_eq(
			sum(&t), (now - began < 9 * S + now % S ? now / 1000 - began / 1000 : 9 * US + now % S / 1000));
		t = last(0);
		ck_assert_uint_eq(sum(&t), sum(&c.total));
	}
	ck_assert_double_eq_tol((double)c.total.us[CLOCK_DECODE] / (double)sum(&c.total), 1.0 / 3, 1e-6);
}
END_TEST

START_TEST(test_a_minute_forgets_what_was_before)
{
	state_clock_begin(&c, 7 * S);
	add(107 * S, CLOCK_READ);
	ck_assert_uint_eq(last(60).us[CLOCK_READ], 59 * US); /* and the second that has just begun */
	add(117 * S, CLOCK_BUSY);
	ck_assert_uint_eq(last(10).us[CLOCK_READ], 0);
	ck_assert_uint_eq(last(10).us[CLOCK_BUSY], 9 * US);
	ck_assert_uint_eq(last(60).us[CLOCK_READ], 49 * US);
	ck_assert_uint_eq(last(0).us[CLOCK_READ], 100 * US);
}
END_TEST

START_TEST(test_five_seconds_forget_the_bottleneck_before)
{
	/* 20 samples a second: a minute of decoding, and then a trainer that is the slow part. */
	uint64_t now = S;
	state_clock_begin(&c, now);
	for (unsigned i = 0; i < 1200; i++)
		add(now += S / 20, CLOCK_DECODE);
	for (unsigned i = 0; i < 100; i++)
		add(now += S / 20, CLOCK_BUSY);
	ck_assert_uint_eq(last(5).us[CLOCK_DECODE], 0);
	ck_assert_uint_eq(last(5).us[CLOCK_BUSY], 4 * US);
	ck_assert_uint_ge(last(60).us[CLOCK_DECODE], 50 * US);
	ck_assert_int_eq(c.state, CLOCK_BUSY);
}
END_TEST

START_TEST(test_a_late_sample_counts_for_the_time_that_has_passed)
{
	/* The loop was stalled for 3 s, in which the trainer's disk had stopped: as much as if each sample had been taken. */
	state_clock_begin(&c, S);
	add(S + S / 20, CLOCK_BUSY);
	add(4 * S + S / 20, CLOCK_READ);
	ck_assert_uint_eq(c.total.us[CLOCK_BUSY], US / 20);
	ck_assert_uint_eq(c.total.us[CLOCK_READ], 3 * US);
	ck_assert_uint_eq(last(1).us[CLOCK_READ], US / 20);
	ck_assert_uint_eq(last(2).us[CLOCK_READ], US / 20 + US);
	add(4 * S, CLOCK_BUSY); /* a clock never goes back */
	ck_assert_uint_eq(sum(&c.total), 3 * US + US / 20);
}
END_TEST

/* ---- a trainer's waiting ---- */

static void setup(void)
{
	state_clock_begin(&c, S);
}

static struct clock_sample rows(const struct pool_look *look)
{
	struct clock_sample x = clock_sample_of_rows(look, false, &c);
	double all = 0;
	for (int i = 0; i < CLOCK_N_STATES; i++)
		all += x.part[i];
	ck_assert_double_eq_tol(all, 1, 1e-9);
	ck_assert_double_eq(x.work[WORK_WAITED], 1);
	return x;
}

START_TEST(test_busy_workers_divide_a_wait_by_what_they_do)
{
	struct clock_sample x = rows(&(struct pool_look){
		.n_at = { [STAGE_DECODE] = 2, [STAGE_TRANSFORM] = 1 }, .n_workers = 3, .n_tickets = 5 });
	ck_assert_double_eq_tol(x.part[CLOCK_DECODE], 2.0 / 3, 1e-9);
	ck_assert_double_eq_tol(x.part[CLOCK_TRANSFORM], 1.0 / 3, 1e-9);
	ck_assert_double_eq(x.work[WORK_DECODE], 2);
}
END_TEST

START_TEST(test_idle_workers_and_rows_without_input_are_a_slow_disk)
{
	struct pool_look look = { .n_at = { [STAGE_DECODE] = 1 }, .n_workers = 4, .n_idle = 3, .n_tickets = 5 };
	ck_assert_double_eq_tol(rows(&look).part[CLOCK_READ], 0.75, 1e-9);
	ck_assert_double_eq_tol(rows(&look).part[CLOCK_DECODE], 0.25, 1e-9);
	ck_assert_double_eq(rows(&look).work[WORK_IDLE], 3);
	look.n_tickets = 0; /* rows that wait for nothing are no slow disk */
	ck_assert_double_eq(rows(&look).part[CLOCK_READ], 0);
	ck_assert_double_eq(rows(&look).part[CLOCK_DECODE], 1);
}
END_TEST

START_TEST(test_workers_that_wait_for_memory_count_while_they_wait)
{
	struct clock_sample x = rows(&(struct pool_look){
		.n_at = { [STAGE_DECODE] = 1, [STAGE_MEMORY] = 7 }, .n_workers = 8, .n_processors = 8 });
	ck_assert_double_eq_tol(x.part[CLOCK_MEMORY], 7.0 / 8, 1e-9);
	ck_assert_double_eq_tol(x.part[CLOCK_DECODE], 1.0 / 8, 1e-9);
}
END_TEST

START_TEST(test_memory_is_not_the_limit_while_all_processors_work)
{
	/* Two processors, and a third worker would find none. */
	struct pool_look look = { .n_at = { [STAGE_DECODE] = 2, [STAGE_MEMORY] = 6 },
				  .n_workers = 8,
				  .n_processors = 2 };
	ck_assert_double_eq(rows(&look).part[CLOCK_DECODE], 1);
	look = (struct pool_look){
		.n_at = { [STAGE_DECODE] = 2 }, .n_workers = 8, .n_idle = 6, .n_processors = 2, .n_tickets = 5
	};
	ck_assert_double_eq(rows(&look).part[CLOCK_DECODE], 1);
	ck_assert_double_eq(rows(&look).work[WORK_IDLE], 0);
	/* One of the two has nothing to do: of 4 more workers each could work. */
	look = (struct pool_look){ .n_at = { [STAGE_DECODE] = 1, [STAGE_MEMORY] = 7 },
				   .n_workers = 8,
				   .n_processors = 2 };
	ck_assert_double_eq_tol(rows(&look).part[CLOCK_MEMORY], 0.8, 1e-9);
	look = (struct pool_look){
		.n_at = { [STAGE_DECODE] = 1 }, .n_workers = 8, .n_idle = 7, .n_processors = 2, .n_tickets = 5
	};
	ck_assert_double_eq_tol(rows(&look).part[CLOCK_READ], 0.8, 1e-9);
	ck_assert_double_eq(rows(&look).work[WORK_IDLE], 1);
}
END_TEST

START_TEST(test_rows_that_no_worker_has_cost_what_rows_cost_lately)
{
	/* Others have the workers; ten seconds of transforms before. */
	struct pool_look busy = { .n_at = { [STAGE_TRANSFORM] = 1 }, .n_workers = 1 };
	struct pool_look look = { .n_others = 1, .n_others_running = 1, .n_workers = 1 };
	ck_assert_double_eq(rows(&look).part[CLOCK_DECODE], 1); /* nothing is known yet */
	ck_assert_double_eq(clock_sample_of_rows(&look, true, &c).part[CLOCK_READ], 1);
	struct clock_sample x = rows(&busy);
	state_clock_add(&c, 11 * S, &x);
	ck_assert_double_eq(rows(&look).part[CLOCK_TRANSFORM], 1);
	ck_assert_double_eq(rows(&look).work[WORK_OTHERS], 1);
}
END_TEST

START_TEST(test_copies_of_rows_are_reading)
{
	struct pool_look look = { .n_at = { [STAGE_NONE] = 2 }, .n_workers = 2 };
	ck_assert_double_eq(clock_sample_of_rows(&look, true, &c).part[CLOCK_READ], 1);
	ck_assert_double_eq(clock_sample_of_rows(&look, true, &c).work[WORK_READ], 2);
}
END_TEST

START_TEST(test_other_shortages_have_a_state_each)
{
	static const enum clock_state states[] = { CLOCK_BUSY,     CLOCK_DECODE, CLOCK_GPU_COPY, CLOCK_ORDER,
						   CLOCK_PRODUCER, CLOCK_PEER,   CLOCK_MEMORY };
	for (int i = SHORTAGE_NONE; i <= SHORTAGE_MEMORY; i++)
		ck_assert(i == SHORTAGE_ROWS || clock_sample_of_shortage((enum shortage)i).part[states[i]] == 1);
}
END_TEST

SUITE(state_clock)
{
	Suite *s = suite_create("state_clock");
	TCase *t = tcase_create("states");
	tcase_add_test(t, test_every_period_sums_to_its_length);
	tcase_add_test(t, test_a_minute_forgets_what_was_before);
	tcase_add_test(t, test_five_seconds_forget_the_bottleneck_before);
	tcase_add_test(t, test_a_late_sample_counts_for_the_time_that_has_passed);
	suite_add_tcase(s, t);
	t = tcase_create("waiting");
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, test_busy_workers_divide_a_wait_by_what_they_do);
	tcase_add_test(t, test_idle_workers_and_rows_without_input_are_a_slow_disk);
	tcase_add_test(t, test_workers_that_wait_for_memory_count_while_they_wait);
	tcase_add_test(t, test_memory_is_not_the_limit_while_all_processors_work);
	tcase_add_test(t, test_rows_that_no_worker_has_cost_what_rows_cost_lately);
	tcase_add_test(t, test_copies_of_rows_are_reading);
	tcase_add_test(t, test_other_shortages_have_a_state_each);
	suite_add_tcase(s, t);
	return s;
}
