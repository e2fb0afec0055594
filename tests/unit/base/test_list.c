/* Lists through a member of their items. */
#include <check.h>
#include <signal.h>

#include "support/suite.h"
#include "base/list.h"

struct item {
	int number;
	struct item *next, *next_waiting;
};

static struct item items[4] = { { .number = 0 }, { .number = 1 }, { .number = 2 }, { .number = 3 } };

static void expect(const struct item *first, const int *numbers, int n)
{
	for (int i = 0; i < n; i++, first = first->next) {
		ck_assert_ptr_nonnull(first);
		ck_assert_int_eq(first->number, numbers[i]);
	}
	ck_assert_ptr_null(first);
}

START_TEST(test_items_come_in_the_order_of_pushing_and_appending)
{
	/* Proves both ends, and that the first, a middle and the last item can go. */
	struct item *first = NULL;

	list_append(&first, &items[1], next);
	list_push(&first, &items[0], next);
	list_append(&first, &items[2], next);
	list_append(&first, &items[3], next);
	expect(first, (int[]){ 0, 1, 2, 3 }, 4);
	list_remove(&first, &items[1], next);
	expect(first, (int[]){ 0, 2, 3 }, 3);
	list_remove(&first, &items[0], next);
	list_remove(&first, &items[3], next);
	expect(first, (int[]){ 2 }, 1);
	ck_assert(list_has(&first, &items[2], next));
	ck_assert(!list_has(&first, &items[3], next));
	ck_assert_ptr_null(items[3].next);
	list_remove(&first, &items[2], next);
	ck_assert_ptr_null(first);
}
END_TEST

START_TEST(test_an_item_may_be_in_two_lists)
{
	/* Proves that a list touches no member but its own. */
	struct item *first = NULL, *waiting = NULL;

	for (int i = 0; i < 3; i++) {
		list_append(&first, &items[i], next);
		list_push(&waiting, &items[i], next_waiting);
	}
	list_remove(&waiting, &items[1], next_waiting);
	expect(first, (int[]){ 0, 1, 2 }, 3);
	ck_assert_ptr_eq(waiting, &items[2]);
	ck_assert_ptr_eq(waiting->next_waiting, &items[0]);
}
END_TEST

START_TEST(test_removing_what_is_not_there_is_a_bug)
{
	/* Proves that an assertion ends the process, and nothing is written through a NULL pointer. */
	struct item *first = &items[0];

	list_remove(&first, &items[1], next);
}
END_TEST

SUITE(list)
{
	Suite *suite = suite_create("list");
	TCase *tc = tcase_create("list");

	tcase_add_test(tc, test_items_come_in_the_order_of_pushing_and_appending);
	tcase_add_test(tc, test_an_item_may_be_in_two_lists);
	tcase_add_test_raise_signal(tc, test_removing_what_is_not_there_is_a_bug, SIGABRT);
	suite_add_tcase(suite, tc);

	return suite;
}
