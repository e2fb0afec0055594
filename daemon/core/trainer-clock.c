/* See trainer-clock.h. A shortage of rows is divided by what the workers did meanwhile. As far as they were busy, the
 * trainer waited for them, and the stages of recent rows say with what; as far as they were not, while rows waited for
 * their input, it waited for the reading. */
#include "core/trainer-clock.h"

enum { ENOUGH_ROWS = 8 }; /* timed ones, to say what rows cost lately */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
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
	static const enum clock_state states[SOURCE_N_STAGES] = { [SOURCE_READ] = CLOCK_READ,
								  [SOURCE_DECODE] = CLOCK_DECODE,
								  [SOURCE_TRANSFORM] = CLOCK_TRANSFORM,
								  [SOURCE_MEMORY] = CLOCK_MEMORY };
	uint64_t all = 0, rest = wait_ns;
	for (int i = 0; i < SOURCE_N_STAGES; i++)
		all += c->mix.ns[i];
	for (int i = 0; all && i < SOURCE_N_STAGES; i++) {
		uint64_t part = (uint64_t)((unsigned __int128)wait_ns * c->mix.ns[i] / all);
		ns[states[i]] += part;
		rest -= part;
	}
	ns[source->copies ? CLOCK_READ : CLOCK_DECODE] += rest; /* no row is done yet, or none is timed */
}

static void divide_rows(const struct trainer_clock *c, const struct batch_source *source, const struct pool_usage *now,
			uint64_t wait_ns, uint64_t ns[CLOCK_N_STATES])
{
	const struct pool_usage *then = &c->usage;
	uint64_t could_ns = (now->at_ns - then->at_ns) * then->n_workers, did_ns = now->busy_ns - then->busy_ns;
	bool reads = then->n_tickets || now->n_tickets || now->n_parked > then->n_parked;
	uint64_t for_reads = 0;
	if (reads && could_ns > did_ns)
		for_reads = (uint64_t)((unsigned __int128)wait_ns * (could_ns - did_ns) / could_ns);
	ns[CLOCK_READ] += for_reads;
	divide_by_stage(c, source, wait_ns - for_reads, ns);
}

void trainer_clock_add(struct trainer_clock *c, uint64_t now_ns, const struct pool_usage *usage,
		       const struct batch_source *source)
{
	uint64_t ns[CLOCK_N_STATES] = { 0 }, since = c->states.at_ns, peer;
	uint64_t all = now_ns > since ? now_ns - since : 0;
	uint64_t wait_ns = news(c->told.wait_ns, &c->counted.wait_ns, all);
	ns[CLOCK_IDLE] = c->told.known ? news(c->told.idle_ns, &c->counted.idle_ns, all - wait_ns) : all;
	switch (c->told.known ? c->shortage : SHORTAGE_NONE) {
	case SHORTAGE_NONE: /* the hand-over */
		break;
	case SHORTAGE_ROWS:
		update_mix(c, source);
		divide_rows(c, source, usage, wait_ns, ns);
		break;
	case SHORTAGE_COPY:
		ns[CLOCK_GPU_COPY] = wait_ns;
		break;
	case SHORTAGE_ORDER:
		ns[CLOCK_ORDER] = wait_ns;
		break;
	case SHORTAGE_PRODUCER:
		peer = least(source->ops->unasked_ns(source, now_ns) - c->unasked_ns, wait_ns);
		ns[CLOCK_PEER] = peer;
		ns[CLOCK_PRODUCER] = wait_ns - peer;
		break;
	case SHORTAGE_PEER:
		ns[CLOCK_PEER] = wait_ns;
		break;
	case SHORTAGE_MEMORY:
		ns[CLOCK_MEMORY] = wait_ns;
		break;
	}
	state_clock_add(&c->states, now_ns, ns);
	ns[CLOCK_BUSY] = all - least(all, wait_ns + ns[CLOCK_IDLE]);
	for (int i = c->state = CLOCK_BUSY; i < CLOCK_N_STATES; i++)
		c->state = ns[i] > ns[c->state] ? (enum clock_state)i : c->state;
}
