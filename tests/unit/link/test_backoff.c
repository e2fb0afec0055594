/* Pauses between tries. */
#include <check.h>

#include "link/backoff.h"
#include "support/suite.h"

START_TEST(test_pauses_double_up_to_the_longest)
{
	struct backoff b = { .first_ms = 50, .most_ms = 1000 };
	static const unsigned expected[] = { 50, 100, 200, 400, 800, 1000, 1000, 1000 };

	for (unsigned i = 0; i < sizeof expected / sizeof *expected; i++)
		ck_assert_uint_eq(backoff_next_ms(&b), expected[i]);
	b = (struct backoff){ .first_ms = 5, .most_ms = 5 };
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(backoff_next_ms(&b), 5);
}
END_TEST

SUITE(backoff)
{
	Suite *s = suite_create("backoff");
	TCase *t = tcase_create("backoff");

	tcase_add_test(t, test_pauses_double_up_to_the_longest);
	suite_add_tcase(s, t);
	return s;
}
