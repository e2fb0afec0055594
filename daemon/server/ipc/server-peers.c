/* Limits are checked at accept, before anything is read: a peer that exceeds one gets an Error and is closed. */
#include "server/ipc/server-peers.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/closing.h"
#include "base/log.h"
#include "base/thread-kind.h"

enum {
	FDS_PER_PEER = 2, /* socket, pidfd */
	MAX_CLOSING =
		4 * WIRE_MAX_FDS, /* files of one user that are being closed, before its connections are refused */
	PART_FOR_REST = 4,  /* the fraction of the descriptors that sockets leave free for pidfds, files and slabs */
	PART_FOR_FILES = 8, /* the fraction of the descriptors that pidfds leave free for files and slabs */
	LOG_RATELIMIT_MS = 60000,
};

/* ---- repeats ---- */

void server_say_repeats(const struct repeat *kind, uint64_t n_more)
{
	char uid[32], n[32];
	snprintf(n, sizeof(n), "%" PRIu64, n_more);
	snprintf(uid, sizeof(uid), "%u", kind ? (unsigned)kind->uid : 0);
	const char *counted[] = { "COUNT", n, "UID", uid, "CODE", kind ? kind->name : NULL, NULL },
		   *others[] = { "COUNT", n, NULL };
	if (kind && kind->uid == SERVER_NO_USER)
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
	if (!log_ratelimit_tick(&s->ratelimit, server_say_repeats))
		uv_timer_stop(t);
}

bool server_tells(struct server *s, uid_t uid, const char *name, const char *detail, unsigned at_once)
{
	assert(is_loop_thread());
	bool tell = log_ratelimit_note(&s->ratelimit, uid, name, detail, at_once);
	if (!s->closing && !uv_is_active((uv_handle_t *)&s->ratelimit_timer))
		uv_timer_start(&s->ratelimit_timer, on_repeats_timer, LOG_RATELIMIT_MS, LOG_RATELIMIT_MS);
	return tell;
}

/* ---- limits ---- */

static rlim_t most_fds(unsigned part)
{
	struct rlimit limit;
	return getrlimit(RLIMIT_NOFILE, &limit) ? RLIM_INFINITY : limit.rlim_cur - limit.rlim_cur / part;
}

rlim_t server_most_sockets(void)
{
	return most_fds(PART_FOR_REST);
}

bool server_spares_fd(int fd)
{
	return (rlim_t)fd < most_fds(PART_FOR_FILES);
}

static unsigned pending_of(const struct server *s, uid_t uid)
{
	unsigned n = 0;
	for (const struct peer *p = s->peers; p; p = p->next)
		n += p->uid == uid && !p->greeted && !p->ending;
	return n;
}

static bool server_peers_refuse(struct server_refusal *why, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static bool server_peers_refuse(struct server_refusal *why, const char *field, const char *fmt, ...)
{
	va_list ap;
	why->code = field ? BATCHD__WIRE__ERROR_CODE__LIMIT : BATCHD__WIRE__ERROR_CODE__INTERNAL;
	why->field = field;
	va_start(ap, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, ap);
	va_end(ap);
	return false;
}

static bool refuse_charge(const struct accounts *a, int over, enum account_kind kind, struct server_refusal *why)
{
	if (over < 0)
		return server_peers_refuse(why, NULL, "out of memory");
	if (kind == ACCOUNT_FDS)
		return server_peers_refuse(
			why, "fds_per_user",
			"this user's trainers take up %llu of the daemon's descriptors, the limit (limits.fds_per_user in its configuration)",
			(unsigned long long)a->limit_per_user[ACCOUNT_FDS]);
	if (over == ACCOUNT_E_ALL)
		return server_peers_refuse(
			why, "sessions",
			"the daemon has %llu sessions, its limit (limits.sessions in its configuration)",
			(unsigned long long)a->limit[ACCOUNT_SESSIONS]);
	return server_peers_refuse(
		why, "sessions_per_user",
		"this user has %llu sessions, the limit (limits.sessions_per_user in the daemon's configuration)",
		(unsigned long long)a->limit_per_user[ACCOUNT_SESSIONS]);
}

bool server_admits(struct server *s, struct peer *p, struct server_refusal *why)
{
	assert(is_loop_thread());
	enum account_kind kind = ACCOUNT_SESSIONS;
	p->number = ++s->n_accepted;
	int r = charge_begin(&p->connection, s->accounts, p->uid, kind, 1);
	if (r == 0)
		r = charge_begin(&p->fds, s->accounts, p->uid, kind = ACCOUNT_FDS, FDS_PER_PEER);
	if (r == 0)
		r = charge_begin(&p->unread, s->accounts, p->uid, kind = ACCOUNT_UNREAD_BYTES, 0);
	if (r)
		return refuse_charge(s->accounts, r, kind, why);
	/* Each connection may have one message's descriptors closed. A file server that never answers would keep them
	 * all pending, so there is a limit. */
	if (closing_pending(p->uid) >= MAX_CLOSING)
		return server_peers_refuse(
			why, "fds_per_user",
			"%d files that this user's clients sent are still being closed: their file system does not answer",
			MAX_CLOSING);
	/* a user with silent connections does not shut out other users */
	if (s->n_pending >= s->limits.pending && pending_of(s, p->uid) >= s->limits.pending / 4)
		return server_peers_refuse(why, "pending", "too many connections that have not said hello yet");
	return true;
}

/* ---- the list ---- */

void server_add(struct server *s, struct peer *p)
{
	assert(is_loop_thread());
	p->next = s->peers;
	if (s->peers)
		s->peers->prev = p;
	s->peers = p;
	s->n_peers++;
	s->n_pending++;
}

void server_remove(struct server *s, struct peer *p)
{
	assert(is_loop_thread());
	assert(s->n_peers > 0);
	if (p->prev)
		p->prev->next = p->next;
	else
		s->peers = p->next;
	if (p->next)
		p->next->prev = p->prev;
	s->n_peers--;
}

void server_note_ending(struct server *s, const struct peer *p)
{
	assert(is_loop_thread());
	if (!p->greeted)
		s->n_pending--;
}

void server_greeted(struct server *s)
{
	assert(is_loop_thread());
	s->n_pending--;
}
