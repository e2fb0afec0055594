/* Verdicts with known answers: who is the limit, and what the predictions come to. */
#include <check.h>
#include <string.h>

#include "watch/verdict.h"
#include "support/suite.h"

#define S UINT64_C(1000000) /* in microseconds */
#define GIB (UINT64_C(1) << 30)

static struct verdict verdict_of(const struct verdict_facts *f)
{
	struct verdict_facts g = *f;
	struct verdict v;
	g.period = "in the last minute";
	verdict_make(&g, &v);
	return v;
}

START_TEST(test_a_trainer_that_never_waits_is_not_input_bound)
{
	struct verdict v = verdict_of(&(struct verdict_facts){
		.times.us = { [CLOCK_BUSY] = 60 * S, [CLOCK_DECODE] = S }, .p99_wait_ns = 31000 });
	ck_assert(v.known && !v.input_bound);
	ck_assert_str_eq(v.text, "not input-bound in the last minute: p99 wait 31 us");
}
END_TEST

START_TEST(test_idle_time_does_not_count)
{
	struct verdict v = verdict_of(
		&(struct verdict_facts){ .times.us = { [CLOCK_BUSY] = S, [CLOCK_READ] = S, [CLOCK_IDLE] = 1000 * S } });
	ck_assert_double_eq_tol(v.share, 0.5, 1e-9);
	ck_assert_int_eq(v.cause, CLOCK_READ);
	v = verdict_of(&(struct verdict_facts){ .times.us = { [CLOCK_BUSY] = S / 2, [CLOCK_IDLE] = 1000 * S } });
	ck_assert(!v.known && !v.input_bound);
}
END_TEST

START_TEST(test_twice_the_processors)
{
	/* The workers take 4 s for what the trainer uses in 2.5: twice the workers take 2, so the trainer's 2.5 remain. */
	struct verdict_facts f = {
		.times.us = { [CLOCK_BUSY] = 5 * S / 2, [CLOCK_DECODE] = S, [CLOCK_TRANSFORM] = S / 2 },
		.rank = 3,
		.times.work_us = { [WORK_DECODE] = 3 * S, [WORK_WAITED] = 3 * S / 2 },
		.n_workers = 2,
		.n_processors = 2
	};
	struct verdict v = verdict_of(&f);
	ck_assert_double_eq_tol(v.more_cpu, 0.6, 1e-9);
	ck_assert_double_eq_tol(v.without, 1.0 / 3, 1e-9);
	ck_assert_str_eq(
		v.text,
		"input-bound 38 % of rank 3's time in the last minute: decode (2 of 2 workers busy, CPU quota 2); "
		"twice the CPU: about +60 % (estimate)");
	/* Where the configuration leaves processors without a worker, these come first. */
	f.n_processors = 4;
	f.n_most_workers = 2;
	v = verdict_of(&f);
	ck_assert_double_eq_tol(v.more_workers, 0.6, 1e-9);
	ck_assert_ptr_nonnull(strstr(v.text, "; as many workers as processors (4): about +60 % (estimate)"));
	f.n_processors = 2;
	ck_assert_double_eq(verdict_of(&f).more_workers, 0);
	/* And a trainer that does nothing gets no more than twice as much. */
	f.times.us[CLOCK_BUSY] = 0;
	ck_assert_double_eq_tol(verdict_of(&f).more_cpu, 1, 1e-9);
}
END_TEST

/* 1000 samples of 4 MiB, of which reading takes 1, decoding 6 and transforms 3 of 10. */
static struct verdict_facts photographs(void)
{
	return (struct verdict_facts){ .times.us = { [CLOCK_BUSY] = 2 * S,
						     [CLOCK_READ] = S,
						     [CLOCK_DECODE] = 5 * S,
						     [CLOCK_TRANSFORM] = 2 * S },
				       .times.work_us = { S, 6 * S, 3 * S, [WORK_WAITED] = 8 * S },
				       .decoded_bytes = GIB / 256,
				       .n_samples = 1000,
				       .decoded_room_bytes = 8 * GIB,
				       .most_decoded_room_bytes = 16 * GIB };
}

START_TEST(test_a_decoded_cache_leaves_the_transforms)
{
	/* 10 s become 3: of all its time, as rows were the limit all of it. */
	struct verdict_facts f = photographs();
	struct verdict v = verdict_of(&f);
	ck_assert_double_eq_tol(v.decoded_cache, 10.0 / 3 - 1, 1e-9);
	ck_assert_uint_eq(v.decoded_bytes, 1000 * (GIB / 256) / 8 * 9);
	ck_assert_ptr_nonnull(strstr(v.text, "; decoded cache fits (4.4 GiB of 8.0 GiB): about +233 % (estimate)"));
	/* But no faster than the trainer: 8 s of 10. */
	f.times.us[CLOCK_BUSY] = 8 * S, f.times.us[CLOCK_READ] = 0, f.times.us[CLOCK_DECODE] = 2 * S,
	f.times.us[CLOCK_TRANSFORM] = 0;
	ck_assert_double_eq_tol(verdict_of(&f).decoded_cache, 0.25, 1e-9);
}
END_TEST

START_TEST(test_slow_files_are_not_what_workers_cost)
{
	/* Two workers wait for files nearly always: in 10 s they read for 0.2 s of their own, decode for 1.4 and transform
	 * for 0.4. With fast files rows take a tenth of the time, and a decoded cache, which reads no files, can only be
	 * better than that: a fiftieth, which is more than an estimate says. */
	struct verdict_facts f = photographs();
	f.times = (struct clock_times){
		.us = { [CLOCK_READ] = 9 * S, [CLOCK_DECODE] = 8 * S / 10, [CLOCK_TRANSFORM] = 2 * S / 10 },
		.work_us = { S / 5, 7 * S / 5, 2 * S / 5, [WORK_IDLE] = 18 * S, [WORK_WAITED] = 10 * S }
	};
	struct verdict v = verdict_of(&f);
	ck_assert_double_eq_tol(v.without, 9, 1e-6);
	ck_assert_double_eq_tol(v.decoded_cache, 9, 1e-6);
	/* The workers have work for half of the time: without waiting for files they are the limit. */
	f.times.work_us[WORK_DECODE] = 47 * S / 5, f.times.work_us[WORK_IDLE] = 10 * S;
	v = verdict_of(&f);
	ck_assert_double_eq_tol(v.without, 1, 1e-6);
	ck_assert_double_eq_tol(v.decoded_cache, 9, 1e-6);
	ck_assert_ptr_nonnull(strstr(v.text, "without waiting for files: about +100 % (estimate); decoded cache"));
}
END_TEST

START_TEST(test_a_decoded_cache_that_saves_ops_is_worth_more_than_known)
{
	struct verdict_facts f = photographs();
	f.caches_ops = true;
	struct verdict v = verdict_of(&f);
	ck_assert(v.at_least);
	ck_assert_ptr_nonnull(strstr(v.text, "decoded cache fits (4.4 GiB of 8.0 GiB): at least +233 % (estimate)"));
}
END_TEST

START_TEST(test_a_decoded_cache_is_named_only_where_it_fits_and_is_missing)
{
	struct verdict_facts f = photographs();
	f.decoded_room_bytes = GIB;
	ck_assert(verdict_of(&f).raise_memory);
	ck_assert_ptr_nonnull(strstr(verdict_of(&f).text, "decoded cache fits with more memory (4.4 GiB of 16.0 GiB)"));
	f.most_decoded_room_bytes = 4 * GIB;
	ck_assert_double_eq(verdict_of(&f).decoded_cache, 0);
	ck_assert_ptr_null(strstr(verdict_of(&f).text, "cache"));
	f = photographs();
	f.is_decoded_cached = true;
	ck_assert_double_eq(verdict_of(&f).decoded_cache, 0);
	f = photographs();
	f.decoded_bytes = 0;
	ck_assert_double_eq(verdict_of(&f).decoded_cache, 0);
}
END_TEST

START_TEST(test_every_cause_has_words)
{
	for (int i = CLOCK_READ; i < CLOCK_IDLE; i++) {
		struct verdict_facts f = { .times.us = { [CLOCK_BUSY] = 2 * S } };
		f.times.us[i] = 2 * S;
		struct verdict v = verdict_of(&f);
		ck_assert_int_eq(v.cause, i);
		ck_assert(v.input_bound);
		ck_assert_double_eq_tol(v.without, 1, 1e-9);
		ck_assert_ptr_null(strstr(v.text, "(null)"));
		ck_assert_ptr_nonnull(strstr(v.text, "about +100 % (estimate)"));
	}
}
END_TEST

START_TEST(test_copies_of_rows_are_no_files)
{
	/* Workers that copy rows may be busy, which no faster disk changes. */
	struct verdict_facts f = { .times.us = { [CLOCK_BUSY] = S, [CLOCK_READ] = S }, .copies = true };
	f.n_workers = f.n_processors = 2;
	f.times.work_us[WORK_READ] = 2 * S, f.times.work_us[WORK_WAITED] = S;
	ck_assert_ptr_nonnull(strstr(verdict_of(&f).text, "copying rows of arrays (2 of 2 workers busy, CPU quota 2)"));
	ck_assert_ptr_null(strstr(verdict_of(&f).text, "files"));
}
END_TEST

START_TEST(test_a_stalled_trainer_is_named)
{
	struct verdict_facts f = { .times.us = { [CLOCK_BUSY] = S, [CLOCK_PEER] = S }, .why = "rank 1 is stopped" };
	ck_assert_ptr_nonnull(strstr(verdict_of(&f).text, "other trainers of the job (rank 1 is stopped)"));
	/* Not the input's fault, and no cache is advised. */
	ck_assert_ptr_nonnull(
		strstr(verdict_of(&f).text, "held up 50 % of rank 0's time in the last minute, not by the input: "));
	f.n_samples = 100, f.decoded_room_bytes = 1 << 30;
	f.times.us[CLOCK_DECODE] = S / 2;
	f.decoded_bytes = 100;
	ck_assert_ptr_null(strstr(verdict_of(&f).text, "decoded cache"));
	f.times.us[CLOCK_DECODE] = 0;
	f.slowest = "rank 2 is the slowest";
	ck_assert_ptr_null(strstr(verdict_of(&f).text, f.slowest));
	f.why = "";
	ck_assert_ptr_nonnull(strstr(verdict_of(&f).text, "other trainers of the job (rank 2 is the slowest)"));
	f.why = "rank 1 is stopped";
	f.times.us[CLOCK_PEER] = 0;
	ck_assert_str_eq(verdict_of(&f).text, "not input-bound in the last minute: p99 wait 0 us; rank 1 is stopped");
}
END_TEST

START_TEST(test_a_gain_without_bound_is_not_pretended_to)
{
	struct verdict v = verdict_of(&(struct verdict_facts){ .times.us = { [CLOCK_READ] = 9 * S } });
	ck_assert_double_eq(v.without, 9);
	ck_assert_ptr_nonnull(strstr(v.text, "more than +900 %"));
}
END_TEST

SUITE(verdict)
{
	Suite *s = suite_create("verdict");
	TCase *t = tcase_create("known answers");
	tcase_add_test(t, test_a_trainer_that_never_waits_is_not_input_bound);
	tcase_add_test(t, test_idle_time_does_not_count);
	tcase_add_test(t, test_twice_the_processors);
	tcase_add_test(t, test_a_decoded_cache_leaves_the_transforms);
	tcase_add_test(t, test_slow_files_are_not_what_workers_cost);
	tcase_add_test(t, test_a_decoded_cache_that_saves_ops_is_worth_more_than_known);
	tcase_add_test(t, test_a_decoded_cache_is_named_only_where_it_fits_and_is_missing);
	tcase_add_test(t, test_every_cause_has_words);
	tcase_add_test(t, test_copies_of_rows_are_no_files);
	tcase_add_test(t, test_a_stalled_trainer_is_named);
	tcase_add_test(t, test_a_gain_without_bound_is_not_pretended_to);
	suite_add_tcase(s, t);
	return s;
}
