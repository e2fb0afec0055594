/* Priority queues through a member of their items. */
#include <check.h>
#include <stdlib.h>

#include "support/suite.h"
#include "base/heap.h"

enum { MOST = 200, STEPS = 100000 };

static uint32_t draw(uint32_t n)
{
	static uint64_t state = 1;
	state = state * 6364136223846793005U + 1442695040888963407U;
	return (uint32_t)(state >> 33) % n;
}

START_TEST(test_the_first_item_has_the_least_key)
{
	/* Proves it against a search of all items, after any order of inserts, removals and changes of keys. */
	static struct heap_node nodes[MOST];
	struct heap h = { 0 };
	for (int step = 0; step < STEPS; step++) {
		struct heap_node *n = &nodes[draw(step % 1000 < 500 ? MOST : 8)];
		if (!heap_has(n))
			heap_insert(&h, n, draw(1000));
		else if (draw(3) == 0)
			heap_remove(&h, n);
		else
			heap_set_key(&h, n, draw(1000));
		const struct heap_node *least = NULL;
		unsigned n_in = 0;
		for (int i = 0; i < MOST; i++) {
			n_in += heap_has(&nodes[i]);
			if (heap_has(&nodes[i]) && (!least || nodes[i].key < least->key))
				least = &nodes[i];
		}
		ck_assert_int_eq(h.first == NULL, n_in == 0);
		ck_assert_int_eq(heap_has_one(&h), n_in == 1);
		if (least)
			ck_assert_uint_eq(h.first->key, least->key);
	}
	uint64_t before = 0;
	for (; h.first; heap_remove(&h, h.first)) {
		ck_assert_uint_ge(h.first->key, before);
		before = h.first->key;
	}
	for (int i = 0; i < MOST; i++)
		ck_assert(!heap_has(&nodes[i]));
}
END_TEST

START_TEST(test_among_equal_keys_the_last_that_was_inserted_is_first)
{
	struct heap_node nodes[4] = { { 0 } };
	struct heap h = { 0 };
	for (int i = 0; i < 4; i++) {
		heap_insert(&h, &nodes[i], 7);
		ck_assert_ptr_eq(h.first, &nodes[i]);
	}
}
END_TEST

SUITE(heap)
{
	Suite *s = suite_create("heap");
	TCase *tc = tcase_create("heap");
	tcase_add_test(tc, test_the_first_item_has_the_least_key);
	tcase_add_test(tc, test_among_equal_keys_the_last_that_was_inserted_is_first);
	suite_add_tcase(s, tc);
	return s;
}
