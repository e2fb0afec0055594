/* See sampler.h. The pauses between two looks are drawn, so that a trainer with a rhythm of its own is seen at all of its
 * moments.
 *
 * The loop's timers come after its other events. On a machine that is short of processors the loop is late, often because
 * a worker had one until it finished a batch; a look would then find the batch handed over, and the trainer not yet awake.
 * (Measured: 20 % of the looks, where hand-overs took 1 % of the time.) So a look that is due comes before the loop's
 * next hand-over. */
#include "server/sampler.h"

#include "batch/clock-sample.h"
#include "batch/loader.h"
#include "server/job.h"
#include "server/session-state.h"

enum { LEAST_PAUSE_MS = 25, MOST_PAUSE_MS = 75 };

static void on_timer(uv_timer_t *t);

static void sampler_pause(struct engine *e)
{
	struct sampler *x = &e->sampler;
	x->random = x->random * 1664525 + 1013904223;
	uint64_t ms = LEAST_PAUSE_MS + (x->random >> 16) % (MOST_PAUSE_MS - LEAST_PAUSE_MS + 1);
	x->due_ns = uv_hrtime() + ms * 1000000;
	uv_timer_start(&x->timer, on_timer, ms, 0);
}

/* A trainer with untaken batches wakes up, or is about to. */
static struct clock_sample sample_waiting(struct session *s)
{
	const struct consumer *c = &s->consumer;
	enum shortage shortage = ring_peek_untaken(&s->ring.batches) ? SHORTAGE_NONE : shortage_of(c);
	struct pool_look look;
	if (shortage != SHORTAGE_ROWS)
		return clock_sample_of_shortage(shortage);
	pool_look(s->engine->pool, &c->stream->queue, &look);
	return clock_sample_of_rows(&look, c->stream->host->source->copies, &s->clock);
}

/* The page's state is the trainer's own word, and may be any number. */
static struct clock_sample sample_trainer(struct session *s)
{
	switch (s->ring.page ? ring_get_state(&s->ring) : RING_IDLE) {
	case RING_WAITS:
		return sample_waiting(s);
	case RING_BUSY:
		return clock_sample_of(CLOCK_BUSY);
	case RING_ORDERS:
		return clock_sample_of(CLOCK_ORDER);
	default:
		return clock_sample_of(CLOCK_IDLE);
	}
}

static void count_stages(struct pool *pool, const struct stream *s, uint64_t ns)
{
	struct batch_source *source = s->host->source;
	struct pool_look look;
	pool_look(pool, &s->queue, &look);
	for (unsigned i = 0; i < N_STAGES; i++)
		source->stage_ns[i == STAGE_NONE && source->copies ? STAGE_READ : i] += look.n_at[i] * ns;
}

static void sampler_look(struct engine *e)
{
	uint64_t now = uv_hrtime(), ns = now - e->sampler.at_ns;
	bool any = false;
	e->sampler.at_ns = now;
	for (struct session *s = e->sessions; s; s = s->next) {
		if (s->state != SESSION_ATTACHED)
			continue;
		struct clock_sample sample = sample_trainer(s);
		state_clock_add(&s->clock, now, &sample);
		any = true;
	}
	for (const struct job *j = e->jobs; j; j = j->next)
		for (uint32_t i = 0; j->loader && i < j->loader->streams.n; i++)
			if (j->loader->streams.list[i]->first)
				count_stages(e->pool, j->loader->streams.list[i], ns);
	if (any)
		sampler_pause(e);
}

/* It may be early: it is set by the loop's time, which stands still while the loop works. */
static void on_timer(uv_timer_t *t)
{
	struct engine *e = t->data;
	uint64_t now = uv_hrtime(), due = e->sampler.due_ns;
	if (now < due)
		uv_timer_start(t, on_timer, (due - now) / 1000000 + 1, 0);
	else
		sampler_look(e);
}

void sampler_before_handover(struct engine *e)
{
	struct sampler *x = &e->sampler;
	if (uv_hrtime() < x->due_ns || !uv_is_active((uv_handle_t *)&x->timer))
		return;
	uv_timer_stop(&x->timer);
	sampler_look(e);
}

void sampler_init(struct engine *e)
{
	uv_timer_init(&e->loop, &e->sampler.timer);
	e->sampler.timer.data = e;
}

void sampler_attach(struct session *s)
{
	struct engine *e = s->engine;
	uint64_t now = uv_hrtime();
	state_clock_begin(&s->clock, now);
	if (uv_is_active((uv_handle_t *)&e->sampler.timer) || e->stopping)
		return;
	e->sampler.at_ns = now;
	sampler_pause(e);
}
