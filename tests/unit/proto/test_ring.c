/* The two rings of a control page: entries in order across the wrap, both sides of every limit, a page with wrong
 * values, and flags that lose no wake-up. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ring.h"
#include "wire.h"
#include "support/suite.h"

static struct ring ours, theirs; /* the daemon's and the client's */

static void setup(void)
{
	int fd;
	ck_assert_int_eq(ring_create(&ours, &fd), 0);
	ck_assert_int_eq(ring_map(&theirs, fd), 0);
	close(fd);
}

static void teardown(void)
{
	ring_unmap(&ours);
	ring_unmap(&theirs);
	ck_assert_ptr_null(ours.page);
}

static int put(struct ring_end *e, uint32_t slot)
{
	Batchd__Wire__Release r = BATCHD__WIRE__RELEASE__INIT;
	r.slot = slot;
	r.generation = 7;
	return ring_put(e, &r.base);
}

/* The slot of the entry taken, or the (negative) error. */
static int64_t take(struct ring_end *e)
{
	unsigned char bytes[RING_MAX_MESSAGE];
	size_t n;
	int r = ring_take(e, bytes, &n);
	if (r)
		return r;
	Batchd__Wire__Release *m = batchd__wire__release__unpack(NULL, n, bytes);
	ck_assert_ptr_nonnull(m);
	int64_t slot = m->slot;
	batchd__wire__release__free_unpacked(m, NULL);
	return slot;
}

START_TEST(test_entries_come_in_order_and_no_more_than_fit)
{
	/* Full at 64, empty at 0, in both directions, across the wrap of positions at 2^32. */
	struct ring_end *ends[2][2] = { { &ours.batches, &theirs.batches }, { &theirs.releases, &ours.releases } };
	for (int direction = 0; direction < 2; direction++) {
		struct ring_end *producer = ends[direction][0], *consumer = ends[direction][1];
		producer->at = producer->seen = consumer->at = consumer->seen = UINT32_MAX - 100;
		atomic_store(&producer->lane->produced, producer->at);
		atomic_store(&producer->lane->taken, producer->at);
		uint32_t in = 1, out = 1;
		for (int round = 0; round < 5; round++) {
			for (int i = 0; i < RING_ENTRIES; i++) {
				ck_assert_uint_eq(ring_untaken(producer), (unsigned)i);
				ck_assert_uint_eq(ring_waiting_entries(consumer), (unsigned)i);
				ck_assert_int_eq(put(producer, in++), 0);
			}
			ck_assert_int_eq(put(producer, in), -EAGAIN);
			for (int i = 0; i < RING_ENTRIES; i++)
				ck_assert_int_eq(take(consumer), out++);
			ck_assert_int_eq(take(consumer), -EAGAIN);
		}
	}
}
END_TEST

START_TEST(test_largest_messages_fit_and_larger_ones_are_refused)
{
	/* Every number at its largest fits; one byte more than an entry holds does not, and leaves the ring
	 * unchanged. */
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;
	b.seek = b.generation = b.epoch = b.step = UINT64_MAX;
	b.slot = b.n_rows = b.n_padding = b.n_replaced = UINT32_MAX;
	b.last = 1;
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH;
	m.batch = &b;
	ck_assert_int_eq(ring_put(&ours.batches, &m.base), 0);
	Batchd__Wire__Release r = BATCHD__WIRE__RELEASE__INIT;
	r.slot = UINT32_MAX;
	r.generation = r.wait_ns = UINT64_MAX;
	Batchd__Wire__ClientMessage c = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	c.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_RELEASE;
	c.release = &r;
	ck_assert_int_eq(ring_put(&theirs.releases, &c.base), 0);

	static uint8_t json[RING_BATCH_BYTES];
	Batchd__Wire__Status s = BATCHD__WIRE__STATUS__INIT;
	s.json = (ProtobufCBinaryData){ RING_MAX_MESSAGE - 3, json }; /* a tag and two bytes of length */
	ck_assert_uint_eq(batchd__wire__status__get_packed_size(&s), RING_MAX_MESSAGE);
	ck_assert_int_eq(ring_put(&ours.batches, &s.base), 0);
	s.json.len++;
	ck_assert_int_eq(ring_put(&ours.batches, &s.base), -EMSGSIZE);
	ck_assert_uint_eq(ring_untaken(&ours.batches), 2);
}
END_TEST

START_TEST(test_impossible_positions_and_lengths_are_refused)
{
	/* Either side, each way a page can be wrong; a possible but untrue value is no error, an impossible value is a
	 * permanent one. */
	ck_assert_int_eq(put(&ours.batches, 1), 0);
	uint32_t *length = (uint32_t *)(void *)theirs.page->batch[0], good = *length;
	static const uint32_t bad[] = { 0, RING_MAX_MESSAGE + 1, UINT32_MAX };
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		*length = bad[i];
		ck_assert_int_eq(take(&theirs.batches), -EPROTO);
	}
	*length = good;
	for (uint32_t lie = 2; lie != 0; lie *= 2) {
		atomic_store(&ours.page->batches.produced, lie);
		bool possible = lie <= RING_ENTRIES;
		ck_assert_uint_eq(ring_waiting_entries(&theirs.batches), possible ? lie : 0);
		if (!possible)
			ck_assert_int_eq(take(&theirs.batches), -EPROTO);
	}
	atomic_store(&ours.page->batches.taken, 2); /* more than there were */
	ck_assert_int_eq(put(&ours.batches, 2), -EPROTO);
	ck_assert_uint_eq(ring_untaken(&ours.batches), 0);
	atomic_store(&ours.page->batches.taken, 1);
	ck_assert_int_eq(put(&ours.batches, 2), -EPROTO);
	ck_assert_int_eq(put(&theirs.releases, 1), 0);
	atomic_store(&ours.page->releases.produced, 0); /* an end continues from its own position */
	ck_assert_int_eq(put(&theirs.releases, 2), 0);
	ck_assert_uint_eq(atomic_load(&ours.page->releases.produced), 2);
}
END_TEST

START_TEST(test_a_position_that_goes_back_is_refused)
{
	/* Both positions that a client writes, in the middle and across the wrap at 2^32: an end that has seen a
	 * position further ahead is broken, whether it only looks or continues. */
	static const uint32_t starts[] = { 0, UINT32_MAX };
	for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
		for (int how = 0; how < 2; how++) {
			struct ring_end *out = &ours.batches, *in = &ours.releases;
			out->at = out->seen = in->at = in->seen = starts[i];
			out->broken = in->broken = false;
			atomic_store(&out->lane->taken, starts[i]);
			atomic_store(&in->lane->produced, starts[i]);
			for (uint32_t n = 0; n < 3; n++)
				ck_assert_int_eq(put(out, n), 0);
			atomic_store(&out->lane->taken, starts[i] + 2);
			ck_assert_uint_eq(ring_untaken(out), 1);
			atomic_store(&out->lane->taken, starts[i] + 1);
			ck_assert(how || ring_untaken(out) == 0);
			ck_assert_int_eq(put(out, 3), -EPROTO);
			ck_assert(out->broken);
			atomic_store(&in->lane->produced, starts[i] + 2);
			ck_assert_uint_eq(ring_waiting_entries(in), 2);
			atomic_store(&in->lane->produced, starts[i] + 1);
			ck_assert(how || ring_waiting_entries(in) == 0);
			ck_assert_int_eq(take(in), -EPROTO);
			ck_assert(in->broken);
		}
	}
}
END_TEST

START_TEST(test_page_must_be_sealed_and_of_the_right_size)
{
	/* A page that could shrink under the client would be its SIGBUS. */
	for (int i = 0; i < 4; i++) {
		struct ring r;
		int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		ck_assert_int_eq(ftruncate(fd, RING_PAGE_BYTES + (i == 1 ? 4096 : i == 2 ? -4096 : 0)), 0);
		if (i > 0)
			ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
		ck_assert_int_eq(ring_map(&r, fd), i == 3 ? 0 : -EPROTO);
		ring_unmap(&r);
		close(fd);
	}
	int pipes[2];
	struct ring r;
	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert_int_eq(ring_map(&r, pipes[0]), -EPROTO);
	ck_assert_int_eq(ring_create(&r, &pipes[0]), 0);
	ck_assert_int_lt(ftruncate(pipes[0], 0), 0);
	ck_assert_int_lt(ftruncate(pipes[0], 1 << 20), 0);
	ring_unmap(&r);
}
END_TEST

START_TEST(test_wakes_are_for_the_side_that_asked_and_once)
{
	/* The client: when it waits. The daemon: when it is armed, and the last batch was taken or enough releases
	 * wait. */
	ck_assert(!ring_wake_client(&ours));
	ring_start_waiting(&theirs);
	ck_assert(ring_is_waited_for(&ours));
	ck_assert(ring_wake_client(&ours));
	ck_assert(!ring_wake_client(&ours));
	ck_assert(!ring_stop_waiting(&theirs)); /* its Wake is in transit */
	ring_start_waiting(&theirs);
	ck_assert(ring_stop_waiting(&theirs));
	ck_assert(!ring_wake_client(&ours));

	ck_assert_int_eq(put(&ours.batches, 1), 0);
	ck_assert_int_eq(put(&ours.batches, 2), 0);
	ring_arm(&ours, 2);
	ck_assert_int_eq(take(&theirs.batches), 1);
	ck_assert(!ring_wake_daemon_taken(&theirs));
	ck_assert_int_eq(put(&theirs.releases, 1), 0);
	ck_assert(!ring_wake_daemon_released(&theirs));
	ck_assert_int_eq(take(&theirs.batches), 2);
	ck_assert(ring_wake_daemon_taken(&theirs));
	ck_assert(!ring_wake_daemon_taken(&theirs));
	ck_assert_int_eq(put(&theirs.releases, 2), 0);
	ck_assert(!ring_wake_daemon_released(&theirs)); /* no longer asleep */
	ring_arm(&ours, 2);
	ck_assert(ring_wake_daemon_released(&theirs));
	ck_assert(!ring_wake_daemon_released(&theirs));
}
END_TEST

/* ---- two threads ---- */

enum { MANY = 20000 };
static int wake_client, wake_daemon; /* eventfds in place of the socket */

static void sleep_on(int fd)
{
	uint64_t n;
	ck_assert_int_eq(read(fd, &n, sizeof(n)), sizeof(n));
}

static void nudge(int fd)
{
	uint64_t one = 1;
	ck_assert_int_eq(write(fd, &one, sizeof(one)), sizeof(one));
}

/* Puts a batch for each of a window of 4, gets them back as releases, sleeps when there is nothing to do. */
static void *run_server(void *arg)
{
	unsigned *sleeps = arg;
	uint32_t n_free = 4;
	for (uint32_t sent = 0, back = 0; back < MANY;) {
		int64_t slot;
		while ((slot = take(&ours.releases)) != -EAGAIN) {
			ck_assert_int_eq(slot, back++);
			n_free++;
		}
		for (; n_free > 0 && sent < MANY; n_free--) {
			ck_assert_int_eq(put(&ours.batches, sent++), 0);
			if (ring_wake_client(&ours))
				nudge(wake_client);
		}
		uint32_t untaken = ring_untaken(&ours.batches);
		ring_arm(&ours, untaken ? 2 : 1);
		if (ring_waiting_entries(&ours.releases) || (untaken && !ring_untaken(&ours.batches)) || back == MANY)
			continue;
		++*sleeps;
		sleep_on(wake_daemon);
	}
	return NULL;
}

START_TEST(test_no_trainer_sleeps_on_a_batch_that_has_come)
{
	/* 20000 batches through a window of 4, both sides asleep whenever they may be: if one wake-up were lost, this
	 * would hang. */
	pthread_t daemon;
	unsigned sleeps = 0;
	wake_client = eventfd(0, EFD_CLOEXEC);
	wake_daemon = eventfd(0, EFD_CLOEXEC);
	pthread_create(&daemon, NULL, run_server, &sleeps);
	for (uint32_t n = 0; n < MANY; n++) {
		int64_t slot = take(&theirs.batches);
		while (slot == -EAGAIN) {
			ring_start_waiting(&theirs);
			slot = take(&theirs.batches);
			if (slot != -EAGAIN) {
				ring_stop_waiting(&theirs);
				break;
			}
			sleep_on(wake_client);
			slot = take(&theirs.batches);
		}
		ck_assert_int_eq(slot, n);
		if (ring_wake_daemon_taken(&theirs))
			nudge(wake_daemon);
		ck_assert_int_eq(put(&theirs.releases, n), 0);
		if (ring_wake_daemon_released(&theirs))
			nudge(wake_daemon);
	}
	nudge(wake_daemon); /* wakes the daemon thread for the end */
	pthread_join(daemon, NULL);
	close(wake_client);
	close(wake_daemon);
}
END_TEST

START_TEST(test_a_notice_is_announced_once)
{
	/* Proves that the client sees the daemon's mark once, and that another notice sets it again. */
	ck_assert(!ring_take_notice(&theirs));
	ring_note_notice(&ours);
	ring_note_notice(&ours);
	ck_assert(ring_take_notice(&theirs));
	ck_assert(!ring_take_notice(&theirs));
	ring_note_notice(&ours);
	ck_assert(ring_take_notice(&theirs));
}
END_TEST

START_TEST(test_what_the_trainer_does_is_seen)
{
	/* Proves that the daemon sees the trainer's present state, which begins idle, and what the trainer was given. */
	static const enum ring_state states[] = { RING_WAITS, RING_BUSY, RING_ORDERS, RING_IDLE };
	ck_assert_int_eq(ring_get_state(&ours), RING_IDLE);
	for (unsigned i = 0; i < sizeof(states) / sizeof(*states); i++) {
		ring_set_state(&theirs, states[i]);
		ck_assert_int_eq(ring_get_state(&ours), states[i]);
	}
	ring_count_batch(&theirs, 8);
	ring_count_batch(&theirs, 3);
	ck_assert_uint_eq(ring_read_taken(&ours).n_batches, 2);
	ck_assert_uint_eq(ring_read_taken(&ours).n_rows, 11);
}
END_TEST

SUITE(ring)
{
	Suite *suite = suite_create("ring");
	TCase *all = tcase_create("ring");
	tcase_add_checked_fixture(all, setup, teardown);
	suite_add_tcase(suite, all);
	tcase_add_test(all, test_entries_come_in_order_and_no_more_than_fit);
	tcase_add_test(all, test_largest_messages_fit_and_larger_ones_are_refused);
	tcase_add_test(all, test_impossible_positions_and_lengths_are_refused);
	tcase_add_test(all, test_a_position_that_goes_back_is_refused);
	tcase_add_test(all, test_page_must_be_sealed_and_of_the_right_size);
	tcase_add_test(all, test_wakes_are_for_the_side_that_asked_and_once);
	tcase_add_test(all, test_no_trainer_sleeps_on_a_batch_that_has_come);
	tcase_add_test(all, test_a_notice_is_announced_once);
	tcase_add_test(all, test_what_the_trainer_does_is_seen);
	return suite;
}
