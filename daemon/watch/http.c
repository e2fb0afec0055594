/* See http.h. libmicrohttpd parses requests; the deadline of a connection is ours, because the library's time-out begins
 * again with each byte: a connection that is too old is shut down, and the library then finds its end. So is one of the
 * user with the most when there are too many; until the library has found that, it takes more than MOST_CONNECTIONS. */
#include "watch/http.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "watch/http-library.h"
#include "base/thread-kind.h"

enum {
	MOST_CONNECTIONS = 16,
	CONNECTION_BYTES = 16 << 10,        /* request line and headers; a longer request is answered with 431 or 414 */
	MOST_PLACES = 2 * MOST_CONNECTIONS, /* those that are being ended among them */
	HEADERS_S = 2,
	DEADLINE_S = 10,
	LOOK_MS = 500, /* while there are connections */
};

struct http_connection {
	int fd; /* -1: the place is free */
	uid_t uid;
	uint64_t number; /* the older, the less */
	time_t began_s;
	bool asks;  /* its headers are here */
	bool ended; /* shut down; the library does not know yet */
};

struct http {
	struct http_params params;
	struct http_library mhd;
	struct MHD_Daemon *daemon;
	pthread_t thread;
	atomic_bool stopping;
	struct http_connection connections[MOST_PLACES]; /* the thread's */
	unsigned n_connections;
	uint64_t n_begun;
};

static time_t now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return t.tv_sec;
}

/* ---- requests ---- */

static bool begins(const char *text, const char *with)
{
	return text && !strncasecmp(text, with, strlen(with));
}

static bool host_is_known(const struct http *h, struct MHD_Connection *c)
{
	const char *host = h->mhd.value(c, MHD_HEADER_KIND, "Host");
	size_t n = host ? strcspn(host, ":") : 0;

	if (h->params.anyone || !host || begins(host, "[::1]"))
		return true;
	return (n == 9 && begins(host, "localhost")) || (begins(host, "127.") && strspn(host, "0123456789.") == n);
}

static uid_t peer_uid(const struct http *h, struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *info = h->mhd.info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct sockaddr_storage at = { .ss_family = AF_UNSPEC };
	socklen_t n = sizeof at;
	struct ucred who;
	socklen_t n_who = sizeof who;

	if (!info || getsockname(info->connect_fd, (struct sockaddr *)&at, &n) < 0 || at.ss_family != AF_UNIX ||
	    getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &who, &n_who) < 0)
		return (uid_t)-1;
	return who.uid;
}

static enum MHD_Result give(const struct http *h, struct MHD_Connection *c, const struct http_answer *a)
{
	struct MHD_Response *r = h->mhd.respond(a->n_bytes, a->body ? a->body : (void *)(uintptr_t)"",
						a->body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
	enum MHD_Result done = MHD_NO;

	if (!r) {
		free(a->body);
		return MHD_NO;
	}
	h->mhd.add_header(r, "Content-Type", a->type ? a->type : "text/plain; charset=utf-8");
	h->mhd.add_header(r, "Connection", "close");
	h->mhd.add_header(r, "Cache-Control", "no-store");
	h->mhd.add_header(r, "X-Content-Type-Options", "nosniff");
	h->mhd.add_header(r, "X-Frame-Options", "DENY");
	h->mhd.add_header(
		r, "Content-Security-Policy",
		"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
		"img-src data:");
	done = h->mhd.queue(c, a->status, r);
	h->mhd.forget(r);
	return done;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url, const char *method,
				  const char *version, const char *upload, size_t *n_upload, void **request)
{
	struct http *h = arg;
	struct http_answer a = { .status = MHD_HTTP_OK };
	static char seen;

	(void)version;
	(void)upload;
	if (!*request) { /* the headers are here; the answer may come with the next call */
		const union MHD_ConnectionInfo *place = h->mhd.info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

		if (place && place->socket_context)
			((struct http_connection *)place->socket_context)->asks = true;
		*request = &seen;
		return MHD_YES;
	}
	if (*n_upload)
		return MHD_NO; /* a body: the connection ends */
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		a.status = MHD_HTTP_METHOD_NOT_ALLOWED;
	else if (!host_is_known(h, c))
		a.status = MHD_HTTP_FORBIDDEN;
	else
		h->params.answer(h->params.arg, url, peer_uid(h, c), &a);
	return give(h, c, &a);
}

/* ---- connections ---- */

static void end_connection(struct http_connection *k)
{
	k->ended = true;
	shutdown(k->fd, SHUT_RDWR);
}

static bool is_open(const struct http_connection *k)
{
	return k->fd >= 0 && !k->ended;
}

static unsigned count_open(const struct http *h, const uid_t *of)
{
	unsigned n = 0;

	for (unsigned i = 0; i < MOST_PLACES; i++)
		n += is_open(&h->connections[i]) && (!of || h->connections[i].uid == *of);
	return n;
}

/* Of the user that has the most, the oldest that has not asked yet, else the oldest. Over TCP all are one user's. */
static void end_one(struct http *h)
{
	struct http_connection *found = NULL;
	unsigned n_most = 0;

	for (unsigned i = 0; i < MOST_PLACES; i++) {
		struct http_connection *k = &h->connections[i];
		unsigned n = is_open(k) ? count_open(h, &k->uid) : 0;

		if (!n || n < n_most)
			continue;
		if (n > n_most || k->asks < found->asks || (k->asks == found->asks && k->number < found->number))
			found = k;
		n_most = n;
	}
	if (found)
		end_connection(found);
}

static void on_connection(void *arg, struct MHD_Connection *c, void **place, enum MHD_ConnectionNotificationCode what)
{
	struct http *h = arg;
	struct http_connection *mine = *place;

	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (mine) {
			mine->fd = -1;
			h->n_connections--;
		}
		return;
	}
	const union MHD_ConnectionInfo *info = h->mhd.info(c, MHD_CONNECTION_INFO_CONNECTION_FD);

	for (unsigned i = 0; info && i < MOST_PLACES; i++) {
		if (h->connections[i].fd >= 0)
			continue;
		h->connections[i] = (struct http_connection){
			.fd = info->connect_fd, .uid = peer_uid(h, c), .number = h->n_begun++, .began_s = now_s()
		};
		h->n_connections++;
		*place = &h->connections[i];
		break;
	}
	if (count_open(h, NULL) > MOST_CONNECTIONS)
		end_one(h);
}

static void end_old(struct http *h)
{
	time_t now = now_s();

	for (unsigned i = 0; i < MOST_PLACES; i++) {
		struct http_connection *k = &h->connections[i];

		if (is_open(k) && now - k->began_s >= (k->asks ? DEADLINE_S : HEADERS_S))
			end_connection(k);
	}
}

static void *http_run(void *arg)
{
	struct http *h = arg;
	sigset_t all;

	thread_kind = THREAD_OTHER;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	pthread_setname_np(pthread_self(), "metrics");
	while (!atomic_load(&h->stopping)) {
		h->mhd.run_wait(h->daemon, h->n_connections ? LOOK_MS : -1);
		end_old(h);
	}
	return NULL;
}

struct http *http_start(const struct http_params *params, const char **why)
{
	struct http *h = calloc(1, sizeof *h);

	*why = "out of memory";
	if (!h) {
		close(params->fd);
		return NULL;
	}
	h->params = *params;
	for (unsigned i = 0; i < MOST_PLACES; i++)
		h->connections[i].fd = -1;
	*why = "libmicrohttpd.so.12 cannot be loaded; Debian has it as libmicrohttpd12";
	if (http_library_load(&h->mhd)) {
		*why = "libmicrohttpd does not start";
		h->daemon =
			h->mhd.start(MHD_USE_EPOLL, 0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET, params->fd,
				     MHD_OPTION_CONNECTION_LIMIT, (unsigned)MOST_PLACES, MHD_OPTION_CONNECTION_TIMEOUT,
				     (unsigned)DEADLINE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
				     MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_END);
	}
	if (h->daemon && pthread_create(&h->thread, NULL, http_run, h) == 0)
		return h;
	if (h->daemon)
		h->mhd.stop(h->daemon);
	else
		close(params->fd);
	free(h);
	return NULL;
}

void http_stop(struct http *h)
{
	atomic_store(&h->stopping, true);
	shutdown(h->params.fd, SHUT_RDWR); /* wakes the thread */
	pthread_join(h->thread, NULL);
	h->mhd.stop(h->daemon); /* and closes the socket */
	free(h);
}
