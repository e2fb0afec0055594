/* Whose recent errors are kept: of every user with a session, and of those that have gone the newest. */
#include "server/recent-errors.h"

#include "support/suite.h"

static struct accounts accounts;
static struct recent_errors errors;

static void setup(void)
{
	accounts = (struct accounts){ .first = NULL };
	errors = (struct recent_errors){ .accounts = &accounts };
}

static void teardown(void)
{
	recent_errors_finish(&errors);
	ck_assert(accounts_balanced(&accounts));
}

static size_t n_kept(uid_t uid)
{
	json_t *list = recent_errors_json(&errors, uid);
	size_t n = json_array_size(list);

	json_decref(list);
	return n;
}

START_TEST(test_users_that_come_and_go_push_out_none_that_stays)
{
	/* Two hundred other users are refused, with a session and without: one user with a session keeps its error. Of
	 * those that have gone the newest stay. */
	struct charge here = { .amount = 0 }, others[100] = { { .amount = 0 } };

	ck_assert_int_eq(charge_begin(&here, &accounts, 1, ACCOUNT_SESSIONS, 1), 0);
	recent_errors_note(&errors, 1, "a", "of the one that stays");
	for (uid_t uid = 100; uid < 300; uid++) {
		if (uid < 200)
			ck_assert_int_eq(charge_begin(&others[uid - 100], &accounts, uid, ACCOUNT_SESSIONS, 1), 0);
		recent_errors_note(&errors, uid, "b", "of another");
	}
	ck_assert_uint_eq(n_kept(1), 1);
	for (uid_t uid = 100; uid < 300; uid++)
		ck_assert_uint_eq(n_kept(uid), uid < 200 || uid >= 300 - RECENT_ERRORS_GONE);
	charge_release(&here);
	for (unsigned i = 0; i < 100; i++)
		charge_release(&others[i]);
	recent_errors_note(&errors, 400, "b", "of another");
	ck_assert_uint_eq(n_kept(1), 0); /* it has gone now, and others had an error since */
	ck_assert_uint_eq(n_kept(400), 1);
	ck_assert_uint_eq(n_kept(0), RECENT_ERRORS_GONE);
}
END_TEST

START_TEST(test_a_user_keeps_its_newest_errors)
{
	/* Of its own it has forty, and one that repeats is counted. */
	char text[32];
	json_t *list;

	for (unsigned i = 0; i < 100; i++) {
		snprintf(text, sizeof(text), "error %u", i);
		recent_errors_note(&errors, 1, "a", text);
		recent_errors_note(&errors, 1, "a", "again");
	}
	list = recent_errors_json(&errors, 1);
	ck_assert_uint_eq(json_array_size(list), RECENT_ERRORS_EACH);
	json_decref(list);
	ck_assert_uint_eq(n_kept(2), 0);
}
END_TEST

SUITE(recent_errors)
{
	Suite *s = suite_create("recent_errors");
	TCase *tc = tcase_create("recent_errors");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_users_that_come_and_go_push_out_none_that_stays);
	tcase_add_test(tc, test_a_user_keeps_its_newest_errors);
	suite_add_tcase(s, tc);
	return s;
}
