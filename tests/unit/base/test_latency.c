/* Histograms of times: percentiles are never too small and at most a quarter too large, and the past fades. */
#include <check.h>

#include "support/suite.h"
#include "base/latency.h"

START_TEST(test_a_percentile_is_at_most_a_quarter_too_large)
{
	/* A single time, at every size from a microsecond to an hour, on both sides of each step. */
	for (uint64_t ns = 1024; ns < UINT64_C(3600) * 1000000000; ns += ns / 7 + 1) {
		for (int i = -1; i <= 1; i++) {
			struct latency l = { 0 };
			uint64_t exact = ns + (uint64_t)(int64_t)i;
			latency_add(&l, exact);
			ck_assert_uint_gt(latency_percentile_ns(&l, 50), exact);
			ck_assert_uint_le(latency_percentile_ns(&l, 99), exact + exact / 4 + 2);
		}
	}
}
END_TEST

START_TEST(test_percentiles_of_many)
{
	/* 980 short times, 20 long ones: the 98th percentile is short, the 99th is not. */
	struct latency l = { 0 };
	ck_assert_uint_eq(latency_percentile_ns(&l, 50), 0);
	for (int i = 0; i < 1000; i++)
		latency_add(&l, i % 50 ? 50000 : 5000000);
	ck_assert_uint_lt(latency_percentile_ns(&l, 50), 63000);
	ck_assert_uint_lt(latency_percentile_ns(&l, 98), 63000);
	ck_assert_uint_gt(latency_percentile_ns(&l, 99), 5000000);
	ck_assert_uint_le(latency_percentile_ns(&l, 100), 6250000);
}
END_TEST

START_TEST(test_extremes_have_a_class)
{
	struct latency l = { 0 };
	latency_add(&l, 0);
	ck_assert_uint_le(latency_percentile_ns(&l, 100), 1024);
	latency_add(&l, UINT64_MAX);
	ck_assert_uint_gt(latency_percentile_ns(&l, 100), UINT64_C(3600) * 1000000000);
}
END_TEST

START_TEST(test_what_was_long_ago_fades)
{
	/* A bad hour at the start fades from the figures, and no counter overflows. */
	struct latency l = { 0 };
	for (int i = 0; i < 100000; i++)
		latency_add(&l, 9000000);
	for (int i = 0; i < 2000000; i++)
		latency_add(&l, 20000);
	ck_assert_uint_lt(latency_percentile_ns(&l, 99), 25001);
	ck_assert_uint_le(l.n, 1 << 16);
}
END_TEST

SUITE(latency)
{
	Suite *s = suite_create("latency");
	TCase *t = tcase_create("histogram");
	tcase_add_test(t, test_a_percentile_is_at_most_a_quarter_too_large);
	tcase_add_test(t, test_percentiles_of_many);
	tcase_add_test(t, test_extremes_have_a_class);
	tcase_add_test(t, test_what_was_long_ago_fades);
	suite_add_tcase(s, t);
	return s;
}
