/* Charges and limits: both sides of each limit, and that the accounts are balanced when everything is given back. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "support/suite.h"
#include "base/account.h"

static struct accounts a;
static struct charge c[4];

static void setup(void)
{
	a = (struct accounts){ 0 };
	for (int i = 0; i < 4; i++)
		c[i] = (struct charge){ 0 };
}

START_TEST(test_the_last_unit_is_granted_and_the_next_refused)
{
	/* Limits of a user and limits of all users together; a refusal charges nothing. */
	a.limit[ACCOUNT_FDS] = 15;
	a.limit_per_user[ACCOUNT_FDS] = 10;
	ck_assert_int_eq(charge_begin(&c[0], &a, 1, ACCOUNT_FDS, 11), ACCOUNT_E_USER);
	ck_assert(accounts_balanced(&a));
	ck_assert_int_eq(charge_begin(&c[0], &a, 1, ACCOUNT_FDS, 10), 0);
	ck_assert_int_eq(charge_grow(&c[0], 1), ACCOUNT_E_USER);
	ck_assert_uint_eq(account_left(&a, 1, ACCOUNT_FDS), 0);
	ck_assert_int_eq(charge_begin(&c[1], &a, 2, ACCOUNT_FDS, 6), ACCOUNT_E_ALL);
	ck_assert_int_eq(charge_begin(&c[1], &a, 2, ACCOUNT_FDS, 5), 0);
	ck_assert_int_eq(charge_grow(&c[1], 1), ACCOUNT_E_ALL);
	charge_shrink(&c[0], 1);
	ck_assert_int_eq(charge_grow(&c[1], 1), 0);
	ck_assert_uint_eq(a.used[ACCOUNT_FDS], 15);
	charge_release(&c[0]);
	charge_release(&c[1]);
	ck_assert(accounts_balanced(&a));
}
END_TEST

START_TEST(test_without_a_limit_everything_is_granted_and_counted)
{
	/* Also amounts whose sum would exceed 2^64 if a limit were compared carelessly. */
	ck_assert_int_eq(charge_begin(&c[0], &a, 1, ACCOUNT_SLOT_BYTES, UINT64_MAX / 2), 0);
	ck_assert_uint_eq(account_left(&a, 1, ACCOUNT_SLOT_BYTES), UINT64_MAX);
	a.limit_per_user[ACCOUNT_SLOT_BYTES] = UINT64_MAX - 1;
	ck_assert_int_eq(charge_grow(&c[0], UINT64_MAX - 5), ACCOUNT_E_USER);
	ck_assert_uint_eq(account_used(&a, 1, ACCOUNT_SLOT_BYTES), UINT64_MAX / 2);
	ck_assert_uint_eq(account_used(&a, 2, ACCOUNT_SLOT_BYTES), 0);
	charge_release(&c[0]);
	ck_assert(accounts_balanced(&a));
}
END_TEST

START_TEST(test_a_limit_lowered_below_what_is_used_only_refuses_more)
{
	/* As a reload does. */
	ck_assert_int_eq(charge_begin(&c[0], &a, 1, ACCOUNT_SESSIONS, 8), 0);
	a.limit_per_user[ACCOUNT_SESSIONS] = 4;
	ck_assert_uint_eq(account_left(&a, 1, ACCOUNT_SESSIONS), 0);
	ck_assert_int_eq(charge_begin(&c[1], &a, 1, ACCOUNT_SESSIONS, 1), ACCOUNT_E_USER);
	charge_shrink(&c[0], 5);
	ck_assert_int_eq(charge_begin(&c[1], &a, 1, ACCOUNT_SESSIONS, 1), 0);
	charge_release(&c[0]);
	charge_release(&c[1]);
}
END_TEST

START_TEST(test_a_moved_charge_is_given_back_once)
{
	/* A trainer's connection becomes an orphan, and the charge moves with it. Ending the empty charge again does
	 * nothing. */
	ck_assert_int_eq(charge_begin(&c[0], &a, 1, ACCOUNT_SESSIONS, 1), 0);
	charge_move(&c[1], &c[0]);
	charge_release(&c[0]);
	ck_assert_uint_eq(account_used(&a, 1, ACCOUNT_SESSIONS), 1);
	charge_release(&c[1]);
	charge_release(&c[1]);
	ck_assert(accounts_balanced(&a));
}
END_TEST

SUITE(account)
{
	Suite *s = suite_create("account");
	TCase *t = tcase_create("account");
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, test_the_last_unit_is_granted_and_the_next_refused);
	tcase_add_test(t, test_without_a_limit_everything_is_granted_and_counted);
	tcase_add_test(t, test_a_limit_lowered_below_what_is_used_only_refuses_more);
	tcase_add_test(t, test_a_moved_charge_is_given_back_once);
	suite_add_tcase(s, t);
	return s;
}
