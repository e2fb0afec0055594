/* A whole daemon in a process of its own, and trainers that send it single packets, including packets that libbatchd
 * never sends, and that take their batches from the ring. One daemon per test. */
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
#include "ring.h"
#include "sources-text.h"
#include "suite.h"
#include "base/log.h"
#include "wire.h"

static struct wire_arena arena;
static pid_t daemon_pid;
static char dir[64], path[100];

/* ---- the daemon ---- */

/* As at the start; the argument is what adjusts the configuration. */
static inline int read_again(void *arg, struct config *c, struct config_error *err)
{
	void (**adjust)(struct config *) = arg;
	(void)err;
	int r = config_defaults(c);
	if (r == 0 && *adjust)
		(*adjust)(c);
	return r;
}

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
		if (read_again(&adjust, &config, NULL))
			_exit(1);
		log_set_level(LOG_LEVEL_ERROR);
		struct daemon_params params = { .config = &config,
						.listen_fd = fd,
						.socket_path = path,
						.reload = read_again,
						.reload_arg = &adjust };
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

/* The next packet, with its descriptors, which are the caller's. NULL: the end. */
static inline const Batchd__Wire__ServerMessage *receive_packet(int fd, int fds[WIRE_MAX_FDS], unsigned *n_fds)
{
	static unsigned char buf[WIRE_MAX_BYTES];
	const Batchd__Wire__ServerMessage *m;
	size_t n;
	int r;
	do {
		n = sizeof(buf);
		*n_fds = WIRE_MAX_FDS;
		r = wire_recv(fd, buf, &n, fds, n_fds, 0);
	} while (r == -EINTR);
	if (r)
		return NULL;
	ck_assert_int_eq(wire_unpack_server(&arena, buf, n, &m, NULL), 0);
	return m;
}

/* The next packet that is not a Wake, and the first of its descriptors. */
static inline const Batchd__Wire__ServerMessage *receive(int fd, int *slab)
{
	const Batchd__Wire__ServerMessage *m;
	int fds[WIRE_MAX_FDS];
	unsigned n_fds;
	do
		m = receive_packet(fd, fds, &n_fds);
	while (m && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE);
	if (m && slab && n_fds) {
		*slab = fds[0];
		wire_close_fds(fds + 1, n_fds - 1);
	} else if (m) {
		wire_close_fds(fds, n_fds);
	}
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
	o.sources = sources_of("random:length=1000,shape=256,dtype=float32");
	o.transform = (char *)"";
	o.batch_size = 10;
	o.world_size = 1;
	o.job = (char *)"job";
	o.ring = RING_LAYOUT;
	return o;
}

struct client {
	int fd, slab;
	struct ring ring;
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

/* Waits for the answer to an Open that has been sent; fills in the client if that is Opened. */
static inline const Batchd__Wire__ServerMessage *await_answer(struct client *c)
{
	const Batchd__Wire__ServerMessage *m;
	int fds[WIRE_MAX_FDS];
	unsigned n_fds;
	do
		m = receive_packet(c->fd, fds, &n_fds);
	while (m && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS);
	if (!m || m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED)
		return m;
	ck_assert_uint_eq(m->opened->ring, RING_LAYOUT);
	ck_assert(wire_server_fds_ok(m, n_fds));
	ck_assert_int_eq(ring_map(&c->ring, fds[1]), 0);
	c->slab = fds[0];
	wire_close_fds(fds + 1, n_fds - 1);
	c->n_slots = m->opened->n_slots;
	c->window = m->opened->window;
	c->slot_bytes = m->opened->slot_bytes;
	c->slab_bytes = m->opened->slab_bytes;
	c->indices_offset = m->opened->indices_offset;
	return m;
}

/* False: the daemon refused and named that field in its error. */
static inline bool join_unless(const char *field, struct client *out, Batchd__Wire__Open o)
{
	struct client c = { .fd = dial(), .slab = -1 };
	greet(c.fd);
	SEND(c.fd, OPEN, open, &o);
	const Batchd__Wire__ServerMessage *m = await_answer(&c);
	ck_assert_ptr_nonnull(m);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR) {
		if (strcmp(field, m->error->field))
			ck_abort_msg("%s", m->error->text);
		close(c.fd);
		return false;
	}
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
	ring_unmap(&c->ring);
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

/* ---- the ring ---- */

static inline void wake(struct client *c)
{
	Batchd__Wire__Wake w = BATCHD__WIRE__WAKE__INIT;
	SEND(c->fd, WAKE, wake, &w);
}

static inline void release_by_packet(struct client *c, uint32_t slot, uint64_t generation)
{
	Batchd__Wire__Release r = BATCHD__WIRE__RELEASE__INIT;
	r.slot = slot;
	r.generation = generation;
	SEND(c->fd, RELEASE, release, &r);
}

static inline void put_release(struct client *c, uint32_t slot, uint64_t generation)
{
	Batchd__Wire__Release r = BATCHD__WIRE__RELEASE__INIT;
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	r.slot = slot;
	r.generation = generation;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_RELEASE;
	m.release = &r;
	ck_assert_int_eq(ring_put(&c->ring.releases, &m.base), 0);
}

/* Gives a slot back, and has the daemon look at once, whatever it sleeps for. */
static inline void release(struct client *c, uint32_t slot, uint64_t generation)
{
	put_release(c, slot, generation);
	wake(c);
}

/* The next message in the ring, which is a batch; NULL: there is none now. */
static inline const Batchd__Wire__ServerMessage *take_entry(struct client *c)
{
	static unsigned char bytes[RING_MAX_MESSAGE];
	const Batchd__Wire__ServerMessage *m;
	size_t n;
	int r = ring_take(&c->ring.batches, bytes, &n);
	if (r == -EAGAIN)
		return NULL;
	ck_assert_int_eq(r, 0);
	ck_assert_int_eq(wire_unpack_server(&arena, bytes, n, &m, NULL), 0);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH);
	ring_stop_waiting(&c->ring); /* receive passes over a Wake that is on its way */
	if (ring_wake_daemon_taken(&c->ring))
		wake(c);
	return m;
}

/* The next batch, or the packet that comes where one is due; NULL: the end of the connection. */
static inline const Batchd__Wire__ServerMessage *next_message(struct client *c)
{
	for (;;) {
		int fds[WIRE_MAX_FDS];
		unsigned n_fds;
		const Batchd__Wire__ServerMessage *m = take_entry(c);
		if (!m) {
			ring_start_waiting(&c->ring);
			m = take_entry(c);
		}
		if (!m)
			m = receive_packet(c->fd, fds, &n_fds);
		if (!m || m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE)
			return m;
	}
}

static inline Batchd__Wire__Batch next_batch(struct client *c)
{
	const Batchd__Wire__ServerMessage *m = next_message(c);
	ck_assert_ptr_nonnull(m);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		ck_abort_msg("%s", m->error->text);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH);
	return *m->batch;
}

/* No batch comes although the trainer waits. */
static inline bool gets_none(struct client *c, int ms)
{
	struct pollfd p = { c->fd, POLLIN, 0 };
	for (;;) {
		int fds[WIRE_MAX_FDS], r;
		unsigned n_fds;
		ring_start_waiting(&c->ring);
		if (ring_waiting_entries(&c->ring.batches))
			return false;
		while ((r = poll(&p, 1, ms)) < 0 && errno == EINTR)
			;
		if (r == 0)
			return ring_waiting_entries(&c->ring.batches) == 0;
		const Batchd__Wire__ServerMessage *m = receive_packet(c->fd, fds, &n_fds);
		if (!m || m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE)
			return false;
	}
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
