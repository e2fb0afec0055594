/* See server.h. Limits are checked at accept, before anything is read: a peer that exceeds one gets an Error and is
 * closed. When the process comes near its limit of file descriptors the listener pauses for half a second: new
 * connections wait in the backlog, existing ones are served, and a quarter of the descriptors stays available for their
 * pidfds, files and slabs. */
#include "ipc/server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/closing.h"
#include "util/log.h"

enum {
	ACCEPTS_PER_TURN = 16,
	PAUSE_MS = 500,
	FDS_PER_PEER = 2,   /* socket, pidfd */
	MAX_CLOSING = 64,   /* files of one user that are being closed, before its connections are refused */
	PART_FOR_REST = 4,  /* the fraction of the descriptors that sockets leave free for pidfds, files and slabs */
	PART_FOR_FILES = 8, /* the fraction of the descriptors that pidfds leave free for files and slabs */
	REPEATS_MS = 60000,
};

#define NO_USER ((uid_t) - 1) /* an event that is not caused by a single user */

static void listen_again(struct server *s);

/* ---- repeats ---- */

static void say_repeats(const struct repeat *kind, uint64_t n_more)
{
	char uid[32], n[32];
	snprintf(n, sizeof(n), "%" PRIu64, n_more);
	snprintf(uid, sizeof(uid), "%u", kind ? (unsigned)kind->uid : 0);
	const char *counted[] = { "COUNT", n, "UID", uid, "CODE", kind ? kind->name : NULL, NULL },
		   *others[] = { "COUNT", n, NULL };
	if (kind && kind->uid == NO_USER)
		log_record_fields(LOG_LEVEL_WARNING, "repeated", others, "%s: %s more times in the last minute",
				  kind->name, n);
	else if (kind)
		log_record_fields(LOG_LEVEL_WARNING, "repeated", counted,
				  "refused user %s %s more times in the last minute: %s%s%s", uid, n, kind->name,
				  kind->detail[0] ? ", " : "", kind->detail);
	else
		log_record_fields(LOG_LEVEL_WARNING, "repeated", others,
				  "%s more refusals of many kinds in the last minute", n);
}

static void on_repeats_timer(uv_timer_t *t)
{
	struct server *s = t->data;
	if (!repeats_tick(&s->repeats, say_repeats))
		uv_timer_stop(t);
}

bool server_tells(struct server *s, uid_t uid, const char *name, const char *detail, unsigned at_once)
{
	bool tell = repeats_note(&s->repeats, uid, name, detail, at_once);
	if (!s->closing && !uv_is_active((uv_handle_t *)&s->repeats_timer))
		uv_timer_start(&s->repeats_timer, on_repeats_timer, REPEATS_MS, REPEATS_MS);
	return tell;
}

/* ---- accepting ---- */

static void on_pause_over(uv_timer_t *t)
{
	listen_again(t->data);
}

static void pause_listening(struct server *s, const char *why)
{
	uv_poll_stop(&s->poll);
	uv_timer_start(&s->pause, on_pause_over, PAUSE_MS, 0);
	if (!s->short_of_fds && server_tells(s, NO_USER, "listener-paused", NULL, 1)) /* once for a whole flood */
		log_record(LOG_LEVEL_WARNING, "listener-paused", "new connections wait: %s", why);
	s->short_of_fds = true;
}

/* The kernel returns the lowest free number, so the number tells how many are in use. */
static rlim_t next_fd(const struct server *s)
{
	int next = fcntl(s->listen_fd, F_DUPFD_CLOEXEC, 0);
	if (next < 0)
		return RLIM_INFINITY;
	close(next);
	return (rlim_t)next;
}

static rlim_t most_fds(unsigned part)
{
	struct rlimit limit;
	return getrlimit(RLIMIT_NOFILE, &limit) ? RLIM_INFINITY : limit.rlim_cur - limit.rlim_cur / part;
}

bool server_spares_fd(int fd)
{
	return (rlim_t)fd < most_fds(PART_FOR_FILES);
}

static unsigned pending_of(const struct server *s, uid_t uid)
{
	unsigned n = 0;
	for (const struct peer *p = s->peers; p; p = p->next)
		n += p->uid == uid && !p->greeted;
	return n;
}

static void refuse(struct peer *p, int why, enum account_kind kind)
{
	const struct accounts *a = p->server->accounts;
	if (why < 0)
		peer_refuse(p, BATCHD__WIRE__ERROR_CODE__INTERNAL, NULL, "out of memory");
	else if (kind == ACCOUNT_FDS)
		peer_refuse(
			p, BATCHD__WIRE__ERROR_CODE__LIMIT, "fds_per_user",
			"this user's trainers take up %llu of the daemon's descriptors, the limit (limits.fds_per_user in its configuration)",
			(unsigned long long)a->limit_per_user[ACCOUNT_FDS]);
	else if (why == ACCOUNT_E_ALL)
		peer_refuse(p, BATCHD__WIRE__ERROR_CODE__LIMIT, "sessions",
			    "the daemon has %llu sessions, its limit (limits.sessions in its configuration)",
			    (unsigned long long)a->limit[ACCOUNT_SESSIONS]);
	else
		peer_refuse(
			p, BATCHD__WIRE__ERROR_CODE__LIMIT, "sessions_per_user",
			"this user has %llu sessions, the limit (limits.sessions_per_user in the daemon's configuration)",
			(unsigned long long)a->limit_per_user[ACCOUNT_SESSIONS]);
}

bool server_admits(struct server *s, struct peer *p)
{
	enum account_kind kind = ACCOUNT_SESSIONS;
	p->number = ++s->n_accepted;
	int r = charge_begin(&p->connection, s->accounts, p->uid, kind, 1);
	if (r == 0)
		r = charge_begin(&p->fds, s->accounts, p->uid, kind = ACCOUNT_FDS, FDS_PER_PEER);
	if (r == 0)
		r = charge_begin(&p->unread, s->accounts, p->uid, kind = ACCOUNT_UNREAD_BYTES, 0);
	if (r) {
		refuse(p, r, kind);
		return false;
	}
	/* Each connection may have one message's descriptors closed. A file server that never answers would keep them
	 * all pending, so there is a limit. */
	if (closing_pending(p->uid) >= MAX_CLOSING) {
		peer_refuse(p, BATCHD__WIRE__ERROR_CODE__LIMIT, "fds_per_user",
			    "%d files that this user's clients sent are still being closed: their file system does not "
			    "answer",
			    MAX_CLOSING);
		return false;
	}
	/* a user with silent connections does not shut out other users */
	if (s->n_pending >= s->limits.pending && pending_of(s, p->uid) >= s->limits.pending / 4) {
		peer_refuse(p, BATCHD__WIRE__ERROR_CODE__LIMIT, "pending",
			    "too many connections that have not said hello yet");
		return false;
	}
	return true;
}

/* Negative errno when the backlog is empty, or when a resource is short. */
static int accept_one(struct server *s, int *fd)
{
	*fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (*fd >= 0) {
		int r = peer_create(s, *fd);
		if (r && server_tells(s, NO_USER, "accept-failed", uv_err_name(r), 1))
			log_record(LOG_LEVEL_ERROR, "accept-failed", "cannot take a connection: %s", uv_strerror(r));
		return 0;
	}
	switch (errno) {
	case EAGAIN:
		s->short_of_fds = false;
		break;
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
		pause_listening(s, "the machine is out of file descriptors or memory for sockets");
	}
	return errno == EINTR || errno == ECONNABORTED ? 0 : -errno;
}

static void on_listen(uv_poll_t *poll, int status, int events)
{
	struct server *s = poll->data;
	(void)events;
	rlim_t next = next_fd(s), most = most_fds(PART_FOR_REST);
	for (int i = 0; status == 0 && i < ACCEPTS_PER_TURN && !s->closing; i++) {
		int fd = -1;
		if (next >= most) {
			pause_listening(s,
					"most file descriptors are in use (LimitNOFILE= or ulimit -n has the limit)");
			return;
		}
		if (accept_one(s, &fd))
			return;
		if (fd >= 0)
			next = (rlim_t)fd + 1;
	}
}

static void listen_again(struct server *s)
{
	if (!s->closing)
		uv_poll_start(&s->poll, UV_READABLE, on_listen);
}

static bool asks_for_pidfd(void)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return false;
	bool has = peer_has_pidfd(pair[0]);
	close(pair[0]);
	close(pair[1]);
	return has;
}

int server_init(struct server *s, uv_loop_t *loop, int listen_fd, const struct server_limits *limits,
		struct accounts *accounts, const struct peer_ops *ops, void *owner, const char *version)
{
	s->loop = loop;
	s->listen_fd = listen_fd;
	s->limits = *limits;
	s->accounts = accounts;
	s->ops = ops;
	s->owner = owner;
	s->version = version;
	s->asks_for_pidfd = asks_for_pidfd();
	wire_arena_init(&s->arena);
	int r = uv_poll_init(loop, &s->poll, listen_fd);
	if (r)
		return r;
	uv_timer_init(loop, &s->pause);
	uv_timer_init(loop, &s->repeats_timer);
	s->poll.data = s->pause.data = s->repeats_timer.data = s;
	s->turn = 1;
	listen_again(s);
	return 0;
}

void server_stop(struct server *s)
{
	if (s->closing)
		return;
	s->closing = true;
	uv_poll_stop(&s->poll);
	uv_close((uv_handle_t *)&s->poll, NULL);
	uv_close((uv_handle_t *)&s->pause, NULL);
	uv_close((uv_handle_t *)&s->repeats_timer, NULL);
	(void)repeats_tick(&s->repeats, say_repeats); /* counts that would have been logged later */
}

void server_add(struct server *s, struct peer *p)
{
	p->next = s->peers;
	if (s->peers)
		s->peers->prev = p;
	s->peers = p;
	s->n_peers++;
	s->n_pending++;
}

void server_remove(struct server *s, struct peer *p)
{
	if (p->prev)
		p->prev->next = p->next;
	else
		s->peers = p->next;
	if (p->next)
		p->next->prev = p->prev;
	s->n_peers--;
	if (!p->greeted)
		s->n_pending--;
}

void server_greeted(struct server *s)
{
	s->n_pending--;
}
