/* libbatchd in several threads: a loader that is closed while another thread is in a call, calls that take turns,
 * handles that outlive their loader, and sleeps that no lost wake-up prolongs. */
#include "fake/daemon/fake.h"
#include "support/suite.h"

enum { ROUNDS = 100 };

/* ---- helpers ---- */

/* Without a Wake. */
static void put_quietly(struct fake *f, uint64_t step)
{
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;

	b.seek = 1;
	b.generation = ++f->generation;
	b.step = step;
	b.slot = (uint32_t)step;
	b.n_rows = BATCH;
	put_batch(f, &b);
}

static void say_stalled(struct fake *f)
{
	Batchd__Wire__Notice n = BATCHD__WIRE__NOTICE__INIT;

	n.kind = BATCHD__WIRE__NOTICE_KIND__RANK_STALLED;
	n.text = (char *)"rank 1 does not get on";
	SAY(f, NOTICE, &n);
}

/* A thread that waits for a batch, and the result of its call. */
static int told;

static void *wait_for_batch(void *timeout_ms)
{
	told = batchd_next(loader, &batch, (int)(intptr_t)timeout_ms);
	return NULL;
}

static pthread_t begin_to_wait(int timeout_ms)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_batch, (void *)(intptr_t)timeout_ms), 0);
	return thread;
}

/* ---- closing ---- */

/* The trainer sends Close, so the daemon has all slots back; no other message comes. */
static void wait_in_vain(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	await_waiting(f);
	atomic_store(&f->step, 1);
	EXPECT(f, CLOSE);
	ck_assert_ptr_null(hear(f));
}

START_TEST(test_close_wakes_a_thread_that_waits_for_a_batch)
{
	/* In every way of waiting: the thread gets CLOSED, and nothing is left behind. */
	static const int timeouts[] = { BATCHD_FOREVER, BATCHD_UNTIL_SIGNAL, 60000 };
	pthread_t waiter;
	unsigned n_fds;

	play(wait_in_vain);
	n_fds = count_fds();
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	waiter = begin_to_wait(timeouts[_i]);
	await(d, 1);
	batchd_close(loader);
	pthread_join(waiter, NULL);
	pthread_join(d->thread, NULL);
	ck_assert_int_eq(told, BATCHD_E_CLOSED);
	ck_assert_uint_eq(count_fds(), n_fds);
}
END_TEST

static void keep_one_then_wait(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend(f, 1, 0, 0, 0, BATCH, false);
	await_waiting(f);
	atomic_store(&f->step, 1);
	EXPECT(f, CLOSE);
	memset(f->slab, 0xee, N_SLOTS * f->slot_bytes);
	ck_assert_ptr_null(hear(f));
	atomic_store(&f->step, 2);
}

START_TEST(test_batches_on_loan_outlive_a_close_by_another_thread)
{
	/* The call in progress ends; the batch keeps its bytes and the handle until it is released. */
	pthread_t waiter;
	struct batchd_batch kept;

	play(keep_one_then_wait);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	next_is(0, 0);
	kept = batch;
	waiter = begin_to_wait(BATCHD_FOREVER);
	await(d, 1);
	batchd_close(loader);
	pthread_join(waiter, NULL);
	await(d, 2);
	ck_assert_int_eq(told, BATCHD_E_CLOSED);
	ck_assert(((float *)kept.data)[0] == value(1, 0));
	ck_assert_int_eq(batchd_release(loader, kept.slot, kept.generation), 0); /* frees the loader */
	pthread_join(d->thread, NULL);
}
END_TEST

static void go_away(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	close(f->listener);
	unlink(f->path);
	await_waiting(f);
}

static void on_event(void *arg, int event, const char *text)
{
	(void)text;
	if (event == BATCHD_EVENT_LOST)
		atomic_store(&((struct fake *)arg)->step, 1);
}

START_TEST(test_close_ends_a_wait_for_a_daemon_that_went_away)
{
	/* The thread is between two attempts to find a daemon, and gives up although it has a minute left. */
	pthread_t waiter;

	options.reconnect_ms = 60000;
	options.on_event = on_event;
	options.event_arg = d;
	play(go_away);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	waiter = begin_to_wait(BATCHD_FOREVER);
	await(d, 1);
	batchd_close(loader);
	pthread_join(waiter, NULL);
	pthread_join(d->thread, NULL);
	ck_assert_int_eq(told, BATCHD_E_CLOSED);
	d->listener = open("/dev/null", O_RDONLY);
}
END_TEST

static void come_back_slowly(struct fake *f)
{
	Batchd__Wire__Progress p = BATCHD__WIRE__PROGRESS__INIT;

	welcome(f);
	EXPECT(f, SEEK);
	await_waiting(f);
	close(f->peer);
	greet(f);
	EXPECT(f, OPEN);
	p.phase = (char *)"index";
	SAY(f, PROGRESS, &p);
	atomic_store(&f->step, 2);
	ck_assert_ptr_null(hear(f)); /* it gives up */
}

START_TEST(test_close_ends_an_opening_after_a_reconnect)
{
	/* The daemon is back and builds its index; the thread that waits for it does not wait to the end. */
	pthread_t waiter;

	options.reconnect_ms = 60000;
	play(come_back_slowly);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	waiter = begin_to_wait(BATCHD_FOREVER);
	await(d, 2);
	batchd_close(loader);
	pthread_join(waiter, NULL);
	pthread_join(d->thread, NULL);
	ck_assert_int_eq(told, BATCHD_E_CLOSED);
}
END_TEST

static void on_event_close(void *arg, int event, const char *text)
{
	(void)arg, (void)text;
	if (event == BATCHD_EVENT_STALLED)
		batchd_close(loader);
}

static void say_stalled_once(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	await_waiting(f);
	say_stalled(f);
	EXPECT(f, CLOSE);
	ck_assert_ptr_null(hear(f));
}

START_TEST(test_a_callback_may_close_its_own_loader)
{
	/* The call that runs the callback is the last that uses the handle. */
	options.on_event = on_event_close;
	play(say_stalled_once);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_CLOSED);
	pthread_join(d->thread, NULL);
}
END_TEST

/* ---- references ---- */

START_TEST(test_calls_on_a_closed_loader_that_is_referenced_say_so)
{
	/* Every function, after the loader itself is gone. */
	struct batchd_info info = { .size_bytes = sizeof info };
	struct batchd_position p = { .size_bytes = sizeof p };
	char token[BATCHD_TOKEN_BYTES];
	uint64_t index = 0;

	play(one_slot);
	open_loader();
	batchd_ref(loader);
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	next_is(0, 0);
	release();
	batchd_close(loader);
	pthread_join(d->thread, NULL);
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), BATCHD_E_CLOSED);
	ck_assert_int_eq(batchd_next(loader, &batch, 0), BATCHD_E_CLOSED);
	ck_assert_int_eq(batchd_try_next(loader, &batch), BATCHD_E_CLOSED);
	ck_assert_int_eq(batchd_join(loader, BATCHD_JOIN_NEXT, &p, 0), BATCHD_E_CLOSED);
	ck_assert_int_eq(batchd_push(loader, &index, 1), BATCHD_E_CLOSED);
	ck_assert_int_eq(batchd_push_end(loader), BATCHD_E_CLOSED);
	ck_assert_int_eq(batchd_resume(loader, "", &p), BATCHD_E_CLOSED);
	ck_assert_int_eq(batchd_token(loader, NULL, token, sizeof token), BATCHD_E_CLOSED);
	ck_assert_int_eq(batchd_token(loader, &batch, token, sizeof token), BATCHD_E_CLOSED);
	ck_assert_ptr_null(batchd_class(loader, 0));
	ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_cuda_release(loader, batch.slot, batch.generation, NULL), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_cuda_finish(loader, &batch, NULL, NULL), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_cuda_add_stream(loader, batch.slot, batch.generation, NULL), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_fd(loader), -1);
	ck_assert_uint_eq(batchd_n_leased(loader), 0);
	batchd_get_info(loader, &info);
	ck_assert_ptr_null(info.job);
	batchd_error(loader);
	batchd_close(loader);
	batchd_unref(loader);
}
END_TEST

/* ---- turns ---- */

static void *look_around(void *arg)
{
	char token[BATCHD_TOKEN_BYTES];
	struct batchd_info info = { .size_bytes = sizeof info };
	struct batchd_batch behind = { .size_bytes = sizeof behind };
	int r;

	(void)arg;
	do {
		batchd_get_info(loader, &info);
		batchd_n_leased(loader);
		r = batchd_token(loader, &behind, token, sizeof token);
		ck_assert(r == BATCHD_OK || r == BATCHD_E_CLOSED);
		r = batchd_push_end(loader); /* takes its turn */
		ck_assert(r == BATCHD_E_INVALID || r == BATCHD_E_CLOSED);
	} while (r != BATCHD_E_CLOSED);
	batchd_unref(loader);
	return NULL;
}

static void *take_all(void *arg)
{
	struct batchd_batch mine = { .size_bytes = sizeof mine };
	int r;

	(void)arg;
	while ((r = batchd_next(loader, &mine, BATCHD_FOREVER)) == BATCHD_OK)
		if (batchd_release(loader, mine.slot, mine.generation) < 0)
			break;
	ck_assert_int_eq(r, BATCHD_E_CLOSED);
	batchd_unref(loader);
	return NULL;
}

static void lend_for_ever(struct fake *f)
{
	const Batchd__Wire__ClientMessage *m;

	welcome(f);
	EXPECT(f, SEEK);
	for (uint64_t step = 0;; step++) {
		lend(f, 1, 0, step, 0, BATCH, false);
		m = hear(f);
		if (!m || m->body_case != BATCHD__WIRE__CLIENT_MESSAGE__BODY_RELEASE)
			return;
		atomic_store(&f->step, (unsigned)step);
	}
}

START_TEST(test_threads_share_one_loader_until_one_closes_it)
{
	/* Two threads take batches, one calls other functions, and the fourth closes in the middle: each gets the right
	 * result, none uses freed memory. ThreadSanitizer checks. */
	pthread_t thread[3];

	d->opened.n_samples = UINT32_MAX;
	play(lend_for_ever);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	for (unsigned i = 0; i < 3; i++) {
		batchd_ref(loader);
		pthread_create(&thread[i], NULL, i == 2 ? look_around : take_all, NULL);
	}
	await(d, ROUNDS);
	batchd_close(loader);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	pthread_join(d->thread, NULL);
}
END_TEST

/* ---- lost wake-ups ---- */

/* Clears the mark, as a daemon does that is about to send Wake, puts a batch, and sends only a notice. */
static void forget_wake(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	for (uint64_t step = 0; step < 2; step++) {
		await_waiting(f);
		ck_assert(ring_wake_client(&f->ring));
		if (step == 0)
			put_quietly(f, step);
		say_stalled(f);
		if (step == 1) { /* the notice has woken it for nothing: it sets a new mark */
			await_waiting(f);
			put_quietly(f, step);
			ck_assert(ring_wake_client(&f->ring));
			Batchd__Wire__Wake w = BATCHD__WIRE__WAKE__INIT;

			SAY(f, WAKE, &w);
		}
	}
	expect_releases(f, 2);
	EXPECT(f, CLOSE);
}

START_TEST(test_a_notice_makes_a_sleeper_look_at_the_ring)
{
	/* A wake-up that the daemon could not send does no harm: after any other message the client looks at the ring
	 * again, and sets a new mark in the page. */
	d->opened.n_samples = 1000;
	play(forget_wake);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	for (unsigned step = 0; step < 2; step++) {
		int r;

		do /* UNTIL_SIGNAL may return AGAIN; the mark must be correct all the same */
			r = batchd_next(loader, &batch, _i ? BATCHD_UNTIL_SIGNAL : BATCHD_FOREVER);
		while (_i && r == BATCHD_AGAIN);
		ck_assert_int_eq(r, BATCHD_OK);
		ck_assert_uint_eq(batch.step, step);
		batchd_release(loader, batch.slot, batch.generation);
	}
	finish();
}
END_TEST

static void put_without_a_word(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	await_waiting(f);
	ck_assert(ring_wake_client(&f->ring));
	put_quietly(f, 0);
	EXPECT(f, RELEASE);
	EXPECT(f, CLOSE);
}

START_TEST(test_a_sleeper_looks_at_the_ring_each_second)
{
	/* Without any packet, too, in every way of waiting. */
	static const int timeouts[] = { BATCHD_FOREVER, 600000 };

	play(put_without_a_word);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	ck_assert_int_eq(batchd_next(loader, &batch, timeouts[_i]), BATCHD_OK);
	batchd_release(loader, batch.slot, batch.generation);
	finish();
}
END_TEST

SUITE(close)
{
	Suite *suite = suite_create("close");
	TCase *all = tcase_create("close");

	suite_add_tcase(suite, all);
	tcase_add_checked_fixture(all, setup, teardown);
	tcase_add_loop_test(all, test_close_wakes_a_thread_that_waits_for_a_batch, 0, 3);
	tcase_add_test(all, test_batches_on_loan_outlive_a_close_by_another_thread);
	tcase_add_test(all, test_close_ends_a_wait_for_a_daemon_that_went_away);
	tcase_add_test(all, test_close_ends_an_opening_after_a_reconnect);
	tcase_add_test(all, test_a_callback_may_close_its_own_loader);
	tcase_add_test(all, test_calls_on_a_closed_loader_that_is_referenced_say_so);
	tcase_add_test(all, test_threads_share_one_loader_until_one_closes_it);
	tcase_add_loop_test(all, test_a_notice_makes_a_sleeper_look_at_the_ring, 0, 2);
	tcase_add_loop_test(all, test_a_sleeper_looks_at_the_ring_each_second, 0, 2);
	return suite;
}
