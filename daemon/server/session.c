/* A session's messages (`rules`), and its life after its connection: see session-state.h.
 *
 * A session opens in these steps: Open -> a job (perhaps new) -> the job's loader is ready -> a slab for its stream is
 * ready -> attached. advance is called when any of these is ready and does the next possible step. */
#include "server/session.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch/device-slab.h"
#include "batch/leases.h"
#include "server/device.h"
#include "server/ipc/server.h"
#include "server/job-join.h"
#include "server/single-images.h"
#include "server/producer.h"
#include "server/recent-errors.h"
#include "server/open-request.h"
#include "server/sampler.h"
#include "server/producer-job.h"
#include "server/session-batches.h"
#include "server/session-fail.h"
#include "server/session-message.h"
#include "server/session-opened.h"
#include "server/session-ring.h"
#include "server/session-seek.h"
#include "server/slot-alloc.h"
#include "server/spare.h"
#include "server/stall.h"
#include "base/list.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/thread-kind.h"
#include "base/trace.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

enum { PRODUCER_WAIT_MS = 60000 };

/* ---- states ---- */

enum { SESSION_ENDED = SESSION_LOADING + 1 };

static void session_note_move(const struct session *s, unsigned to)
{
	static const char *const names[] = { "greeted", "opening",   "attached", "orphaned", "draining",
					     "ending",  "producing", "loading",  "ended" };
	log_record(LOG_LEVEL_DEBUG, "session", "session %llu (pid %d): %s -> %s%s%s", (unsigned long long)s->number,
		   (int)s->pid, names[s->state], names[to], s->job ? ", job " : "", s->job ? s->job->spec.job : "");
	PROBE(session_move, s->number, s->state, to);
}

/* Moves the session to another state; no other function does. A move that is not in the table is a bug of the daemon;
 * no peer can cause it. */
static void session_move(struct session *s, enum session_state to)
{
	static const bool allowed[SESSION_ENDED][SESSION_ENDED] = {
		[SESSION_GREETED] = { [SESSION_OPENING] = true,
				      [SESSION_PRODUCING] = true,
				      [SESSION_LOADING] = true,
				      [SESSION_ENDING] = true },
		[SESSION_OPENING] = { [SESSION_ATTACHED] = true, [SESSION_ENDING] = true },
		[SESSION_ATTACHED] = { [SESSION_DRAINING] = true, [SESSION_ENDING] = true },
		[SESSION_DRAINING] = { [SESSION_ENDING] = true },
		[SESSION_ENDING] = { [SESSION_ORPHANED] = true },
		[SESSION_PRODUCING] = { [SESSION_ENDING] = true },
		[SESSION_LOADING] = { [SESSION_ENDING] = true },
	};
	assert(allowed[s->state][to]);
	session_note_move(s, to);
	s->state = to;
}

/* ---- ending ---- */

/* Whether its process may still read batches. */
static bool session_holds(const struct session *s)
{
	return s->consumer.n_leases > 0 || s->consumer.device_slab;
}

static void session_forget(struct session *s)
{
	struct engine *e = s->engine;
	list_remove(&e->sessions, s, next);
	assert(!s->job && !s->producer && !s->single_images && !s->peer && !s->slot_alloc && !s->ring.page);
	session_note_move(s, SESSION_ENDED);
	free(s);
	e->on_activity(e);
	e->on_ended(e);
}

static void on_orphan_closed(uv_handle_t *h)
{
	struct session *s = h->data;
	close(s->pidfd);
	charge_release(&s->held);
	charge_release(&s->fds);
	session_forget(s);
}

static void orphan_ends(struct session *s)
{
	assert(s->state == SESSION_ORPHANED && !s->peer);
	loader_finish_consumer(&s->consumer);
	uv_poll_stop(&s->exit_poll);
	uv_close((uv_handle_t *)&s->exit_poll, on_orphan_closed);
}

static void session_on_process_exit(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	orphan_ends(poll->data);
}

void session_drop_orphan(struct session *s)
{
	assert(is_loop_thread());
	if (s->state == SESSION_ORPHANED && !device_must_stay(s) && !uv_is_closing((uv_handle_t *)&s->exit_poll))
		orphan_ends(s);
	else if (s->state == SESSION_DRAINING && !device_must_stay(s))
		peer_close(s->peer);
}

bool session_detach_gpu(struct session *s)
{
	assert(is_loop_thread());
	bool had = device_must_stay(s);
	if (had)
		s->consumer.device_slab->left = true;
	if (s->peer)
		peer_close(s->peer);
	else
		session_drop_orphan(s);
	return had;
}

/* The connection is gone while the process may still read its slots: only its exit frees them. The pidfd is taken over,
 * not duplicated, because there may be no free descriptor. */
static bool become_orphan(struct session *s, struct peer *p)
{
	if (p->pidfd < 0 || (s->engine->stopping && !device_must_stay(s)) ||
	    uv_poll_init(&s->engine->loop, &s->exit_poll, p->pidfd))
		return false;
	assert(!s->peer && !s->job && p->connection.account);
	s->pidfd = p->pidfd;
	p->pidfd = -1;
	charge_move(&s->held, &p->connection);
	charge_move(&s->fds, &p->fds);
	s->exit_poll.data = s;
	session_move(s, SESSION_ORPHANED);
	uv_poll_start(&s->exit_poll, UV_READABLE, session_on_process_exit);
	return true;
}

/* Its place in its stream is free for another trainer. Frees no session, job or loader. */
static void session_leave_stream(struct session *s)
{
	session_ring_collect(s); /* takes in its last releases */
	session_ring_close(s);
	loader_detach(&s->consumer);
	if (!session_holds(s))
		consumer_finish(&s->consumer);
}

/* The session gets no more batches, and is out of its job. */
static void session_end_delivery(struct session *s)
{
	if (s->records)
		trace_stop();
	s->records = false;
	stall_forget(s);
	session_leave_stream(s);
	if (s->job && s->job->loader) {
		struct ring_taken taken = session_ring_taken(s);
		s->job->loader->n_batches_taken += taken.n_batches;
		s->job->loader->n_rows_taken += taken.n_rows;
	}
	job_leave(s);
}

static void session_dismiss(struct session *s, Batchd__Wire__ErrorCode code, const char *text)
{
	peer_half_close(s->peer, code, NULL, "%s", text);
	session_move(s, SESSION_DRAINING);
	session_end_delivery(s);
}

/* A trainer that has batches may give them back with Close, long before its process ends; so its messages are still
 * read. */
static void session_end(struct session *s, const struct refusal *why)
{
	assert(is_loop_thread());
	bool attached = s->state == SESSION_ATTACHED, on_gpu = s->consumer.device_slab;
	if (attached && !on_gpu)
		session_ring_collect(s); /* a ring that is broken ends it */
	if (s->state == SESSION_ENDING)
		return;
	if (why->code != CODE(FENCED))
		recent_errors_note(s->engine->errors, s->uid, s->job ? s->job->spec.job : NULL, why->text);
	if (attached && s->consumer.n_leases && !on_gpu)
		session_dismiss(s, why->code, why->text);
	else
		session_fail(s, why->code, why->field, why->text);
}

void session_drain(struct session *s)
{
	assert(is_loop_thread());
	struct peer *p = s->peer;
	bool stays = p && s->state == SESSION_ATTACHED && device_must_stay(s);
	if (stays) {
		char text[256];
		snprintf(text, sizeof(text), "batchd at %s is stopping", s->engine->socket_path);
		session_dismiss(s, CODE(SHUTDOWN), text);
	} else if (p) {
		peer_fail(p, CODE(SHUTDOWN), NULL, "batchd at %s is stopping", s->engine->socket_path);
	}
}

static bool on_peer_ending(struct peer *p)
{
	struct session *s = p->session;
	if (!s)
		return false;
	job_task_forget(&s->slot_alloc);
	job_note_ending(s);
	session_move(s, SESSION_ENDING);
	return session_holds(s);
}

/* Its slots go to the next loader of its process. Close has come, and the job ends with this session, its only one. */
static void session_keep_spare(struct session *s, struct peer *p)
{
	const struct job *j = s->job;
	if (!s->ends_job || !j || !j->loader || j->sessions != s || s->next_in_job || j->served || j->spec.share ||
	    s->device.asked)
		return;
	const struct stream *stream = loader_find_stream(j->loader, s->consumer.rank);
	if (stream && stream->slots && j->state == JOB_READY)
		spare_keep(s->engine, stream->slots, p->pid, s->uid, &p->pidfd);
}

static void on_peer_closed(struct peer *p)
{
	struct session *s = p->session;
	if (!s)
		return;
	session_keep_spare(s, p);
	producer_on_closed(s);
	single_images_on_closed(s);
	session_end_delivery(s);
	p->session = NULL;
	s->peer = NULL;
	bool holds = session_holds(s);
	log_record(LOG_LEVEL_INFO, "session-closed", "session %llu of %s (pid %d) closed%s",
		   (unsigned long long)s->number, s->program, (int)s->pid, holds ? " while it holds batches" : "");
	if (holds && become_orphan(s, p))
		return;
	consumer_finish(&s->consumer);
	session_forget(s);
}

/* ---- opening ---- */

static void session_advance_opening(struct session *s);

static void session_attach(struct session *s, uint32_t rank)
{
	struct refusal why;
	int ring;
	if (session_ring_open(s, &ring, &why)) {
		session_note(s, REFUSED, &why);
		return;
	}
	int r = loader_attach(s->job->loader, &s->consumer, rank);
	if (r) {
		close(ring);
		session_fail(s, CODE(INTERNAL), "", r == -ENOMEM ? "out of memory" : "that rank is taken");
		return;
	}
	session_move(s, SESSION_ATTACHED);
	if (s->again)
		consumer_move(&s->consumer, CONSUMER_RETURNED);
	s->peer->is_trainer = true;
	if (!uv_is_active((uv_handle_t *)&s->engine->stall))
		stall_watch(s->engine);
	sampler_attach(s);
	device_attach(s);
	session_send_opened(s, ring);
	close(ring);
	stall_tell(s);
}

/* In share mode, the first of several places that has never been used, then the first that is free. -1: none. */
static int32_t free_place(const struct stream *stream)
{
	int32_t any = -1;
	for (uint32_t i = 0; i < stream->n_consumers; i++) {
		if (stream->consumers[i])
			continue;
		if (stream->expected & ((uint64_t)1 << i))
			return (int32_t)i;
		if (any < 0)
			any = (int32_t)i;
	}
	return any;
}

/* The loser may have said Close already, or say it before its process ends, above all if it is of the winner's process. */
static void fence(struct session *loser, const struct session *winner, uint32_t rank)
{
	struct refusal why;
	refuse(&why, CODE(FENCED), "rank",
	       "a newer process took this rank of the job: %s (pid %d) is rank %u now; if both are meant to run, give them "
	       "different ranks or jobs",
	       winner->program, (int)winner->pid, rank);
	session_end(loser, &why);
}

/* Orders two sessions that claim one rank. If either reconnects, the trainer that was started later is newer, however
 * late the other one notices that its connection was lost: it may have been stopped meanwhile. Otherwise the later
 * session is newer. */
static bool is_newer(const struct session *a, const struct session *b)
{
	if ((a->again || b->again) && a->born_ns != b->born_ns)
		return a->born_ns > b->born_ns;
	return a->number > b->number;
}

/* Trainers that end in this turn of the loop give up their places, so that a newcomer meets none of them. */
static void vacate(const struct job *j)
{
	for (struct session *s = j->sessions; s; s = s->next_in_job) {
		if (s->state == SESSION_ENDING)
			session_leave_stream(s);
	}
}

/* The newest trainer of a rank wins, and has the rank's place at once: a restarted one must not wait for its
 * predecessor's timeout. False: another trainer is newer. */
static bool fence_rank(struct session *s, uint32_t rank)
{
	for (struct session *other = s->job->sessions, *next; other; other = next) {
		next = other->next_in_job; /* a session that gives its batches back later is out of the job at once */
		bool same = other->consumer.home ? other->consumer.rank == rank : other->wanted_rank == (int32_t)rank;
		if (!same || other == s)
			continue;
		if (other->state != SESSION_ENDING && is_newer(other, s)) {
			fence(s, other, rank);
			return false;
		}
		fence(other, s, rank);
		session_leave_stream(other); /* even if it is ENDING: `vacate` may have found its ring broken */
	}
	return true;
}

/* The rank's stream, charged to its user. NULL: the client has been told why there is none. */
static struct stream *stream_of(struct session *s, uint32_t rank)
{
	struct engine *e = s->engine;
	struct loader *l = s->job->loader;
	struct stream *stream = loader_find_stream(l, rank);
	struct charge bytes = { 0 };
	if (stream)
		return stream;
	int r = charge_begin(&bytes, &e->budget.accounts, l->spec.uid, ACCOUNT_SLOT_BYTES, loader_stream_bytes(l));
	if (r > 0) {
		session_fail(s, CODE(LIMIT), "memory_per_user",
			     "no memory for another rank of this job: this user has all it may have "
			     "(limits.memory_per_user in the daemon's configuration)");
		return NULL;
	}
	stream = r ? NULL : loader_stream(l, rank);
	if (!stream) {
		charge_release(&bytes);
		session_fail(s, CODE(INTERNAL), "", "out of memory");
		return NULL;
	}
	charge_move(&stream->bytes, &bytes);
	return stream;
}

static void request_slots(struct session *s)
{
	struct refusal why;
	int r = slot_alloc_request(s, &why);
	session_note(s, r, &why);
	if (r == SLOT_ALLOC_THERE)
		session_advance_opening(s);
}

/* Does the next possible step of opening. */
static void session_advance_opening(struct session *s)
{
	struct job *j = s->job;
	if (s->state != SESSION_OPENING || s->slot_alloc || j->state == JOB_OPENING)
		return;
	if (j->state == JOB_FAILED || j->state == JOB_ENDING) {
		session_fail(s, j->fail_code ? j->fail_code : CODE(BAD_DATA), "dataset",
			     j->loader ? j->loader->error : "out of memory");
		return;
	}
	struct loader *l = j->loader;
	bool share = l->spec.share;
	int32_t rank = s->wanted_rank;
	vacate(j);
	if (rank < 0)
		rank = l->is_async ? group_free_place(&l->group) : share ? free_place(loader_stream(l, 0)) : 0;
	if (rank < 0 || (l->is_async && group_is_full(&l->group))) {
		char text[200];
		snprintf(text, sizeof(text), "every place of this share job is taken: %u trainers at most%s",
			 l->is_async ? l->group.n_places : l->spec.world_size,
			 l->spec.world_size > 1 ? " (world_size)" : "");
		session_fail(s, CODE(LIMIT), "world_size", text);
		return;
	}
	s->consumer.rank = (uint32_t)rank;
	if (s->wanted_rank < 0 && !share)
		s->wanted_rank = 0;
	if (!fence_rank(s, (uint32_t)rank))
		return;
	struct refusal why;
	if (!s->ring_bytes.account && session_ring_charge(s, &why)) {
		session_note(s, REFUSED, &why);
		return;
	}
	struct stream *stream = stream_of(s, (uint32_t)rank);
	if (!stream)
		return;
	if ((share && j->slots_pending) || producer_job_is_mapping(j, (uint32_t)rank))
		return;
	if (!stream->slots || (!share && stream_has_strangers(stream)) ||
	    (l->is_async && (group_n_missing(&l->group) || device_fixes(s, stream->slots)))) {
		request_slots(s);
		return;
	}
	if (s->device.asked)
		slot_alloc_complete(s, stream->slots);
	if (device_ready(s, stream->slots))
		session_attach(s, (uint32_t)rank);
}

/* ---- messages ---- */

/* Starts to watch the session's process, before anything is made for it. Only the end of its process ends a trainer's
 * leases, so a client is refused if its end cannot be seen. */
static int session_identify(struct session *s, struct refusal *why)
{
	int r = peer_identify(s->peer);
	if (r)
		return r == -ENOMEM
			       ? refuse_memory(why)
			       : refuse(why, CODE(LIMIT), NULL,
					"the daemon is out of file descriptors (LimitNOFILE= or ulimit -n has the limit)");
	if (s->peer->pidfd < 0)
		return refuse(
			why, CODE(ACCESS), NULL,
			"batchd cannot see when this process ends: it has ended, or it is in another PID namespace and the kernel "
			"is older than 6.5; run batchd in the same or a parent namespace");
	return 0;
}

static int on_open(struct session *s, const struct message *m, struct refusal *why)
{
	Batchd__Wire__Open open = *m->body->open;
	if (open.ring < RING_LAYOUT)
		return refuse(
			why, CODE(INVALID), "ring",
			"this client asks for no ring, but batches come through nothing else: write ring = 1 in Open");
	struct requester who = { .uid = s->uid,
				 .gids = s->peer->gids,
				 .n_gids = s->peer->n_gids,
				 .lacks_groups = s->peer->lacks_groups,
				 .shares_mounts = open_request_may_trust(s->uid) && peer_shares_mounts(s->peer) };
	struct open_request r;
	SourcePart name = SOURCE_PART__INIT, *part = &name;
	Source served = SOURCE__INIT, *source = &served;
	Sources named = SOURCES__INIT;
	if (!config_dataset(s->engine->config, open.sources->name) &&
	    producer_exists(s->engine, s->uid, open.sources->name)) {
		name.name = open.sources->name;
		served.kind = SOURCE_KIND__SERVE;
		served.part = &part;
		named.source = &source;
		served.n_part = named.n_source = 1;
		open.sources = &named;
	}
	int refused = open_request_make(s->engine->config, &open, &who, m->n_fds, &r, why);
	if (!refused) {
		s->wanted_rank = r.rank;
		s->own_batch_size = open.own_batch_size;
		device_wish(s, &open);
		s->born_ns = open.born_ns;
		s->again = open.again;
		s->producer_wait_ns =
			(open.producer_wait_ms ? open.producer_wait_ms : PRODUCER_WAIT_MS) * UINT64_C(1000000);
		s->producer_deadline_ns = uv_hrtime() + s->producer_wait_ns;
		refused = job_join(s->engine, s, &r, m->fds, m->n_fds, why);
	}
	open_request_finish(&r);
	if (refused) {
		recent_errors_note(s->engine->errors, s->uid, open.job, why->text);
		return refused;
	}
	session_move(s, SESSION_OPENING);
	if (s->job->served && s->job->state == JOB_OPENING)
		producer_job_await(s->job);
	else
		session_advance_opening(s);
	return 0;
}

static int on_release(struct session *s, const struct message *m, struct refusal *why)
{
	const Batchd__Wire__Release *release = m->body->release;
	control_note_release(s, release);
	slot_alloc_on_taken(s);
	if (stream_release(&s->consumer, release->slot, release->generation))
		return refuse(why, CODE(PROTOCOL), "slot", "released a slot it does not hold");
	return 0;
}

static int on_wake(struct session *s, const struct message *m, struct refusal *why)
{
	(void)m;
	(void)why;
	slot_alloc_on_taken(s);
	stream_wake(&s->consumer);
	return 0;
}

static int session_on_close(struct session *s, const struct message *m, struct refusal *why)
{
	(void)why;
	s->ends_job = m->body->close->ends_job;
	s->consumer.comes_again = m->body->close->comes_again;
	if (s->consumer.comes_again)
		device_come_again(s);
	session_ring_close(s); /* every lease ends, so it does not matter which were released */
	loader_finish_consumer(&s->consumer);
	peer_close(s->peer);
	return 0;
}

static int on_produce(struct session *s, const struct message *m, struct refusal *why)
{
	return producer_on_produce(s, m->body->produce, &producer_job_producer_ops, why);
}

static const struct message_rule rules[] = {
	{ CLIENT_MESSAGE(OPEN), SESSION_IN(GREETED), on_open,
	  .otherwise = "came twice, from a producer, or after LoadOpen", .becomes = SESSION_OPENING },
	{ CLIENT_MESSAGE(SEEK), SESSION_IN(ATTACHED), session_on_seek, .otherwise = "before Opened" },
	{ CLIENT_MESSAGE(JOIN), SESSION_IN(ATTACHED), session_on_join, .otherwise = "before Opened" },
	{ CLIENT_MESSAGE(INDICES), SESSION_IN(ATTACHED), session_on_indices, .otherwise = "before Opened" },
	{ CLIENT_MESSAGE(RELEASE), SESSION_IN(ATTACHED), on_release, .otherwise = "before Opened" },
	{ CLIENT_MESSAGE(WAKE), SESSION_IN(ATTACHED), on_wake, .otherwise = "before Opened" },
	{ CLIENT_MESSAGE(CLOSE), SESSION_IN_ANY | SESSION_IN(DRAINING), .take = session_on_close },
	{ CLIENT_MESSAGE(PRODUCE), SESSION_IN(GREETED), on_produce,
	  .otherwise = "came twice, from a trainer, or after LoadOpen", .becomes = SESSION_PRODUCING },
	{ CLIENT_MESSAGE(FILLED), SESSION_IN(PRODUCING), producer_on_filled, .otherwise = "before Produce" },
	{ CLIENT_MESSAGE(PRODUCER_END), SESSION_IN(PRODUCING), producer_on_end, .otherwise = "before Produce" },
	{ CLIENT_MESSAGE(LOAD_OPEN), SESSION_IN(GREETED), single_images_on_open,
	  .otherwise = "came twice, from a trainer or producer", .becomes = SESSION_LOADING },
	{ CLIENT_MESSAGE(LOAD), SESSION_IN(LOADING), single_images_on_load, .otherwise = "before LoadOpened" },
	{ .take = NULL },
};

static const struct message_rule *rule_in(const struct message_rule *of, Batchd__Wire__ClientMessage__BodyCase message)
{
	while (of->take && of->message != message)
		of++;
	return of;
}

const struct message_rule *session_rule(const struct engine *e, Batchd__Wire__ClientMessage__BodyCase message)
{
	const struct message_rule *rule = rule_in(rules, message);
	return rule->take ? rule : rule_in(e->reader, message);
}

/* Of a message that is legal. */
static int take_message(struct session *s, const struct message_rule *rule, const struct message *m,
			struct refusal *why)
{
	if ((rule->becomes && session_identify(s, why)) || rule->take(s, m, why))
		return REFUSED;
	/* on_open has moved it already, and a connection may end at any time. */
	if (rule->becomes && s->state == SESSION_GREETED)
		session_move(s, rule->becomes);
	return 0;
}

static struct session *create_session(struct engine *e, struct peer *p)
{
	struct session *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->engine = e;
	s->peer = p;
	s->consumer.ops = &session_consumer_ops;
	s->number = p->number;
	s->pid = p->pid;
	s->uid = p->uid;
	s->connected_ns = p->connected_ns;
	memcpy(s->program, p->program, sizeof(s->program));
	list_push(&e->sessions, s, next);
	e->on_activity(e);
	return s;
}

static void session_on_message(struct peer *p, const Batchd__Wire__ClientMessage *m, int *fds, unsigned n_fds)
{
	struct session *s = p->session;
	if (!s)
		s = p->session = create_session(p->server->owner, p);
	if (!s) {
		peer_fail(p, CODE(INTERNAL), NULL, "out of memory");
		return;
	}
	const struct message_rule *rule = session_rule(s->engine, m->body_case);
	struct refusal why;
	if (rule->states & 1u << s->state)
		session_note(s, take_message(s, rule, &(struct message){ m, fds, n_fds }, &why), &why);
	else if (s->state != SESSION_DRAINING) /* it was sent before the client knew */
		peer_fail(p, CODE(PROTOCOL), NULL, "%s %s", wire_client_name(m), rule->otherwise);
}

const struct job_ops session_job_ops = { .advance = session_advance_opening, .end = session_end };
const struct peer_ops session_peer_ops = { .message = session_on_message,
					   .ending = on_peer_ending,
					   .closed = on_peer_closed };
