/* See verdict-status.h. */
#include "verdict-status.h"

#include <stdio.h>
#include <string.h>

#include "clock-status.h"
#include "core/loader.h"
#include "core/verdict.h"
#include "job.h"
#include "session-state.h"
#include "util/memory.h"

enum {
	MINUTE = 60,
	MOST_MEMORY_PERCENT = 75, /* of the machine's memory, as the budget allows it */
	PARTS = 64,               /* of a budget, so many parts ... */
	DECODED_PARTS = 21,       /* ... may be decoded pixels: see budget.c */
};

static uint64_t worked_ns(const uint64_t ns[CLOCK_N_STATES])
{
	uint64_t all = 0;
	for (int i = 0; i < CLOCK_IDLE; i++)
		all += ns[i];
	return all;
}

/* Another trainer of its job that makes no progress. */
static void describe_stalled(const struct session *s, char *text, size_t size)
{
	*text = '\0';
	for (const struct session *o = s->job->sessions; o && !*text; o = o->next_in_job)
		if (o != s && o->stall.is_on)
			snprintf(text, size, "rank %u has stalled: %s", o->consumer.rank, o->stall.why);
}

/* The other trainer of its job that has been busy for the greatest part of its time. */
static void describe_slowest(const struct session *s, char *text, size_t size)
{
	double most = 0.5; /* a trainer that waits for more than half of its time keeps no other one waiting */
	*text = '\0';
	for (const struct session *o = s->job->sessions; o; o = o->next_in_job) {
		uint64_t ns[CLOCK_N_STATES];
		if (o == s || o->state != SESSION_ATTACHED)
			continue;
		state_clock_last(&o->consumer.clock.states, MINUTE, ns);
		double busy = (double)ns[CLOCK_BUSY] / (double)(worked_ns(ns) + 1);
		if (busy <= most)
			continue;
		most = busy;
		snprintf(text, size, "rank %u is the slowest: it works for %.0f %% of its time", o->consumer.rank,
			 100 * busy);
	}
}

static void make(const struct session *s, bool whole, struct verdict *v)
{
	const struct engine *e = s->engine;
	const struct loader *l = s->job->loader;
	const struct trainer_clock *c = &s->consumer.clock;
	struct pool_stats pool;
	char stalled[320], slowest[80];
	pool_get_stats(e->pool, &pool);
	describe_stalled(s, stalled, sizeof(stalled));
	describe_slowest(s, slowest, sizeof(slowest));
	uint64_t most = memory_available(NULL) / 100 * MOST_MEMORY_PERCENT;
	uint64_t half = e->budget.bytes / 2;
	struct verdict_facts f = {
		.p99_wait_ns = latency_percentile_ns(&s->waits, 99),
		.rank = s->consumer.rank,
		.n_busy = c->lacked_ns ? (unsigned)((c->worked_ns + c->lacked_ns / 2) / c->lacked_ns) : pool.busy,
		.n_workers = pool.target,
		.n_processors = pool.n_processors,
		.n_most_workers = pool.max,
		.costs = source_get_costs(l->host.source),
		.copies = l->host.source->copies,
		.n_samples = dataset_n(l->recipe.dataset),
		.is_decoded_cached = l->recipe.decoded != NULL,
		.caches_ops = l->recipe.pipeline && strcmp(pipeline_prefix_text(l->recipe.pipeline), "[]") != 0,
		.decoded_room_bytes = half > e->budget.index_bytes ? half - e->budget.index_bytes : 0,
		.most_decoded_room_bytes = most / PARTS * DECODED_PARTS,
		.most_memory_bytes = most,
		.why = stalled,
		.slowest = slowest,
	};
	state_clock_last(&c->states, MINUTE, f.ns);
	for (int i = 0; whole && i < CLOCK_N_STATES; i++)
		f.ns[i] = c->states.total_ns[i];
	verdict_make(&f, v);
}

static json_t *verdict_status_json(const struct verdict *v)
{
	json_t *o = json_object();
	json_object_set_new(o, "text", json_string(v->text));
	json_object_set_new(o, "known", json_boolean(v->known));
	json_object_set_new(o, "input_bound", json_boolean(v->input_bound));
	json_object_set_new(o, "share", json_real(v->share));
	json_object_set_new(o, "cause", json_string(clock_state_names[v->cause]));
	json_object_set_new(o, "without_cause", json_real(v->without));
	json_object_set_new(o, "twice_the_cpu", json_real(v->more_cpu));
	json_object_set_new(o, "all_processors", json_real(v->more_workers));
	json_object_set_new(o, "decoded_cache", json_real(v->decoded_cache));
	json_object_set_new(o, "decoded_cache_at_least", json_boolean(v->at_least));
	json_object_set_new(o, "decoded_cache_bytes", json_integer((json_int_t)v->decoded_bytes));
	json_object_set_new(o, "decoded_cache_needs_memory", json_boolean(v->raise_memory));
	json_object_set_new(o, "decoded_cache_room_bytes", json_integer((json_int_t)v->decoded_room_bytes));
	return o;
}

json_t *verdict_status_of(const struct session *s, bool whole)
{
	struct verdict v;
	make(s, whole, &v);
	return verdict_status_json(&v);
}

/* ---- for one client ---- */

static struct session *find_trainer(const struct session *asker, const char *job, uint32_t rank)
{
	struct session *s = asker->engine->sessions;
	while (s && !(s->state == SESSION_ATTACHED && s->job && s->uid == asker->uid && s->consumer.rank == rank &&
		      !strcmp(s->job->spec.job, job)))
		s = s->next;
	return s;
}

static void shares_of(const struct session *s, bool whole, double part[CLOCK_N_STATES])
{
	const struct state_clock *c = &s->consumer.clock.states;
	uint64_t ns[CLOCK_N_STATES], all = 0;
	state_clock_last(c, MINUTE, ns);
	if (whole)
		memcpy(ns, c->total_ns, sizeof(ns));
	for (int i = 0; i < CLOCK_N_STATES; i++)
		all += ns[i];
	for (int i = 0; i < CLOCK_N_STATES; i++)
		part[i] = all ? (double)ns[i] / (double)all : i == CLOCK_IDLE;
}

int verdict_status_answer(struct session *asker, const Batchd__Wire__VerdictRequest *m, struct refusal *why)
{
	Batchd__Wire__Verdict answer = BATCHD__WIRE__VERDICT__INIT;
	double part[CLOCK_N_STATES];
	struct verdict v;
	struct session *s = find_trainer(asker, m->job, m->rank);
	if (!s)
		return refuse(why, BATCHD__WIRE__ERROR_CODE__NOT_FOUND, "job",
			      "no trainer of this user is rank %u of job '%s': `batchctl status` lists those that are",
			      m->rank, m->job);
	clock_status_update(s);
	make(s, m->since_start, &v);
	shares_of(s, m->since_start, part);
	answer.text = v.text;
	answer.known = v.known;
	answer.input_bound = v.input_bound;
	answer.share = v.share;
	answer.cause = v.cause;
	answer.n_part = CLOCK_N_STATES;
	answer.part = part;
	answer.without_cause = v.without;
	answer.twice_the_cpu = v.more_cpu;
	answer.all_processors = v.more_workers;
	answer.decoded_cache = v.decoded_cache;
	peer_send(asker->peer, WIRE_SERVER(VERDICT, verdict, &answer), NULL, 0);
	return 0;
}

json_t *verdict_status_worst(const struct engine *e, bool (*is_shown)(void *arg, const struct session *s), void *arg)
{
	const struct session *worst = NULL;
	uint64_t most_ns = 0;
	for (const struct session *s = e->sessions; s; s = s->next) {
		uint64_t ns[CLOCK_N_STATES];
		if (s->state != SESSION_ATTACHED || !s->job || !is_shown(arg, s))
			continue;
		state_clock_last(&s->consumer.clock.states, MINUTE, ns);
		uint64_t lost_ns = worked_ns(ns) - ns[CLOCK_BUSY];
		if (worst && lost_ns <= most_ns)
			continue;
		worst = s;
		most_ns = lost_ns;
	}
	if (!worst)
		return NULL;
	json_t *o = verdict_status_of(worst, false);
	json_object_set_new(o, "job", json_string(worst->job->spec.job));
	json_object_set_new(o, "rank", json_integer(worst->consumer.rank));
	json_object_set_new(o, "session", json_integer((json_int_t)worst->number));
	return o;
}
