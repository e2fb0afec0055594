/* Own batches: the indices that a trainer sends ahead are charged to its user, up to the user's limit. */
#include "support/streams.h"

enum { LIMIT_BYTES = 4000, USER = 1000 };

static uint64_t charged(const struct accounts *a)
{
	return account_used(a, USER, ACCOUNT_SLOT_BYTES);
}

START_TEST(test_index_batches_are_charged_until_they_are_used_or_dropped)
{
	/* Sent ahead, refused at the limit, given back by making the batches, by a seek and by the end. */
	struct accounts accounts = { .limit_per_user[ACCOUNT_SLOT_BYTES] = LIMIT_BYTES };
	uint64_t index[100] = { 0 };
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 100, .world_size = 1, .own_batches = true }, 1000);
	struct stream *s = with_slots(&f, 0, 2);
	ck_assert_int_eq(charge_begin(&s->bytes, &accounts, USER, ACCOUNT_SLOT_BYTES, 1), 0);
	struct trainer *t = attach(s, 0);
	ck_assert_int_eq(loader_seek(&t->c, 1, &(struct position){ 0 }), 0);
	/* Two are started at once, and cost nothing more. */
	for (uint64_t step = 0; step < 2; step++)
		ck_assert_int_eq(stream_push(&t->c, 1, step, index, 100, false), 0);
	ck_assert_uint_eq(charged(&accounts), 1);
	/* Four more wait for slots, and are charged meanwhile. */
	for (uint64_t step = 2; step < 6; step++)
		ck_assert_int_eq(stream_push(&t->c, 1, step, index, 100, false), 0);
	ck_assert_uint_gt(charged(&accounts), 4 * sizeof(index));
	consume(&f, t, 1);
	ck_assert_int_eq(stream_push(&t->c, 1, 6, index, 60, true), 0);
	uint64_t before = charged(&accounts);
	accounts.limit_per_user[ACCOUNT_SLOT_BYTES] = before;
	ck_assert_int_eq(stream_push(&t->c, 1, 6, index, 40, false), STREAM_E_LIMIT);
	ck_assert_uint_eq(charged(&accounts), before);
	ck_assert_int_eq(loader_seek(&t->c, 2, &(struct position){ .epoch = 1 }), 0);
	ck_assert_uint_eq(charged(&accounts), 1);
	ck_assert_int_eq(stream_push(&t->c, 2, 0, index, 1, true), 0);
	leave(t);
	teardown(&f);
	ck_assert(accounts_balanced(&accounts));
}
END_TEST

SUITE(own)
{
	Suite *s = suite_create("own batches");
	TCase *t = tcase_create("own batches");
	tcase_add_test(t, test_index_batches_are_charged_until_they_are_used_or_dropped);
	suite_add_tcase(s, t);
	return s;
}
