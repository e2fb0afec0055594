/* A peer of a server in this process, over a socket pair: a temporary error loses no message, and no error blocks the
 * loop for ever.
 *
 * send and sendmsg are this program's own and take precedence over the library's, so that they can be made to fail. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/ipc/server.h"
#include "support/suite.h"
#include "base/log.h"

/* ---- sockets that fail ---- */

static struct {
	int error;      /* 0: none */
	unsigned after; /* this many sends still work, */
	unsigned n;     /* then this many fail */
	unsigned n_tried;
} faults;

static bool fails(void)
{
	faults.n_tried++;
	if (!faults.error || faults.n == 0) {
		return false;
	}
	if (faults.after > 0) {
		faults.after--;
		return false;
	}
	faults.n--;
	errno = faults.error;
	return true;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	return fails() ? -1 : syscall(SYS_sendmsg, fd, m, flags);
}

ssize_t send(int fd, const void *bytes, size_t n, int flags)
{
	return fails() ? -1 : syscall(SYS_sendto, fd, bytes, n, flags, NULL, 0);
}

/* ---- a server with one peer ---- */

static struct {
	uv_loop_t loop;
	struct server *server;
	struct accounts accounts;
	int listen_fd, client;
	unsigned n_messages, n_ending, n_closed;
	bool holds;  /* clients hold more than their connections */
	bool echoes; /* each message makes the client's end send another one */
	struct wire_arena arena;
} t;

static void say_wake(void)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Wake w = BATCHD__WIRE__WAKE__INIT;

	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_WAKE;
	m.wake = &w;
	(void)wire_send(t.client, &m.base, NULL, 0, MSG_DONTWAIT);
}

static void on_message(struct peer *p, const Batchd__Wire__ClientMessage *m, int *fds, unsigned n_fds)
{
	(void)p;
	(void)m;
	(void)fds;
	(void)n_fds;
	t.n_messages++;
	ck_assert_msg(t.n_messages < 10000, "the loop goes round for as long as the client likes");
	if (t.echoes) {
		say_wake();
	}
}

static bool on_ending(struct peer *p)
{
	ck_assert(p->ending);
	t.n_ending++;
	return t.holds;
}

static void on_closed(struct peer *p)
{
	(void)p;
	t.n_closed++;
}

static const struct peer_ops ops = { .message = on_message, .ending = on_ending, .closed = on_closed };

static void set_up(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct server_limits limits = { .pending = 64, .hello_timeout_ns = 60000000000u };

	memset(&t, 0, sizeof(t));
	memset(&faults, 0, sizeof(faults));
	log_set_level(LOG_LEVEL_ERROR);
	ck_assert_int_eq(uv_loop_init(&t.loop), 0);
	t.server = calloc(1, sizeof(*t.server));
	t.listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(bind(t.listen_fd, (struct sockaddr *)&address, sizeof(sa_family_t)),
			 0); /* a name of its own */
	ck_assert_int_eq(listen(t.listen_fd, 8), 0);
	ck_assert_int_eq(server_init(t.server, &t.loop, t.listen_fd, &limits, &t.accounts, &ops, NULL, "test"), 0);
	wire_arena_init(&t.arena);
	t.client = -1;
}

static void tear_down(void)
{
	for (struct peer *p = t.server->peers; p; p = p->next) {
		peer_close(p);
	}
	server_stop(t.server);
	ck_assert_int_eq(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
	ck_assert_int_eq(uv_loop_close(&t.loop), 0);
	ck_assert(accounts_balanced(&t.accounts));
	close(t.listen_fd);
	if (t.client >= 0) {
		close(t.client);
	}
	free(t.server);
}

static struct peer *meet(void)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	t.client = pair[1];
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	ck_assert_int_eq(peer_create(t.server, pair[0]), 0);
	return t.server->peers;
}

static void say_hello(void)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;

	h.version = WIRE_VERSION;
	h.program = (char *)"test";
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_HELLO;
	m.hello = &h;
	ck_assert_int_eq(wire_send(t.client, &m.base, NULL, 0, 0), 0);
}

/* The daemon's next message, while its loop runs; NULL: it has hung up. */
static const Batchd__Wire__ServerMessage *hear(int *fd)
{
	static unsigned char buf[WIRE_MAX_BYTES];
	const Batchd__Wire__ServerMessage *m;
	int fds[WIRE_MAX_FDS];
	unsigned n_fds = WIRE_MAX_FDS;
	size_t n = sizeof(buf);
	int r;

	for (;;) {
		n = sizeof(buf);
		n_fds = WIRE_MAX_FDS;
		r = wire_recv(t.client, buf, &n, fds, &n_fds, MSG_DONTWAIT);
		if (r != -EAGAIN && r != -EINTR) {
			break;
		}
		uv_run(&t.loop, UV_RUN_NOWAIT);
	}
	if (r) {
		return NULL;
	}
	ck_assert_int_eq(wire_unpack_server(&t.arena, buf, n, &m, NULL), 0);
	if (fd && n_fds) {
		*fd = fds[0];
	} else {
		wire_close_fds(fds, n_fds);
	}
	return m;
}

static struct peer *meet_and_greet(void)
{
	struct peer *p = meet();

	say_hello();
	ck_assert_int_eq(hear(NULL)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME);
	return p;
}

static void send_batch(struct peer *p, uint64_t step, const int *fds, unsigned n_fds)
{
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;

	b.step = step;
	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH;
	m.batch = &b;
	peer_send(p, &m, fds, n_fds);
}

/* ---- sending ---- */

static const int passing[] = { ENOBUFS, ENOMEM, ETOOMANYREFS, EAGAIN, EINTR };

START_TEST(test_no_message_is_lost_for_want_of_memory)
{
	/* Proves that whichever send fails with a temporary error, once or several times, every message arrives, in
	 * order. */
	struct peer *p = meet_and_greet();

	for (unsigned after = 0; after < 4; after++) {
		faults.error = passing[_i];
		faults.after = after;
		faults.n = 3;
		for (uint64_t step = 0; step < 4; step++) {
			send_batch(p, step, NULL, 0);
		}
		for (uint64_t step = 0; step < 4; step++) {
			const Batchd__Wire__ServerMessage *m = hear(NULL);

			ck_assert_ptr_nonnull(m);
			ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH);
			ck_assert_uint_eq(m->batch->step, step);
		}
		ck_assert_uint_eq(faults.n, 0);
	}
}
END_TEST

START_TEST(test_a_packed_message_is_not_lost_either)
{
	/* Proves the same for a message to many peers. */
	struct peer *p = meet_and_greet();
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	Batchd__Wire__Progress progress = BATCHD__WIRE__PROGRESS__INIT;
	struct packed_message *message;

	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS;
	m.progress = &progress;
	message = packed_message_make(&m);
	faults.error = passing[_i];
	faults.n = 1;
	peer_send_packed(p, message);
	packed_message_unref(message);
	ck_assert_int_eq(hear(NULL)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS);
	ck_assert_uint_eq(faults.n, 0);
}
END_TEST

START_TEST(test_a_send_that_cannot_work_ends_the_connection)
{
	/* Proves that a client does not wait for a message that will never come: after a permanent error it is
	 * disconnected, whether the message was sent at once, from the queue, or as a Wake. */
	struct peer *p = meet_and_greet();

	faults.error = _i == 1 ? ENOBUFS : EACCES;
	faults.n = 1;
	if (_i == 2) {
		peer_wake(p);
	} else {
		send_batch(p, 0, NULL, 0);
	}
	if (_i == 1) {
		faults.error = EACCES;
		faults.n = 1;
	}
	const Batchd__Wire__ServerMessage *m = hear(NULL);

	if (m) {
		ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR);
		ck_assert_ptr_null(hear(NULL));
	}
	ck_assert_uint_eq(t.n_closed, 1);
}
END_TEST

START_TEST(test_a_connection_ends_when_no_function_is_on_the_stack)
{
	/* Proves that a function that ends a connection, and its callers, may go on using the peer: `ending` comes at
	 * once, `closed` when the loop's turn ends, each of them once. The client hears the first reason only. */
	struct peer *p = meet_and_greet();

	peer_fail(p, BATCHD__WIRE__ERROR_CODE__PROTOCOL, NULL, "the first reason");
	peer_fail(p, BATCHD__WIRE__ERROR_CODE__INTERNAL, NULL, "the second reason");
	peer_close(p);
	ck_assert(p->ending);
	ck_assert_uint_eq(t.n_ending, 1);
	ck_assert_uint_eq(t.n_closed, 0);
	ck_assert_ptr_eq(t.server->peers, p);
	send_batch(p, 0, NULL, 0);
	peer_wake(p);
	ck_assert_int_eq(hear(NULL)->error->code, BATCHD__WIRE__ERROR_CODE__PROTOCOL);
	ck_assert_ptr_null(hear(NULL));
	ck_assert_uint_eq(t.n_ending, 1);
	ck_assert_uint_eq(t.n_closed, 1);
	ck_assert_ptr_null(t.server->peers);
}
END_TEST

START_TEST(test_a_connection_may_follow_another_in_the_same_turn)
{
	/* Proves that a user at the limit of its connections who closes one may open the next at once, before the
	 * loop's turn ends; but not while the one that ended holds something. */
	const uint64_t limit[ACCOUNT_N_KINDS] = { 0 }, per_user[ACCOUNT_N_KINDS] = { [ACCOUNT_SESSIONS] = 1 };

	accounts_set_limits(&t.accounts, limit, per_user, 0, 0);
	t.holds = _i;
	struct peer *p = meet();

	peer_close(p);
	close(t.client);
	if (_i) {
		ck_assert_ptr_eq(meet(), p);
		ck_assert_int_eq(hear(NULL)->error->code, BATCHD__WIRE__ERROR_CODE__LIMIT);
	} else {
		ck_assert_ptr_ne(meet(), p);
		say_hello();
		ck_assert_int_eq(hear(NULL)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME);
	}
}
END_TEST

START_TEST(test_a_wake_is_repeated_until_it_is_sent)
{
	/* Proves that a Wake whose send fails is sent later, once. */
	struct peer *p = meet_and_greet();

	faults.error = passing[_i];
	faults.n = 2;
	peer_wake(p);
	peer_wake(p);
	ck_assert_int_eq(hear(NULL)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE);
	faults.n = 0;
	send_batch(p, 7, NULL, 0);
	const Batchd__Wire__ServerMessage *m = hear(NULL);

	while (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE) {
		m = hear(NULL); /* EINTR: the first was sent after all */
	}
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH);
}
END_TEST

START_TEST(test_a_wake_behind_a_full_socket_comes_when_it_is_read)
{
	/* Proves that a client that reads all that is queued, and would sleep then, is woken: the Wake is the last
	 * message. */
	struct peer *p = meet_and_greet();
	uint64_t n = 0, heard = 0;
	const Batchd__Wire__ServerMessage *m;

	while (!p->out_first) {
		send_batch(p, n++, NULL, 0);
	}
	peer_wake(p);
	for (; heard < n; heard++) {
		m = hear(NULL);
		ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH);
		ck_assert_uint_eq(m->batch->step, heard);
	}
	for (int turn = 0; p->wake_pending && turn < 100; turn++) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
	}
	struct pollfd ready = { t.client, POLLIN, 0 };

	ck_assert_msg(poll(&ready, 1, 0) == 1, "the Wake is lost");
	ck_assert_int_eq(hear(NULL)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE);
	ck_assert_int_eq(p->events, UV_READABLE); /* and the socket is not watched without need */
}
END_TEST

START_TEST(test_descriptors_that_wait_to_be_read_are_charged)
{
	/* Proves that duplicates that the daemon keeps for a client that does not read count as its user's, are given
	 * back once they are sent, and are refused beyond fds_per_user. */
	struct peer *p = meet_and_greet();
	const uint64_t limit[ACCOUNT_N_KINDS] = { 0 }, per_user[ACCOUNT_N_KINDS] = { [ACCOUNT_FDS] = 8 };
	const int fds[] = { t.client, t.client, t.client };
	uint64_t n = 0, before = account_used(&t.accounts, getuid(), ACCOUNT_FDS);

	accounts_set_limits(&t.accounts, limit, per_user, 0, 0);
	while (!p->out_first) {
		send_batch(p, n++, NULL, 0);
	}
	send_batch(p, n++, fds, 3);
	ck_assert_uint_eq(account_used(&t.accounts, getuid(), ACCOUNT_FDS), before + 3);
	for (uint64_t heard = 0; heard < n; heard++) {
		ck_assert_uint_eq(hear(NULL)->batch->step, heard);
	}
	ck_assert_uint_eq(account_used(&t.accounts, getuid(), ACCOUNT_FDS), before);
	while (!p->out_first) {
		send_batch(p, n++, NULL, 0);
	}
	send_batch(p, n++, fds, 3);
	send_batch(p, n++, fds, 3);
	ck_assert(!p->ending);
	send_batch(p, n++, fds, 3); /* the connection's own 2 and the 6 that wait are 8 */
	ck_assert(p->ending);
	ck_assert_uint_eq(account_used(&t.accounts, getuid(), ACCOUNT_FDS), 0);
}
END_TEST

/* ---- receiving ---- */

START_TEST(test_a_hello_that_lies_there_is_in_time)
{
	/* Proves that a client that has said Hello is served even if its timer is due before the loop looks at the
	 * socket, as after a pause of the loop. */
	t.server->limits.hello_timeout_ns = 0;
	(void)meet();
	say_hello();
	ck_assert_int_eq(hear(NULL)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME);
	ck_assert_uint_eq(t.n_closed, 0);
}
END_TEST

START_TEST(test_no_hello_is_still_refused)
{
	/* Proves that a client that sends nothing, or another message, is disconnected. */
	t.server->limits.hello_timeout_ns = 0;
	(void)meet();
	if (_i) {
		say_wake();
	}
	const Batchd__Wire__ServerMessage *m = hear(NULL);

	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR);
	ck_assert_int_eq(m->error->code, BATCHD__WIRE__ERROR_CODE__PROTOCOL);
	ck_assert_ptr_null(hear(NULL));
	ck_assert_uint_eq(t.n_closed, 1);
}
END_TEST

/* A process of its own makes the pair and hands both ends over, so that it is the peer; it ends when *leash is
 * closed. */
static pid_t make_pair_elsewhere(int pair[2], int *leash)
{
	int way[2], pipe_fds[2], got[2];
	char control[CMSG_SPACE(sizeof(got))] = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr h = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
	};

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, way), 0);
	ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
	pid_t pid = fork();

	if (pid == 0) {
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);

		close(pipe_fds[1]);
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, got)) {
			_exit(1);
		}
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(got));
		memcpy(CMSG_DATA(c), got, sizeof(got));
		_exit(sendmsg(way[1], &h, 0) == 1 && read(pipe_fds[0], &byte, 1) == 0 ? 0 : 1);
	}
	ck_assert_int_eq(recvmsg(way[0], &h, MSG_CMSG_CLOEXEC), 1);
	memcpy(pair, CMSG_DATA(CMSG_FIRSTHDR(&h)), sizeof(got));
	close(way[0]);
	close(way[1]);
	close(pipe_fds[0]);
	*leash = pipe_fds[1];
	return pid;
}

START_TEST(test_a_socket_that_outlives_its_process_cannot_keep_the_loop)
{
	/* Proves that messages that a process sent before it ended are processed, but not those that other processes
	 * send through its socket later: they could do so for ever, and the loop would process nothing else. */
	int pair[2], leash, status;
	pid_t pid = make_pair_elsewhere(pair, &leash);

	t.client = pair[1];
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	ck_assert_int_eq(peer_create(t.server, pair[0]), 0);
	say_hello();
	ck_assert_int_eq(hear(NULL)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME);
	ck_assert_int_eq(peer_identify(t.server->peers), 0);
	ck_assert_int_ge(t.server->peers->pidfd, 0);
	close(leash);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	t.echoes = true;
	say_wake();
	say_wake();
	while (!t.n_closed) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
	}
	ck_assert_uint_ge(t.n_messages, 2);
	ck_assert_uint_le(t.n_messages, 40); /* the loop read the socket once before it noticed the end */
}
END_TEST

SUITE(peer)
{
	enum { N_PASSING = sizeof(passing) / sizeof(passing[0]) };
	Suite *s = suite_create("peer");
	TCase *c = tcase_create("peer");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_loop_test(c, test_no_message_is_lost_for_want_of_memory, 0, N_PASSING);
	tcase_add_loop_test(c, test_a_packed_message_is_not_lost_either, 0, N_PASSING);
	tcase_add_loop_test(c, test_a_send_that_cannot_work_ends_the_connection, 0, 3);
	tcase_add_test(c, test_a_connection_ends_when_no_function_is_on_the_stack);
	tcase_add_loop_test(c, test_a_connection_may_follow_another_in_the_same_turn, 0, 2);
	tcase_add_loop_test(c, test_a_wake_is_repeated_until_it_is_sent, 0, N_PASSING);
	tcase_add_test(c, test_a_wake_behind_a_full_socket_comes_when_it_is_read);
	tcase_add_test(c, test_descriptors_that_wait_to_be_read_are_charged);
	tcase_add_test(c, test_a_hello_that_lies_there_is_in_time);
	tcase_add_loop_test(c, test_no_hello_is_still_refused, 0, 2);
	tcase_add_test(c, test_a_socket_that_outlives_its_process_cannot_keep_the_loop);
	suite_add_tcase(s, c);
	return s;
}
