/* Sums that many threads add to. */
#include <check.h>
#include <pthread.h>

#include "support/suite.h"
#include "base/tally.h"

enum { THREADS = 8, ADDS = 10000 };

static struct tally tally;
static unsigned cells[THREADS];

static void *add(void *arg)
{
	unsigned *cell = arg;
	*cell = tally_cell();
	for (unsigned i = 0; i < ADDS; i++) {
		tally_add(&tally, 0, 1);
		tally_add(&tally, TALLY_SUMS - 1, 3);
	}
	return NULL;
}

START_TEST(test_a_sum_has_what_all_threads_added)
{
	/* And each of a few threads adds to lines of its own. */
	pthread_t threads[THREADS];
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, add, &cells[i]), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(tally_sum(&tally, 0), THREADS * ADDS);
	ck_assert_uint_eq(tally_sum(&tally, TALLY_SUMS - 1), 3 * THREADS * ADDS);
	ck_assert_uint_eq(tally_sum(&tally, 1), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		for (unsigned k = 0; k < i; k++) {
			const struct tally_cell *a = &tally.cell[cells[i]], *b = &tally.cell[cells[k]];
			uintptr_t end = (uintptr_t)&a->sum[TALLY_SUMS] - 1, begin = (uintptr_t)b->sum;
			if (a > b) {
				end = (uintptr_t)&b->sum[TALLY_SUMS] - 1;
				begin = (uintptr_t)a->sum;
			}
			ck_assert_uint_ne(cells[i], cells[k]);
			ck_assert_uint_lt(end / TALLY_LINE_BYTES, begin / TALLY_LINE_BYTES);
		}
	}
}
END_TEST

SUITE(tally)
{
	Suite *s = suite_create("tally");
	TCase *tc = tcase_create("tally");
	tcase_add_test(tc, test_a_sum_has_what_all_threads_added);
	suite_add_tcase(s, tc);
	return s;
}
