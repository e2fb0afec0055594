/* A connection to a daemon: which daemon, how long to try, what its end means.
 *
 * A client that names no socket asks the candidates of address.h in turn. A socket file without a daemon behind it
 * counts as none. So does the system's daemon where this user may not use it, or where it speaks another protocol: the
 * user gets a daemon of its own, and a line about it. Two environments of one user may hold two versions of batchd: the
 * second finds the daemon of the first, and where their protocols differ it gets a daemon beside it
 * (address_own_beside). connect waits while the daemon's backlog is full, bounded by the socket's send time-out, which is five
 * seconds only until then. The receive time-out of one second stays: it costs nothing while batches come, and lets a
 * blocked caller check its state when none come. */
#include "link/connect.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "batchd.h"
#include "link/refusal.h"
#include "link/start.h"

#define ONE_VERSION "install one version of both, and restart the daemon"

enum { CONNECT_SECONDS = 5, HELLO_SECONDS = 15, REFUSED_MS = 10 };

static int connect_dial(const char *address)
{
	struct sockaddr_un sun;
	struct timeval patience = { .tv_sec = CONNECT_SECONDS }, forever = { 0 }, second = { .tv_sec = 1 };
	socklen_t n;
	int fd, r = wire_address(address, &sun, &n);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	do
		r = connect(fd, (struct sockaddr *)&sun, n) < 0 ? -errno : 0;
	while (r == -EINTR);
	if (r < 0) {
		close(fd);
		return r;
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof forever);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
	return fd;
}

/* ---- which daemon ---- */

/* In a directory that another user may write to, any user's process could listen at a private address. */
static int dial_checked(const char *address, bool own)
{
	int r = own ? address_check(address) : 0;

	return r < 0 ? r : connect_dial(address);
}

/* told_by: the argument or variable that named the address. */
static int connect_given(struct connection *c, const char *address, const char *told_by, struct fault *f)
{
	char refusal[512];
	int r;

	if (strlen(address) >= sizeof c->address)
		return fault_set(f, BATCHD_E_INVALID, "the socket's path %s is longer than %zu bytes", address,
				 sizeof c->address - 1);
	strcpy(c->address, address);
	r = connect_dial(address);
	if (r == -ENOENT || r == -ECONNREFUSED)
		return fault_set(
			f, BATCHD_E_CONNECT,
			"no batchd answers at %s (%s): %s; start one with `batchd --socket %s`, or leave %s out to have one found "
			"or started",
			address, told_by, strerror(-r), address, told_by);
	if (r == -EACCES) {
		refusal_describe(address, refusal, sizeof refusal);
		return fault_set(f, BATCHD_E_ACCESS,
				 "%s; or leave %s out to have a daemon of the user's own found or started", refusal,
				 told_by);
	}
	if (r < 0)
		return fault_set(f, BATCHD_E_CONNECT, "no batchd answers at %s (%s): %s", address, told_by,
				 r == -EAGAIN ? "it is too busy" : strerror(-r));
	c->socket = r;
	return 0;
}

/* Tries every candidate. 0; -EACCES: this user may not use the system's daemon; or -ENOENT. */
static int connect_any(struct connection *c, char *tried, size_t tried_size)
{
	int result = -ENOENT;
	size_t n = 0;

	tried[0] = '\0';
	for (unsigned i = 0; address_candidate(i, c->address) == 0; i++) {
		int r = dial_checked(c->address, c->own = strcmp(c->address, ADDRESS_SYSTEM) != 0);

		if (r >= 0) {
			c->socket = r;
			return 0;
		}
		if (r == -EACCES && !c->own)
			result = r;
		n += (size_t)snprintf(tried + n, tried_size - n, "%s%s (%s)", n ? ", " : "", c->address, strerror(-r));
	}
	return result;
}

/* Notes why the user may not use the system's daemon. */
static void note_refusal(struct connection *c, char refusal[512])
{
	refusal_describe(ADDRESS_SYSTEM, refusal, 512);
	snprintf(c->notice, sizeof c->notice, "%s; until then a daemon of the user's own is used", refusal);
}

static int find_daemon(struct connection *c, const char *address, bool autostart, struct fault *f)
{
	const char *variable = secure_getenv(ADDRESS_VARIABLE);
	char tried[3 * ADDRESS_MAX_BYTES + 256], refusal[512] = "";
	int r;

	c->notice[0] = '\0';
	if (address && *address)
		return connect_given(c, address, "the socket option", f);
	if (variable && *variable)
		return connect_given(c, variable, "$" ADDRESS_VARIABLE, f);
	r = connect_any(c, tried, sizeof tried);
	if (r == 0)
		return 0;
	if (r == -EACCES)
		note_refusal(c, refusal);
	if (r == -EACCES && !autostart)
		return fault_set(f, BATCHD_E_ACCESS, "%s; and the user has no daemon of its own: %s", refusal, tried);
	if (!autostart)
		return fault_set(
			f, BATCHD_E_CONNECT,
			"no batchd runs for this user; the first script that opens a loader starts one, and `batchd` does so "
			"by hand. Looked at: %s. Another socket can be named in $%s",
			tried, ADDRESS_VARIABLE);
	c->own = true;
	if (address_own_beside(WIRE_VERSION, c->address) == 0 && (c->socket = dial_checked(c->address, true)) >= 0)
		return 0;
	r = address_own(c->address);
	if (r < 0)
		return fault_set(f, BATCHD_E_CONNECT, "$XDG_RUNTIME_DIR is too long for a socket's path");
	c->socket = start_daemon(c->address, connect_dial, f);
	return c->socket < 0 ? f->code : 0;
}

/* The daemon found speaks another protocol, as f says. Finds or starts one of the user's own: beside the user's daemon,
 * or in the place of the system's. 0, or the code of f. */
static int use_another(struct connection *c, bool autostart, struct fault *f)
{
	struct fault *own = malloc(sizeof *own);
	int r = c->own ? address_own_beside(WIRE_VERSION, c->address) : address_own(c->address);

	if (!own || r < 0) {
		free(own);
		return f->code;
	}
	*own = (struct fault){ .code = 0 };
	c->own = true;
	c->socket = dial_checked(c->address, true);
	if (c->socket < 0 && autostart) {
		snprintf(c->notice, sizeof c->notice, "%.500s; until then a daemon of the user's own is used", f->text);
		c->socket = start_daemon(c->address, connect_dial, own);
	}
	if (own->code) {
		size_t n = strlen(f->text);

		snprintf(f->text + n, sizeof f->text - n, "; and %s", own->text);
	}
	free(own);
	return c->socket < 0 ? f->code : 0;
}

/* A daemon removes its socket when it stops, so a daemon that is not there is either on its way back or was never
 * there; a misspelt directory shows the second. */
bool connection_may_return(const char *address, int code)
{
	const char *given = address && *address ? address : secure_getenv(ADDRESS_VARIABLE);
	char dir[ADDRESS_MAX_BYTES];
	struct stat st;
	char *slash;

	if (code == BATCHD_E_LOST || code == BATCHD_E_SHUTDOWN)
		return true;
	if (code != BATCHD_E_CONNECT || !given || strlen(given) >= sizeof dir)
		return false;
	strcpy(dir, given);
	slash = strrchr(dir, '/');
	if (!slash)
		return given[0] != '\0'; /* in the current directory */
	slash[slash == dir] = '\0';
	return stat(dir, &st) == 0 && S_ISDIR(st.st_mode);
}

/* ---- packets ---- */

enum { MOST_AGAIN = 20 };

int connection_lost(struct connection *c, struct fault *f)
{
	const Batchd__Wire__ServerMessage *m;
	unsigned n_again = 0; /* the last message arrived before the end, so a closed socket has it now */
	int r;

	do
		r = connection_recv(c, MSG_DONTWAIT, &m, NULL, f);
	while (r == 0 || (r == BATCHD_AGAIN && n_again++ < MOST_AGAIN));
	if (r == BATCHD_AGAIN)
		return fault_set(f, BATCHD_E_LOST, "batchd at %s no longer listens", c->address);
	return r;
}

/* Where a daemon that was started on demand at this address writes its log; false: it has no log. */
static bool find_log(const char *address, char log[START_LOG_BYTES])
{
	start_log_path(address, log);
	return *log && access(log, F_OK) == 0;
}

static int connect_gone(const struct connection *c, struct fault *f)
{
	char log[START_LOG_BYTES];

	if (c->said.code) {
		*f = c->said;
		return f->code;
	}
	if (strcmp(c->address, ADDRESS_SYSTEM) == 0 && access("/run/systemd/system", F_OK) == 0)
		return fault_set(f, BATCHD_E_LOST,
				 "batchd at %s went away; `systemctl status batchd` and `journalctl -u batchd` say why",
				 c->address);
	if (find_log(c->address, log))
		return fault_set(
			f, BATCHD_E_LOST,
			"batchd at %s went away; its log %s says why, `batchctl status --socket %s` whether it is back",
			c->address, log, c->address);
	return fault_set(
		f, BATCHD_E_LOST,
		"batchd at %s went away; `batchctl status --socket %s` says whether it is back, its log why it went",
		c->address, c->address);
}

/* The wire's first codes are this library's, negated; for later codes those numbers were taken. */
static int connect_code_of(Batchd__Wire__ErrorCode code)
{
	if (code == BATCHD__WIRE__ERROR_CODE__GPU_LOST)
		return BATCHD_E_GPU;
	if (code == BATCHD__WIRE__ERROR_CODE__PRODUCER)
		return BATCHD_E_PRODUCER;
	return code > 0 && code <= BATCHD__WIRE__ERROR_CODE__INTERNAL ? -(int)code : BATCHD_E_INTERNAL;
}

static int said_error(struct connection *c, const Batchd__Wire__Error *e, struct fault *f)
{
	int code = connect_code_of(e->code);
	const char *text = *e->text ? e->text : wire_code_name(e->code);

	if (code == BATCHD_E_VERSION)
		fault_set(f, code, "%s; this library is batchd " BATCHD_VERSION ": " ONE_VERSION, text);
	else if (*e->field && !strstr(text, e->field))
		fault_set(f, code, "%s: %s", e->field, text);
	else
		fault_set(f, code, "%s", text);
	f->told = true;
	f->dtype = code == BATCHD_E_MISMATCH && strcmp(e->field, "dtype") == 0;
	c->said = *f;
	return code;
}

int connection_recv(struct connection *c, int flags, const Batchd__Wire__ServerMessage **msg, int *fds, struct fault *f)
{
	size_t n_bytes = sizeof c->bytes;
	int got[CONNECTION_FDS];
	unsigned n_fds = fds ? CONNECTION_FDS : 0;
	const char *why;
	int r = wire_recv(c->socket, c->bytes, &n_bytes, got, &n_fds, flags);

	for (unsigned i = 0; fds && i < CONNECTION_FDS; i++)
		fds[i] = -1;
	if (r == -EAGAIN || r == -EINTR)
		return BATCHD_AGAIN;
	if (r == -EPROTO || r == -EMSGSIZE)
		return fault_set(f, BATCHD_E_PROTOCOL,
				 "batchd at %s sent a packet that is too large or has too many descriptors",
				 c->address);
	if (r < 0)
		return connect_gone(c, f);
	if (wire_unpack_server(&c->arena, c->bytes, n_bytes, msg, &why) < 0 || !wire_server_fds_ok(*msg, n_fds)) {
		wire_close_fds(got, n_fds);
		return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s sent nonsense: %s", c->address,
				 why ? why : "descriptors do not fit the message");
	}
	if ((*msg)->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		return said_error(c, (*msg)->error, f);
	for (unsigned i = 0; i < n_fds; i++)
		fds[i] = got[i];
	return 0;
}

int connection_send(struct connection *c, Batchd__Wire__ClientMessage *m, const int *fds, unsigned n_fds)
{
	struct pollfd room = { .fd = c->socket, .events = POLLOUT };
	unsigned n_refused = 0; /* because other processes of this user have too many descriptors in flight, which
	                         * passes */

	for (;;) {
		int r = wire_send(c->socket, &m->base, fds, n_fds, MSG_DONTWAIT);

		if (r == -ETOOMANYREFS && n_refused++ < CONNECT_SECONDS * 1000 / REFUSED_MS)
			poll(NULL, 0, REFUSED_MS);
		else if (r == -EAGAIN)
			poll(&room, 1, -1);
		else if (r != -EINTR)
			return r;
	}
}

static double connect_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int connect_greet(struct connection *c, const char *program, struct fault *f)
{
	Batchd__Wire__Hello hello = BATCHD__WIRE__HELLO__INIT;
	const Batchd__Wire__ServerMessage *answer;
	char name[WIRE_MAX_PROGRAM + 1];
	double deadline = connect_seconds() + HELLO_SECONDS;
	int r;

	c->said.code = 0;
	snprintf(name, sizeof name, "%s", program ? program : program_invocation_short_name);
	if (!wire_text_ok(name, strlen(name), WIRE_MAX_PROGRAM))
		strcpy(name, "?");
	hello.version = WIRE_VERSION;
	hello.program = name;
	if (connection_send(c, WIRE_CLIENT(HELLO, hello, &hello), NULL, 0) < 0)
		return connection_lost(c, f);
	while ((r = connection_recv(c, 0, &answer, NULL, f)) == BATCHD_AGAIN)
		if (connect_seconds() > deadline)
			return fault_set(f, BATCHD_E_CONNECT, "batchd at %s does not answer", c->address);
	if (r < 0)
		return r;
	if (answer->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME)
		return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s answers a hello with %s", c->address,
				 wire_server_name(answer));
	if (answer->welcome->version != WIRE_VERSION)
		return fault_set(f, BATCHD_E_VERSION,
				 "batchd %s at %s speaks protocol %u, and this library, batchd " BATCHD_VERSION
				 ", protocol %d: " ONE_VERSION,
				 answer->welcome->daemon, c->address, answer->welcome->version, WIRE_VERSION);
	snprintf(c->daemon_version, sizeof c->daemon_version, "%s", answer->welcome->daemon);
	return 0;
}

/* A daemon that was started on demand listens before it has its threads, so one whose start fails breaks off here. One
 * that may open no more files answers no client. The log has the reason, and waiting would not help. */
static int explain(const struct connection *c, int code, struct fault *f)
{
	char log[START_LOG_BYTES], line[512];

	if ((code != BATCHD_E_LOST && code != BATCHD_E_CONNECT) || c->said.code || !find_log(c->address, log))
		return code;
	start_last_line(log, line, sizeof line);
	if (code == BATCHD_E_LOST && strstr(line, "start-failed"))
		return fault_set(f, BATCHD_E_CONNECT, "batchd at %s did not start: %s (its log: %s)", c->address, line,
				 log);
	if (code == BATCHD_E_CONNECT && strstr(line, "listener-paused"))
		return fault_set(f, BATCHD_E_CONNECT, "batchd at %s does not answer: %s (its log: %s)", c->address,
				 line, log);
	return code;
}

int connection_open(struct connection *c, const char *address, bool autostart, const char *program, struct fault *f)
{
	const char *variable = secure_getenv(ADDRESS_VARIABLE);
	bool named = (address && *address) || (variable && *variable);
	int r;

	c->socket = -1;
	wire_arena_init(&c->arena);
	r = find_daemon(c, address, autostart, f);
	if (r == 0)
		r = connect_greet(c, program, f);
	if (r == BATCHD_E_VERSION && !named) {
		connection_close(c);
		r = use_another(c, autostart, f);
		if (r == 0)
			r = connect_greet(c, program, f);
	}
	if (r < 0 && !named)
		r = explain(c, r, f);
	if (r < 0)
		connection_close(c);
	return r;
}

void connection_close(struct connection *c)
{
	if (c->socket >= 0)
		close(c->socket);
	c->socket = -1;
}

struct connection *connection_for_question(const char *address, struct fault *f)
{
	struct connection *c = malloc(sizeof *c);

	if (!c) {
		fault_set(f, BATCHD_E_NOMEM, "out of memory");
		return NULL;
	}
	if (connection_open(c, address, false, NULL, f) == 0)
		return c;
	free(c); /* opening closes what it cannot use */
	return NULL;
}

void connection_answered(struct connection *c)
{
	connection_close(c);
	free(c);
}
