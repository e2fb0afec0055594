/* Stalled trainers.
 *
 * A trainer may rightly keep its batches for an hour: it evaluates, it waits for other ranks in a collective, a
 * debugger has stopped it. So inactivity alone proves nothing. A trainer is reported when it has batches and has taken
 * or given back none for `stall_after`, and one of these holds:
 *
 *   - the kernel says that it is stopped, or stuck in a system call that cannot be interrupted
 *   - it uses no processor, and another rank of its job is ahead of it
 *   - (share) another trainer of its group waits because of the batches it has
 *   - (share) it uses no processor, and another trainer of its group waits for the epoch that comes after its batches
 *
 * The report appears in the log, once per stall, in a notice to the other trainers of the job, and in the status. The
 * stalled trainer keeps everything, but a trainer that waits for the group's next epoch no longer waits for it. The
 * other trainers see the notice at their next call, also while their batches are ready (ring.h: noticed), and the status
 * at any time, long before a collective times out. */
#include "server/stall.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "server/job.h"
#include "server/recent-errors.h"
#include "server/session-state.h"
#include "base/log.h"
#include "base/io-full.h"
#include "base/thread-kind.h"

enum { LOOKS = 8, MIN_LOOK_MS = 20, MAX_LOOK_MS = 15000, IDLE_PERCENT = 1 };

static double stall_seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

/* ---- what the kernel says ---- */

struct process_state {
	char state; /* as in /proc/PID/stat; 0: not readable */
	uint64_t cpu_ns;
};

static struct process_state look_at(pid_t pid)
{
	struct process_state p = { 0 };
	char path[64], text[1024];
	unsigned long long user, system;
	long hz = sysconf(_SC_CLK_TCK);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : io_full_read(fd, text, sizeof(text) - 1, 0);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return p;
	text[n] = '\0';
	const char *at = strrchr(text, ')'); /* its name may contain any character */
	if (!at ||
	    sscanf(at + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu", &p.state, &user, &system) != 3)
		return (struct process_state){ 0 };
	p.cpu_ns = (user + system) * (1000000000u / (uint64_t)hz);
	return p;
}

/* ---- which trainers make progress ---- */

/* Batches taken out of the ring, and batches given back. Any change means that the trainer makes progress. */
static uint64_t stall_progress(const struct session *s)
{
	return s->consumer.n_published - s->consumer.n_unread + s->n_released + s->consumer.seek;
}

static bool has_batches(const struct session *s)
{
	return s->state == SESSION_ATTACHED && consumer_is_placed(&s->consumer) && s->consumer.n_leases > 0 &&
	       !s->consumer.waiting;
}

/* How many batches b is ahead of a; 0 when it is not, or when that is unknown. */
static uint64_t stall_ahead(const struct session *a, const struct session *b)
{
	const struct position *p = &a->consumer.cursor, *q = &b->consumer.cursor;
	if (!consumer_is_placed(&b->consumer) || p->base != q->base || q->epoch < p->epoch)
		return 0;
	if (q->epoch > p->epoch)
		return 1; /* at least */
	uint64_t mine = p->step + b->consumer.n_unread, others = q->step + a->consumer.n_unread;
	return others > mine ? others - mine : 0;
}

/* Another session of the same process makes progress, for example the loader of an evaluation. */
static bool is_busy_elsewhere(const struct session *s, uint64_t now, uint64_t after_ns)
{
	for (const struct session *o = s->engine->sessions; o; o = o->next) {
		if (o != s && o->pid == s->pid && o->state == SESSION_ATTACHED && now - o->stall.active_ns < after_ns)
			return true;
	}
	return false;
}

static bool another_waits(const struct session *s)
{
	for (const struct session *o = s->job->sessions; o; o = o->next_in_job) {
		if (o != s && o->state == SESSION_ATTACHED && o->consumer.waiting)
			return true;
	}
	return false;
}

static const struct session *find_ahead(const struct session *s, uint64_t *by)
{
	const struct session *best = NULL;
	*by = 0;
	for (const struct session *o = s->job->sessions; o; o = o->next_in_job) {
		uint64_t n = o != s && o->state == SESSION_ATTACHED ? stall_ahead(s, o) : 0;
		if (n > *by) {
			*by = n;
			best = o;
		}
	}
	return best;
}

/* Another trainer of its group waits to begin the next epoch until this one gets there. */
static bool is_followed(const struct session *s)
{
	for (const struct session *o = s->job->sessions; o; o = o->next_in_job) {
		if (o->consumer.state == CONSUMER_AWAITING && o->consumer.stream &&
		    o->consumer.stream == s->consumer.stream)
			return true;
	}
	return false;
}

/* The reason why it counts as stalled, in words; false: it does not. */
static bool is_stalled(const struct session *s, uint64_t now, uint64_t after_ns, char *why, size_t size)
{
	struct process_state p = look_at(s->pid);
	uint64_t idle_ns = now - s->stall.active_ns, by, used_ns = p.cpu_ns - s->stall.cpu_ns;
	bool uses_cpu = p.state && s->stall.seen && used_ns > idle_ns / 100 * IDLE_PERCENT;
	const struct session *leader = find_ahead(s, &by);
	if (p.state == 'T' || p.state == 't') {
		snprintf(why, size, "it is stopped (%s)",
			 p.state == 't' ? "by a debugger" : "SIGSTOP; SIGCONT lets it go on");
	} else if (p.state == 'D' && !uses_cpu) {
		snprintf(
			why, size,
			"it is stuck in the kernel (an uninterruptible wait: a disk, a network file system or a driver)");
	} else if (s->job->spec.share && s->job->spec.policy == GROUP_WAIT && another_waits(s)) {
		snprintf(why, size, "others of its group wait for the batches it has");
	} else if (!uses_cpu && is_followed(s)) {
		snprintf(why, size, "others wait for its group to begin the next epoch");
	} else if (leader && !uses_cpu && !is_busy_elsewhere(s, now, after_ns)) {
		snprintf(why, size, "it %s while rank %u is %" PRIu64 " batch%s ahead",
			 p.state ? "uses no processor" : "takes none", leader->consumer.rank, by, by == 1 ? "" : "es");
	} else {
		return false;
	}
	return true;
}

/* ---- telling ---- */

static void stall_send_notice(struct session *to, const struct session *s, Batchd__Wire__NoticeKind kind,
			      const char *text, double since_s)
{
	Batchd__Wire__Notice n = BATCHD__WIRE__NOTICE__INIT;
	n.kind = kind;
	n.text = (char *)text;
	n.rank = s->consumer.rank;
	n.since_s = since_s;
	peer_send(to->peer, WIRE_SERVER(NOTICE, notice, &n), NULL, 0);
	if (to->ring.page)
		ring_note_notice(&to->ring);
}

static void tell_others(const struct session *s, Batchd__Wire__NoticeKind kind, const char *text, double since_s)
{
	for (struct session *o = s->job->sessions; o; o = o->next_in_job) {
		/* A trainer that leaves its packets unread is stuck itself, and gets no more of them. */
		if (o != s && o->state == SESSION_ATTACHED && !o->peer->n_out && !o->stall.is_on)
			stall_send_notice(o, s, kind, text, since_s);
	}
}

/* The job may run on other machines, too, where the same process id exists. */
static void stall_describe(const struct session *s, uint64_t idle_ns, char *text, size_t size)
{
	struct utsname node;
	if (uname(&node) < 0)
		strcpy(node.nodename, "?");
	snprintf(text, size,
		 "stalled: rank %u of job %s (%s, pid %d on node %s) has taken no batch for %.0f s and holds %u: %s",
		 s->consumer.rank, s->job->spec.job, s->program, (int)s->pid, node.nodename, stall_seconds(idle_ns),
		 s->consumer.n_leases, s->stall.why);
}

static void begin_spell(struct session *s, uint64_t idle_ns)
{
	char text[640];
	assert(s->state == SESSION_ATTACHED && s->job && !s->stall.is_on);
	s->stall.is_on = true;
	stall_describe(s, idle_ns, text, sizeof(text));
	log_record(LOG_LEVEL_WARNING, "stalled", "session %" PRIu64 " %s", s->number, text);
	recent_errors_note(s->engine->errors, s->uid, s->job->spec.job, text);
	tell_others(s, BATCHD__WIRE__NOTICE_KIND__RANK_STALLED, text, stall_seconds(idle_ns));
	s->consumer.stalled = true;
	if (s->consumer.group)
		group_pump(s->consumer.group);
}

void stall_tell(struct session *newcomer)
{
	assert(is_loop_thread());
	uint64_t now = uv_hrtime();
	for (const struct session *s = newcomer->job->sessions; s; s = s->next_in_job) {
		char text[640];
		if (s == newcomer || !s->stall.is_on)
			continue;
		stall_describe(s, now - s->stall.active_ns, text, sizeof(text));
		stall_send_notice(newcomer, s, BATCHD__WIRE__NOTICE_KIND__RANK_STALLED, text,
				  stall_seconds(now - s->stall.active_ns));
	}
}

static void end_spell(struct session *s, const char *how)
{
	char text[256];
	s->stall.is_on = s->consumer.stalled = false;
	snprintf(text, sizeof(text), "rank %u of job %s (pid %d) %s after %.0f s", s->consumer.rank, s->job->spec.job,
		 (int)s->pid, how, stall_seconds(uv_hrtime() - s->stall.active_ns));
	log_record(LOG_LEVEL_NOTICE, "goes-on", "session %" PRIu64 ": %s", s->number, text);
	tell_others(s, BATCHD__WIRE__NOTICE_KIND__RANK_GOES_ON, text, 0);
}

void stall_forget(struct session *s)
{
	assert(is_loop_thread());
	if (s->stall.is_on && s->job)
		end_spell(s, "has left");
	s->stall.is_on = false;
}

/* ---- looking ---- */

static void stall_note_progress(struct session *s, uint64_t now)
{
	if (s->stall.is_on)
		end_spell(s, "goes on");
	s->stall.progress = stall_progress(s);
	s->stall.active_ns = now;
	s->stall.seen = false;
}

static void stall_look(struct session *s, uint64_t now, uint64_t after_ns)
{
	/* Not only a look at its ring: a caller that takes releases out must also use the freed slots, because the
	 * trainer expects a reaction. */
	stream_wake(&s->consumer);
	if (s->state != SESSION_ATTACHED)
		return;
	if (!has_batches(s) || stall_progress(s) != s->stall.progress || !s->stall.active_ns) {
		stall_note_progress(s, now);
		return;
	}
	if (!s->stall.seen) { /* its processor time counts from here on */
		s->stall.cpu_ns = look_at(s->pid).cpu_ns;
		s->stall.seen = true;
		return;
	}
	if (now - s->stall.active_ns < after_ns)
		return;
	bool stalled = is_stalled(s, now, after_ns, s->stall.why, sizeof(s->stall.why));
	if (stalled && !s->stall.is_on)
		begin_spell(s, now - s->stall.active_ns);
	else if (!stalled && s->stall.is_on && look_at(s->pid).state != 'T')
		end_spell(s, "goes on");
}

static void on_timer(uv_timer_t *t)
{
	struct engine *e = t->data;
	uint64_t now = uv_hrtime(), after_ns = e->config->stall_after_ns;
	for (struct session *s = e->sessions; s; s = s->next) {
		if (s->state == SESSION_ATTACHED)
			stall_look(s, now, after_ns);
	}
	stall_watch(e); /* a reload may have changed the interval */
}

void stall_watch(struct engine *e)
{
	assert(is_loop_thread());
	uint64_t ms = e->config->stall_after_ns / 1000000 / LOOKS;
	if (e->stopping || e->config->stall_after_ns == CONFIG_NEVER || !e->sessions) {
		uv_timer_stop(&e->stall);
		return;
	}
	ms = ms < MIN_LOOK_MS ? MIN_LOOK_MS : ms > MAX_LOOK_MS ? MAX_LOOK_MS : ms;
	uv_timer_start(&e->stall, on_timer, ms, 0);
}
