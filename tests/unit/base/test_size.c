/* Sizes and durations in their written form. */
#include "base/size.h"
#include "support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>

#define UNTOUCHED UINT64_C(0x5a5a5a5a5a5a5a5a)

static void expect_size(const char *text, uint64_t want)
{
	uint64_t got = UNTOUCHED;

	ck_assert_msg(size_parse(text, &got) == 0, "'%s' was refused", text);
	ck_assert_msg(got == want, "'%s' gave %llu", text, (unsigned long long)got);
}

static void expect_no_size(const char *text, int error)
{
	uint64_t got = UNTOUCHED;

	ck_assert_msg(size_parse(text, &got) == error, "'%s' was not refused with %d", text, error);
	ck_assert_uint_eq(got, UNTOUCHED);
}

static void expect_duration(const char *text, uint64_t want)
{
	uint64_t got = UNTOUCHED;

	ck_assert_msg(duration_parse(text, &got) == 0, "'%s' was refused", text);
	ck_assert_msg(got == want, "'%s' gave %llu", text, (unsigned long long)got);
}

static void expect_no_duration(const char *text, int error)
{
	uint64_t got = UNTOUCHED;

	ck_assert_msg(duration_parse(text, &got) == error, "'%s' was not refused with %d", text, error);
	ck_assert_uint_eq(got, UNTOUCHED);
}

START_TEST(test_size_units_are_binary_or_decimal_by_their_name)
{
	/* Proves that KiB counts 1024s and kB 1000s, and that no unit means bytes. */
	expect_size("0", 0);
	expect_size("65536", 65536);
	expect_size("17B", 17);
	expect_size("64KiB", 65536);
	expect_size("2GiB", UINT64_C(2147483648));
	expect_size("3TiB", UINT64_C(3298534883328));
	expect_size("10MB", 10000000);
	expect_size("10kB", 10000);
	expect_size("10KB", 10000);
	expect_size("1PB", UINT64_C(1000000000000000));
}
END_TEST

START_TEST(test_size_fractions_are_exact)
{
	/* Proves that a fraction is computed with integers, not with a double. */
	expect_size("1.5GiB", UINT64_C(1610612736));
	expect_size("0.5KiB", 512);
	expect_size("1.000000001GB", UINT64_C(1000000001));
	expect_size("0.1KiB", 102); /* parts of a byte are truncated */
}
END_TEST

START_TEST(test_size_refuses_what_is_not_wholly_a_size)
{
	/* Proves that trailing text, signs, blanks and unknown units are errors and leave the result unchanged. */
	static const char *const bad[] = { "",        " 1",  "1 ",     "1 GiB", "-1",       "+1",   "1.GiB",
					   ".5GiB",   "1.5", "1.5B",   "GiB",   "1G",       "1gib", "1Gi",
					   "0x10",    "1e3", "1,5GiB", "1GiBs", "1.5.5KiB", "many", "1.0123456789GiB",
					   "\xd9\xa1" };

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		expect_no_size(bad[i], -EINVAL);
}
END_TEST

START_TEST(test_size_refuses_what_does_not_fit)
{
	/* Proves both sides of the 64-bit limit, for digits, for the unit and for the fraction. */
	expect_size("18446744073709551615", UINT64_MAX);
	expect_no_size("18446744073709551616", -ERANGE);
	expect_no_size("99999999999999999999999", -ERANGE);
	expect_size("16777215TiB", UINT64_C(16777215) << 40);
	expect_no_size("16777216TiB", -ERANGE);
	expect_size("16777215.999999999TiB", (UINT64_C(16777215) << 40) + UINT64_C(1099511626676));
}
END_TEST

START_TEST(test_duration_without_a_unit_means_seconds)
{
	/* Proves the units of time, and that a bare number is seconds. */
	expect_duration("0", 0);
	expect_duration("30", UINT64_C(30000000000));
	expect_duration("30s", UINT64_C(30000000000));
	expect_duration("1.5", UINT64_C(1500000000));
	expect_duration("500ms", 500000000);
	expect_duration("20us", 20000);
	expect_duration("7ns", 7);
	expect_duration("5min", UINT64_C(300000000000));
	expect_duration("2h", UINT64_C(7200000000000));
	expect_duration("1d", UINT64_C(86400000000000));
}
END_TEST

START_TEST(test_duration_refuses_what_is_ambiguous_or_too_long)
{
	/* Proves that "5m" (minutes? metres? milli?) is refused instead of guessed, and that 585 years do not
	 * overflow. */
	expect_no_duration("5m", -EINVAL);
	expect_no_duration("30 s", -EINVAL);
	expect_no_duration("-3s", -EINVAL);
	expect_no_duration("1.5ns", -EINVAL);
	expect_no_duration("never", -EINVAL);
	expect_duration("213503d", UINT64_C(213503) * UINT64_C(86400000000000));
	expect_no_duration("213504d", -ERANGE);
}
END_TEST

START_TEST(test_size_format_has_one_decimal_and_never_1024)
{
	/* Proves the rounding at the border between two units. */
	char buf[16];

	ck_assert_str_eq(size_format(0, buf, sizeof buf), "0 B");
	ck_assert_str_eq(size_format(1023, buf, sizeof buf), "1023 B");
	ck_assert_str_eq(size_format(1024, buf, sizeof buf), "1.0 KiB");
	ck_assert_str_eq(size_format(40160461, buf, sizeof buf), "38.3 MiB");
	ck_assert_str_eq(size_format(1024 * 1024 - 1, buf, sizeof buf), "1.0 MiB");
	ck_assert_str_eq(size_format(UINT64_MAX, buf, sizeof buf), "16.0 EiB");
}
END_TEST

SUITE(size)
{
	Suite *suite = suite_create("size");
	TCase *tc = tcase_create("size");

	tcase_add_test(tc, test_size_units_are_binary_or_decimal_by_their_name);
	tcase_add_test(tc, test_size_fractions_are_exact);
	tcase_add_test(tc, test_size_refuses_what_is_not_wholly_a_size);
	tcase_add_test(tc, test_size_refuses_what_does_not_fit);
	tcase_add_test(tc, test_duration_without_a_unit_means_seconds);
	tcase_add_test(tc, test_duration_refuses_what_is_ambiguous_or_too_long);
	tcase_add_test(tc, test_size_format_has_one_decimal_and_never_1024);
	suite_add_tcase(suite, tc);

	return suite;
}
