/* See verdict-status.h. */
#include "watch/verdict-status.h"

#include <stdio.h>
#include <string.h>

#include "batch/loader.h"
#include "watch/verdict.h"
#include "server/job.h"
#include "server/session-state.h"
#include "base/memory.h"

enum {
	MINUTE = 60,
	MOST_MEMORY_PERCENT = 75, /* of the machine's memory, as the budget allows it */
	PARTS = 64,               /* of a budget, so many parts ... */
	DECODED_PARTS = 21,       /* ... may be decoded pixels: see budget.c */
};

struct verdict_period {
	const char *key, *words;
	unsigned seconds;
};
static const struct verdict_period last_minute = { "verdict", "in the last minute", MINUTE };
static const struct verdict_period periods[] = { { "verdict_last_5s", "in the last 5 s", 5 },
						 { "verdict_since_start", "since it connected", 0 } };

static uint64_t worked_us(const struct clock_times *t)
{
	uint64_t all = 0;
	for (int i = 0; i < CLOCK_IDLE; i++)
		all += t->us[i];
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
static void describe_slowest(const struct session *s, unsigned seconds, char *text, size_t size)
{
	double most = 0.5; /* a trainer that waits for more than half of its time keeps no other one waiting */
	*text = '\0';
	for (const struct session *o = s->job->sessions; o; o = o->next_in_job) {
		struct clock_times t;
		if (o == s || o->state != SESSION_ATTACHED)
			continue;
		state_clock_last(&o->clock, seconds, &t);
		double busy = (double)t.us[CLOCK_BUSY] / (double)(worked_us(&t) + 1);
		if (busy <= most)
			continue;
		most = busy;
		snprintf(text, size, "rank %u is the slowest: it works for %.0f %% of its time", o->consumer.rank,
			 100 * busy);
	}
}

static double mean_decoded_bytes(const struct batch_source *s)
{
	uint64_t n = tally_sum(&s->sums, SOURCE_DECODED_ROWS);
	return n ? (double)tally_sum(&s->sums, SOURCE_DECODED_BYTES) / (double)n : 0;
}

/* What is the same for all periods. */
static struct verdict_facts facts_of(const struct session *s)
{
	const struct engine *e = s->engine;
	const struct loader *l = s->job->loader;
	struct pool_stats pool;
	pool_get_stats(e->pool, &pool);
	uint64_t most = memory_available(NULL) / 100 * MOST_MEMORY_PERCENT;
	uint64_t half = e->budget.bytes / 2;
	return (struct verdict_facts){
		.p99_wait_ns = latency_percentile_ns(&s->waits, 99),
		.rank = s->consumer.rank,
		.n_workers = pool.target,
		.n_processors = pool.n_processors,
		.n_most_workers = pool.max,
		.copies = l->host.source->copies,
		.n_samples = dataset_n(l->recipe.dataset),
		.decoded_bytes = mean_decoded_bytes(l->host.source),
		.is_decoded_cached = l->recipe.decoded != NULL,
		.caches_ops = l->recipe.pipeline && strcmp(pipeline_prefix_text(l->recipe.pipeline), "[]") != 0,
		.decoded_room_bytes = half > e->budget.index_bytes ? half - e->budget.index_bytes : 0,
		.most_decoded_room_bytes = most / PARTS * DECODED_PARTS,
	};
}

static json_t *verdict_status_json(const struct verdict *v)
{
	return json_pack("{s:o*, s:b, s:b, s:f, s:s, s:f, s:f, s:f, s:f, s:b, s:I, s:b, s:I}", "text",
			 json_string(v->text), "known", v->known, "input_bound", v->input_bound, "share", v->share,
			 "cause", clock_state_names[v->cause], "without_cause", v->without, "twice_the_cpu",
			 v->more_cpu, "all_processors", v->more_workers, "decoded_cache", v->decoded_cache,
			 "decoded_cache_at_least", v->at_least, "decoded_cache_bytes", (json_int_t)v->decoded_bytes,
			 "decoded_cache_needs_memory", v->raise_memory, "decoded_cache_room_bytes",
			 (json_int_t)v->decoded_room_bytes);
}

static json_t *verdict_status_of(const struct session *s, struct verdict_facts *f, const struct verdict_period *period)
{
	char stalled[320], slowest[80] = "";
	struct verdict v;
	f->period = period->words;
	state_clock_last(&s->clock, period->seconds, &f->times);
	describe_stalled(s, stalled, sizeof(stalled));
	if (f->times.us[CLOCK_PEER])
		describe_slowest(s, period->seconds, slowest, sizeof(slowest));
	f->why = stalled;
	f->slowest = slowest;
	verdict_make(f, &v);
	return verdict_status_json(&v);
}

void verdict_status_add(json_t *o, const struct session *s)
{
	struct verdict_facts f = facts_of(s);
	json_object_set_new(o, last_minute.key, verdict_status_of(s, &f, &last_minute));
	for (unsigned i = 0; i < sizeof(periods) / sizeof(*periods); i++)
		json_object_set_new(o, periods[i].key, verdict_status_of(s, &f, &periods[i]));
}

json_t *verdict_status_worst(const struct engine *e, bool (*is_shown)(void *arg, const struct session *s), void *arg)
{
	const struct session *worst = NULL;
	uint64_t most_us = 0;
	for (const struct session *s = e->sessions; s; s = s->next) {
		struct clock_times t;
		if (s->state != SESSION_ATTACHED || !s->job || !is_shown(arg, s))
			continue;
		state_clock_last(&s->clock, MINUTE, &t);
		uint64_t lost_us = worked_us(&t) - t.us[CLOCK_BUSY];
		if (worst && lost_us <= most_us)
			continue;
		worst = s;
		most_us = lost_us;
	}
	if (!worst)
		return NULL;
	struct verdict_facts f = facts_of(worst);
	json_t *o = verdict_status_of(worst, &f, &last_minute);
	json_object_set_new(o, "job", json_string(worst->job->spec.job));
	json_object_set_new(o, "rank", json_integer(worst->consumer.rank));
	json_object_set_new(o, "session", json_integer((json_int_t)worst->number));
	return o;
}
