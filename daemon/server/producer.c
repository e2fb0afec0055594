/* See producer.h. This file has names, connections, slabs and the end of a producer; producer-job.c decides which
 * batches are made. */
#include "server/producer.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/job.h"
#include "base/list.h"
#include "base/log.h"
#include "base/probe.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

static void producer_tell(struct producer *p, Batchd__Wire__ServerMessage *m, const int *fd)
{
	peer_send(p->session->peer, m, fd, fd ? 1 : 0);
}

void producer_fill(struct producer *p, const Batchd__Wire__Fill *body)
{
	producer_tell(p, WIRE_SERVER(FILL, fill, (Batchd__Wire__Fill *)body), NULL);
}

/* ---- states ---- */

/* j: the job that it begins to feed, for the log; else NULL. */
static void producer_move(struct producer *p, enum producer_state to, const struct job *j)
{
	static const char *const names[] = { "idle", "feeding", "gone" };
	static const uint8_t moves[] = {
		[PRODUCER_IDLE] = 1 << PRODUCER_FEEDING | 1 << PRODUCER_GONE,
		[PRODUCER_FEEDING] = 1 << PRODUCER_IDLE | 1 << PRODUCER_GONE,
		[PRODUCER_GONE] = 0,
	};
	enum producer_state from = p->state;
	assert(moves[from] >> to & 1);
	p->state = to;
	log_record(LOG_LEVEL_DEBUG, "producer-state", "producer %s (pid %d): %s -> %s%s%s", p->name, (int)p->pid,
		   names[from], names[to], j ? ", job " : "", j ? j->spec.job : "");
	PROBE(producer_move, p->pid, from, to);
}

void producer_bind(struct producer *p, struct job *j)
{
	assert(!p->job != !j); /* one job at a time */
	producer_move(p, j ? PRODUCER_FEEDING : PRODUCER_IDLE, j);
	p->job = j;
}

/* ---- slabs ---- */

void producer_drop_offers(struct producer *p)
{
	while (p->offers) {
		struct offer *o = p->offers;
		p->offers = o->next;
		slots_unref(o->slots);
		free(o);
	}
}

bool producer_is_mapping(const struct producer *p, uint32_t rank)
{
	for (const struct offer *o = p->offers; o; o = o->next) {
		if (o->rank == rank)
			return true;
	}
	return false;
}

int producer_offer(struct producer *p, uint32_t rank, struct slots *slots)
{
	struct offer *o = calloc(1, sizeof(*o)), **end;
	if (!o)
		return -ENOMEM;
	assert(p->job && slots->n_made == slots->n);
	slots->slab_number = ++p->n_slabs;
	*o = (struct offer){ .slots = slots, .rank = rank };
	for (end = &p->offers; *end; end = &(*end)->next)
		;
	*end = o;
	Batchd__Wire__Producing body = BATCHD__WIRE__PRODUCING__INIT;
	body.slab = slots->slab_number;
	body.n_slots = slots->n;
	body.slot_bytes = slots->layout.slot_bytes;
	body.room_bytes = p->slot_bytes;
	body.rank = o->rank;
	producer_tell(p, WIRE_SERVER(PRODUCING, producing, &body), &slots->slab.writable_fd);
	return 0;
}

/* The producer has mapped the oldest slab on offer: from now on no other process may map it writable, and trainers may
 * have it. */
static int producer_on_mapped(struct producer *p, uint32_t slab, struct refusal *why)
{
	struct offer *o = p->offers;
	if (!o || o->slots->slab_number != slab) {
		if (slab == 0 || slab > p->n_slabs)
			return refuse(why, CODE(PROTOCOL), "slab", "mapped a slab that was not offered");
		return 0; /* a slab of a job that has closed meanwhile */
	}
	struct slots *slots = o->slots;
	uint32_t rank = o->rank;
	assert(p->job); /* the offers belong to its job */
	p->offers = o->next;
	free(o);
	p->ops->mapped(p, rank, slots, slab_seal(&slots->slab) == 0);
	return 0;
}

/* ---- names ---- */

static struct producer *producer_find(struct engine *e, uid_t uid, const char *name)
{
	struct producer *p = e->producers;
	while (p && (p->uid != uid || strcmp(p->name, name)))
		p = p->next;
	return p;
}

bool producer_exists(const struct engine *e, uid_t uid, const char *name)
{
	return producer_find((struct engine *)e, uid, name) != NULL;
}

/* Whether this user may have another producer: no more than are left for the others. */
static int producer_find_place(const struct engine *e, uid_t uid, struct refusal *why)
{
	const struct config_limits *l = &e->config->limits;
	unsigned n = 0, n_own = 0;
	for (const struct producer *p = e->producers; p; p = p->next) {
		n++;
		n_own += p->uid == uid;
	}
	if (n_own >= l->producers_per_user)
		return refuse(why, CODE(LIMIT), "producers_per_user",
			      "this user has %u producers, all that limits.producers_per_user in the daemon's "
			      "configuration allows: end some, or raise it",
			      n_own);
	if (n >= l->producers)
		return refuse(
			why, CODE(LIMIT), "producers",
			"the daemon has %u producers, all that limits.producers in its configuration allows: raise it",
			n);
	if (n_own >= l->producers - n)
		return refuse(why, CODE(LIMIT), "producers",
			      "this user has %u producers, and of the %u that limits.producers in the daemon's "
			      "configuration allows %u are left for other users: end some, or raise it",
			      n_own, l->producers, l->producers - n);
	return 0;
}

/* ---- the end of a producer ---- */

/* The trainers that it feeds get the batches that were made, and the reason why there are no more. */
static void producer_end_feeding(struct producer *p, Batchd__Wire__ErrorCode code, const char *text)
{
	struct engine *e = p->session->engine;
	list_remove(&e->producers, p, next);
	assert(p->session->producer == p && p->state != PRODUCER_GONE);
	producer_drop_offers(p);
	large_batch_destroy(p->untaken.batch);
	p->untaken.batch = NULL;
	producer_move(p, PRODUCER_GONE, NULL);
	log_record(LOG_LEVEL_INFO, "producer-gone", "producer %s (pid %d) is gone", p->name, (int)p->pid);
	if (p->job)
		p->ops->ended(p, code, text);
	p->job = NULL;
	e->on_activity(e);
}

static void end_with(struct producer *p, Batchd__Wire__ErrorCode code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void end_with(struct producer *p, Batchd__Wire__ErrorCode code, const char *fmt, ...)
{
	char text[WIRE_MAX_TEXT];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	producer_end_feeding(p, code, text);
}

static const char *where(const struct producer *p, char *buf, size_t size)
{
	if (p->made_any)
		snprintf(buf, size, "after batch %llu of epoch %llu", (unsigned long long)p->at.step,
			 (unsigned long long)p->at.epoch);
	else
		snprintf(buf, size, "before its first batch");
	return buf;
}

void producer_on_closed(struct session *s)
{
	struct producer *p = s->producer;
	char at[96];
	if (p && p->state != PRODUCER_GONE)
		end_with(p, CODE(PRODUCER), "producer '%s' (pid %d) was killed or crashed %s", p->name, (int)p->pid,
			 where(p, at, sizeof(at)));
	free(p);
	s->producer = NULL;
}

int producer_on_end(struct session *s, const struct message *m, struct refusal *why)
{
	struct producer *p = s->producer;
	char at[96];
	(void)why;
	assert(p);
	end_with(p, CODE(PRODUCER), "producer '%s' (pid %d), %s: %s", p->name, (int)p->pid, where(p, at, sizeof(at)),
		 m->body->producer_end->text);
	peer_close(s->peer);
	return 0;
}

/* ---- batches that do not fit ---- */

void producer_take(struct producer *p)
{
	Batchd__Wire__Fill body = BATCHD__WIRE__FILL__INIT;
	assert(p->is_waiting && !p->untaken.batch);
	p->is_waiting = false;
	body.fill = p->answered;
	body.taken = true;
	producer_fill(p, &body);
}

static int refuse_size(struct producer *p, uint64_t n_bytes, struct refusal *why)
{
	refuse(why, CODE(LIMIT), "batch_bytes",
	       "a batch takes %llu bytes, and limits.batch_bytes in the daemon's configuration is %llu",
	       (unsigned long long)n_bytes, (unsigned long long)p->session->engine->config->limits.batch_bytes);
	end_with(p, CODE(PRODUCER), "producer '%s' (pid %d): %s", p->name, (int)p->pid, why->text);
	return REFUSED;
}

/* Takes the descriptor. 0 or REFUSED. */
static int on_large(struct producer *p, const Batchd__Wire__Filled *m, int *fd, struct large_batch **out,
		    struct refusal *why)
{
	const char *wrong;
	if (m->n_bytes > p->session->engine->config->limits.batch_bytes)
		return refuse_size(p, m->n_bytes, why);
	*out = large_batch_create(*fd, m->n_bytes, p->session->uid, &wrong);
	if (!*out)
		return wrong ? refuse(why, CODE(INVALID), "n_bytes", "%s", wrong) : refuse_memory(why);
	*fd = -1;
	p->is_waiting = true;
	if (m->n_bytes > p->most_bytes) {
		log_record(LOG_LEVEL_INFO, "producer-large",
			   "producer %s (pid %d): a batch takes %llu bytes, its slots have %llu", p->name, (int)p->pid,
			   (unsigned long long)m->n_bytes, (unsigned long long)p->slot_bytes);
		p->most_bytes = m->n_bytes;
	}
	return 0;
}

/* ---- messages ---- */

static void producer_replace(struct producer *old, const struct session *by, bool resumable)
{
	struct session *s = old->session;
	struct refusal why;
	refuse(&why, CODE(FENCED), "producer", "a newer producer took the name '%s': %s (pid %d)", old->name,
	       by->program, (int)by->pid);
	/* A producer that can begin anywhere simply takes over: SHUTDOWN makes trainers reopen and continue at their
	 * position. */
	end_with(old, resumable ? CODE(SHUTDOWN) : CODE(PRODUCER),
		 "producer '%s' (pid %d) was replaced by a newer one (pid %d)", old->name, (int)old->pid, (int)by->pid);
	s->engine->job_ops->end(s, &why);
}

/* Whether this producer may have the name. */
static int check_produce(const struct session *s, const Batchd__Wire__Produce *m, struct refusal *why)
{
	const struct engine *e = s->engine;
	const struct producer *old = producer_find(s->engine, s->uid, m->name);
	if (!m->slot_bytes || m->slot_bytes > e->config->limits.batch_bytes)
		return refuse(
			why, CODE(LIMIT), "slot_bytes",
			"slot_bytes is %llu; expected 1 to %llu (limits.batch_bytes in the daemon's configuration)",
			(unsigned long long)m->slot_bytes, (unsigned long long)e->config->limits.batch_bytes);
	if (old && old->incarnation > m->incarnation)
		return refuse(why, CODE(FENCED), "incarnation", "a newer incarnation of this producer is running");
	return old ? 0 : producer_find_place(e, s->uid, why);
}

int producer_on_produce(struct session *s, const Batchd__Wire__Produce *m, const struct producer_ops *ops,
			struct refusal *why)
{
	struct engine *e = s->engine;
	if (check_produce(s, m, why))
		return REFUSED;
	struct producer *p = calloc(1, sizeof(*p)), *old = producer_find(e, s->uid, m->name);
	if (!p)
		return refuse_memory(why);
	*p = (struct producer){ .session = s,
				.ops = ops,
				.slot_bytes = m->slot_bytes,
				.n_batches = m->n_batches,
				.n_samples = m->n_samples,
				.id = m->id,
				.incarnation = m->incarnation,
				.n_rows = m->n_rows,
				.resumable = m->resumable,
				.uid = s->uid,
				.pid = s->pid,
				.created_ns = uv_hrtime() };
	snprintf(p->name, sizeof(p->name), "%s", m->name);
	if (old)
		producer_replace(old, s, m->resumable);
	s->producer = p;
	list_push(&e->producers, p, next);
	e->on_activity(e);
	log_record(LOG_LEVEL_INFO, "producer", "%s (pid %d, uid %u) serves '%s'", s->program, (int)s->pid,
		   (unsigned)s->uid, p->name);
	Batchd__Wire__Producing body = BATCHD__WIRE__PRODUCING__INIT;
	producer_tell(p, WIRE_SERVER(PRODUCING, producing, &body), NULL);
	ops->came(p);
	return 0;
}

/* The error in an answer; NULL: none. */
static const char *check_answer(const struct producer *p, const Batchd__Wire__Filled *m, bool large, const char **field)
{
	*field = "n_rows";
	if (!m->end && !m->skipped && !m->n_rows)
		return "a batch has at least one row";
	*field = "n_bytes";
	if (large && (m->end || m->skipped || !m->n_bytes)) /* it may fit the slots of a job that came meanwhile */
		return "a memfd brings a batch, and nothing else";
	if (!large && m->n_bytes > p->slot_bytes)
		return "a batch lies within its slot, or comes in a memfd";
	return NULL;
}

static int on_answer(struct producer *p, const Batchd__Wire__Filled *m, int *fd, struct refusal *why)
{
	const char *field, *wrong = check_answer(p, m, fd, &field);
	struct large_batch *large = NULL;
	if (m->fill != p->answered + 1 || m->fill > p->asked || p->is_waiting)
		return refuse(
			why, CODE(PROTOCOL), "fill",
			"answered a Fill out of order, one that it was not sent, or before its last batch was taken");
	if (wrong)
		return refuse(why, CODE(INVALID), field, "%s", wrong);
	p->answered = m->fill;
	assert(p->answered <= p->asked);
	if (fd && on_large(p, m, fd, &large, why))
		return REFUSED;
	return p->ops->answered(p, m, large, why);
}

int producer_on_filled(struct session *s, const struct message *m, struct refusal *why)
{
	const Batchd__Wire__Filled *filled = m->body->filled;
	assert(s->producer);
	return filled->fill ? on_answer(s->producer, filled, m->n_fds ? m->fds : NULL, why)
			    : producer_on_mapped(s->producer, filled->slab, why);
}
