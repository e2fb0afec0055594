/* Descriptors that data sets keep open: a user gets as many as are left for others, whatever came before. */
#include <check.h>
#include <sys/resource.h>

#include "dataset/kept-fds.h"
#include "support/suite.h"

enum { ALICE = 1, BOB = 2, CAROL = 3, MOST = 64 };

static unsigned take_all(uid_t uid)
{
	unsigned n = 0;
	while (kept_fds_take(uid))
		n++;
	return n;
}

static void give(uid_t uid, unsigned n)
{
	while (n-- > 0)
		kept_fds_give(uid);
}

START_TEST(test_a_user_leaves_as_many_as_it_has)
{
	struct rlimit old, limit = { .rlim_cur = 2 * MOST };
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	limit.rlim_max = old.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_eq(take_all(BOB), MOST / 2);
	ck_assert_uint_eq(take_all(ALICE), MOST / 4);
	ck_assert_uint_eq(take_all(CAROL), MOST / 8);
	ck_assert(!kept_fds_take(BOB));
	give(BOB, MOST / 2);
	ck_assert_uint_eq(take_all(ALICE), MOST / 16 * 3); /* (MOST - MOST / 8) / 2 in all */
	give(ALICE, MOST / 16 * 7);
	give(CAROL, MOST / 8);
	ck_assert_uint_eq(take_all(ALICE), MOST / 2);
	give(ALICE, MOST / 2);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
}
END_TEST

SUITE(kept_fds)
{
	Suite *s = suite_create("kept descriptors");
	TCase *t = tcase_create("kept descriptors");
	tcase_add_test(t, test_a_user_leaves_as_many_as_it_has);
	suite_add_tcase(s, t);
	return s;
}
