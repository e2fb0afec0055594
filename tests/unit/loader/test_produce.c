/* libbatchd's side of a producer, against a scripted daemon: which batches are handed out to be made, and what is
 * answered. */
#include <poll.h>
#include <signal.h>
#include <sys/time.h>

#include "fake/daemon/fake.h"
#include "support/suite.h"

static struct batchd_producer *producer;
static uint64_t handed_out[16]; /* how often each batch was handed out */
static int slab_memory = -1;
static char *memory;

static void open_producer(void)
{
	struct batchd_produce_options o;
	int r;

	batchd_produce_options_init(&o);
	o.socket = d->path;
	o.name = "speech";
	o.slot_bytes = d->slot_bytes;
	o.autostart = 0;
	r = batchd_produce_open(&o, &producer, err, sizeof err);
	ck_assert_msg(r == 0, "%s", err);
}

/* The bytes of batch k: one array of 8. */
static uint8_t byte_of(uint64_t k)
{
	return (uint8_t)(17 * k + 3);
}

/* Makes the batches that are handed out, of epochs with `n` batches, until the daemon ends. */
static void make_all(uint64_t n, bool count)
{
	struct batchd_array a = { .dtype = BATCHD_UINT8, .n_dims = 1, .shape = { 8 } };
	struct batchd_fill f;
	int r;

	while ((r = batchd_produce_next(producer, &f, BATCHD_FOREVER)) == BATCHD_OK) {
		handed_out[f.step]++;
		if (f.step >= n) {
			ck_assert_int_eq(count ? batchd_produce_end_epoch_at(producer, n)
					       : batchd_produce_end_epoch(producer),
					 0);
			continue;
		}
		ck_assert_int_eq(batchd_produce_lay(producer, &a, 1, "x", 1), 0);
		memset(a.data, byte_of(f.step), a.n_bytes);
		ck_assert_int_eq(batchd_produce_filled(producer, (uint32_t)f.step + 1), 0);
	}
	ck_assert_int_eq(r, BATCHD_E_LOST);
	batchd_produce_close(producer, "enough");
}

/* ---- the daemon ---- */

static void offer_slab(struct fake *f, int seals)
{
	Batchd__Wire__Producing p = BATCHD__WIRE__PRODUCING__INIT;

	greet(f);
	EXPECT(f, PRODUCE);
	SAY(f, PRODUCING, &p);
	slab_memory = memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(slab_memory, (off_t)(2 * d->slot_bytes)), 0);
	ck_assert_int_eq(fcntl(slab_memory, F_ADD_SEALS, seals), 0);
	memory = mmap(NULL, 2 * d->slot_bytes, PROT_READ, MAP_SHARED, slab_memory, 0);
	p.slab = 1;
	p.n_slots = 2;
	p.slot_bytes = p.room_bytes = d->slot_bytes;
	say(f, BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING, &p, slab_memory);
}

static void receive_producer(struct fake *f)
{
	offer_slab(f, F_SEAL_SHRINK | F_SEAL_GROW);
	ck_assert_uint_eq(EXPECT(f, FILLED)->filled->slab, 1);
}

static void ask(struct fake *f, uint64_t number, uint64_t step, int slot)
{
	Batchd__Wire__Fill m = BATCHD__WIRE__FILL__INIT;

	m.fill = number;
	m.step = step;
	m.slab = 1;
	m.slot = (uint32_t)slot;
	SAY(f, FILL, &m);
}

static Batchd__Wire__Filled hear_filled(struct fake *f, uint64_t number)
{
	const Batchd__Wire__Filled *m = EXPECT(f, FILLED)->filled;

	ck_assert_uint_eq(m->fill, number);
	return *m;
}

/* Whether that slot holds batch k, in as many bytes as the answer said. */
static bool holds(const Batchd__Wire__Filled *m, int slot, uint64_t k)
{
	const char *end = memory + (size_t)slot * d->slot_bytes + m->n_bytes;
	uint8_t expected[8];

	memset(expected, byte_of(k), sizeof expected);
	return m->n_rows == k + 1 && m->n_bytes >= 8 && memcmp(end - 8, expected, 8) == 0;
}

/* ---- batches that do not fit ---- */

static void say_taken(struct fake *f, uint64_t number)
{
	Batchd__Wire__Fill m = BATCHD__WIRE__FILL__INIT;

	m.fill = number;
	m.taken = true;
	SAY(f, FILL, &m);
}

static void take_a_large_one(struct fake *f)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	struct pollfd quiet = { 0 };
	struct stat st;
	uint8_t last;

	receive_producer(f);
	ask(f, 1, 0, 0);
	ask(f, 2, 1, 1);
	Batchd__Wire__Filled a = hear_filled(f, 1);
	ck_assert(a.n_rows == 1 && a.n_bytes > d->slot_bytes && f->n_fds == 1);
	ck_assert_int_eq(fcntl(f->fds[0], F_GET_SEALS) & seals, seals);
	ck_assert_int_eq(fstat(f->fds[0], &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, a.n_bytes);
	ck_assert_int_eq(pread(f->fds[0], &last, 1, (off_t)a.n_bytes - 1), 1);
	ck_assert_uint_eq(last, byte_of(0));
	quiet = (struct pollfd){ f->peer, POLLIN, 0 };
	ck_assert_int_eq(poll(&quiet, 1, 50), 0); /* it waits until there is memory for that batch */
	say_taken(f, 1);
	a = hear_filled(f, 2);
	ck_assert(f->n_fds == 0 && holds(&a, 1, 1));
}

START_TEST(test_a_batch_that_does_not_fit_is_sealed_and_waits_until_it_is_taken)
{
	/* The daemon need not trust its producer, nor keep more than one batch for which it has no memory. */
	struct batchd_array a = { .dtype = BATCHD_UINT8, .n_dims = 1 };
	struct batchd_fill f;

	play(take_a_large_one);
	open_producer();
	for (uint64_t k = 0; k < 2; k++) {
		ck_assert_int_eq(batchd_produce_next(producer, &f, BATCHD_FOREVER), BATCHD_OK);
		a.shape[0] = k ? 8 : 3 * d->slot_bytes;
		ck_assert_int_eq(batchd_produce_lay(producer, &a, 1, "x", 1), 0);
		memset(a.data, byte_of(k), a.n_bytes);
		ck_assert_int_eq(batchd_produce_filled(producer, (uint32_t)k + 1), 0);
	}
	make_all(0, true);
	pthread_join(d->thread, NULL);
}
END_TEST

static void on_tick(int sig)
{
	(void)sig;
}

static void take_one(struct fake *f)
{
	receive_producer(f);
	ask(f, 1, 0, 0);
	hear_filled(f, 1);
	ck_assert_uint_eq(f->n_fds, 1);
}

START_TEST(test_signals_do_not_keep_a_large_batch_from_being_made)
{
	/* Ten thousand of them a second, as a profiler sends: making all pages takes longer than from one to the next,
	 * and each ends a fallocate of kernels before 6.18. */
	const struct sigaction tick = { .sa_handler = on_tick };
	struct itimerval often = { { .tv_usec = 100 }, { .tv_usec = 100 } }, never = { 0 };
	struct batchd_array a = { .dtype = BATCHD_UINT8, .n_dims = 1, .shape = { 64 << 20 } };
	struct batchd_fill f;

	play(take_one);
	open_producer();
	ck_assert_int_eq(batchd_produce_next(producer, &f, BATCHD_FOREVER), BATCHD_OK);
	sigaction(SIGPROF, &tick, NULL);
	setitimer(ITIMER_PROF, &often, NULL);
	ck_assert_int_eq(batchd_produce_lay(producer, &a, 1, "x", 1), 0);
	setitimer(ITIMER_PROF, &never, NULL);
	ck_assert_int_eq(batchd_produce_filled(producer, 1), 0);
	batchd_produce_close(producer, NULL);
	pthread_join(d->thread, NULL);
}
END_TEST

/* ---- beginnings ---- */

static void stop_and_be_there_again(struct fake *f)
{
	greet(f);
	EXPECT(f, PRODUCE);
	say_error(f, BATCHD__WIRE__ERROR_CODE__SHUTDOWN, "", "batchd is stopping");
	close(f->peer);
	receive_producer(f);
}

START_TEST(test_opening_outlives_a_restart)
{
	/* A producer that starts while the daemon stops finds the next daemon. */
	play(stop_and_be_there_again);
	open_producer();
	make_all(0, true);
	pthread_join(d->thread, NULL);
}
END_TEST

/* ---- ends ---- */

static void end_epochs(struct fake *f)
{
	receive_producer(f);
	for (uint64_t k = 0; k < 3; k++) {
		ask(f, k + 1, k, 0);
		ck_assert(!hear_filled(f, k + 1).end);
	}
	ask(f, 4, 3, 0);
	ck_assert_uint_eq(hear_filled(f, 4).n_batches, 3); /* as it was counted */
	ask(f, 5, 5, 0);
	ck_assert_uint_eq(hear_filled(f, 5).n_batches, 0); /* the batches in between are unknown */
}

START_TEST(test_an_epoch_that_was_made_to_its_end_has_been_counted)
{
	/* A producer that does not give the number of batches has made them all, or the number is unknown. */
	play(end_epochs);
	open_producer();
	make_all(3, false);
	pthread_join(d->thread, NULL);
}
END_TEST

static void one_fill(struct fake *f)
{
	receive_producer(f);
	ask(f, 1, 2, 0);
	ck_assert_uint_eq(hear_filled(f, 1).n_batches, 2);
}

START_TEST(test_more_batches_than_were_asked_for_are_no_end)
{
	struct batchd_fill fill;

	play(one_fill);
	open_producer();
	ck_assert_int_eq(batchd_produce_end_epoch_at(producer, 0), BATCHD_E_INVALID); /* nothing was requested yet */
	ck_assert_int_eq(batchd_produce_next(producer, &fill, BATCHD_FOREVER), BATCHD_OK);
	ck_assert_int_eq(batchd_produce_end_epoch_at(producer, 3), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_produce_end_epoch_at(producer, 2), 0);
	make_all(0, true);
	pthread_join(d->thread, NULL);
}
END_TEST

static void offer_what_may_shrink(struct fake *f)
{
	offer_slab(f, F_SEAL_GROW);
	hear(f);
}

START_TEST(test_memory_that_may_shrink_is_refused)
{
	/* A daemon that made it shorter would end the producer with SIGBUS. */
	struct batchd_fill fill;

	play(offer_what_may_shrink);
	open_producer();
	ck_assert_int_eq(batchd_produce_next(producer, &fill, BATCHD_FOREVER), BATCHD_E_PROTOCOL);
	ck_assert_ptr_nonnull(strstr(batchd_produce_error(producer), "offers memory that it could take away"));
	batchd_produce_close(producer, NULL);
	pthread_join(d->thread, NULL);
}
END_TEST

static void teardown_all(void)
{
	munmap(memory, 2 * d->slot_bytes);
	close(slab_memory);
	teardown();
}

SUITE(produce)
{
	Suite *s = suite_create("produce");
	TCase *t = tcase_create("produce");
	tcase_add_checked_fixture(t, setup, teardown_all);
	tcase_add_test(t, test_a_batch_that_does_not_fit_is_sealed_and_waits_until_it_is_taken);
	tcase_add_test(t, test_signals_do_not_keep_a_large_batch_from_being_made);
	tcase_add_test(t, test_opening_outlives_a_restart);
	tcase_add_test(t, test_an_epoch_that_was_made_to_its_end_has_been_counted);
	tcase_add_test(t, test_more_batches_than_were_asked_for_are_no_end);
	tcase_add_test(t, test_memory_that_may_shrink_is_refused);
	suite_add_tcase(s, t);
	return s;
}
