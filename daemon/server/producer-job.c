/* See producer-job.h. The order of batches is batch/producer-source.c's. */
#include "server/producer-job.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch/producer-source.h"
#include "dataset/arrays/served.h"
#include "server/producer.h"
#include "server/open-request.h"
#include "server/session-state.h"
#include "base/log.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

enum { FIRST_TICK_MS = 100, TICK_MS = 1000 };

static void producer_job_leave(struct job *j);

/* ---- fills ---- */

static void producer_job_on_fill(struct producer_source *source, uint64_t number, uint32_t rank,
				 const struct slot *slot, uint64_t epoch, uint64_t step)
{
	struct job *j = source->owner;
	Batchd__Wire__Fill fill = BATCHD__WIRE__FILL__INIT;
	(void)rank;
	if (!j->producer)
		return;
	j->producer->asked = number;
	fill.fill = number;
	fill.slab = slot->slots->slab_number;
	fill.slot = slot->number;
	fill.epoch = epoch;
	fill.step = step;
	producer_fill(j->producer, &fill);
}

static void producer_job_on_cancel(struct producer_source *source, uint64_t number)
{
	struct job *j = source->owner;
	Batchd__Wire__Fill fill = BATCHD__WIRE__FILL__INIT;
	fill.fill = number;
	fill.cancel = true;
	if (j->producer)
		producer_fill(j->producer, &fill);
}

static void fail_job(struct job *j, Batchd__Wire__ErrorCode code, const char *text)
{
	j->fail_code = code;
	producer_source_stop(j->source);
	loader_fail(j->loader, "%s", text);
}

static void on_cannot(struct producer_source *source, uint64_t epoch, uint64_t step)
{
	struct job *j = source->owner;
	char text[512];
	snprintf(
		text, sizeof(text),
		"producer '%s' cannot begin with batch %llu of epoch %llu: it has not said that an epoch is the same whenever it is made "
		"(batchd.serve(..., resumable=True), or seed=); begin with a whole epoch",
		j->served, (unsigned long long)step, (unsigned long long)epoch);
	fail_job(j, CODE(PRODUCER), text);
}

static void on_look(struct producer_source *source);

static const struct producer_source_ops producer_source_ops = {
	.fill = producer_job_on_fill, .cancel = producer_job_on_cancel, .look = on_look, .cannot = on_cannot
};

/* ---- slabs ---- */

/* In share mode there is one slab for all ranks. */
static uint32_t slab_rank(const struct job *j, uint32_t rank)
{
	return j->spec.share ? 0 : rank;
}

bool producer_job_is_mapping(const struct job *j, uint32_t rank)
{
	return j->producer && producer_is_mapping(j->producer, slab_rank(j, rank));
}

void producer_job_offer(struct job *j, uint32_t rank, struct slots *slots)
{
	if (j->producer && producer_offer(j->producer, slab_rank(j, rank), slots) == 0)
		return;
	slots_unref(slots);
	if (j->producer) /* without a producer the job has failed, and its sessions know */
		fail_job(j, CODE(INTERNAL), "out of memory");
}

static bool is_wanted(const struct job *j, uint32_t rank)
{
	for (const struct session *s = j->sessions; s; s = s->next_in_job) {
		if (s->state == SESSION_OPENING && (j->spec.share || s->consumer.rank == rank))
			return true;
	}
	return false;
}

static void producer_job_on_mapped(struct producer *p, uint32_t rank, struct slots *slots, bool sealed)
{
	struct job *j = p->job;
	assert(j->producer == p && j->loader);
	if (sealed && is_wanted(j, rank))
		stream_set_slots(loader_stream(j->loader, rank), slots);
	else
		slots_unref(slots);
	if (!sealed)
		fail_job(j, CODE(INTERNAL), "cannot seal the slab");
	job_advance(j);
}

/* ---- finding each other ---- */

static bool may_feed(const struct job *j, const struct producer *p)
{
	const struct peer *peer = p->session->peer;
	if (strcmp(p->name, j->served) || p->session->state == SESSION_ENDING)
		return false;
	if (p->uid == j->spec.uid)
		return true;
	/* Another user's producer: only if the configuration has the data set, and allows it to both users. */
	const struct config_dataset *d = config_dataset(j->engine->config, j->spec.dataset);
	struct requester who = { .uid = p->uid,
				 .gids = peer->gids,
				 .n_gids = peer->n_gids,
				 .lacks_groups = peer->lacks_groups,
				 .shares_mounts = open_request_may_trust(p->uid) && peer_shares_mounts(peer) };
	return d && open_request_may_use(d, &who);
}

static int make_loader(struct job *j, struct producer *p)
{
	struct loader_spec spec;
	struct recipe recipe = { 0 };
	p->slot_bytes = p->most_bytes > p->slot_bytes ? p->most_bytes : p->slot_bytes;
	int r = served_create(p->name, p->id, p->n_samples, p->slot_bytes, &recipe.dataset);
	if (r)
		return r;
	r = loader_spec_copy(&j->spec, &spec);
	if (r)
		goto unref;
	r = job_make_loader(j, &spec, &recipe);
	if (r)
		goto free_spec;
	struct producer_caps caps = { .resumable = p->resumable, .n_batches = p->n_batches };
	r = producer_source_create(&j->engine->loop, j->loader, &producer_source_ops, j, &caps, p->asked + 1,
				   &j->source);
	if (r == 0)
		loader_set_source(j->loader, &j->source->source);
	return r; /* the job frees the loader */
free_spec:
	loader_spec_finish(&spec);
unref:
	dataset_unref(recipe.dataset);
	return r;
}

static void start_feeding(struct job *j, struct producer *p)
{
	assert(j->state == JOB_OPENING && !j->producer && !p->job);
	uv_timer_stop(&j->linger);
	int r = make_loader(j, p);
	if (r) {
		struct refusal why;
		job_move(j, JOB_FAILED);
		refuse(&why, CODE(INTERNAL), "", "%s", strerror(-r));
		job_end_sessions(j, &why);
		return;
	}
	job_move(j, JOB_READY);
	j->producer = p;
	j->on_closing = producer_job_leave;
	producer_bind(p, j);
	log_record(LOG_LEVEL_INFO, "producer-bound", "producer %s (pid %d) feeds job %s", p->name, (int)p->pid,
		   j->spec.job);
	job_advance(j);
}

/* Takes the producer from a job without sessions. */
static void free_from_idle(struct producer *p)
{
	if (p->job && !p->job->sessions)
		job_close(p->job);
}

static void refuse_second_job(struct job *j, const struct producer *p)
{
	struct refusal why;
	refuse(&why, CODE(PRODUCER), "producer",
	       "producer '%s' feeds job '%s' already, with %u trainer%s; trainers that are to have the same batches need the same job "
	       "and mode=\"share\", those of one run the same job, and others a producer of their own",
	       p->name, p->job->spec.job, p->job->n_sessions, p->job->n_sessions == 1 ? "" : "s");
	job_end_sessions(j, &why);
}

/* ---- waiting ---- */

static void tell_waiting(struct session *s, uint64_t now)
{
	Batchd__Wire__Progress body = BATCHD__WIRE__PROGRESS__INIT;
	uint64_t left_ns = s->producer_deadline_ns - now;
	body.phase = (char *)"producer";
	body.total = s->producer_wait_ns / 1000000000;
	body.done = s->producer_wait_ns > left_ns ? (s->producer_wait_ns - left_ns) / 1000000000 : 0;
	peer_send(s->peer, WIRE_SERVER(PROGRESS, progress, &body), NULL, 0);
}

static void producer_job_give_up(struct session *s)
{
	struct refusal why;
	refuse(&why, CODE(PRODUCER), "producer",
	       "no producer named '%s' came within %.3g s; start one with batchd.serve(..., name=\"%s\") as the same user, or wait for it "
	       "longer (producer_timeout)",
	       s->job->served, (double)s->producer_wait_ns / 1e9, s->job->served);
	s->engine->job_ops->end(s, &why);
}

/* A free producer for the job. NULL: there is none; *busy: one that feeds another job, which has sessions. */
static struct producer *find_free(const struct job *j, const struct producer **busy)
{
	struct producer *found = NULL;
	*busy = NULL;
	for (struct producer *p = j->engine->producers; p && !found; p = p->next) {
		if (!may_feed(j, p))
			continue;
		free_from_idle(p);
		if (!p->job)
			found = p;
		else if (p->job->n_sessions)
			*busy = p;
	}
	return found;
}

static void on_tick(uv_timer_t *t)
{
	struct job *j = t->data;
	uint64_t now = uv_hrtime();
	const struct producer *busy;
	struct producer *p = find_free(j, &busy);
	if (p)
		start_feeding(j, p);
	else if (busy)
		refuse_second_job(j, busy);
	if (p || busy)
		return;
	for (struct session *s = j->sessions; s; s = s->next_in_job) {
		if (now >= s->producer_deadline_ns)
			producer_job_give_up(s);
		else
			tell_waiting(s, now);
	}
}

/* Looks for a producer at each tick, and refuses the sessions whose deadline has passed. */
static void wait_on(struct job *j)
{
	uv_timer_start(&j->linger, on_tick, FIRST_TICK_MS, TICK_MS);
}

void producer_job_await(struct job *j)
{
	const struct producer *busy;
	struct producer *p = find_free(j, &busy);
	if (p)
		start_feeding(j, p);
	else if (busy)
		refuse_second_job(j, busy);
	else
		wait_on(j);
}

static bool is_waiting(const struct job *j)
{
	return j->state == JOB_OPENING && j->served && j->n_sessions;
}

/* Gives the producer the job that waits for it; refuses a second such job. */
static void on_came(struct producer *p)
{
	for (struct job *j = p->session->engine->jobs; j; j = j->next) {
		if (!is_waiting(j) || !may_feed(j, p))
			continue;
		if (p->job)
			refuse_second_job(j, p);
		else
			start_feeding(j, p);
	}
}

/* ---- answers ---- */

/* Whether a large batch of this job is with its trainers, which will give it back. */
static bool is_large_lent(const struct job *j)
{
	const struct streams *all = &j->loader->streams;
	for (uint32_t i = 0; i < all->n; i++) {
		const struct slots *slots = all->list[i]->slots;
		for (uint32_t k = 0; slots && k < slots->n; k++) {
			if (slots->slot[k].large && slots->slot[k].state == SLOT_READY)
				return true;
		}
	}
	return false;
}

/* Jobs that linger are closed to make room, but not this one. As large_batch_charge. */
static int charge_large(struct job *j, struct large_batch *b, enum account_kind *kind)
{
	struct engine *e = j->engine;
	int r;
	do
		r = large_batch_charge(b, &e->budget.accounts, j->spec.uid, kind);
	while (r > 0 && j->sessions && job_close_lingering(e, j->spec.uid, r == ACCOUNT_E_ALL));
	if (r == 0)
		budget_balance(&e->budget);
	return r;
}

static void fail_for_memory(struct job *j, int r, enum account_kind kind, uint64_t n_bytes)
{
	char text[512], what[160];
	snprintf(what, sizeof(what), "a batch of producer '%s', which does not fit its slot,", j->served);
	if (r > 0 && kind == ACCOUNT_SLOT_BYTES)
		budget_explain(&j->engine->budget, j->spec.uid, r, what, n_bytes,
			       "make smaller batches, close other loaders, or raise the limit", text, sizeof(text));
	else
		snprintf(
			text, sizeof(text), "%s finds %s", what,
			r > 0 ? "no descriptor: this user has all that limits.fds_per_user in the daemon's configuration allows"
			      : "the daemon out of memory");
	fail_job(j, r > 0 ? CODE(LIMIT) : CODE(INTERNAL), text);
}

/* Gives the untaken batch to the source, once its memory is charged. While there is none, it waits for the job's other
 * large batches: a trainer gives them back; where there is no other, none would ever come. */
static void take_large(struct job *j)
{
	struct producer *p = j->producer;
	struct large_batch *b = p->untaken.batch;
	struct source_answer a = {
		.outcome = SOURCE_MADE, .n_rows = p->untaken.n_rows, .n_bytes = b->n_bytes, .large = b
	};
	enum account_kind kind;
	int r = producer_source_is_wanted(j->source) ? charge_large(j, b, &kind) : 0;
	if (r > 0 && is_large_lent(j))
		return;
	if (r)
		fail_for_memory(j, r, kind, b->held_bytes);
	p->untaken.batch = NULL;
	producer_take(p);
	(void)producer_source_answered(j->source, p->untaken.fill, &a); /* a job that has failed takes none */
}

static void on_look(struct producer_source *source)
{
	struct job *j = source->owner;
	if (j->producer && j->producer->untaken.batch)
		take_large(j);
}

static int on_answered(struct producer *p, const Batchd__Wire__Filled *m, struct large_batch *large,
		       struct refusal *why)
{
	struct producer_source *source = p->job ? p->job->source : NULL;
	bool made = !m->end && !m->skipped;
	/* Else of a job that has failed or closed meanwhile. */
	bool ours = source && !source->stopped && source->first && m->fill >= source->first->number;
	if (ours && m->end && m->n_batches > source->first->at.step)
		return refuse(why, CODE(INVALID), "n_batches",
			      "an epoch that has no such batch has none after it either");
	if (made) {
		p->n_made++;
		p->rows_made += m->n_rows;
	}
	if (ours && made) {
		p->made_any = true;
		p->at = source->first->at;
	}
	if (large && ours) {
		p->job->outgrown = true;
		p->untaken.batch = large;
		p->untaken.fill = m->fill;
		p->untaken.n_rows = m->n_rows;
		take_large(p->job);
		return 0;
	}
	if (large) {
		large_batch_destroy(large);
		producer_take(p);
	}
	if (!ours)
		return 0;
	struct source_answer a = { .outcome = m->end       ? SOURCE_END
					      : m->skipped ? SOURCE_SKIPPED
							   : SOURCE_MADE,
				   .n_rows = m->n_rows,
				   .n_bytes = m->n_bytes ? m->n_bytes : p->slot_bytes,
				   .n_batches = m->n_batches };
	if (producer_source_answered(source, m->fill, &a))
		log_record(LOG_LEVEL_WARNING, "feed", "producer's answer %llu does not fit",
			   (unsigned long long)m->fill);
	return 0;
}

/* ---- the end ---- */

static void on_gone(struct producer *p, Batchd__Wire__ErrorCode code, const char *text)
{
	struct job *j = p->job;
	assert(j->producer == p && j->source);
	j->producer = NULL;
	producer_source_stop(j->source);
	if (code == CODE(SHUTDOWN))
		fail_job(j, code, text);
	else
		job_end(j, code, text);
}

const struct producer_ops producer_job_producer_ops = {
	.came = on_came, .mapped = producer_job_on_mapped, .answered = on_answered, .ended = on_gone
};

static void drop_untaken(struct producer *p)
{
	if (!p->untaken.batch)
		return;
	large_batch_destroy(p->untaken.batch);
	p->untaken.batch = NULL;
	producer_take(p);
}

/* The job is closing. */
static void producer_job_leave(struct job *j)
{
	if (!j->producer)
		return;
	producer_drop_offers(j->producer);
	drop_untaken(j->producer);
	producer_bind(j->producer, NULL);
	j->producer = NULL;
	for (struct job *other = j->engine->jobs; other; other = other->next) {
		if (is_waiting(other)) /* it may have come after the last session of this job had gone */
			uv_timer_start(&other->linger, on_tick, 0, TICK_MS);
	}
}

/* ---- its trainers ---- */

/* The first batch that no trainer of the group has been given. Streams run ahead of it, and past the end of an epoch
 * until the producer reports where the epoch ends. A trainer that is even farther ahead waits for the others, unless
 * there are none. */
static struct position next_of_group(const struct session *s)
{
	const struct job *j = s->job;
	const struct stream *stream = s->consumer.stream;
	const struct position *first = NULL, *waiting = NULL;
	for (uint32_t i = 0; i < stream->n_consumers; i++) {
		const struct consumer *c = stream->consumers[i];
		if (!c || !consumer_is_placed(c))
			continue;
		if (position_compare(&c->cursor, &stream->next) > 0)
			waiting = waiting && position_compare(waiting, &c->cursor) < 0 ? waiting : &c->cursor;
		else
			first = first && position_compare(first, &c->cursor) > 0 ? first : &c->cursor;
	}
	struct position at = first ? *first : waiting ? *waiting : (struct position){ 0 };
	bool over = j->source && (producer_source_is_over(j->source, &at) ||
				  (j->source->caps.n_batches && at.step >= j->source->caps.n_batches));
	return over ? (struct position){ .epoch = at.epoch + 1 } : at;
}

int producer_job_on_join(struct session *s, const Batchd__Wire__Join *m, struct refusal *why)
{
	struct position at = next_of_group(s);
	Batchd__Wire__Joined body = BATCHD__WIRE__JOINED__INIT;
	if (m->start == BATCHD__WIRE__START__AT_START && at.step)
		return refuse(
			why, CODE(INVALID), "start",
			"a producer makes its batches once: who comes later begins with the next batch, or with the next epoch");
	if (m->start == BATCHD__WIRE__START__AT_EPOCH && at.step)
		at = (struct position){ .epoch = at.epoch + 1 };
	body.seek = m->seek;
	body.epoch = at.epoch;
	body.step = at.step;
	peer_send(s->peer, WIRE_SERVER(JOINED, joined, &body), NULL, 0);
	if (s->consumer.state == CONSUMER_RETURNED) /* it was here before, but without a position */
		consumer_move(&s->consumer, CONSUMER_NEW);
	(void)loader_seek(&s->consumer, m->seek, &at); /* never behind the others */
	return 0;
}

void producer_job_describe(const struct job *j, Batchd__Wire__Opened *o)
{
	const struct producer *p = j->producer;
	o->served = true;
	if (!p)
		return;
	o->n_batches = p->n_batches / loader_n_ranks(j->loader);
	o->n_rows = p->n_rows;
}
