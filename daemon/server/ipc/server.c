/* See server.h. When the process comes near its limit of file descriptors the listener pauses for half a second: new
 * connections wait in the backlog, existing ones are served, and a quarter of the descriptors stays available for their
 * pidfds, files and slabs. */
#include "server/ipc/server.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/ipc/server-peers.h"
#include "base/log.h"
#include "base/thread-kind.h"

enum {
	ACCEPTS_PER_TURN = 16,
	PAUSE_MS = 500,
};

static void listen_again(struct server *s);

/* ---- accepting ---- */

static void on_pause_over(uv_timer_t *t)
{
	listen_again(t->data);
}

static void pause_listening(struct server *s, const char *why)
{
	uv_poll_stop(&s->poll);
	uv_timer_start(&s->pause, on_pause_over, PAUSE_MS, 0);
	if (!s->short_of_fds &&
	    server_tells(s, SERVER_NO_USER, "listener-paused", NULL, 1)) /* once for a whole flood */
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

/* Negative errno when the backlog is empty, or when a resource is short. */
static int accept_one(struct server *s, int *fd)
{
	*fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (*fd >= 0) {
		int r = peer_create(s, *fd);
		if (r && server_tells(s, SERVER_NO_USER, "accept-failed", uv_err_name(r), 1))
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
	rlim_t next = next_fd(s), most = server_most_sockets();
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
	assert(is_loop_thread());
	assert(listen_fd >= 0);
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
	uv_timer_init(loop, &s->ratelimit_timer);
	s->poll.data = s->pause.data = s->ratelimit_timer.data = s;
	s->turn = 1;
	listen_again(s);
	return 0;
}

void server_stop(struct server *s)
{
	assert(is_loop_thread());
	if (s->closing)
		return;
	s->closing = true;
	uv_poll_stop(&s->poll);
	uv_close((uv_handle_t *)&s->poll, NULL);
	uv_close((uv_handle_t *)&s->pause, NULL);
	uv_close((uv_handle_t *)&s->ratelimit_timer, NULL);
	(void)log_ratelimit_tick(&s->ratelimit, server_say_repeats); /* counts that would have been logged later */
}
