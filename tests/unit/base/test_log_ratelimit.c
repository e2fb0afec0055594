/* Which events are logged and which only counted. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "support/suite.h"
#include "base/log-ratelimit.h"

static struct log_ratelimit r;
static struct repeat said[LOG_RATELIMIT_KINDS + 1];
static unsigned n_said;
static uint64_t n_more;

static void say(const struct repeat *kind, uint64_t more)
{
	said[n_said] = kind ? *kind : (struct repeat){ .uid = (uid_t)-1 };
	n_said++;
	n_more += more;
}

static bool tick(void)
{
	n_said = 0;
	n_more = 0;
	return log_ratelimit_tick(&r, say);
}

static void setup(void)
{
	memset(&r, 0, sizeof(r));
}

START_TEST(test_the_first_is_told_and_the_rest_counted)
{
	/* Once a period while the event repeats, without a second first message; after a quiet period it starts
	 * again. */
	ck_assert(log_ratelimit_note(&r, 1, "LIMIT", "sessions", 1));
	for (int period = 0; period < 3; period++) {
		for (int i = 0; i < 1000; i++)
			ck_assert(!log_ratelimit_note(&r, 1, "LIMIT", "sessions", 1));
		ck_assert(tick());
		ck_assert_uint_eq(n_said, 1);
		ck_assert_uint_eq(n_more, 1000);
		ck_assert_str_eq(said[0].detail, "sessions");
	}
	ck_assert(!tick());
	ck_assert_uint_eq(n_said, 0);
	ck_assert(log_ratelimit_note(&r, 1, "LIMIT", "sessions", 1));
}
END_TEST

START_TEST(test_users_and_kinds_are_apart)
{
	ck_assert(log_ratelimit_note(&r, 1, "LIMIT", "sessions", 1));
	ck_assert(log_ratelimit_note(&r, 2, "LIMIT", "sessions", 1));
	ck_assert(log_ratelimit_note(&r, 1, "LIMIT", NULL, 1));
	ck_assert(log_ratelimit_note(&r, 1, "PROTOCOL", NULL, 1));
	ck_assert(!log_ratelimit_note(&r, 1, "PROTOCOL", "", 1)); /* as NULL */
	ck_assert(!log_ratelimit_note(&r, 2, "LIMIT", "sessions", 1));
	ck_assert(tick());
	ck_assert_uint_eq(n_said, 2);
}
END_TEST

START_TEST(test_so_many_are_told_at_once)
{
	for (int i = 0; i < 3; i++)
		ck_assert(log_ratelimit_note(&r, 1, "INVALID", "dataset", 3));
	ck_assert(!log_ratelimit_note(&r, 1, "INVALID", "dataset", 3));
	ck_assert(tick());
	ck_assert_uint_eq(n_more, 1);
}
END_TEST

START_TEST(test_a_full_table_counts_the_rest_together)
{
	/* The last name that fits is logged, one more is not; longer names are truncated. */
	char name[100];
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	for (unsigned i = 0; i < LOG_RATELIMIT_KINDS; i++)
		ck_assert(log_ratelimit_note(&r, i, name, name, 1));
	ck_assert(!log_ratelimit_note(&r, LOG_RATELIMIT_KINDS, name, name, 1));
	ck_assert(!log_ratelimit_note(&r, 0, name, name, 1));
	ck_assert(tick());
	ck_assert_uint_eq(n_said, 2);
	ck_assert_uint_eq(said[1].uid, (uid_t)-1);
	ck_assert(!tick());
	ck_assert(log_ratelimit_note(&r, LOG_RATELIMIT_KINDS, name, name, 1));
}
END_TEST

SUITE(log_ratelimit)
{
	Suite *s = suite_create("log rate limit");
	TCase *t = tcase_create("log rate limit");
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, test_the_first_is_told_and_the_rest_counted);
	tcase_add_test(t, test_users_and_kinds_are_apart);
	tcase_add_test(t, test_so_many_are_told_at_once);
	tcase_add_test(t, test_a_full_table_counts_the_rest_together);
	suite_add_tcase(s, t);
	return s;
}
