/* The slots of a slab: where their members lie. What happens to slots is told in test_stream.c and test_device_slab.c. */
#include <check.h>
#include <stdint.h>

#include "batch/slots.h"
#include "support/suite.h"

enum { N = 5, LINE = 64 };

static uintptr_t line_of(const void *member)
{
	return (uintptr_t)member / LINE;
}

START_TEST(test_a_worker_writes_no_cache_line_that_another_thread_polls)
{
	/* The line of a slot's members that workers write has none that the loop writes or the pool's lock guards, of
	 * this slot or of its neighbours. */
	struct slot_field field = { .item_bytes = 4096 };
	struct slot_layout layout;
	struct slots *slots;

	ck_assert_int_eq(slot_layout_make(&field, 1, 1, &layout), 0);
	ck_assert_int_eq(slots_create(&layout, N, 1, &slots), 0);
	for (unsigned i = 0; i < N; i++) {
		const struct slot *writes = &slots->slot[i];
		uintptr_t line = line_of(&writes->n_replaced);

		ck_assert_uint_eq(line_of(&writes->n_unpacked), line);
		ck_assert_uint_eq(line_of(&writes->failed), line);
		for (unsigned k = 0; k < N; k++) {
			const struct slot *s = &slots->slot[k];

			ck_assert_uint_ne(line_of(&s->job.ops), line);
			ck_assert_uint_ne(line_of(&s->job.finished), line);
			ck_assert_uint_ne(line_of(&s->stream), line);
			ck_assert_uint_ne(line_of(&s->n_rows), line);
			ck_assert_uint_ne(line_of(&s->state), line);
			ck_assert_uint_ne(line_of(&s->pending), line);
			ck_assert_uint_ne(line_of(&s->n_leases), line);
			ck_assert_uint_ne(line_of(&s->n_copying), line);
			ck_assert_uint_ne(line_of(&s->payload_bytes), line);
			ck_assert(k == i || line_of(&s->failed) != line);
		}
	}
	slots_unref(slots);
}
END_TEST

SUITE(slots)
{
	Suite *s = suite_create("slots");
	TCase *t = tcase_create("slots");
	tcase_add_test(t, test_a_worker_writes_no_cache_line_that_another_thread_polls);
	suite_add_tcase(s, t);
	return s;
}
