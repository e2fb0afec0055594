/* A whole daemon in a process of its own, and trainers that send it single packets, including packets that libbatchd
 * never sends. One daemon per test. */
#ifndef BATCHD_TESTS_PACKETS_H
#define BATCHD_TESTS_PACKETS_H

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon.h"
#include "suite.h"
#include "util/log.h"
#include "wire.h"

static struct wire_arena arena;
static pid_t daemon_pid;
static char dir[64], path[100];

/* ---- the daemon ---- */

static inline void start_daemon_with(void (*adjust)(struct config *))
{
	strcpy(dir, "/tmp/batchd-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/socket", dir);
	struct sockaddr_un address;
	socklen_t n;
	ck_assert_int_eq(wire_address(path, &address, &n), 0);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, n), 0);
	ck_assert_int_eq(listen(fd, 64), 0);
	daemon_pid = fork();
	if (daemon_pid == 0) {
		struct config config;
		if (config_defaults(&config))
			_exit(1);
		log_set_level(LOG_LEVEL_ERROR);
		if (adjust)
			adjust(&config);
		struct daemon_params params = { .config = &config, .listen_fd = fd, .socket_path = path };
		int r = daemon_run(&params);
		config_finish(&config);
		close(fd);
		exit(r); /* the sanitizers' checks at exit are part of the test */
	}
	close(fd);
	wire_arena_init(&arena);
}

static inline void start_daemon(void)
{
	start_daemon_with(NULL);
}

static inline void stop_daemon(void)
{
	int status;
	kill(daemon_pid, SIGTERM);
	ck_assert_int_eq(TEMP_FAILURE_RETRY(waitpid(daemon_pid, &status, 0)), daemon_pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	unlink(path);
	rmdir(dir);
}

/* ---- a client ---- */

static inline int dial(void)
{
	struct sockaddr_un address;
	socklen_t n;
	wire_address(path, &address, &n);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, n), 0);
	return fd;
}

static inline const Batchd__Wire__ServerMessage *receive(int fd, int *slab)
{
	static unsigned char buf[WIRE_MAX_BYTES];
	const Batchd__Wire__ServerMessage *m;
	int fds[WIRE_MAX_FDS];
	unsigned n_fds = WIRE_MAX_FDS;
	size_t n = sizeof(buf);
	int r;
	while ((r = wire_recv(fd, buf, &n, fds, &n_fds, 0)) == -EINTR) {
		n = sizeof(buf);
		n_fds = WIRE_MAX_FDS;
	}
	if (r)
		return NULL;
	ck_assert_int_eq(wire_unpack_server(&arena, buf, n, &m, NULL), 0);
	if (slab && n_fds)
		*slab = fds[0];
	else
		wire_close_fds(fds, n_fds);
	return m;
}

#define SEND(fd, BODY, field, pointer) \
	do { \
		Batchd__Wire__ClientMessage send_m = BATCHD__WIRE__CLIENT_MESSAGE__INIT; \
		send_m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_##BODY; \
		send_m.field = (pointer); \
		while (wire_send((fd), &send_m.base, NULL, 0, 0) == -EINTR) \
			; \
	} while (0)

static inline void greet(int fd)
{
	Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;
	h.version = WIRE_VERSION;
	h.program = (char *)"test";
	SEND(fd, HELLO, hello, &h);
	const Batchd__Wire__ServerMessage *m = receive(fd, NULL);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME);
}

static inline Batchd__Wire__Open usual_open(void)
{
	Batchd__Wire__Open o = BATCHD__WIRE__OPEN__INIT;
	o.dataset = (char *)"random:length=1000,shape=256,dtype=float32";
	o.transform = (char *)"";
	o.batch_size = 10;
	o.world_size = 1;
	o.job = (char *)"job";
	return o;
}

struct client {
	int fd, slab;
	uint64_t seek;
	uint32_t n_slots, window;
	uint64_t slot_bytes, indices_offset, slab_bytes;
};

static inline const Batchd__Wire__ServerMessage *answer_to_open(int fd, Batchd__Wire__Open *o, int *slab)
{
	const Batchd__Wire__ServerMessage *m;
	SEND(fd, OPEN, open, o);
	do
		m = receive(fd, slab);
	while (m && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS);
	return m;
}

/* False: the daemon refused and named that field in its error. */
static inline bool join_unless(const char *field, struct client *out, Batchd__Wire__Open o)
{
	struct client c = { .fd = dial(), .slab = -1 };
	greet(c.fd);
	const Batchd__Wire__ServerMessage *m = answer_to_open(c.fd, &o, &c.slab);
	ck_assert_ptr_nonnull(m);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR) {
		if (strcmp(field, m->error->field))
			ck_abort_msg("%s", m->error->text);
		close(c.fd);
		return false;
	}
	c.n_slots = m->opened->n_slots;
	c.window = m->opened->window;
	c.slot_bytes = m->opened->slot_bytes;
	c.slab_bytes = m->opened->slab_bytes;
	c.indices_offset = m->opened->indices_offset;
	*out = c;
	return true;
}

static inline struct client join_with(Batchd__Wire__Open o)
{
	struct client c = { .fd = -1 };
	join_unless("none of them", &c, o);
	return c;
}

static inline struct client join(void)
{
	return join_with(usual_open());
}

static inline void hang_up(struct client *c)
{
	close(c->slab);
	close(c->fd);
}

static inline void seek_to(struct client *c, uint64_t epoch, uint64_t step)
{
	Batchd__Wire__Seek s = BATCHD__WIRE__SEEK__INIT;
	s.seek = ++c->seek;
	s.epoch = epoch;
	s.step = step;
	SEND(c->fd, SEEK, seek, &s);
}

/* The answer to a Join. */
static inline Batchd__Wire__Joined join_group(struct client *c, Batchd__Wire__Start how)
{
	Batchd__Wire__Join j = BATCHD__WIRE__JOIN__INIT;
	j.seek = ++c->seek;
	j.start = how;
	SEND(c->fd, JOIN, join, &j);
	const Batchd__Wire__ServerMessage *m = receive(c->fd, NULL);
	ck_assert_ptr_nonnull(m);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		ck_abort_msg("%s", m->error->text);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_JOINED);
	ck_assert_uint_eq(m->joined->seek, c->seek);
	return *m->joined;
}

static inline void release(struct client *c, uint32_t slot, uint64_t generation)
{
	Batchd__Wire__Release r = BATCHD__WIRE__RELEASE__INIT;
	r.slot = slot;
	r.generation = generation;
	SEND(c->fd, RELEASE, release, &r);
}

static inline Batchd__Wire__Batch next_batch(struct client *c)
{
	struct pollfd p = { c->fd, POLLIN, 0 };
	if (poll(&p, 1, 0) == 0) {
		Batchd__Wire__Waiting w = BATCHD__WIRE__WAITING__INIT;
		SEND(c->fd, WAITING, waiting, &w);
	}
	const Batchd__Wire__ServerMessage *m = receive(c->fd, NULL);
	ck_assert_ptr_nonnull(m);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		ck_abort_msg("%s", m->error->text);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH);
	return *m->batch;
}

/* Reads until the connection ends; returns the code of the Error that came before the end, or -1. */
static inline int last_words(int fd)
{
	int code = -1;
	const Batchd__Wire__ServerMessage *m;
	while ((m = receive(fd, NULL))) {
		if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
			code = (int)m->error->code;
	}
	return code;
}

/* Checks that the daemon still serves a well-behaved client. */
static inline void check_it_serves(void)
{
	Batchd__Wire__Open o = usual_open();
	o.job = (char *)"witness";
	struct client c = join_with(o);
	seek_to(&c, 0, 0);
	for (unsigned i = 0; i < 10; i++) {
		Batchd__Wire__Batch b = next_batch(&c);
		ck_assert_uint_eq(b.step, i);
		release(&c, b.slot, b.generation);
	}
	hang_up(&c);
}

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

#endif
