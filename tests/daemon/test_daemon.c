/* The whole daemon in a process of its own, tested packet by packet: a misbehaving client loses its own connection, and
 * no other client is affected. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/packets.h"
#include "support/suite.h"

/* ---- tests ---- */

START_TEST(test_an_epoch_arrives_in_order_with_its_indices)
{
	/* 100 batches, then the next epoch without a request. */
	start_daemon();
	struct client c = join();
	const uint8_t *slab = mmap(NULL, c.slab_bytes, PROT_READ, MAP_PRIVATE, c.slab, 0);
	ck_assert_ptr_ne(slab, MAP_FAILED);
	seek_to(&c, 3, 0);
	for (unsigned i = 0; i < 120; i++) {
		Batchd__Wire__Batch b = next_batch(&c);
		ck_assert_uint_eq(b.epoch, i < 100 ? 3 : 4);
		ck_assert_uint_eq(b.step, i % 100);
		ck_assert_int_eq(b.last, i == 99);
		const int64_t *indices =
			(const int64_t *)(const void *)(slab + b.slot * c.slot_bytes + c.indices_offset);
		ck_assert_int_eq(indices[9], (int64_t)(i % 100) * 10 + 9);
		release(&c, b.slot, b.generation);
	}
	munmap((void *)slab, c.slab_bytes);
	hang_up(&c);
	stop_daemon();
}
END_TEST

static void send_rubbish(int fd)
{
	ck_assert_int_gt(send(fd, "rubbish that is no message", 26, MSG_NOSIGNAL), 0);
}

static void send_nothing_inside(int fd)
{
	ck_assert_int_gt(send(fd, "\x72\x00", 2, MSG_NOSIGNAL), 0); /* an unknown body */
}

static void send_large(int fd)
{
	static char big[WIRE_MAX_BYTES + 1];
	int size = 1 << 20;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	ck_assert_int_gt(send(fd, big, sizeof(big), MSG_NOSIGNAL), 0);
}

static void send_second_hello(int fd)
{
	Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;
	h.version = WIRE_VERSION;
	SEND(fd, HELLO, hello, &h);
}

static void send_seek_before_open(int fd)
{
	Batchd__Wire__Seek s = BATCHD__WIRE__SEEK__INIT;
	s.seek = 1;
	SEND(fd, SEEK, seek, &s);
}

static void send_release_before_open(int fd)
{
	Batchd__Wire__Release r = BATCHD__WIRE__RELEASE__INIT;
	SEND(fd, RELEASE, release, &r);
}

static void send_fds_with_status(int fd)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__StatusRequest s = BATCHD__WIRE__STATUS_REQUEST__INIT;
	int fds[2] = { 0, 1 };
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_STATUS;
	m.status = &s;
	int r;
	while ((r = wire_send(fd, &m.base, fds, 2, 0)) == -EINTR)
		;
	ck_assert_int_eq(r, 0);
}

START_TEST(test_illegal_messages_cost_their_sender_the_connection)
{
	/* Each kind is answered with PROTOCOL and a hang-up; a well-behaved client is served before and after. */
	static void (*const crimes[])(int) = { send_rubbish,        send_nothing_inside,   send_large,
					       send_second_hello,   send_seek_before_open, send_release_before_open,
					       send_fds_with_status };
	start_daemon();
	check_it_serves();
	for (size_t i = 0; i < sizeof(crimes) / sizeof(crimes[0]); i++) {
		int fd = dial();
		greet(fd);
		crimes[i](fd);
		ck_assert_int_eq(last_words(fd), CODE(PROTOCOL));
		close(fd);
	}
	check_it_serves();
	stop_daemon();
}
END_TEST

START_TEST(test_a_release_of_what_one_does_not_hold_is_illegal)
{
	/* Stale generation, foreign slot, twice; in the ring and as a packet. Another session of the same job continues. */
	static void (*const ways[])(struct client *, uint32_t, uint64_t) = { release, release_by_packet };
	start_daemon();
	for (int i = 0; i < 6; i++) {
		int kind = i % 3;
		struct client c = join();
		seek_to(&c, 0, 0);
		Batchd__Wire__Batch b = next_batch(&c);
		if (kind == 2)
			release(&c, b.slot, b.generation);
		ways[i / 3](&c, kind == 1 ? 99 : b.slot, kind == 0 ? b.generation + 7 : b.generation);
		ck_assert_int_eq(last_words(c.fd), CODE(PROTOCOL));
		hang_up(&c);
	}
	check_it_serves();
	stop_daemon();
}
END_TEST

START_TEST(test_bad_requests_name_the_field)
{
	/* The text is for people, the field for programs. */
	struct {
		const char *field;
		Batchd__Wire__ErrorCode code;
		Batchd__Wire__Open open;
	} cases[] = { { "batch_size", CODE(INVALID), usual_open() }, { "batch_size", CODE(LIMIT), usual_open() },
		      { "dataset", CODE(NOT_FOUND), usual_open() },  { "dataset", CODE(INVALID), usual_open() },
		      { "rank", CODE(INVALID), usual_open() },       { "transform", CODE(INVALID), usual_open() },
		      { "n_slots", CODE(INVALID), usual_open() },    { "batch_sampler", CODE(INVALID), usual_open() },
		      { "world_size", CODE(INVALID), usual_open() }, { "ring", CODE(INVALID), usual_open() } };
	cases[0].open.batch_size = 0;
	cases[1].open.batch_size = 1u << 31;
	cases[2].open.sources = sources_of("nowhere");
	cases[3].open.sources = sources_of("random:length=ten");
	cases[4].open.rank = 1;
	cases[5].open.transform = (char *)"train224";
	cases[6].open.n_slots = 1;
	cases[7].open.own_batches = true;
	cases[7].open.mode = BATCHD__WIRE__MODE__SHARE;
	cases[8].open.world_size = 0;
	cases[9].open.ring = 0;
	start_daemon();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int fd = dial();
		greet(fd);
		const Batchd__Wire__ServerMessage *m = answer_to_open(fd, &cases[i].open, NULL);
		ck_assert_ptr_nonnull(m);
		ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR);
		ck_assert_int_eq(m->error->code, cases[i].code);
		ck_assert_str_eq(m->error->field, cases[i].field);
		ck_assert_uint_gt(strlen(m->error->text), 10);
		close(fd);
	}
	check_it_serves();
	stop_daemon();
}
END_TEST

START_TEST(test_a_job_is_the_same_for_all_its_ranks)
{
	/* The second rank asks for another seed and is refused; with the same seed it is served. */
	start_daemon();
	Batchd__Wire__Open o = usual_open();
	o.world_size = 2;
	struct client a = join_with(o);
	o.rank = 1;
	o.seed = 1;
	int fd = dial();
	greet(fd);
	const Batchd__Wire__ServerMessage *m = answer_to_open(fd, &o, NULL);
	ck_assert_int_eq(m->error->code, CODE(MISMATCH));
	ck_assert_str_eq(m->error->field, "seed");
	close(fd);
	o.seed = 0;
	struct client b = join_with(o);
	seek_to(&b, 0, 0);
	ck_assert_uint_eq(next_batch(&b).step, 0);
	hang_up(&a);
	hang_up(&b);
	stop_daemon();
}
END_TEST

START_TEST(test_a_newer_process_takes_its_rank_over)
{
	/* The older trainer is fenced and keeps its batches, and the newer one gets a whole window at once. */
	start_daemon();
	struct client old = join();
	seek_to(&old, 0, 0);
	for (uint32_t i = 0; i < old.n_slots; i++)
		next_batch(&old);
	struct client fresh = join();
	ck_assert_int_eq(last_words(old.fd), CODE(FENCED));
	seek_to(&fresh, 0, 0);
	for (uint32_t i = 0; i < fresh.n_slots; i++)
		ck_assert_uint_eq(next_batch(&fresh).step, i);
	hang_up(&old);
	hang_up(&fresh);
	stop_daemon();
}
END_TEST

static void few_sessions(struct config *c)
{
	c->limits.sessions = 4;
	c->limits.hello_timeout_ns = 300000000;
}

START_TEST(test_too_many_sessions_are_told_so)
{
	/* A fifth session of four is refused; when one leaves there is room again. */
	start_daemon_with(few_sessions);
	int fds[4];
	for (int i = 0; i < 4; i++) {
		fds[i] = dial();
		greet(fds[i]);
	}
	int fd = dial();
	ck_assert_int_eq(last_words(fd), CODE(LIMIT));
	close(fd);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	for (bool welcome = false; !welcome;) { /* the daemon may not have read the hang-ups yet */
		fd = dial();
		Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;
		h.version = WIRE_VERSION;
		SEND(fd, HELLO, hello, &h);
		const Batchd__Wire__ServerMessage *m = receive(fd, NULL);
		welcome = m && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME;
		close(fd);
	}
	stop_daemon();
}
END_TEST

START_TEST(test_a_client_that_says_nothing_is_closed)
{
	/* Hello has a deadline. */
	start_daemon_with(few_sessions);
	int fd = dial();
	ck_assert_int_eq(last_words(fd), CODE(PROTOCOL));
	close(fd);
	check_it_serves();
	stop_daemon();
}
END_TEST

static void little_memory(struct config *c)
{
	c->memory_bytes = 1 << 20;
	c->limits.memory_per_user = 1;
}

START_TEST(test_slots_stay_within_the_memory_budget)
{
	/* A window shrinks to the memory that is left; a batch is refused, naming the budget, if not even two fit. */
	start_daemon_with(little_memory);
	Batchd__Wire__Open o = usual_open();
	o.batch_size = 300; /* about 300 KiB a slot: three fit */
	struct client c = join_with(o);
	ck_assert_uint_eq(c.n_slots, 3);
	o.job = (char *)"other";
	int fd = dial();
	greet(fd);
	const Batchd__Wire__ServerMessage *m = answer_to_open(fd, &o, NULL);
	ck_assert_int_eq(m->error->code, CODE(LIMIT));
	ck_assert_str_eq(m->error->field, "memory");
	close(fd);
	hang_up(&c);
	stop_daemon();
}
END_TEST

START_TEST(test_a_client_that_reads_nothing_does_not_hold_up_others)
{
	/* Its window is full and its socket fills with answers to status requests; another client is not affected. */
	start_daemon();
	struct client c = join();
	seek_to(&c, 0, 0);
	for (int i = 0; i < 5000; i++) {
		Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
		Batchd__Wire__StatusRequest s = BATCHD__WIRE__STATUS_REQUEST__INIT;
		m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_STATUS;
		m.status = &s;
		if (wire_send(c.fd, &m.base, NULL, 0, MSG_DONTWAIT))
			break;
	}
	check_it_serves();
	hang_up(&c);
	check_it_serves();
	stop_daemon();
}
END_TEST

START_TEST(test_sigterm_tells_every_client_and_leaves_nothing)
{
	/* While it serves; stop_daemon checks the exit, the sanitizers check the rest. */
	start_daemon();
	struct client c = join();
	seek_to(&c, 0, 0);
	next_batch(&c);
	kill(daemon_pid, SIGTERM);
	ck_assert_int_eq(last_words(c.fd), CODE(SHUTDOWN));
	hang_up(&c);
	stop_daemon();
}
END_TEST

START_TEST(test_sessions_that_vanish_at_every_moment_leave_nothing)
{
	/* Hang-ups after each number of packets, many times: the last stop is clean and the other client has its
	 * memory. */
	start_daemon();
	for (int round = 0; round < 60; round++) {
		struct client c = { .fd = dial(), .slab = -1 };
		int stage = round % 6;
		if (stage > 0)
			greet(c.fd);
		if (stage > 1) {
			Batchd__Wire__Open o = usual_open();
			SEND(c.fd, OPEN, open, &o);
		}
		if (stage > 2)
			ck_assert_int_eq(await_answer(&c)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED);
		if (stage > 3)
			seek_to(&c, (uint64_t)round, 0);
		if (stage > 4)
			next_batch(&c);
		hang_up(&c);
	}
	check_it_serves();
	stop_daemon();
}
END_TEST

SUITE(daemon)
{
	Suite *s = suite_create("daemon");
	TCase *t = tcase_create("daemon");
	tcase_add_test(t, test_an_epoch_arrives_in_order_with_its_indices);
	tcase_add_test(t, test_illegal_messages_cost_their_sender_the_connection);
	tcase_add_test(t, test_a_release_of_what_one_does_not_hold_is_illegal);
	tcase_add_test(t, test_bad_requests_name_the_field);
	tcase_add_test(t, test_a_job_is_the_same_for_all_its_ranks);
	tcase_add_test(t, test_a_newer_process_takes_its_rank_over);
	tcase_add_test(t, test_too_many_sessions_are_told_so);
	tcase_add_test(t, test_a_client_that_says_nothing_is_closed);
	tcase_add_test(t, test_slots_stay_within_the_memory_budget);
	tcase_add_test(t, test_a_client_that_reads_nothing_does_not_hold_up_others);
	tcase_add_test(t, test_sigterm_tells_every_client_and_leaves_nothing);
	tcase_add_test(t, test_sessions_that_vanish_at_every_moment_leave_nothing);
	suite_add_tcase(s, t);
	return s;
}
