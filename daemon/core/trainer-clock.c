/* See trainer-clock.h. A shortage of rows is divided by what the workers did meanwhile. As far as they worked, the
 * trainer waited for them, and the stages of recent rows say with what; as far as they waited for working memory, so did
 * the trainer; as far as they did nothing, while rows waited for their input, it waited for the reading.
 *
 * Rows that wait long for memory finish late or never, so the workers' waiting counts at the time when it happens, and
 * not by the rows that were timed. */
#include "core/trainer-clock.h"

enum { ENOUGH_ROWS = 8 };               /* timed ones, to say what rows cost lately */
#define SHORT_NS UINT64_C(1000000)      /* shorter periods are accounted together */
#define RECENT_NS UINT64_C(10000000000) /* of shortages, to say how many workers were busy lately */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* value * part / all, rounded down, without overflow. */
static uint64_t share_of(uint64_t value, uint64_t part, uint64_t all)
{
	return (uint64_t)((unsigned __int128)value * part / all);
}

void trainer_clock_begin(struct trainer_clock *c, uint64_t now_ns)
{
	*c = (struct trainer_clock){ 0 };
	state_clock_begin(&c->states, now_ns);
}

/* How much of what the trainer tells is new. It is read without a lock, so a time may be seen twice and then be too much;
 * so later ones count only when they exceed it. */
static uint64_t news(uint64_t told_ns, uint64_t *counted_ns, uint64_t most_ns)
{
	uint64_t more = told_ns > *counted_ns ? told_ns - *counted_ns : 0;
	*counted_ns += more;
	return least(more, most_ns);
}

bool trainer_clock_defer(struct trainer_clock *c, uint64_t now_ns)
{
	uint64_t since = c->states.at_ns;
	if (c->shortage > SHORTAGE_ROWS || now_ns < since || now_ns - since >= SHORT_NS || !c->told.known)
		return false;
	uint64_t wait_ns = news(c->told.wait_ns, &c->counted.wait_ns, now_ns - since);
	if (c->shortage == SHORTAGE_ROWS)
		c->rows_ns += wait_ns;
	return true;
}

static struct source_costs costs_between(const struct source_costs *a, const struct source_costs *b)
{
	struct source_costs d = { .n_rows = b->n_rows - a->n_rows,
				  .decoded_bytes = b->decoded_bytes - a->decoded_bytes };
	for (int i = 0; i < SOURCE_N_STAGES; i++)
		d.ns[i] = b->ns[i] - a->ns[i];
	return d;
}

static void update_mix(struct trainer_clock *c, const struct batch_source *source)
{
	struct source_costs now = source_get_costs(source), lately = costs_between(&c->costs, &now);
	if (c->mix.n_rows && lately.n_rows < ENOUGH_ROWS)
		return;
	c->mix = lately;
	c->costs = lately.n_rows < ENOUGH_ROWS ? c->costs : now;
}

/* Divides the time that the trainer waited for workers by the stages of recent rows. */
static void divide_by_stage(const struct trainer_clock *c, const struct batch_source *source, uint64_t wait_ns,
			    uint64_t ns[CLOCK_N_STATES])
{
	static const enum clock_state states[] = {
		[SOURCE_READ] = CLOCK_READ, [SOURCE_DECODE] = CLOCK_DECODE, [SOURCE_TRANSFORM] = CLOCK_TRANSFORM
	};
	enum { N_STAGES = sizeof(states) / sizeof(*states) };
	uint64_t all = 0, rest = wait_ns;
	for (int i = 0; i < N_STAGES; i++)
		all += c->mix.ns[i];
	for (int i = 0; all && i < N_STAGES; i++) {
		uint64_t part = share_of(wait_ns, c->mix.ns[i], all);
		ns[states[i]] += part;
		rest -= part;
	}
	ns[source->copies ? CLOCK_READ : CLOCK_DECODE] += rest; /* no row is done yet, or none is timed */
}

/* What workers did between two moments, in worker time. */
struct work {
	uint64_t running_ns, memory_ns, unfed_ns; /* unfed: did nothing, while rows waited for their input */
};

/* With more workers than processors, some of them may wait while all processors are at work; then nothing is lost. */
static void ignore_surplus(struct work *w, const struct pool_usage *then, uint64_t all_ns)
{
	unsigned n = then->n_workers, n_processors = then->n_processors;
	uint64_t lack = w->memory_ns + w->unfed_ns, could_ns = all_ns * n_processors;
	if (!n_processors || n_processors >= n || !lack)
		return;
	uint64_t most = could_ns > w->running_ns ? (could_ns - w->running_ns) / n_processors * n : 0;
	if (lack <= most)
		return;
	w->memory_ns = share_of(most, w->memory_ns, lack);
	w->unfed_ns = share_of(most, w->unfed_ns, lack);
}

static struct work work_between(const struct pool_usage *then, const struct pool_usage *now)
{
	uint64_t all_ns = now->at_ns - then->at_ns, could_ns = all_ns * then->n_workers;
	uint64_t did_ns = now->busy_ns - then->busy_ns;
	bool reads = then->n_tickets || now->n_tickets || now->n_parked > then->n_parked;
	struct work w = { .memory_ns = least(now->memory_ns - then->memory_ns, did_ns) };
	w.running_ns = did_ns - w.memory_ns;
	if (reads && could_ns > did_ns)
		w.unfed_ns = could_ns - did_ns;
	ignore_surplus(&w, then, all_ns);
	return w;
}

static void note_work(struct trainer_clock *c, const struct pool_usage *now)
{
	if (c->lacked_ns > RECENT_NS) {
		c->lacked_ns /= 2;
		c->worked_ns /= 2;
	}
	c->lacked_ns += now->at_ns - c->usage.at_ns;
	c->worked_ns += now->busy_ns - c->usage.busy_ns;
}

static void divide_rows(struct trainer_clock *c, const struct batch_source *source, const struct pool_usage *now,
			uint64_t wait_ns, uint64_t ns[CLOCK_N_STATES])
{
	struct work w = work_between(&c->usage, now);
	note_work(c, now);
	uint64_t all = w.running_ns + w.memory_ns + w.unfed_ns;
	if (all) {
		ns[CLOCK_READ] += share_of(wait_ns, w.unfed_ns, all);
		ns[CLOCK_MEMORY] += share_of(wait_ns, w.memory_ns, all);
	}
	divide_by_stage(c, source, wait_ns - ns[CLOCK_READ] - ns[CLOCK_MEMORY], ns);
}

void trainer_clock_add(struct trainer_clock *c, uint64_t now_ns, const struct pool_usage *usage,
		       const struct batch_source *source)
{
	uint64_t ns[CLOCK_N_STATES] = { 0 }, since = c->states.at_ns, peer;
	uint64_t all = now_ns > since ? now_ns - since : 0, rows_ns = least(c->rows_ns, all), left = all - rows_ns;
	uint64_t wait_ns = news(c->told.wait_ns, &c->counted.wait_ns, left);
	ns[CLOCK_IDLE] = c->told.known ? news(c->told.idle_ns, &c->counted.idle_ns, left - wait_ns) : all;
	uint64_t order_ns =
		c->told.known ? news(c->told.order_ns, &c->counted.order_ns, left - wait_ns - ns[CLOCK_IDLE]) : 0;
	bool lacks_rows = c->told.known && c->shortage == SHORTAGE_ROWS;
	c->rows_ns = 0;
	if (source && (lacks_rows || rows_ns)) {
		update_mix(c, source);
		divide_rows(c, source, usage, rows_ns + (lacks_rows ? wait_ns : 0), ns);
	}
	switch (c->told.known ? c->shortage : SHORTAGE_NONE) {
	case SHORTAGE_NONE: /* the hand-over */
		break;
	case SHORTAGE_ROWS: /* divided already */
		break;
	case SHORTAGE_COPY:
		ns[CLOCK_GPU_COPY] += wait_ns;
		break;
	case SHORTAGE_ORDER:
		ns[CLOCK_ORDER] += wait_ns;
		break;
	case SHORTAGE_PRODUCER:
		peer = least(source->ops->unasked_ns(source, now_ns) - c->unasked_ns, wait_ns);
		ns[CLOCK_PEER] = peer;
		ns[CLOCK_PRODUCER] = wait_ns - peer;
		break;
	case SHORTAGE_PEER:
		ns[CLOCK_PEER] += wait_ns;
		break;
	case SHORTAGE_MEMORY:
		ns[CLOCK_MEMORY] += wait_ns;
		break;
	}
	ns[CLOCK_ORDER] += order_ns;
	state_clock_add(&c->states, now_ns, ns);
	ns[CLOCK_BUSY] = all - least(all, rows_ns + wait_ns + ns[CLOCK_IDLE] + order_ns);
	for (int i = c->state = CLOCK_BUSY; i < CLOCK_N_STATES; i++)
		c->state = ns[i] > ns[c->state] ? (enum clock_state)i : c->state;
}
