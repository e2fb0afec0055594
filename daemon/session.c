/* A session's messages, and its life after its connection: see session-state.h.
 *
 * A session opens in these steps: Open -> a job (perhaps new) -> the job's loader is ready -> a slab for its stream is
 * ready -> attached. advance is called when any of these is ready and does the next possible step. */
#include "session.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compare.h"
#include "core/device-slab.h"
#include "device.h"
#include "headroom.h"
#include "ipc/server.h"
#include "job-join.h"
#include "load.h"
#include "producer.h"
#include "recent-errors.h"
#include "report.h"
#include "request.h"
#include "served-job.h"
#include "session-ring.h"
#include "slot-alloc.h"
#include "stall.h"
#include "util/container.h"
#include "util/list.h"
#include "util/log.h"
#include "util/probe.h"
#include "util/trace.h"
#include "verdict-status.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

enum { PRODUCER_WAIT_MS = 60000 };

/* ---- states ---- */

enum { SESSION_ENDED = SESSION_DRAINING + 1 };

static void session_note_move(const struct session *s, unsigned to)
{
	static const char *const names[] = { "greeted", "opening", "attached", "orphaned", "draining", "ended" };
	log_record(LOG_LEVEL_DEBUG, "session", "session %llu (pid %d): %s -> %s%s%s", (unsigned long long)s->number,
		   (int)s->pid, names[s->state], names[to], s->job ? ", job " : "", s->job ? s->job->spec.job : "");
	PROBE(session_move, s->number, s->state, to);
}

/* Moves the session to another state; no other function does. A move that is not in the table is a bug of the daemon;
 * no peer can cause it. A session may end in any state. */
static void session_move(struct session *s, enum session_state to)
{
	static const bool allowed[5][5] = {
		[SESSION_GREETED] = { [SESSION_OPENING] = true },
		[SESSION_OPENING] = { [SESSION_ATTACHED] = true },
		[SESSION_ATTACHED] = { [SESSION_ORPHANED] = true, [SESSION_DRAINING] = true },
		[SESSION_DRAINING] = { [SESSION_ORPHANED] = true },
	};
	assert(allowed[s->state][to]);
	session_note_move(s, to);
	s->state = to;
}

/* ---- ending ---- */

static void session_forget(struct session *s)
{
	struct engine *e = s->engine;
	list_remove(&e->sessions, s, next);
	assert(!s->job && !s->producer && !s->load && !s->peer && !s->slot_alloc && !s->comparison && !s->ring.page);
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
	if (s->state == SESSION_ORPHANED && !device_must_stay(s) && !uv_is_closing((uv_handle_t *)&s->exit_poll))
		orphan_ends(s);
	else if (s->state == SESSION_DRAINING && s->peer && !device_must_stay(s))
		peer_close(s->peer);
}

bool session_detach_gpu(struct session *s)
{
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
	assert(!s->peer && !s->job);
	s->pidfd = p->pidfd;
	p->pidfd = -1;
	charge_move(&s->held, &p->connection);
	charge_move(&s->fds, &p->fds);
	s->exit_poll.data = s;
	session_move(s, SESSION_ORPHANED);
	uv_poll_start(&s->exit_poll, UV_READABLE, session_on_process_exit);
	return true;
}

/* The session gets no more batches. */
static void session_end_delivery(struct session *s)
{
	headroom_leave(s);
	if (s->records)
		trace_stop();
	s->records = false;
	session_ring_collect(s); /* takes in its last releases */
	session_ring_close(s);
	job_task_forget(&s->comparison);
	stall_forget(s);
	loader_detach(&s->consumer);
	job_leave(s);
}

static void session_dismiss(struct session *s, Batchd__Wire__ErrorCode code, const char *text)
{
	peer_half_close(s->peer, code, NULL, "%s", text);
	session_end_delivery(s);
	session_move(s, SESSION_DRAINING);
}

static void session_fail(struct session *s, Batchd__Wire__ErrorCode code, const char *field, const char *text)
{
	if (s->peer)
		peer_fail(s->peer, code, field, "%s", text);
}

/* For calls with an outcome: tells the client if it is a refusal. */
static void session_note(struct session *s, int r, const struct refusal *why)
{
	if (r == REFUSED)
		session_fail(s, why->code, why->field, why->text);
}

/* A trainer that has batches may give them back with Close, long before its process ends; so its messages are still
 * read. */
static void session_on_ended(struct session *s, const struct refusal *why)
{
	bool attached = s->peer && s->state == SESSION_ATTACHED, on_gpu = s->consumer.device_slab;
	if (why->code != CODE(REOPEN) && why->code != CODE(FENCED))
		recent_errors_note(s->engine->errors, s->uid, s->job ? s->job->spec.job : NULL, why->text);
	if (attached && !on_gpu)
		session_ring_collect(s);
	if (attached && (why->code == CODE(REOPEN) || (s->consumer.n_leases && !on_gpu)))
		session_dismiss(s, why->code, why->text);
	else
		session_fail(s, why->code, why->field, why->text);
}

void session_drain(struct session *s)
{
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

static void on_peer_closed(struct peer *p)
{
	struct session *s = p->session;
	if (!s)
		return;
	p->session = NULL;
	s->peer = NULL;
	producer_on_closed(s);
	load_on_closed(s);
	job_task_forget(&s->slot_alloc);
	if (s->state != SESSION_DRAINING)
		session_end_delivery(s);
	bool holds = s->consumer.n_leases > 0 || s->consumer.device_slab;
	log_record(LOG_LEVEL_INFO, "session-closed", "session %llu of %s (pid %d) closed%s",
		   (unsigned long long)s->number, s->program, (int)s->pid, holds ? " while it holds batches" : "");
	if (holds && become_orphan(s, p))
		return;
	loader_finish_consumer(&s->consumer);
	session_forget(s);
}

/* ---- opening ---- */

static void send_opened(struct session *s);
static void session_advance_opening(struct session *s);

static void session_attach(struct session *s, uint32_t rank)
{
	int r = loader_attach(s->job->loader, &s->consumer, rank);
	if (r) {
		session_fail(s, CODE(INTERNAL), "", r == -ENOMEM ? "out of memory" : "that rank is taken");
		return;
	}
	session_move(s, SESSION_ATTACHED);
	s->consumer.reconnected = s->again;
	s->peer->is_trainer = true;
	if (!uv_is_active((uv_handle_t *)&s->engine->stall))
		stall_watch(s->engine);
	device_attach(s);
	send_opened(s);
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

static void tell_fenced(struct session *loser, const struct session *winner, uint32_t rank)
{
	char text[256];
	snprintf(
		text, sizeof(text),
		"a newer process took this rank of the job: %s (pid %d) is rank %u now; if both are meant to run, give them "
		"different ranks or jobs",
		winner->program, (int)winner->pid, rank);
	session_fail(loser, CODE(FENCED), "rank", text);
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

/* The newest trainer of a rank wins: a restarted one must not wait for its predecessor's timeout. False: another
 * trainer is newer. */
static bool fence_rank(struct session *s, uint32_t rank)
{
	for (struct session *other = s->job->sessions, *next; other; other = next) {
		next = other->next_in_job;
		bool same = other != s && other->peer &&
			    (other->state == SESSION_ATTACHED ? other->consumer.rank == rank
							      : other->wanted_rank == (int32_t)rank);
		if (same && is_newer(other, s)) {
			tell_fenced(s, other, rank);
			return false;
		}
		if (same)
			tell_fenced(other, s, rank);
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
	e->budget.slots_bytes += bytes.amount;
	stream->charged_bytes = &e->budget.slots_bytes;
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
	if (s->state != SESSION_OPENING || s->slot_alloc || !s->peer || !j || j->state == JOB_OPENING)
		return;
	if (j->state == JOB_FAILED || j->state == JOB_ENDING) {
		session_fail(s, j->fail_code ? j->fail_code : CODE(BAD_DATA), "dataset",
			     j->loader ? j->loader->error : "out of memory");
		return;
	}
	struct loader *l = j->loader;
	bool share = l->spec.share;
	int32_t rank = s->wanted_rank;
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
	struct stream *stream = stream_of(s, (uint32_t)rank);
	if (!stream)
		return;
	if ((share && j->slots_pending) || served_job_is_mapping(j, (uint32_t)rank))
		return;
	if (!stream->slots || (!share && stream_has_strangers(stream)) ||
	    (l->is_async && (group_n_missing(&l->group) || device_fixes(s, stream->slots))))
		request_slots(s);
	else if (device_ready(s, stream->slots))
		session_attach(s, (uint32_t)rank);
}

/* The wire's own structs for an Opened message. */
struct field_messages {
	Batchd__Wire__Field field[SLOT_MAX_FIELDS], *at[SLOT_MAX_FIELDS];
	float mean[SLOT_MAX_FIELDS][3], std[SLOT_MAX_FIELDS][3];
};

static void fill_view(const struct loader *l, struct field_messages *own, unsigned k)
{
	const struct pipeline *view = views_at(l->recipe.pipeline, k);
	Batchd__Wire__Field *to = &own->field[k];
	to->view = k + 1;
	to->to_tensor = pipeline_to_tensor(view);
	if (!pipeline_normalize(view, own->mean[k], own->std[k]))
		return;
	to->mean = own->mean[k];
	to->std = own->std[k];
	to->n_mean = to->n_std = 3;
}

static void fill_fields(const struct loader *l, struct field_messages *own, Batchd__Wire__Opened *m)
{
	for (unsigned k = 0; k < l->layout.n_fields; k++) {
		const struct field *f = &l->fields[k];
		const struct slot_field *place = &l->layout.field[k];
		Batchd__Wire__Field *to = own->at[k] = &own->field[k];
		batchd__wire__field__init(to);
		to->name = (char *)f->name;
		to->kind = place->ragged ? BATCHD__WIRE__FIELD_KIND__RAGGED : BATCHD__WIRE__FIELD_KIND__DENSE;
		to->dtype = (Batchd__Wire__Dtype)f->dtype;
		to->n_shape = f->n_dims;
		to->shape = (uint32_t *)f->shape;
		to->text = f->text;
		to->offset = place->offset;
		to->values_offset = place->values_offset;
		to->most_values = place->most_values;
	}
	for (unsigned k = 0; l->recipe.pipeline && k < views_n(l->recipe.pipeline); k++)
		fill_view(l, own, k); /* the first fields: fields_make */
	m->n_field = l->layout.n_fields;
	m->field = own->at;
	m->layout = l->recipe.pipeline ? (Batchd__Wire__Layout)l->spec.layout : BATCHD__WIRE__LAYOUT__AS_STORED;
}

static const struct consumer_ops ring_ops;

static void send_opened(struct session *s)
{
	struct loader *l = s->job->loader;
	struct slots *slots = s->consumer.slots;
	assert(slots && slots->n_made > 0);
	Batchd__Wire__Opened o = BATCHD__WIRE__OPENED__INIT;
	o.dataset_id = dataset_id(l->recipe.dataset);
	o.loader_id = l->id;
	o.content_id = dataset_content_id(l->recipe.dataset);
	o.pipeline_id = l->pipeline_id;
	o.fingerprint.data = (uint8_t *)dataset_fingerprint(l->recipe.dataset, &o.fingerprint.len);
	o.n_samples = dataset_n(l->recipe.dataset);
	o.n_classes = dataset_n_classes(l->recipe.dataset);
	o.rank = s->consumer.rank;
	o.world_size = l->spec.world_size;
	o.policy = l->spec.share ? (Batchd__Wire__Policy)(l->spec.policy + 1) : BATCHD__WIRE__POLICY__POLICY_DEFAULT;
	struct field_messages fields;
	fill_fields(l, &fields, &o);
	o.slab_kind = (Batchd__Wire__SlabKind)slots->slab.kind;
	o.slab_bytes = slots->slab.bytes;
	o.n_slots = slots->n;
	o.window = l->is_async ? l->group.slot_quota : slots->n_made; /* slots that it can rely on; more may be made */
	o.slot_bytes = l->layout.slot_bytes;
	o.indices_offset = l->layout.indices_offset;
	if (s->job->served)
		served_job_describe(s->job, &o);
	device_describe(s, &o);
	int ring = -1, fds[WIRE_OPENED_FDS] = { slots->slab.fd };
	unsigned n_fds = 1;
	if (s->wants_ring)
		session_ring_open(s, &ring);
	if (s->ring.page) {
		s->consumer.ops = &ring_ops;
		o.ring = RING_LAYOUT;
		fds[n_fds++] = ring;
	}
	if (device_fd(s) >= 0)
		fds[n_fds++] = device_fd(s);
	peer_send(s->peer, WIRE_SERVER(OPENED, opened, &o), fds, n_fds);
	if (ring >= 0)
		close(ring);
	log_record(LOG_LEVEL_INFO, "session-opened", "session %llu: %s (pid %d, uid %u) is rank %u of job %s, %s",
		   (unsigned long long)s->number, s->program, (int)s->pid, (unsigned)s->uid, s->consumer.rank,
		   l->spec.job, l->spec.dataset);
}

/* ---- batches ---- */

/* One log record per session: the group has left this trainer behind, or no longer waits for it. */
static void note_apart(struct session *s, bool apart)
{
	struct group *g = s->consumer.group;
	if (!g || g->policy != GROUP_DETACH || !apart || s->told_apart || !s->was_together) {
		s->was_together |= !apart;
		return;
	}
	s->told_apart = true;
	log_record(LOG_LEVEL_INFO, "trainer-detached",
		   "session %llu: %s (pid %d) is too slow for the others of share job %s and goes on by itself",
		   (unsigned long long)s->number, s->program, (int)s->pid, s->job->spec.job);
}

static int session_publish(struct consumer *c, const struct slot *slot)
{
	struct session *s = container_of(c, struct session, consumer);
	if (!s->peer)
		return -EPIPE;
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;
	b.seek = c->seek;
	b.slot = slot->number;
	b.generation = slot->generation;
	b.epoch = slot->at.epoch;
	b.step = slot->at.step;
	b.n_rows = slot->n_rows;
	b.n_padding = slot->n_padding;
	b.n_replaced = atomic_load_explicit(&slot->n_replaced, memory_order_relaxed);
	b.last = slot->last;
	b.n_skipped = c->n_missed;
	b.apart = group_is_apart(c);
	note_apart(s, b.apart);
	log_record(LOG_LEVEL_DEBUG, "batch", "session %llu gets epoch %llu, step %llu in slot %u, generation %llu",
		   (unsigned long long)s->number, (unsigned long long)b.epoch, (unsigned long long)b.step, b.slot,
		   (unsigned long long)b.generation);
	PROBE(slot_publish, s->number, b.slot, b.generation);
	if (trace_is_on())
		trace_add(TRACE_PUBLISH, 0, 0, (uintptr_t)&slot->job, b.generation, s->number);
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH;
	m.batch = &b;
	headroom_mark(s, slot, &b);
	if (s->ring.page) {
		int r = session_ring_put(s, &m);
		if (r == 0)
			headroom_note_marked(s, &b);
		return r;
	}
	headroom_note_marked(s, &b);
	struct peer *p = s->peer; /* a client that does not read is closed here, which may free its session */
	peer_send(p, &m, NULL, 0);
	return p->failing || p->closing ? -EPIPE : 0;
}

static void session_on_device_slab_failed(struct consumer *c, const char *why)
{
	struct session *s = container_of(c, struct session, consumer);
	char text[GPU_REASON_BYTES + 64];
	snprintf(text, sizeof(text), "a batch could not be copied to the GPU: %s; open again", why);
	session_fail(s, CODE(GPU_LOST), "", text);
}

static const struct consumer_ops packet_ops = { .publish = session_publish,
						.device_slab_failed = session_on_device_slab_failed };
static const struct consumer_ops ring_ops = { .publish = session_publish,
					      .device_slab_failed = session_on_device_slab_failed,
					      .look = session_ring_look,
					      .arm = session_ring_arm };

/* ---- messages ---- */

/* Starts to watch the session's process, before anything is made for it. False: that is impossible, and the client has
 * been told. Only the end of its process ends a trainer's leases, so a client is refused if its end cannot be seen. */
static bool session_identify(struct session *s)
{
	int r = peer_identify(s->peer);
	if (r) {
		session_fail(
			s, r == -ENOMEM ? CODE(INTERNAL) : CODE(LIMIT), NULL,
			r == -ENOMEM
				? "out of memory"
				: "the daemon is out of file descriptors (LimitNOFILE= or ulimit -n has the limit)");
		return false;
	}
	if (s->peer->pidfd < 0) {
		session_fail(
			s, CODE(ACCESS), NULL,
			"batchd cannot see when this process ends: it has ended, or it is in another PID namespace and the kernel "
			"is older than 6.5; run batchd in the same or a parent namespace");
		return false;
	}
	return true;
}

static void on_open(struct session *s, const Batchd__Wire__Open *open, int *fds, unsigned n_fds)
{
	if (s->state != SESSION_GREETED || s->producer || s->load || s->headroom.run) {
		session_fail(s, CODE(PROTOCOL), NULL,
			     "Open came twice, from a producer, or behind LoadOpen or Headroom");
		return;
	}
	if (!session_identify(s))
		return;
	struct requester who = { .uid = s->uid,
				 .gids = s->peer->gids,
				 .n_gids = s->peer->n_gids,
				 .lacks_groups = s->peer->lacks_groups,
				 .shares_mounts = request_may_trust(s->uid) && peer_shares_mounts(s->peer) };
	struct request r;
	struct refusal why;
	Batchd__Wire__Open named = *open;
	char served[sizeof("serve:") + WIRE_MAX_PRODUCER];
	if (!config_dataset(s->engine->config, open->dataset) && producer_exists(s->engine, s->uid, open->dataset)) {
		snprintf(served, sizeof(served), "serve:%s", open->dataset);
		named.dataset = served;
	}
	if (request_make(s->engine->config, &named, &who, n_fds, &r, &why)) {
		recent_errors_note(s->engine->errors, s->uid, open->job, why.text);
		session_note(s, REFUSED, &why);
		return;
	}
	s->wanted_rank = r.rank;
	s->own_batch_size = open->own_batch_size;
	device_wish(s, open);
	s->wants_ring = open->ring >= RING_LAYOUT;
	s->born_ns = open->born_ns;
	s->again = open->again;
	s->producer_wait_ns = (open->producer_wait_ms ? open->producer_wait_ms : PRODUCER_WAIT_MS) * UINT64_C(1000000);
	s->producer_deadline_ns = uv_hrtime() + s->producer_wait_ns;
	int refused = job_join(s->engine, s, &r, fds, n_fds, &why);
	request_finish(&r);
	if (refused)
		recent_errors_note(s->engine->errors, s->uid, open->job, why.text);
	session_note(s, refused, &why);
	if (refused)
		return;
	/* A producer's trainers on other machines have jobs of their own. */
	s->headroom.allowed = open->headroom &&
			      !(s->job->served && open->node_world_size && open->node_world_size < open->world_size);
	session_move(s, SESSION_OPENING);
	if (s->job->served && s->job->state == JOB_OPENING)
		served_job_await(s->job);
	else
		session_advance_opening(s);
}

static void on_seek(struct session *s, const Batchd__Wire__Seek *m)
{
	struct loader *l = s->job->loader;
	if (m->seek <= s->consumer.seek) {
		session_fail(s, CODE(PROTOCOL), "seek", "seek numbers must grow");
		return;
	}
	uint64_t most =
		INT64_MAX / (l->spec.served ? LOADER_MAX_WORLD : 1); /* a producer counts the steps of all ranks */
	uint64_t end = l->spec.served ? 0 : l->spec.own_batches ? INT64_MAX : loader_epoch_rows(l);
	if (m->base_sample > end || m->epoch > INT64_MAX || m->step > most) {
		session_fail(s, CODE(INVALID), "epoch", "cannot begin there: beyond the end of the data set");
		return;
	}
	device_forgo(s, m->no_device);
	struct position to = { .epoch = m->epoch, .base = m->base_sample, .step = m->step };
	job_note_moved(s->job);
	headroom_note_moved(s);
	int r = loader_seek(&s->consumer, m->seek, &to);
	char text[400];
	const struct stream *stream = s->consumer.stream;
	if (r == STREAM_E_BEHIND) {
		const struct position *at = stream_oldest(stream);
		bool once = !l->host.source->goes_back;
		snprintf(
			text, sizeof(text), "the others of share job '%s' are at epoch %llu, batch %llu already; %s",
			l->spec.job, (unsigned long long)at->epoch, (unsigned long long)at->step,
			once ? "a producer that does not repeat its epochs (batchd.serve(..., resumable=True), or seed=) makes a batch once: "
			       "begin with a later epoch, or join=\"next\""
			     : "give all of them world_size, so that they wait for each other, or begin with a later epoch");
		session_fail(s, CODE(BEHIND), "epoch", text);
	} else if (r == STREAM_E_ELSEWHERE) {
		snprintf(
			text, sizeof(text),
			"this trainer resumes epoch %llu after sample %llu, the others of share job '%s' epoch %llu after sample %llu; resume all of "
			"them from the states of one moment, or begin with a whole epoch",
			(unsigned long long)to.epoch, (unsigned long long)to.base, l->spec.job,
			(unsigned long long)stream->next.epoch, (unsigned long long)stream->next.base);
		session_fail(s, CODE(MISMATCH), "base_sample", text);
	}
}

static void on_join(struct session *s, const Batchd__Wire__Join *m)
{
	struct loader *l = s->job->loader;
	if (m->seek <= s->consumer.seek) {
		session_fail(s, CODE(PROTOCOL), "seek", "seek numbers must grow");
		return;
	}
	device_forgo(s, m->no_device);
	if (l->spec.served && l->spec.share && l->spec.world_size == 1) {
		job_note_moved(s->job);
		struct refusal why;
		session_note(s, served_job_on_join(s, m, &why), &why);
		return;
	}
	if (!l->is_async || l->spec.world_size > 1) {
		session_fail(s, CODE(INVALID), "join",
			     "join goes with an open share group: mode share and no world_size");
		return;
	}
	struct position at;
	headroom_note_moved(s);
	group_join(&s->consumer, m->seek, (enum group_start)m->start, &at);
	Batchd__Wire__Joined j = BATCHD__WIRE__JOINED__INIT;
	j.seek = m->seek;
	j.epoch = at.epoch;
	j.base_sample = at.base;
	j.step = at.step;
	struct peer *p = s->peer;
	peer_send(p, WIRE_SERVER(JOINED, joined, &j), NULL, 0);
	if (!p->closing)
		group_pump(&l->group);
}

static void on_indices(struct session *s, const Batchd__Wire__Indices *m)
{
	struct loader *l = s->job->loader;
	if (!l->spec.own_batches) {
		session_fail(s, CODE(PROTOCOL), NULL, "Indices without batch_sampler");
		return;
	}
	for (size_t i = 0; i < m->n_index; i++) {
		if (m->index[i] < dataset_n(l->recipe.dataset))
			continue;
		char text[160];
		snprintf(text, sizeof(text), "batch_sampler gave sample %llu; the data set has %llu",
			 (unsigned long long)m->index[i], (unsigned long long)dataset_n(l->recipe.dataset));
		session_fail(s, CODE(INVALID), "batch_sampler", text);
		return;
	}
	int r = stream_push(&s->consumer, m->seek, m->step, m->index, (uint32_t)m->n_index, m->more);
	if (r == STREAM_E_INVALID)
		session_fail(s, CODE(PROTOCOL), "batch_sampler",
			     "index batches out of order, too many ahead, empty or larger than batch_size");
	else if (r == STREAM_E_LIMIT)
		session_fail(s, CODE(LIMIT), "memory_per_user",
			     "no memory for more index batches: this user has all it may have "
			     "(limits.memory_per_user in the daemon's configuration)");
	else if (r)
		session_fail(s, CODE(INTERNAL), "", "out of memory");
}

static void on_release(struct session *s, const Batchd__Wire__Release *m)
{
	control_note_release(s, m);
	if (stream_release(&s->consumer, m->slot, m->generation))
		session_fail(s, CODE(PROTOCOL), "slot", "released a slot it does not hold");
}

static void on_classes(struct session *s, uint32_t first)
{
	struct dataset *ds = s->job->loader->recipe.dataset;
	uint32_t total = dataset_n_classes(ds), n = 0;
	static char *names[WIRE_MAX_CLASSES]; /* loop thread only */
	size_t bytes = 64;
	for (uint32_t i = first; i < total && n < WIRE_MAX_CLASSES; i++) {
		bytes += strlen(dataset_class(ds, i)) + 4;
		if (bytes > WIRE_MAX_BYTES)
			break;
		names[n++] = (char *)dataset_class(ds, i);
	}
	Batchd__Wire__Classes c = BATCHD__WIRE__CLASSES__INIT;
	c.first = first;
	c.total = total;
	c.n_name = n;
	c.name = names;
	peer_send(s->peer, WIRE_SERVER(CLASSES, classes, &c), NULL, 0);
}

static void on_status(struct session *s)
{
	if (s->peer->eof)
		return;
	if (s->peer->n_out) { /* or its unread answers would fill the daemon's memory */
		session_fail(s, CODE(LIMIT), NULL, "asked for the status again before it had read the last");
		return;
	}
	const struct report *r = report_get(s->engine, s->uid);
	if (!r)
		session_fail(s, CODE(INTERNAL), NULL, "out of memory");
	for (unsigned i = 0; r && i < r->n; i++)
		peer_send_packed(s->peer, r->messages[i]);
}

/* What other users' trainers do is in a recording as well. It lasts until the client hangs up. */
static void on_trace(struct session *s)
{
	Batchd__Wire__Traced traced = BATCHD__WIRE__TRACED__INIT;
	int fd, r;
	if (s->uid != 0 && s->uid != geteuid()) {
		session_fail(s, CODE(ACCESS), NULL, "only root and the daemon's own user may record what it does");
		return;
	}
	if (s->state != SESSION_GREETED) {
		session_fail(s, CODE(PROTOCOL), NULL, "Trace behind Open");
		return;
	}
	r = trace_start(&fd);
	if (r < 0) {
		session_fail(s, r == -EBUSY ? CODE(LIMIT) : CODE(INTERNAL), NULL,
			     r == -EBUSY ? "another recording is under way" : "no memory for a recording");
		return;
	}
	s->records = true;
	peer_send(s->peer, WIRE_SERVER(TRACED, traced, &traced), &fd, 1);
}

static void on_headroom(struct session *s, const Batchd__Wire__Headroom *m)
{
	struct refusal why;
	session_note(s, headroom_on_request(s, m, &why), &why);
}

static void on_verdict(struct session *s, const Batchd__Wire__VerdictRequest *m)
{
	struct refusal why;
	session_note(s, verdict_status_answer(s, m, &why), &why);
}

static void on_load_open(struct session *s, const Batchd__Wire__LoadOpen *m, int *fds)
{
	struct refusal why;
	if (s->producer || s->load || s->state != SESSION_GREETED || s->headroom.run)
		session_fail(s, CODE(PROTOCOL), NULL,
			     "LoadOpen came twice, from a trainer or producer, or behind Headroom");
	else
		session_note(s, load_on_open(s, m, fds, &why), &why);
}

static void on_load(struct session *s, const Batchd__Wire__Load *m)
{
	struct refusal why;
	session_note(s, load_on_load(s, m, &why), &why);
}

static void session_on_close(struct session *s)
{
	struct peer *p = s->peer;
	session_ring_close(s); /* every lease ends, so it does not matter which were released */
	if (s->state == SESSION_ATTACHED || s->state == SESSION_DRAINING)
		loader_finish_consumer(&s->consumer);
	peer_close(p);
}

static void on_produce(struct session *s, const Batchd__Wire__Produce *m)
{
	struct refusal why;
	if (s->producer || s->load || s->state != SESSION_GREETED || s->headroom.run)
		session_fail(s, CODE(PROTOCOL), NULL,
			     "Produce came twice, from a trainer, or behind LoadOpen or Headroom");
	else if (session_identify(s))
		session_note(s, producer_on_produce(s, m, &served_job_producer_ops, &why), &why);
}

static void on_filled(struct session *s, const Batchd__Wire__Filled *m)
{
	struct refusal why;
	session_note(s, producer_on_filled(s, m, &why), &why);
}

static void on_producer_end(struct session *s, const Batchd__Wire__ProducerEnd *m)
{
	struct refusal why;
	struct peer *p = s->peer;
	int r = producer_on_end(s, m, &why);
	session_note(s, r, &why);
	if (r == 0)
		peer_close(p);
}

static void on_compare(struct session *s, const Batchd__Wire__Compare *m)
{
	struct refusal why;
	session_note(s, session_compare(s, m, &why), &why);
}

static struct session *create_session(struct engine *e, struct peer *p)
{
	struct session *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->engine = e;
	s->peer = p;
	s->consumer.ops = &packet_ops;
	s->number = p->number;
	s->pid = p->pid;
	s->uid = p->uid;
	s->pidfd = -1;
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
	bool attached = s->state == SESSION_ATTACHED;
	if (s->state == SESSION_DRAINING && m->body_case != BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLOSE)
		return; /* it was sent before the client knew */
	if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_PRODUCE)
		on_produce(s, m->produce);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_FILLED)
		on_filled(s, m->filled);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_PRODUCER_END)
		on_producer_end(s, m->producer_end);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN)
		on_open(s, m->open, fds, n_fds);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_STATUS)
		on_status(s);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_TRACE)
		on_trace(s);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_HEADROOM)
		on_headroom(s, m->headroom);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_VERDICT)
		on_verdict(s, m->verdict);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_LOAD_OPEN)
		on_load_open(s, m->load_open, fds);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_LOAD)
		on_load(s, m->load);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLOSE)
		session_on_close(s);
	else if (!attached)
		peer_fail(p, CODE(PROTOCOL), NULL, "%s before Opened", wire_client_name(m));
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_SEEK)
		on_seek(s, m->seek);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_JOIN)
		on_join(s, m->join);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_INDICES)
		on_indices(s, m->indices);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_RELEASE)
		on_release(s, m->release);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_WAITING)
		stream_wait(&s->consumer);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_WAKE)
		stream_wake(&s->consumer);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_STEPPED)
		headroom_on_stepped(s, m->stepped);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_COMPARE)
		on_compare(s, m->compare);
	else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLASSES)
		on_classes(s, m->classes->first);
}

const struct job_ops session_job_ops = { .advance = session_advance_opening, .ended = session_on_ended };
const struct peer_ops session_peer_ops = { .message = session_on_message, .closed = on_peer_closed };
