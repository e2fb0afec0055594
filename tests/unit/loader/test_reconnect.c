/* libbatchd and a daemon that goes away: the client waits, continues from where it was, reports what happened, and
 * gives up in time. */
#include "fake/daemon/fake.h"
#include "support/suite.h"
#include "base/clock.h"

static unsigned n_lost, n_back;
static char last_text[4096];

static void on_event(void *arg, int event, const char *text)
{
	ck_assert_ptr_eq(arg, &n_lost);
	n_lost += event == BATCHD_EVENT_LOST;
	n_back += event == BATCHD_EVENT_BACK;
	snprintf(last_text, sizeof last_text, "%s", text);
}

static void setup_reconnect(void)
{
	setup();
	options.reconnect_ms = 20000;
	options.on_event = on_event;
	options.event_arg = &n_lost;
	n_lost = n_back = 0;
}

/* The next connection of the same client: it says that it was connected before. */
static void come_back(struct fake *f)
{
	char dataset[WIRE_MAX_DATASET + 1];
	const Batchd__Wire__Open *o;

	close(f->peer);
	greet(f);
	o = EXPECT(f, OPEN)->open;
	ck_assert(o->again);
	ck_assert_str_eq(o->job, f->job);
	take_dataset(o, dataset);
	ck_assert_str_eq(dataset, f->dataset);
	say_opened(f);
}

/* Connections that end while a client opens a loader: with an error, without one, before a hello. */
static void end_thrice(struct fake *f)
{
	greet(f);
	hear_open(f);
	say_error(f, BATCHD__WIRE__ERROR_CODE__SHUTDOWN, "", "batchd is stopping");
	close(f->peer);
	greet(f);
	hear_open(f);
	close(f->peer);
	close((int)TEMP_FAILURE_RETRY(accept4(f->listener, NULL, NULL, SOCK_CLOEXEC)));
	welcome(f);
	hear(f);
}

static void end_once(struct fake *f)
{
	greet(f);
	hear_open(f);
	say_error(f, BATCHD__WIRE__ERROR_CODE__SHUTDOWN, "", "batchd is stopping");
}

START_TEST(test_opening_outlives_a_restart)
{
	/* The daemon goes away three times during the opening; a client that does not want to wait gets the error at
	 * once. */
	play(end_thrice);
	open_loader();
	finish();
	options.reconnect_ms = 0;
	play(end_once);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_SHUTDOWN);
	pthread_join(d->thread, NULL);
	ck_assert_uint_eq(n_lost, 0);
}
END_TEST

static const Batchd__Wire__Seek *expect_seek(struct fake *f, uint64_t epoch, uint64_t base, uint64_t step)
{
	const Batchd__Wire__Seek *s = EXPECT(f, SEEK)->seek;

	ck_assert_uint_eq(s->epoch, epoch);
	ck_assert_uint_eq(s->base_sample, base);
	ck_assert_uint_eq(s->step, step);
	return s;
}

static void vanish_twice(struct fake *f)
{
	uint64_t seek;

	welcome(f);
	seek = expect_seek(f, 4, 2, 1)->seek;
	lend(f, seek, 4, 1, 0, BATCH, false);
	lend(f, seek, 4, 2, 1, BATCH, false); /* still in the socket when the daemon goes away */
	await(f, 1);
	come_back(f);
	seek = expect_seek(f, 4, 2, 3)->seek;
	come_back(f);
	seek = expect_seek(f, 4, 2, 3)->seek;
	lend(f, seek, 4, 3, 2, BATCH, false);
	expect_releases(f, 1);
	lend(f, seek, 4, 4, 0, BATCH, true);
	expect_releases(f, 1);
	hear(f);
}

START_TEST(test_a_loader_goes_on_with_the_next_step_on_another_connection)
{
	/* Batches that had arrived are taken first, then exactly the next ones; the connection is lost once more before
	 * anything came. Each loss and each return is reported once. */
	play(vanish_twice);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 4, 2, 1, NULL), 0);
	next_is(4, 1);
	release();
	next_is(4, 2);
	release();
	atomic_store(&d->step, 1);
	next_is(4, 3);
	ck_assert_uint_eq(n_lost, 2);
	ck_assert_uint_eq(n_back, 2);
	ck_assert_ptr_nonnull(strstr(last_text, d->path));
	ck_assert_ptr_nonnull(strstr(last_text, "goes on where it was"));
	release();
	next_is(4, 4);
	ck_assert(batch.last);
	release();
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
	finish();
}
END_TEST

static void same_slot_again(struct fake *f)
{
	welcome(f);
	uint64_t seek = expect_seek(f, 0, 0, 0)->seek;
	lend(f, seek, 0, 0, 1, BATCH, false);
	await(f, 1);
	f->generation = 0; /* a new daemon counts from the start: the same slot in the same generation is lent again */
	come_back(f);
	seek = expect_seek(f, 0, 0, 1)->seek;
	lend(f, seek, 0, 1, 1, BATCH, false);
	((float *)(void *)(f->slab + f->slot_bytes))[0] = -5;
	atomic_store(&f->step, 2);
	ck_assert_uint_eq(EXPECT(f, RELEASE)->release->generation, 1);
	atomic_store(&f->step, 3);
	hear(f);
}

START_TEST(test_batches_of_an_earlier_connection_stay_and_are_released_apart)
{
	/* Both batches are slot 1 in generation 1. The old one keeps its bytes, and its release tells the new daemon
	 * nothing. */
	struct batchd_batch old;

	play(same_slot_again);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	old = batch;
	atomic_store(&d->step, 1);
	next_is(0, 1);
	await(d, 2);
	ck_assert(((float *)old.data)[0] == value(1, 0));
	((float *)old.data)[0] = 77; /* a private copy by now */
	ck_assert_uint_ne(old.generation, batch.generation);
	ck_assert_uint_eq(batchd_n_leased(loader), 1);
	ck_assert_int_eq(batchd_release(loader, old.slot, old.generation), 0);
	ck_assert_int_eq(batchd_release(loader, old.slot, old.generation), BATCHD_E_INVALID);
	ck_assert_uint_eq(batchd_n_leased(loader), 1);
	release();
	await(d, 3);
	finish();
}
END_TEST

START_TEST(test_a_batch_of_an_earlier_connection_outlives_the_loader)
{
	/* Closed first, released afterwards: readable until then, and nothing leaks. */
	struct batchd_batch old;
	struct batchd_loader *l;

	play(same_slot_again);
	open_loader();
	l = loader;
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	old = batch;
	atomic_store(&d->step, 1);
	next_is(0, 1);
	await(d, 2);
	release();
	finish();
	ck_assert(((float *)old.data)[0] == value(1, 0));
	ck_assert_int_eq(batchd_release(l, old.slot, old.generation), 0);
}
END_TEST

/* A producer's slots of `row_bytes`, the same data otherwise. */
static void serve(struct fake *f, uint32_t row_bytes)
{
	f->opened.served = true;
	f->opened.n_rows = BATCH;
	f->opened.n_field = 1;
	f->field[0].dtype = BATCHD__WIRE__DTYPE__UINT8;
	f->field[0].n_shape = 1;
	f->shape[0] = row_bytes;
}

enum { SMALL_SLOT = 1024, LARGE_SLOT = 3072, ARRAY_AT = 128, ARRAY_BYTES = 2048 };

/* A table in which the only array lies beyond the end of a small slot. */
static void write_table_beyond(char *slot)
{
	struct {
		char magic[8];
		uint32_t n_arrays, n_text;
		uint64_t offset, n_bytes;
		uint32_t dtype, n_dims;
		uint64_t shape[8], offsets, n_rows, text;
	} table = { "batchd2", 1, 0, ARRAY_AT, ARRAY_BYTES, BATCHD_UINT8, 1, { ARRAY_BYTES }, 0, 0, 0 };

	memcpy(slot, &table, sizeof table);
}

static void serve_larger_slots(struct fake *f)
{
	serve(f, SMALL_SLOT);
	welcome(f);
	uint64_t seek = expect_seek(f, 0, 0, 0)->seek;
	lend(f, seek, 0, 0, 0, 1, false);
	write_table_beyond(f->slab);
	await(f, 1);
	serve(f, LARGE_SLOT);
	come_back(f);
	seek = expect_seek(f, 0, 0, 1)->seek;
	lend(f, seek, 0, 1, 1, 1, false);
	write_table_beyond(f->slab + f->slot_bytes);
	hear(f);
}

START_TEST(test_a_held_batch_of_a_producer_is_read_by_the_size_of_its_own_slots)
{
	/* The slots of the next connection are larger, which is no reason to read beyond the end of an old one. */
	struct batchd_batch old;
	struct batchd_array array;
	const char *text;
	size_t n_text;

	play(serve_larger_slots);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	old = batch;
	atomic_store(&d->step, 1);
	next_is(0, 1);
	ck_assert_int_eq(batchd_arrays(loader, &old, &array, 1, &text, &n_text), BATCHD_E_PROTOCOL);
	ck_assert_int_eq(batchd_release(loader, old.slot, old.generation), 0);
	ck_assert_int_eq(batchd_arrays(loader, &old, &array, 1, &text, &n_text), BATCHD_E_INVALID);
	release();
	finish();
}
END_TEST

static void own_batches_twice(struct fake *f)
{
	static const unsigned expected[] = { 1, 2, 3 };
	const Batchd__Wire__Indices *m;

	welcome(f);
	uint64_t seek = expect_seek(f, 0, 0, 0)->seek;
	for (unsigned i = 0; i < 3; i++)
		EXPECT(f, INDICES);
	lend(f, seek, 0, 0, 0, 1, false);
	await(f, 1);
	come_back(f);
	seek = expect_seek(f, 0, 0, 1)->seek;
	for (unsigned i = 1; i < 3; i++) {
		m = EXPECT(f, INDICES)->indices;
		ck_assert_uint_eq(m->seek, seek);
		ck_assert_uint_eq(m->step, i);
		ck_assert_uint_eq(m->n_index, expected[i]);
		for (unsigned k = 0; k < expected[i]; k++)
			ck_assert_uint_eq(m->index[k], 2 * i + k);
	}
	lend(f, seek, 0, 1, 0, 2, false);
	lend(f, seek, 0, 2, 1, 3, false);
	expect_releases(f, 2);
	hear(f);
}

START_TEST(test_own_batches_that_had_not_come_are_sent_again)
{
	/* The very indices that were pushed: a sampler that draws at random could not repeat them. */
	uint64_t indices[3];

	options.own_batches = 1;
	play(own_batches_twice);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	for (uint32_t i = 0; i < 3; i++) {
		for (uint32_t k = 0; k <= i; k++)
			indices[k] = 2 * i + k;
		ck_assert_int_eq(batchd_push(loader, indices, i + 1), 0);
	}
	next_is(0, 0);
	release();
	atomic_store(&d->step, 1);
	batchd_push_end(loader);
	next_is(0, 1);
	release();
	next_is(0, 2);
	release();
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
	finish();
}
END_TEST

static void come_back_with_other_data(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	f->opened.dataset_id++;
	close(f->peer);
	greet(f);
	hear_open(f);
	say_opened(f);
	hear(f);
}

START_TEST(test_other_data_is_not_gone_on_with)
{
	/* Reported, naming the data set; none of its batches is delivered. */
	play(come_back_with_other_data);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "random:"));
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "no longer the same"));
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_INVALID);
	ck_assert_uint_eq(n_back, 0);
	finish();
}
END_TEST

static void come_back_as_a_producer(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	serve(f, SMALL_SLOT);
	close(f->peer);
	greet(f);
	hear_open(f);
	say_opened(f);
	hear(f);
}

START_TEST(test_rows_are_not_gone_on_with_as_a_producers_bytes)
{
	/* The same data set and loader by their numbers; but its batches are counted in another way. */
	play(come_back_as_a_producer);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "delivered in another way"));
	finish();
}
END_TEST

static void refuse_to_take_back(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	close(f->peer);
	greet(f);
	hear_open(f);
	say_error(f, BATCHD__WIRE__ERROR_CODE__FENCED, "rank", "a newer process took this rank of the job");
	hear(f);
}

START_TEST(test_a_fenced_loader_does_not_try_again)
{
	/* The refusal is the answer, at once. */
	play(refuse_to_take_back);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_FENCED);
	finish();
}
END_TEST

static void vanish_for_good(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	close(f->listener);
	unlink(f->path);
	f->listener = -1;
}

START_TEST(test_short_waits_return_while_the_daemon_stays_away)
{
	options.reconnect_ms = 600000;
	options.autostart = 0;
	play(vanish_for_good);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	while (batchd_fd(loader) >= 0)
		ck_assert_int_eq(batchd_next(loader, &batch, 20), BATCHD_AGAIN);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(batchd_next(loader, &batch, 20), BATCHD_AGAIN);
	ck_assert_int_eq(batchd_fd(loader), -1);
	finish();
}
END_TEST

START_TEST(test_a_daemon_that_stays_away_is_given_up_in_time)
{
	/* The error names both the reason of the loss and the present state. */
	uint64_t began;

	options.reconnect_ms = 300;
	options.autostart = 0;
	play(vanish_for_good);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	began = clock_now_ns();
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_LOST);
	ck_assert_uint_ge(clock_now_ns() - began, 290000000);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "went away"));
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "did not come back"));
	ck_assert_uint_eq(n_lost, 1);
	finish();
}
END_TEST

static void duplicate_and_skip(struct fake *f)
{
	welcome(f);
	uint64_t seek = expect_seek(f, 0, 0, 0)->seek;
	lend(f, seek, 0, 0, 0, BATCH, false);
	lend(f, seek, 0, 0, 1, BATCH, false);                    /* the same batch once more */
	ck_assert_uint_eq(EXPECT(f, RELEASE)->release->slot, 1); /* never delivered to the caller */
	lend(f, seek, 0, 1, 2, BATCH, false);
	lend(f, seek, 0, 3, 1, BATCH, false); /* one batch is missing */
	hear(f);
}

START_TEST(test_a_duplicate_is_given_back_and_a_gap_is_an_error)
{
	/* Step k is delivered only when it is the expected one. */
	play(duplicate_and_skip);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	struct batchd_batch first = batch;
	next_is(0, 1);
	struct batchd_batch second = batch;
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_PROTOCOL);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "batch 3 of epoch 0 where batch 2"));
	batchd_release(loader, first.slot, first.generation); /* a loader with lent batches outlives its close */
	batchd_release(loader, second.slot, second.generation);
	finish();
}
END_TEST

SUITE(reconnect)
{
	Suite *s = suite_create("reconnect");
	TCase *t = tcase_create("reconnect");

	tcase_add_checked_fixture(t, setup_reconnect, teardown);
	tcase_add_test(t, test_opening_outlives_a_restart);
	tcase_add_test(t, test_a_loader_goes_on_with_the_next_step_on_another_connection);
	tcase_add_test(t, test_batches_of_an_earlier_connection_stay_and_are_released_apart);
	tcase_add_test(t, test_a_batch_of_an_earlier_connection_outlives_the_loader);
	tcase_add_test(t, test_a_held_batch_of_a_producer_is_read_by_the_size_of_its_own_slots);
	tcase_add_test(t, test_own_batches_that_had_not_come_are_sent_again);
	tcase_add_test(t, test_other_data_is_not_gone_on_with);
	tcase_add_test(t, test_rows_are_not_gone_on_with_as_a_producers_bytes);
	tcase_add_test(t, test_a_fenced_loader_does_not_try_again);
	tcase_add_test(t, test_short_waits_return_while_the_daemon_stays_away);
	tcase_add_test(t, test_a_daemon_that_stays_away_is_given_up_in_time);
	tcase_add_test(t, test_a_duplicate_is_given_back_and_a_gap_is_an_error);
	suite_add_tcase(s, t);
	return s;
}
