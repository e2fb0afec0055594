/* Which peers are served in a turn of the loop: a flood of one user's connections costs a turn at most that user's
 * share, and each connection makes progress. */
#include <check.h>
#include <stdlib.h>

#include "support/suite.h"
#include "base/fair-turn.h"

enum { N = 40 };

START_TEST(test_a_user_has_its_part_of_a_turn)
{
	/* A connection that takes a quarter of the share: four are served in a turn, or as many as there are. */
	struct fair_turn user = { 0 };
	uint64_t round[N] = { 0 };
	unsigned n = 0;
	for (int i = 0; i < N; i++) {
		if (fair_turn_take(&user, 1, &round[i])) {
			fair_turn_spend(&user, FAIR_TURN_NS / 4);
			n++;
		}
	}
	ck_assert_uint_eq(n, 4);
	ck_assert(fair_turn_take(&user, 2, &round[N - 1]));
}
END_TEST

START_TEST(test_other_users_do_not_wait_for_a_flood)
{
	struct fair_turn flood = { 0 }, other = { 0 };
	uint64_t of_flood = 0, late = 0, mine = 0;
	for (uint64_t turn = 1; turn < 100; turn++) {
		ck_assert(fair_turn_take(&flood, turn, &of_flood));
		fair_turn_spend(&flood, 2 * FAIR_TURN_NS);
		ck_assert(fair_turn_take(&other, turn, &mine));
		fair_turn_spend(&other, 1);
	}
	ck_assert(!fair_turn_take(&flood, 99, &late));
}
END_TEST

START_TEST(test_no_peer_is_heard_twice_before_all_are_heard_once)
{
	/* Always asked in the same order, as the kernel does: the last one is served, too. */
	struct fair_turn user = { 0 };
	uint64_t round[N] = { 0 };
	unsigned heard[N] = { 0 };
	for (uint64_t turn = 1; turn <= 1000; turn++) {
		for (int i = 0; i < N; i++) {
			if (!fair_turn_take(&user, turn, &round[i]))
				continue;
			fair_turn_spend(&user, FAIR_TURN_NS / 3);
			heard[i]++;
		}
		for (int i = 0; i < N; i++)
			ck_assert_int_le(abs((int)heard[i] - (int)heard[0]), 1);
	}
	ck_assert_uint_ge(heard[N - 1], 1000 * 3 / N - 5);
}
END_TEST

START_TEST(test_a_trainer_that_has_left_is_not_waited_for)
{
	/* A round ends when its remaining connections have hung up: the others are served again. */
	struct fair_turn user = { 0 };
	uint64_t a = 0, b = 0;
	ck_assert(fair_turn_take(&user, 1, &a));
	fair_turn_spend(&user, FAIR_TURN_NS);
	ck_assert(!fair_turn_take(&user, 1, &b)); /* and leaves */
	unsigned n = 0;
	for (uint64_t turn = 2; turn < 12; turn++)
		n += fair_turn_take(&user, turn, &a);
	ck_assert_uint_ge(n, 9);
}
END_TEST

SUITE(fair_turn)
{
	Suite *s = suite_create("fair turn");
	TCase *t = tcase_create("fair turn");
	tcase_add_test(t, test_a_user_has_its_part_of_a_turn);
	tcase_add_test(t, test_other_users_do_not_wait_for_a_flood);
	tcase_add_test(t, test_no_peer_is_heard_twice_before_all_are_heard_once);
	tcase_add_test(t, test_a_trainer_that_has_left_is_not_waited_for);
	suite_add_tcase(s, t);
	return s;
}
