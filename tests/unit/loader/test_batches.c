/* libbatchd's stream: which batch may come next, epochs, own batches, two threads, a fork, and every way in which the
 * stream ends. */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "batch/plan/plan.h"
#include "fake/daemon/fake.h"
#include "support/suite.h"

/* ---- epochs ---- */

static void two_epochs(struct fake *f)
{
	const Batchd__Wire__Seek *s;

	welcome(f);
	s = EXPECT(f, SEEK)->seek;
	ck_assert_uint_eq(s->epoch, 5);
	ck_assert_uint_eq(s->step, 0);
	lend_epoch(f, 1, 5);
	for (unsigned i = 0; i < N_BATCHES; i++) {
		const Batchd__Wire__Release *r = EXPECT(f, RELEASE)->release;

		ck_assert_uint_eq(r->slot, i);
		ck_assert_uint_eq(r->generation, i + 1);
		lend(f, 1, 6, i, i, i == N_BATCHES - 1 ? 2 : BATCH, i == N_BATCHES - 1);
	}
	expect_releases(f, N_BATCHES);
	EXPECT(f, CLOSE);
}

START_TEST(test_next_epoch_goes_on_without_asking)
{
	/* Two epochs, batch for batch and byte for byte; the second needs no Seek, and early batches wait in the
	 * socket. */
	struct batchd_info info = { .size_bytes = sizeof info };
	uint64_t n = 0;

	play(two_epochs);
	open_loader();
	batchd_get_info(loader, &info);
	ck_assert_uint_eq(info.n_batches, N_BATCHES);
	ck_assert_uint_eq(info.n_samples_rank, N_SAMPLES);
	ck_assert_uint_eq(info.dataset_id, 0xd5);
	ck_assert_uint_eq(info.n_dims, 2);
	ck_assert_uint_eq(info.shape[1], 3);
	ck_assert_str_eq(info.daemon_version, "9.9");
	ck_assert_str_eq(info.socket, d->path);
	for (uint64_t epoch = 5; epoch < 7; epoch++) {
		ck_assert_int_eq(batchd_start(loader, epoch, 0, 0, &n), 0);
		ck_assert_uint_eq(n, N_BATCHES);
		for (unsigned step = 0; step < N_BATCHES; step++) {
			next_is(epoch, step);
			ck_assert_uint_eq(batch.n_rows, step == N_BATCHES - 1 ? 2 : BATCH);
			ck_assert_int_eq(batch.last, step == N_BATCHES - 1);
			for (unsigned i = 0; i < batch.n_rows * ROW_FLOATS; i++)
				ck_assert(((const float *)batch.data)[i] == value(batch.generation, i / ROW_FLOATS));
			ck_assert_int_eq(((const int64_t *)batch.labels)[1], 1);
			ck_assert_int_eq(batch.indices[1], step * BATCH + 1);
			ck_assert_uint_eq(batchd_n_leased(loader), 1);
			ck_assert_uint_eq(batch.n_leased, 1);
			release();
		}
		ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
		ck_assert_int_eq(batchd_next(loader, &batch, 0), BATCHD_END);
	}
	finish();
}
END_TEST

static void seek_in_mid_epoch(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_epoch(f, 1, 0);
	EXPECT(f, RELEASE);
	ck_assert_uint_eq(EXPECT(f, SEEK)->seek->base_sample, 4);
	expect_releases(f, 2);
	lend(f, 2, 7, 1, 0, BATCH, true);
	EXPECT(f, RELEASE);
	EXPECT(f, CLOSE);
}

START_TEST(test_batches_of_an_earlier_start_are_given_back_unseen)
{
	/* A new start in mid-epoch: batches in transit never reach the caller, and their slots return. */
	uint64_t n;

	play(seek_in_mid_epoch);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	next_is(0, 0);
	release();
	ck_assert_int_eq(batchd_start(loader, 7, 4, 1, &n), 0);
	ck_assert_uint_eq(n, 1);
	next_is(7, 1);
	ck_assert_uint_eq(batch.base, 4);
	release();
	finish();
}
END_TEST

static void gap(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend(f, 1, 0, 1, 0, BATCH, false);
	hear(f);
}

START_TEST(test_gap_in_the_steps_is_a_protocol_error_that_stays)
{
	/* One batch too many or too few would train on the wrong data, so the loader refuses to continue. */
	play(gap);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_PROTOCOL);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "batch 0 of epoch 0 was due"));
	ck_assert_int_eq(batchd_start(loader, 1, 0, 0, NULL), BATCHD_E_PROTOCOL);
	finish();
}
END_TEST

START_TEST(test_epoch_length_is_that_of_the_sampler)
{
	/* Client and daemon both compute the number of batches; they must agree for every world size, base and
	 * drop_last. */
	static const uint64_t sizes[] = { 0, 1, 7, 400, 1281167 };
	static const uint32_t worlds[] = { 1, 2, 3, 8 }, batches[] = { 1, 3, 64 };

	for (unsigned i = 0; i < 5 * 4 * 3 * 2; i++) {
		struct plan_spec p = { .n_samples = sizes[i % 5],
				       .world_size = worlds[i / 5 % 4],
				       .drop_last = i / 60 };
		struct batchd_info info = { .size_bytes = sizeof info };

		d->opened.n_samples = p.n_samples;
		options.world_size = d->opened.world_size = p.world_size;
		options.rank = 0;
		options.drop_last = p.drop_last;
		options.batch_size = batches[i / 20 % 3];
		play(welcome);
		open_loader();
		batchd_get_info(loader, &info);
		ck_assert_uint_eq(info.n_samples_rank, plan_spec_n_per_rank(&p));
		ck_assert_uint_eq(info.n_batches,
				  plan_n_batches(plan_spec_n_per_rank(&p), options.batch_size, p.drop_last));
		finish();
	}
}
END_TEST

static void no_seek(struct fake *f)
{
	welcome(f);
	EXPECT(f, CLOSE);
}

START_TEST(test_epoch_without_batches_ends_at_once_and_asks_for_nothing)
{
	/* A base at the epoch's end, as a token of its last batch has it. */
	uint64_t n = 9;

	play(no_seek);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, N_SAMPLES, 0, &n), 0);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
	ck_assert_int_eq(batchd_start(loader, 0, 0, N_BATCHES, &n), 0);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
	finish();
}
END_TEST

static void on_alarm(int sig)
{
	(void)sig;
}

static void silent(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	await(f, 1);
	lend(f, 1, 0, 0, 0, BATCH, false);
	EXPECT(f, RELEASE);
	ck_assert_uint_eq(f->n_wakes, 1);
}

START_TEST(test_waiting_ends_with_the_timeout_or_a_signal)
{
	/* Nothing is ready: try_next says so at once, a time-out expires after its time, and a signal is passed on to
	 * callers that want it. One Wake of the daemon ends all of this waiting. */
	struct sigaction sa = { .sa_handler = on_alarm };
	struct timespec before, after;

	play(silent);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_try_next(loader, &batch), BATCHD_AGAIN);
	clock_gettime(CLOCK_MONOTONIC, &before);
	ck_assert_int_eq(batchd_next(loader, &batch, 30), BATCHD_AGAIN);
	clock_gettime(CLOCK_MONOTONIC, &after);
	ck_assert((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 29);
	sigaction(SIGALRM, &sa, NULL);
	alarm(1);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_UNTIL_SIGNAL), BATCHD_AGAIN);
	atomic_store(&d->step, 1);
	next_is(0, 0);
	release();
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_LOST);
	finish();
}
END_TEST

/* ---- own batches ---- */

static void answer_indices(struct fake *f)
{
	welcome(f);
	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		uint64_t step = 2 * epoch, n = 0;

		ck_assert_uint_eq(EXPECT(f, SEEK)->seek->step, step);
		for (unsigned batches = 0; batches < 1;) {
			const Batchd__Wire__Indices *i = EXPECT(f, INDICES)->indices;

			ck_assert_uint_eq(i->step, step);
			ck_assert_uint_eq(i->seek, epoch + 1);
			for (size_t k = 0; k < i->n_index; k++)
				ck_assert_uint_eq(i->index[k], (n + k) % N_SAMPLES);
			n += i->n_index;
			batches += !i->more;
		}
		ck_assert_uint_eq(n, 5000);
		lend(f, epoch + 1, epoch, step, 0, BATCH, false);
		EXPECT(f, RELEASE);
	}
	EXPECT(f, CLOSE);
}

START_TEST(test_own_batch_of_many_indices_arrives_whole)
{
	/* 5000 indices take two packets; the epoch ends when all pushed batches have come; the next begins with a
	 * seek. */
	uint64_t *indices = malloc(5000 * sizeof *indices);

	for (unsigned i = 0; i < 5000; i++)
		indices[i] = i % N_SAMPLES;
	d->slot_bytes = d->opened.slot_bytes = 65536 * 4;
	munmap(d->slab, N_SLOTS * (size_t)sysconf(_SC_PAGESIZE));
	close(d->slab_fd);
	d->opened.slab_bytes = N_SLOTS * d->slot_bytes;
	d->slab_fd = sealed_memfd(N_SLOTS * d->slot_bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE, &d->slab);
	d->field[1].offset = 5000 * ROW_FLOATS * sizeof(float);
	d->opened.indices_offset = d->field[1].offset + 5000 * 8;
	options.batch_size = 5000;
	options.own_batches = 1;
	play(answer_indices);
	open_loader();
	ck_assert_int_eq(batchd_push(loader, indices, 1), BATCHD_E_INVALID); /* not started */
	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		ck_assert_int_eq(batchd_start(loader, epoch, 0, 2 * epoch, NULL), 0);
		/* this would wait for ever */
		ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_INVALID);
		ck_assert_int_eq(batchd_push(loader, indices, 5000), 0);
		ck_assert_int_eq(batchd_push_end(loader), 0);
		ck_assert_int_eq(batchd_push(loader, indices, 1), BATCHD_E_INVALID);
		next_is(epoch, 2 * epoch);
		release();
		ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
	}
	finish();
	free(indices);
}
END_TEST

static void hear_indices(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	for (uint64_t step = 0; step < N_SLOTS + 2; step++)
		EXPECT(f, INDICES);
	lend(f, 1, 0, 0, 0, 1, false);
	EXPECT(f, RELEASE);
	EXPECT(f, INDICES);
	EXPECT(f, CLOSE);
}

START_TEST(test_pushing_stops_at_the_window_and_goes_on_after_a_batch)
{
	/* Never more than window + 2 requests without an answer; the library refuses wrong indices itself, so the
	 * daemon does not hang up. */
	uint64_t index = 9, wrong = N_SAMPLES;

	options.own_batches = 1;
	play(hear_indices);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_push(loader, &wrong, 1), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_push(loader, &index, 0), BATCHD_E_INVALID);
	for (unsigned i = 0; i < N_SLOTS + 2; i++)
		ck_assert_int_eq(batchd_push(loader, &index, 1), 0);
	ck_assert_int_eq(batchd_push(loader, &index, 1), BATCHD_AGAIN);
	next_is(0, 0);
	release();
	ck_assert_int_eq(batchd_push(loader, &index, 1), 0);
	ck_assert_int_eq(batchd_push(loader, &index, 1), BATCHD_AGAIN);
	finish();
}
END_TEST

/* ---- the end ---- */

static void overwrite_after_close(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_epoch(f, 1, 0);
	EXPECT(f, CLOSE);
	memset(f->slab, 0xee, N_SLOTS * f->slot_bytes);
	ck_assert_ptr_null(hear(f));
	atomic_store(&f->step, 1);
}

START_TEST(test_batches_on_loan_outlive_close)
{
	/* Tensors that outlive the loader keep their bytes, while the daemon gets all its slots back at once. */
	struct batchd_batch kept[2];
	unsigned n_fds;

	play(overwrite_after_close);
	n_fds = count_fds();
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	kept[0] = batch;
	((float *)batch.data)[1] = -5;
	next_is(0, 1);
	kept[1] = batch;
	batchd_close(loader);
	await(d, 1);
	ck_assert(((float *)kept[0].data)[0] == value(1, 0));
	ck_assert(((float *)kept[0].data)[1] == -5);
	ck_assert(((float *)kept[1].data)[0] == value(2, 0));
	ck_assert_int_eq(((int64_t *)kept[1].labels)[2], 2);
	((float *)kept[1].data)[0] = -6;
	ck_assert_int_eq(batchd_release(loader, kept[0].slot, kept[0].generation), 0);
	ck_assert(((float *)kept[1].data)[0] == -6);
	ck_assert_int_eq(batchd_release(loader, kept[1].slot, kept[1].generation), 0); /* frees the loader */
	loader = NULL;
	finish();
	ck_assert_uint_eq(count_fds(), n_fds);
}
END_TEST

static void vanish(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend(f, 1, 0, 0, 0, BATCH, false);
	await(f, 1);
}

START_TEST(test_daemon_that_vanishes_leaves_held_batches_readable)
{
	/* The error names the socket and where to look; batches that the trainer holds stay valid. */
	play(vanish);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	atomic_store(&d->step, 1);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_LOST);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), d->path));
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "batchctl status"));
	ck_assert(((float *)batch.data)[0] == value(1, 0));
	ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation), BATCHD_OK);
	ck_assert_uint_eq(batchd_n_leased(loader), 0);
	finish();
}
END_TEST

static void shut_down(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	say_error(f, BATCHD__WIRE__ERROR_CODE__BAD_DATA, "", "2 of 10 samples could not be decoded: a.jpg, b.jpg");
}

START_TEST(test_reason_of_the_daemon_is_told)
{
	/* Code and text arrive, also when the daemon closed without reading the client's last messages. */
	play(shut_down);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_BAD_DATA);
	ck_assert_str_eq(batchd_error(loader), "2 of 10 samples could not be decoded: a.jpg, b.jpg");
	pthread_join(d->thread, NULL);
	ck_assert_int_eq(batchd_start(loader, 1, 0, 0, NULL), BATCHD_E_BAD_DATA);
	batchd_close(loader);
}
END_TEST

START_TEST(test_release_of_what_is_not_on_loan_is_refused)
{
	/* A release twice, with a stale generation, beyond the slots: nothing is sent to the daemon. */
	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation + 1), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_release(loader, N_SLOTS, batch.generation), BATCHD_E_INVALID);
	release();
	ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation), BATCHD_E_INVALID);
	next_is(0, 1);
	release();
	finish();
}
END_TEST

START_TEST(test_child_of_a_fork_can_do_nothing_and_harms_nothing)
{
	/* In the child every call returns FORKED and a release sends nothing; the parent continues. The child may open
	 * a loader of its own. */
	int status;
	pid_t pid;

	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	pid = fork();
	if (pid == 0) {
		int bad = 0;

		bad |= batchd_next(loader, &batch, 0) != BATCHD_E_FORKED;
		bad |= batchd_start(loader, 0, 0, 0, NULL) != BATCHD_E_FORKED;
		bad |= batchd_release(loader, batch.slot, batch.generation) != BATCHD_E_FORKED;
		bad |= strstr(batchd_error(loader), "parent") == NULL;
		bad |= batchd_n_leased(loader) != 0;
		batchd_close(loader);
		bad |= *(volatile float *)batch.data != value(1, 0);
		_exit(bad);
	}
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
	release();
	next_is(0, 1);
	release();
	finish();
}
END_TEST

/* ---- threads ---- */

static void many(struct fake *f)
{
	uint64_t generation_of[N_SLOTS] = { 0 };
	unsigned n_out = 0;
	uint64_t step = 0;

	welcome(f);
	EXPECT(f, SEEK);
	for (uint32_t slot = 0; slot < N_SLOTS; slot++) {
		lend(f, 1, 0, step++, slot, BATCH, false);
		generation_of[slot] = f->generation;
		n_out++;
	}
	while (n_out) {
		const Batchd__Wire__Release *r = EXPECT(f, RELEASE)->release;

		ck_assert_uint_eq(r->generation, generation_of[r->slot]);
		n_out--;
		if (step < 300) {
			uint32_t slot = r->slot;

			lend(f, 1, 0, step, slot, BATCH, step == 299);
			step++;
			generation_of[slot] = f->generation;
			n_out++;
		}
	}
}

struct handed {
	struct batchd_batch batch;
	atomic_bool full;
};

static void *release_all(void *arg)
{
	struct handed *h = arg;

	for (unsigned i = 0; i < 300; i++) {
		while (!atomic_load(&h->full))
			sched_yield();
		((volatile float *)h->batch.data)[0] = -1;
		ck_assert_int_eq(batchd_release(loader, h->batch.slot, h->batch.generation), 0);
		atomic_store(&h->full, false);
	}
	return NULL;
}

START_TEST(test_one_thread_takes_while_another_releases)
{
	/* A prefetch thread and a training loop; every slot is reused a hundred times and written to each time. */
	struct handed h = { .full = false };
	pthread_t releaser;

	play(many);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	pthread_create(&releaser, NULL, release_all, &h);
	for (unsigned step = 0; step < 300; step++) {
		next_is(0, step);
		ck_assert(((float *)batch.data)[0] == value(batch.generation, 0));
		while (atomic_load(&h.full))
			sched_yield();
		h.batch = batch;
		atomic_store(&h.full, true);
	}
	pthread_join(releaser, NULL);
	finish();
}
END_TEST

SUITE(batches)
{
	Suite *suite = suite_create("batches");
	TCase *all = tcase_create("batches");

	tcase_add_checked_fixture(all, setup, teardown);
	suite_add_tcase(suite, all);
	tcase_add_test(all, test_next_epoch_goes_on_without_asking);
	tcase_add_test(all, test_batches_of_an_earlier_start_are_given_back_unseen);
	tcase_add_test(all, test_gap_in_the_steps_is_a_protocol_error_that_stays);
	tcase_add_test(all, test_epoch_length_is_that_of_the_sampler);
	tcase_add_test(all, test_epoch_without_batches_ends_at_once_and_asks_for_nothing);
	tcase_add_test(all, test_waiting_ends_with_the_timeout_or_a_signal);
	tcase_add_test(all, test_own_batch_of_many_indices_arrives_whole);
	tcase_add_test(all, test_pushing_stops_at_the_window_and_goes_on_after_a_batch);
	tcase_add_test(all, test_batches_on_loan_outlive_close);
	tcase_add_test(all, test_daemon_that_vanishes_leaves_held_batches_readable);
	tcase_add_test(all, test_reason_of_the_daemon_is_told);
	tcase_add_test(all, test_release_of_what_is_not_on_loan_is_refused);
	tcase_add_test(all, test_child_of_a_fork_can_do_nothing_and_harms_nothing);
	tcase_add_test(all, test_one_thread_takes_while_another_releases);
	return suite;
}
