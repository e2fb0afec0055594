/* libbatchd in an open share group: slices of the group's batch, joining, missed batches. The wire counts the group's
 * batches, the trainer sees its own. */
#include "fake/daemon/fake.h"
#include "support/suite.h"

enum { OWN = 2, PER_BATCH = BATCH / OWN };

static void setup_group(void)
{
	setup();
	options.mode = BATCHD_SHARE;
	options.rank = -1;
	options.batch_size = OWN;
	options.group_batch_size = BATCH;
	d->opened.policy = BATCHD__WIRE__POLICY__POLICY_SKIP;
}

static void lend_group(struct fake *f, uint64_t seek, uint64_t epoch, uint64_t step, uint32_t slot, uint32_t n_skipped)
{
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;
	uint64_t left = f->opened.n_samples - step * BATCH;

	for (unsigned row = 0; row < BATCH; row++) {
		float *at = (float *)(void *)(f->slab + slot * f->slot_bytes) + row * ROW_FLOATS;

		for (unsigned i = 0; i < ROW_FLOATS; i++)
			at[i] = value(f->generation + 1, row);
		((int64_t *)(void *)(f->slab + slot * f->slot_bytes + f->field[1].offset))[row] = (int64_t)row;
		((int64_t *)(void *)(f->slab + slot * f->slot_bytes + f->opened.indices_offset))[row] =
			(int64_t)(step * BATCH + row);
	}
	b.seek = seek;
	b.slot = slot;
	b.generation = ++f->generation;
	b.epoch = epoch;
	b.step = step;
	b.n_rows = left < BATCH ? (uint32_t)left : BATCH;
	b.last = left <= BATCH;
	b.n_skipped = n_skipped;
	b.n_replaced = 1;
	send_batch(f, &b);
}

/* Checks the slice of that step, `row` rows into the group's batch. */
static void slice_is(uint64_t epoch, uint64_t step, uint32_t n_rows)
{
	next_is(epoch, step);
	ck_assert_uint_eq(batch.n_rows, n_rows);
	ck_assert_uint_eq(batch.row, step % PER_BATCH * OWN);
	for (unsigned i = 0; i < n_rows; i++) {
		ck_assert_int_eq(batch.indices[i], (int64_t)(step * OWN + i));
		ck_assert_int_eq(((const int64_t *)batch.labels)[i], (int64_t)(batch.row + i));
		ck_assert(((const float *)batch.data)[i * ROW_FLOATS] == value(batch.generation, batch.row + i));
	}
}

static void start_at(uint64_t epoch, uint64_t step)
{
	ck_assert_int_eq(batchd_start(loader, epoch, 0, step, NULL), 0);
}

/* ---- slices ---- */

static void whole_epoch(struct fake *f)
{
	greet(f);
	const Batchd__Wire__Open *o = EXPECT(f, OPEN)->open;
	ck_assert(o->batch_size == BATCH && o->own_batch_size == OWN && !o->drop_last);
	say_opened(f);
	ck_assert_uint_eq(EXPECT(f, SEEK)->seek->step, 0);
	for (unsigned i = 0; i < N_BATCHES; i++)
		lend_group(f, 1, 0, i, i, 0);
	for (unsigned i = 0; i < N_BATCHES; i++)
		ck_assert_uint_eq(EXPECT(f, RELEASE)->release->slot, i);
	EXPECT(f, CLOSE);
}

START_TEST(test_a_batch_is_given_out_in_slices_and_goes_back_with_the_last)
{
	/* Ten samples: slices 0 to 4 of two rows, in the memory of batches of 4, 4 and 2. Replaced rows are reported
	 * once. The second slice of a batch may be released before the first; the slot goes back when both are. */
	struct batchd_info info = { .size_bytes = sizeof info };
	uint64_t generation[2];
	uint32_t slot[2];

	play(whole_epoch);
	open_loader();
	batchd_get_info(loader, &info);
	ck_assert_uint_eq(info.batch_size, OWN);
	ck_assert_uint_eq(info.group_batch_size, BATCH);
	ck_assert_uint_eq(info.n_batches, N_SAMPLES / OWN);
	start_at(0, 0);
	for (uint64_t step = 0; step < 5; step++) {
		slice_is(0, step, OWN);
		ck_assert_int_eq(batch.last, step == 4);
		ck_assert_uint_eq(batch.n_replaced, step % PER_BATCH == 0);
		slot[step % 2] = batch.slot;
		generation[step % 2] = batch.generation;
		if (step % 2 == 0)
			continue;
		ck_assert(slot[0] == slot[1] && generation[0] == generation[1]);
		ck_assert_int_eq(batchd_release(loader, slot[1], generation[1]), 0);
		ck_assert_int_eq(batchd_release(loader, slot[0], generation[0]), 0);
		/* it had two slices, both released */
		ck_assert_int_lt(batchd_release(loader, slot[0], generation[0]), 0);
	}
	release();
	ck_assert_int_eq(batchd_next(loader, &batch, 0), BATCHD_END);
	finish();
}
END_TEST

static void nine_samples(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	for (unsigned i = 0; i < N_BATCHES; i++)
		lend_group(f, 1, 0, i, i, 0);
	for (unsigned i = 0; i < N_BATCHES; i++)
		ck_assert_uint_eq(EXPECT(f, RELEASE)->release->slot, i);
	lend_group(f, 1, 1, 0, 0, 0);
	EXPECT(f, RELEASE);
	EXPECT(f, CLOSE);
}

START_TEST(test_drop_last_is_the_trainers_own)
{
	/* Of nine samples in batches of 4, 4 and 1 the last is no slice of two: kept without drop_last; with it, given
	 * back without being delivered, and the next epoch follows. */
	for (int drop = 0; drop < 2; drop++) {
		setup_group();
		d->opened.n_samples = 9;
		options.drop_last = drop;
		play(nine_samples);
		open_loader();
		start_at(0, 0);
		for (uint64_t step = 0; step < (drop ? 4 : 5); step++) {
			slice_is(0, step, step == 4 ? 1 : OWN);
			release();
		}
		ck_assert_int_eq(batchd_next(loader, &batch, 0), BATCHD_END);
		start_at(1, 0);
		slice_is(1, 0, OWN);
		release();
		slice_is(1, 1, OWN);
		release();
		finish();
		teardown();
	}
}
END_TEST

static void from_the_middle(struct fake *f)
{
	welcome(f);
	const Batchd__Wire__Seek *s = EXPECT(f, SEEK)->seek;
	ck_assert(s->epoch == 2 && s->step == 1);
	lend_group(f, 1, 2, 1, 0, 0);
	lend_group(f, 1, 2, 2, 1, 0);
	expect_releases(f, 2);
	EXPECT(f, CLOSE);
}

START_TEST(test_a_start_in_the_middle_of_a_batch_gives_the_rest_of_it)
{
	/* Step 3 is the second half of batch 1, which is requested whole and goes back with that one slice. */
	play(from_the_middle);
	open_loader();
	start_at(2, 3);
	slice_is(2, 3, OWN);
	release();
	slice_is(2, 4, OWN);
	release();
	finish();
}
END_TEST

static void left_in_the_middle(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_group(f, 1, 0, 0, 0, 0);
	ck_assert_uint_eq(EXPECT(f, SEEK)->seek->epoch, 3); /* the trainer still has the first half, so nothing is
	                                                     * released before */
	ck_assert_uint_eq(EXPECT(f, RELEASE)->release->slot, 0);
	lend_group(f, 2, 3, 0, 1, 0);
	expect_releases(f, 1);
	EXPECT(f, CLOSE);
}

START_TEST(test_a_batch_left_in_its_middle_goes_back_with_what_was_given_out)
{
	/* Another epoch is begun while one half is lent and the other was never taken. */
	struct batchd_batch first = { .size_bytes = sizeof first };

	play(left_in_the_middle);
	open_loader();
	start_at(0, 0);
	slice_is(0, 0, OWN);
	first = batch;
	start_at(3, 0);
	ck_assert(((const float *)first.data)[0] == value(first.generation, 0));
	ck_assert_int_eq(batchd_release(loader, first.slot, first.generation), 0);
	for (uint64_t step = 0; step < 2; step++) {
		slice_is(3, step, OWN);
		release();
	}
	finish();
}
END_TEST

/* ---- missed batches ---- */

static void two_leaps(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_group(f, 1, 0, 0, 0, 0);
	lend_group(f, 1, 0, 2, 1, 1);
	lend_group(f, 1, 1, 0, 2, 0);
	expect_releases(f, 2);
	lend_group(f, 1, 2, 1, 0, 3); /* batches 1 and 2 of epoch 1, and 0 of epoch 2 */
	expect_releases(f, 2);
	EXPECT(f, CLOSE);
}

START_TEST(test_missed_batches_are_counted_in_the_trainers_own)
{
	/* One batch of four is two of two. The missed batches may be the rest of an epoch, which then ends, and the
	 * beginning of the next. */
	play(two_leaps);
	open_loader();
	start_at(0, 0);
	for (uint64_t step = 0; step < 5; step += step == 1 ? 3 : 1) {
		slice_is(0, step, OWN);
		ck_assert_uint_eq(batch.n_skipped, step == 4 ? 2 : 0);
		release();
	}
	ck_assert_int_eq(batchd_next(loader, &batch, 0), BATCHD_END);
	start_at(1, 0);
	for (uint64_t step = 0; step < 2; step++) {
		slice_is(1, step, OWN);
		ck_assert_uint_eq(batch.n_skipped, 0);
		release();
	}
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
	start_at(2, 0);
	slice_is(2, 2, OWN);
	ck_assert_uint_eq(batch.n_skipped, 3 + 2); /* three slices of epoch 1, two of epoch 2 */
	release();
	slice_is(2, 3, OWN);
	ck_assert_uint_eq(batch.n_skipped, 0);
	release();
	finish();
}
END_TEST

static void a_gap(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_group(f, 1, 0, 1, 0, 0);
	while (hear(f))
		;
}

START_TEST(test_a_gap_that_is_not_told_is_an_error)
{
	/* Only a message that counts the missed batches may skip any. */
	play(a_gap);
	open_loader();
	start_at(0, 0);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_PROTOCOL);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "where batch 0 of epoch 0 was due"));
	finish();
}
END_TEST

/* ---- joining ---- */

static void say_joined(struct fake *f, uint64_t seek, uint64_t epoch, uint64_t step)
{
	Batchd__Wire__Joined j = BATCHD__WIRE__JOINED__INIT;

	j.seek = seek;
	j.epoch = epoch;
	j.step = step;
	SAY(f, JOINED, &j);
}

static void joins(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_group(f, 1, 0, 0, 0, 0);
	const Batchd__Wire__Join *j = EXPECT(f, JOIN)->join;
	ck_assert(j->seek == 2 && j->start == BATCHD__WIRE__START__AT_EPOCH);
	say_joined(f, 2, 3, 1);
	lend_group(f, 2, 3, 1, 1, 0);
	EXPECT(f, RELEASE); /* of the batch for the previous position */
	expect_releases(f, 1);
	EXPECT(f, CLOSE);
}

START_TEST(test_a_trainer_that_joins_begins_where_it_is_told)
{
	/* Positions in the trainer's own steps. A batch in transit for the previous position is given back without
	 * being delivered. */
	struct batchd_position p = { .size_bytes = sizeof p };

	play(joins);
	open_loader();
	start_at(0, 0);
	ck_assert_int_eq(batchd_join(loader, BATCHD_JOIN_EPOCH, &p, BATCHD_FOREVER), 0);
	ck_assert(p.epoch == 3 && p.base == 0 && p.step == 1 * PER_BATCH);
	for (uint64_t step = 2; step < 4; step++) {
		slice_is(3, step, OWN);
		release();
	}
	finish();
}
END_TEST

static void lend_mark(struct fake *f, uint64_t seek, uint64_t epoch, uint64_t step, uint32_t slot)
{
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;

	b.seek = seek;
	b.slot = slot;
	b.generation = ++f->generation;
	b.epoch = epoch;
	b.step = step;
	b.last = true;
	send_batch(f, &b);
}

static void joins_at_ends(struct fake *f)
{
	f->opened.served = true;
	welcome(f);
	EXPECT(f, JOIN);
	say_joined(f, 1, 3, 2);
	lend_mark(f, 1, 3, 2, 0);
	lend(f, 1, 4, 0, 1, BATCH, false);
	lend_mark(f, 1, 4, 1, 2);
	expect_releases(f, 2);
	EXPECT(f, JOIN);
	say_joined(f, 2, 5, 0);
	lend_mark(f, 2, 5, 0, 0);
	expect_releases(f, 2); /* a mark that was not taken before the join */
	EXPECT(f, JOIN);
	say_joined(f, 3, 6, 1);
	lend_mark(f, 3, 6, 1, 0);
	lend_mark(f, 3, 7, 0, 1);
	expect_releases(f, 2);
	EXPECT(f, CLOSE);
}

START_TEST(test_a_trainer_behind_the_last_batch_of_a_producers_epoch_begins_with_the_next)
{
	/* The mark of an end that the trainer did not know of is not an epoch of its own. An epoch without batches
	 * is. */
	struct batchd_position p = { .size_bytes = sizeof p };

	options.batch_size = BATCH;
	options.group_batch_size = 0;
	play(joins_at_ends);
	open_loader();
	ck_assert_int_eq(batchd_join(loader, BATCHD_JOIN_NEXT, &p, BATCHD_FOREVER), 0);
	ck_assert(p.epoch == 3 && p.step == 2);
	next_is(4, 0);
	release();
	ck_assert_int_eq(batchd_join(loader, BATCHD_JOIN_NEXT, &p, BATCHD_FOREVER), 0);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
	ck_assert_int_eq(batchd_join(loader, BATCHD_JOIN_NEXT, &p, BATCHD_FOREVER), 0);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
	finish();
}
END_TEST

static void joins_wrongly(struct fake *f)
{
	welcome(f);
	EXPECT(f, JOIN);
	say_joined(f, 17, 0, 0);
	while (hear(f))
		;
}

static void only_opens(struct fake *f)
{
	welcome(f);
	EXPECT(f, CLOSE);
}

START_TEST(test_a_join_that_cannot_be_is_refused_and_a_wrong_answer_too)
{
	/* In shard mode and in a group of known size nothing is sent; the answer to another seek is ignored. */
	struct batchd_position p = { .size_bytes = sizeof p };

	for (int known_size = 0; known_size < 2; known_size++) {
		setup_group();
		options.mode = known_size ? BATCHD_SHARE : BATCHD_SHARD;
		options.batch_size = BATCH;
		options.rank = 0;
		options.world_size = d->opened.world_size = known_size ? 2 : 1;
		options.group_batch_size = 0;
		play(only_opens);
		open_loader();
		ck_assert_int_lt(batchd_join(loader, BATCHD_JOIN_NEXT, &p, 0), 0);
		ck_assert_ptr_nonnull(strstr(batchd_error(loader), "open share group"));
		finish();
		teardown();
	}
	setup_group();
	play(joins_wrongly);
	open_loader();
	ck_assert_int_eq(batchd_join(loader, BATCHD_JOIN_NEXT, &p, BATCHD_FOREVER), BATCHD_E_PROTOCOL);
	finish();
	teardown();
}
END_TEST

SUITE(slices)
{
	Suite *s = suite_create("slices");
	TCase *t = tcase_create("slices"), *own = tcase_create("with settings of their own");

	tcase_add_checked_fixture(t, setup_group, teardown);
	tcase_add_test(t, test_a_batch_is_given_out_in_slices_and_goes_back_with_the_last);
	tcase_add_test(t, test_a_start_in_the_middle_of_a_batch_gives_the_rest_of_it);
	tcase_add_test(t, test_a_batch_left_in_its_middle_goes_back_with_what_was_given_out);
	tcase_add_test(t, test_missed_batches_are_counted_in_the_trainers_own);
	tcase_add_test(t, test_a_gap_that_is_not_told_is_an_error);
	tcase_add_test(t, test_a_trainer_that_joins_begins_where_it_is_told);
	tcase_add_test(t, test_a_trainer_behind_the_last_batch_of_a_producers_epoch_begins_with_the_next);
	suite_add_tcase(s, t);
	tcase_add_test(own, test_drop_last_is_the_trainers_own);
	tcase_add_test(own, test_a_join_that_cannot_be_is_refused_and_a_wrong_answer_too);
	suite_add_tcase(s, own);
	return s;
}
