/* See peer.h. One uv_poll watches the socket, for reading always and for writing only while packets wait. A packet is
 * sent whole or not at all (SOCK_SEQPACKET), so the queue is a list of packets, with duplicates of their fds.
 *
 * Any local process may connect ten thousand times a second, so a connection that only says Hello must cost as few
 * system calls as possible: data that matters only for a client that stays is looked up when it wants to stay
 * (peer_identify), and a uv_poll is started (which takes two system calls) only when the events that it watches for
 * have changed. */
#include "server/ipc/peer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/ipc/server-peers.h"
#include "base/closing.h"
#include "base/log.h"
#include "base/io-full.h"
#include "base/thread-kind.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

enum {
	MAX_WAITING = 1024,    /* packets: far more than a window of batches and an answer */
	PACKETS_PER_TURN = 32, /* per peer, unless PEER_NS is reached first; see base/fair-turn.h for users */
	PEER_NS = FAIR_TURN_NS / 4,
	RETRY_MS = 10,
	MISTAKES_AT_ONCE = 16, /* records a minute */
};

enum { PACKET_FDS = WIRE_OPENED_FDS }; /* no message to a client has more */

struct packet {
	struct packet *next;
	struct packed_message *message;
	int fds[PACKET_FDS];
	unsigned n_fds;
};

static void set_events(struct peer *p);
static void peer_watch(struct peer *p, int events);

/* ---- closing ---- */

static void on_handle_closed(uv_handle_t *h)
{
	struct peer *p = h->data;
	if (--p->n_handles > 0)
		return;
	server_remove(p->server, p);
	p->server->ops->closed(p);
	charge_release(&p->connection);
	charge_release(&p->fds);
	close(p->fd);
	if (p->pidfd >= 0)
		close(p->pidfd);
	free(p);
}

/* Descriptors that wait to be sent are charged to the client, because the client decides how long they wait. */
static void free_packet(struct peer *p, struct packet *k)
{
	if (k->n_fds)
		charge_shrink(&p->fds, k->n_fds);
	wire_close_fds(k->fds, k->n_fds);
	packed_message_unref(k->message);
	free(k);
}

static void drop_waiting(struct peer *p)
{
	while (p->out_first) {
		struct packet *k = p->out_first;
		p->out_first = k->next;
		free_packet(p, k);
	}
	p->n_out = 0;
	p->wake_pending = false;
	charge_release(&p->unread);
}

void peer_close(struct peer *p)
{
	assert(is_loop_thread());
	if (p->ending)
		return;
	p->ending = true;
	drop_waiting(p);
	if (p->session)
		shutdown(p->fd, SHUT_RDWR); /* so that the client notices, even while a fork of the daemon holds the
		                             * socket */
	server_note_ending(p->server, p);
	if (!p->server->ops->ending(p)) {
		charge_release(&p->connection);
		charge_release(&p->fds);
	}
	uv_close((uv_handle_t *)&p->poll, on_handle_closed);
	if (p->watches_exit)
		uv_close((uv_handle_t *)&p->exit_poll, on_handle_closed);
	uv_close((uv_handle_t *)&p->hello_timer, on_handle_closed);
}

/* Protocol violations are logged once per user and minute, so that a flood cannot fill the disk; ordinary request
 * errors up to MISTAKES_AT_ONCE times, because many jobs may make the same mistake. Shutdown messages need no limit:
 * there is at most one per peer. */
static void log_why(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *text)
{
	bool offence = code == BATCHD__WIRE__ERROR_CODE__LIMIT || code == BATCHD__WIRE__ERROR_CODE__PROTOCOL ||
		       code == BATCHD__WIRE__ERROR_CODE__VERSION;
	if (code != BATCHD__WIRE__ERROR_CODE__SHUTDOWN &&
	    !server_tells(p->server, p->uid, wire_code_name(code), field, offence ? 1 : MISTAKES_AT_ONCE))
		return;
	char number[32], pid[32], uid[32];
	snprintf(number, sizeof(number), "%llu", (unsigned long long)p->number);
	snprintf(pid, sizeof(pid), "%d", (int)p->pid);
	snprintf(uid, sizeof(uid), "%u", (unsigned)p->uid);
	const char *fields[] = { "SESSION", number, "PID", pid, "UID", uid, "CODE", wire_code_name(code), NULL };
	log_record_fields(LOG_LEVEL_WARNING, "session-refused", fields, "%s", text);
}

/* Writes the log record and sends the client's Error. */
static void say_why(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, va_list ap)
	__attribute__((format(printf, 4, 0)));
static void say_why(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, va_list ap)
{
	char text[WIRE_MAX_TEXT];
	vsnprintf(text, sizeof(text), fmt, ap);
	log_why(p, code, field, text);
	Batchd__Wire__Error error = BATCHD__WIRE__ERROR__INIT;
	error.code = code;
	error.text = text;
	error.field = (char *)(field ? field : "");
	if (!p->out_first) /* no point in waiting behind a full socket */
		(void)wire_send(p->fd, &WIRE_SERVER(ERROR, error, &error)->base, NULL, 0, MSG_DONTWAIT);
}

void peer_fail(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
{
	assert(is_loop_thread());
	if (!p->ending && !p->half_closed) {
		va_list ap;
		va_start(ap, fmt);
		say_why(p, code, field, fmt, ap);
		va_end(ap);
	}
	peer_close(p);
}

void peer_half_close(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
{
	assert(is_loop_thread());
	if (p->ending || p->half_closed)
		return;
	va_list ap;
	va_start(ap, fmt);
	say_why(p, code, field, fmt, ap);
	va_end(ap);
	p->half_closed = true;
	drop_waiting(p);
	shutdown(p->fd, SHUT_WR); /* a client whose socket had no room for the Error notices this */
	set_events(p);
}

/* ---- sending ---- */

static void peer_keep(struct peer *p, struct packed_message *message, const int *fds, unsigned n_fds)
{
	if (p->n_out == MAX_WAITING) {
		peer_fail(p, BATCHD__WIRE__ERROR_CODE__PROTOCOL, NULL, "the client does not read what it asked for");
		return;
	}
	struct packet *k = message ? malloc(sizeof(*k)) : NULL;
	if (!k) {
		peer_fail(p, BATCHD__WIRE__ERROR_CODE__INTERNAL, NULL, "out of memory");
		return;
	}
	*k = (struct packet){ .message = packed_message_ref(message) };
	for (; k->n_fds < n_fds; k->n_fds++) {
		if (charge_grow(&p->fds, 1)) {
			free_packet(p, k);
			peer_fail(p, BATCHD__WIRE__ERROR_CODE__LIMIT, "fds_per_user",
				  "this user's trainers take up too many of the daemon's descriptors, unread ones "
				  "included (limits.fds_per_user in its configuration)");
			return;
		}
		k->fds[k->n_fds] = fcntl(fds[k->n_fds], F_DUPFD_CLOEXEC, 0);
		if (k->fds[k->n_fds] < 0) {
			charge_shrink(&p->fds, 1);
			free_packet(p, k);
			peer_fail(p, BATCHD__WIRE__ERROR_CODE__LIMIT, NULL, "the daemon is out of file descriptors");
			return;
		}
	}
	if (charge_grow(&p->unread, message->n_bytes)) {
		free_packet(p, k);
		peer_fail(
			p, BATCHD__WIRE__ERROR_CODE__LIMIT, "unread_per_user",
			"this user's trainers leave too much unread (limits.unread_per_user in the daemon's configuration)");
		return;
	}
	if (p->out_first)
		p->out_last->next = k;
	else
		p->out_first = k;
	p->out_last = k;
	p->n_out++;
	set_events(p);
}

/* The kernel is out of memory, or processes of the daemon's user have as many descriptors in transit as they may have
 * open. Meanwhile the socket counts as writable. */
static bool is_short(int r)
{
	return r == -ENOBUFS || r == -ENOMEM || r == -ETOOMANYREFS;
}

/* Whether it may be sent later. */
static bool is_full(int r)
{
	return r == -EAGAIN || r == -EINTR || is_short(r);
}

/* Handles a message that can be sent neither now nor later. The poll notices a peer that is gone, and reads its last
 * messages first. Any other peer fails: without the message it would wait for ever. */
static void cannot_send(struct peer *p, int r)
{
	if (r == -EMSGSIZE)
		peer_fail(p, BATCHD__WIRE__ERROR_CODE__INTERNAL, NULL, "the answer does not fit a packet");
	else if (r != -EPIPE && r != -ECONNRESET)
		peer_fail(p, BATCHD__WIRE__ERROR_CODE__INTERNAL, NULL, "cannot send: %s", strerror(-r));
}

void peer_send(struct peer *p, const Batchd__Wire__ServerMessage *m, const int *fds, unsigned n_fds)
{
	assert(is_loop_thread());
	assert(n_fds <= PACKET_FDS);
	if (p->ending || p->half_closed)
		return;
	int r = p->out_first ? -EAGAIN : wire_send(p->fd, &m->base, fds, n_fds, MSG_DONTWAIT);
	if (is_full(r)) {
		struct packed_message *message = packed_message_make(m);
		peer_keep(p, message, fds, n_fds);
		packed_message_unref(message);
	} else if (r) {
		cannot_send(p, r);
	}
}

void peer_send_packed(struct peer *p, struct packed_message *message)
{
	assert(is_loop_thread());
	if (p->ending || p->half_closed)
		return;
	int r = p->out_first ? -EAGAIN : 0;
	if (r == 0 && send(p->fd, message->bytes, message->n_bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		r = -errno;
	if (is_full(r))
		peer_keep(p, message, NULL, 0);
	else if (r)
		cannot_send(p, r);
}

static void on_retry(uv_timer_t *t)
{
	set_events(t->data);
}

/* The socket stays writable meanwhile, so instead of watching it, try again a little later. The timer is the hello
 * timer, whose own use is over. */
static void retry_later(struct peer *p)
{
	peer_watch(p, UV_READABLE);
	uv_timer_start(&p->hello_timer, on_retry, RETRY_MS, 0);
}

/* A Wake matters to a client that sleeps although it has read all queued packets, so it is sent after them. */
static void send_wake(struct peer *p)
{
	Batchd__Wire__Wake w = BATCHD__WIRE__WAKE__INIT;
	int r;
	do
		r = wire_send(p->fd, &WIRE_SERVER(WAKE, wake, &w)->base, NULL, 0, MSG_DONTWAIT);
	while (r == -EINTR);
	p->wake_pending = is_full(r);
	if (is_short(r)) {
		retry_later(p);
		return;
	}
	if (r && !p->wake_pending)
		cannot_send(p, r);
	set_events(p);
}

void peer_wake(struct peer *p)
{
	assert(is_loop_thread());
	if (p->ending || p->half_closed)
		return;
	p->wake_pending = true;
	if (!p->out_first)
		send_wake(p);
}

static int send_packet(struct peer *p, const struct packet *k)
{
	struct iovec iov = { k->message->bytes, k->message->n_bytes };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * PACKET_FDS)];
	} control = { 0 };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	if (k->n_fds) {
		h.msg_control = control.bytes;
		h.msg_controllen = CMSG_SPACE(sizeof(int) * k->n_fds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * k->n_fds);
		memcpy(CMSG_DATA(c), k->fds, sizeof(int) * k->n_fds);
	}
	return sendmsg(p->fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void peer_flush(struct peer *p)
{
	while (p->out_first) {
		struct packet *k = p->out_first;
		int r = send_packet(p, k);
		if (is_short(r))
			retry_later(p);
		if (is_full(r))
			return;
		if (r)
			cannot_send(p, r);
		if (p->ending)
			return;
		p->out_first = k->next;
		p->n_out--;
		charge_shrink(&p->unread, k->message->n_bytes);
		free_packet(p, k);
	}
	set_events(p);
	if (p->wake_pending && !p->ending)
		send_wake(p);
}

/* ---- receiving ---- */

static void peer_hello(struct peer *p, const Batchd__Wire__Hello *h)
{
	if (h->version < WIRE_LEAST_VERSION) {
		peer_fail(p, BATCHD__WIRE__ERROR_CODE__VERSION, "version",
			  "the client speaks protocol %u, this daemon, batchd %s, %d to %d", h->version,
			  p->server->version, WIRE_LEAST_VERSION, WIRE_VERSION);
		return;
	}
	p->greeted = true;
	snprintf(p->program, sizeof(p->program), "%s", h->program);
	uv_timer_stop(&p->hello_timer);
	server_greeted(p->server);
	Batchd__Wire__Welcome w = BATCHD__WIRE__WELCOME__INIT;
	w.version = h->version < WIRE_VERSION ? h->version : WIRE_VERSION;
	w.daemon = (char *)p->server->version;
	w.session = p->number;
	peer_send(p, WIRE_SERVER(WELCOME, welcome, &w), NULL, 0);
}

static void peer_dispatch(struct peer *p, const void *bytes, size_t n_bytes, int *fds, unsigned n_fds)
{
	const Batchd__Wire__ClientMessage *msg;
	const char *why = "";
	if (wire_unpack_client(&p->server->arena, bytes, n_bytes, &msg, &why)) {
		peer_fail(p, BATCHD__WIRE__ERROR_CODE__PROTOCOL, NULL, "illegal message: %s", why);
	} else if (!wire_client_fds_ok(msg, n_fds)) {
		peer_fail(p, BATCHD__WIRE__ERROR_CODE__PROTOCOL, NULL, "%s came with %u file descriptors",
			  wire_client_name(msg), n_fds);
	} else if (p->greeted == (msg->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_HELLO)) {
		peer_fail(p, BATCHD__WIRE__ERROR_CODE__PROTOCOL, NULL, "%s is out of place", wire_client_name(msg));
	} else if (!p->greeted) {
		peer_hello(p, msg->hello);
	} else {
		p->server->ops->message(p, msg, fds, n_fds);
	}
}

/* Handles a message, or the reason why there is none. False: nothing more to read now. */
static bool take_in(struct peer *p, int r, size_t n_bytes, int *fds, unsigned n_fds)
{
	if (r == -EAGAIN)
		return false;
	if (r == -EINTR)
		return true;
	if (r == -ECONNRESET || r == -EPIPE) {
		peer_close(p);
		return false;
	}
	if (r) {
		peer_fail(p, BATCHD__WIRE__ERROR_CODE__PROTOCOL, NULL, "cannot receive: %s", strerror(-r));
		return false;
	}
	peer_dispatch(p, p->server->buffer, n_bytes, fds, n_fds);
	return !p->ending;
}

static bool receive_one(struct peer *p)
{
	struct server *s = p->server;
	if (p->ending)
		return false;
	int fds[WIRE_MAX_FDS];
	unsigned n_fds = 0;
	size_t n = sizeof(s->buffer);
	uid_t uid = p->uid;
	int r = wire_recv_all(p->fd, s->buffer, &n, fds, &n_fds, MSG_DONTWAIT);
	bool more = take_in(p, r, n, fds, n_fds);
	if (n_fds > 0)
		closing_add(uid, fds, n_fds);
	return more;
}

/* Handles the peer's last messages. No further event will report pending data, so this reads until none is left.
 * Reading is shut down first: another process that has the socket, such as a forked child, could otherwise add messages
 * for ever. */
static void receive_rest(struct peer *p)
{
	int n_bytes;
	p->eof = true;
	shutdown(p->fd, SHUT_RD);
	do {
		n_bytes = 0;
		while (receive_one(p))
			;
	} while (!p->ending && ioctl(p->fd, FIONREAD, &n_bytes) == 0 && n_bytes > 0);
	peer_close(p);
}

/* How many packets to read now. None if the user has been heard for long enough in this turn; but one packet of a
 * trainer is read in any case, because others of its group may be waiting for it. */
static unsigned packets_now(struct peer *p)
{
	struct server *s = p->server;
	s->turn += p->turn == s->turn; /* this peer is heard again; uv_run itself may poll dozens of times in one
	                                * iteration */
	p->turn = s->turn;
	return fair_turn_take(&p->connection.account->fair_turn, s->turn, &p->round) ? PACKETS_PER_TURN : p->is_trainer;
}

/* After a Hello that was just answered there is rarely another packet yet, so reading stops. */
static void peer_receive(struct peer *p)
{
	bool more = true, new = !p->greeted;
	uint64_t began = uv_hrtime(), spent = 0;
	for (unsigned n = packets_now(p); n > 0 && more; n--) {
		more = receive_one(p) && !(new && p->greeted);
		spent = uv_hrtime() - began;
		more = more && spent < PEER_NS;
	}
	if (p->connection.account)
		fair_turn_spend(&p->connection.account->fair_turn, spent);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct peer *p = poll->data;
	/* A client that closed before it had read everything leaves an error on the socket, perhaps with a Close before
	 * it. */
	if (status < 0) {
		receive_rest(p);
		return;
	}
	if (events & UV_WRITABLE)
		peer_flush(p);
	if (p->ending || !(events & (UV_READABLE | UV_DISCONNECT)))
		return;
	peer_receive(p);
}

/* The socket may live on in a forked child, which must not use it: the process that connected is what counts. Its last
 * messages still count. */
static void peer_on_process_exit(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	receive_rest(poll->data);
}

static void peer_watch(struct peer *p, int events)
{
	if (p->events == events)
		return;
	p->events = events;
	uv_poll_start(&p->poll, events, on_poll);
}

static void set_events(struct peer *p)
{
	if (!p->ending)
		peer_watch(p, UV_READABLE | (p->out_first || p->wake_pending ? UV_WRITABLE : 0));
}

/* Timers run before sockets are polled: if the loop was blocked, the Hello may already be there. */
static void on_hello_timeout(uv_timer_t *t)
{
	struct peer *p = t->data;
	while (!p->greeted && receive_one(p))
		;
	if (!p->greeted)
		peer_fail(p, BATCHD__WIRE__ERROR_CODE__PROTOCOL, NULL, "no hello in time");
}

/* ---- credentials ---- */

static int read_credentials(struct peer *p)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);
	if (getsockopt(p->fd, SOL_SOCKET, SO_PEERCRED, &cred, &n))
		return -errno;
	p->pid = cred.pid;
	p->uid = cred.uid;
	p->gids[0] = cred.gid;
	p->n_gids = 1;
	return 0;
}

/* SO_PEERCRED has only the main group. The kernel returns the supplementary groups completely or not at all. An unknown
 * group may be the one that a file's mode denies; without it the mode bits for others would allow too much. */
static void read_groups(struct peer *p)
{
	socklen_t n = sizeof(p->gids) - sizeof(p->gids[0]);
	p->lacks_groups = getsockopt(p->fd, SOL_SOCKET, SO_PEERGROUPS, p->gids + 1, &n) != 0;
	if (!p->lacks_groups)
		p->n_gids += n / sizeof(gid_t);
}

/* Without a pidfd, a hang-up would have to be taken for the end of the process. A process that has already ended (or
 * that another namespace hides) has none. */
static int open_pidfd(struct peer *p)
{
	int fd = -1;
	socklen_t n = sizeof(fd);
	if (p->server->asks_for_pidfd ? getsockopt(p->fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &n)
				      : (fd = (int)syscall(SYS_pidfd_open, p->pid, 0)) < 0)
		return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? -errno : 0;
	if (!server_spares_fd(fd)) {
		close(fd);
		return -EMFILE;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	p->pidfd = fd;
	return 0;
}

bool peer_has_pidfd(int socket)
{
	int pidfd;
	socklen_t n = sizeof(pidfd);
	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &n))
		return errno != ENOPROTOOPT;
	close(pidfd);
	return true;
}

int peer_identify(struct peer *p)
{
	if (p->identified)
		return 0;
	int r = p->pidfd < 0 ? open_pidfd(p) : 0;
	if (r == 0 && p->pidfd >= 0)
		r = uv_poll_init(p->server->loop, &p->exit_poll, p->pidfd);
	if (r) {
		if (p->pidfd >= 0)
			close(p->pidfd);
		p->pidfd = -1;
		return r;
	}
	p->identified = true;
	read_groups(p);
	if (p->pidfd < 0)
		return 0;
	p->exit_poll.data = p;
	p->watches_exit = true;
	p->n_handles++;
	uv_poll_start(&p->exit_poll, UV_READABLE, peer_on_process_exit);
	return 0;
}

/* The number of the process in our /proc. The number of a process that has ended may already belong to another process,
 * but then its descriptor says so. 0: none. */
static pid_t number_in_proc(int pidfd)
{
	char path[64], text[1024];
	int pid = 0;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? io_full_read(fd, text, sizeof(text) - 1, 0) : -1;
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	const char *line = strstr(text, "\nPid:");
	return line && sscanf(line, "\nPid: %d", &pid) == 1 && pid > 0 ? pid : 0;
}

bool peer_shares_mounts(const struct peer *p)
{
	struct stat own, its;
	char path[64];
	pid_t pid = p->pidfd >= 0 ? number_in_proc(p->pidfd) : 0;
	if (!pid)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	return stat("/proc/self/ns/mnt", &own) == 0 && stat(path, &its) == 0 && own.st_dev == its.st_dev &&
	       own.st_ino == its.st_ino && number_in_proc(p->pidfd) == pid;
}

/* ---- beginning ---- */

static void peer_discard(struct peer *p)
{
	charge_release(&p->unread);
	charge_release(&p->fds);
	charge_release(&p->connection);
	if (p->pidfd >= 0)
		close(p->pidfd);
	close(p->fd);
	free(p);
}

/* The peer is just being created. */
static void peer_refuse(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static void peer_refuse(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say_why(p, code, field, fmt, ap);
	va_end(ap);
	peer_discard(p);
}

int peer_create(struct server *server, int fd)
{
	assert(is_loop_thread());
	assert(fd >= 0);
	struct peer *p = calloc(1, sizeof(*p));
	if (!p) {
		close(fd);
		return -ENOMEM;
	}
	p->server = server;
	p->fd = fd;
	p->pidfd = -1;
	p->connected_ns = uv_hrtime();
	int r = read_credentials(p);
	struct server_refusal why;
	if (r == 0 && !server_admits(server, p, &why)) {
		peer_refuse(p, why.code, why.field, "%s", why.text);
		return 0;
	}
	/* Later the pid may belong to another process. */
	if (r == 0 && !server->asks_for_pidfd)
		r = open_pidfd(p);
	if (r == 0)
		r = uv_poll_init(server->loop, &p->poll, fd);
	if (r) {
		peer_discard(p);
		return r;
	}
	uv_timer_init(server->loop, &p->hello_timer);
	p->poll.data = p->hello_timer.data = p;
	p->n_handles = 2;
	server_add(server, p);
	uv_update_time(server->loop); /* the loop's clock may still show the time at which this turn began, long ago */
	uv_timer_start(&p->hello_timer, on_hello_timeout, server->limits.hello_timeout_ns / 1000000, 0);
	set_events(p);
	return 0;
}
