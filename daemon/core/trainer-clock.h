/* A trainer's state clock, and what it needs to tell the states apart.
 *
 * The trainer knows when it waits, and says so in its ring (proto/ring.h). The loop knows what the batch that it waits
 * for lacks: core/shortage.c notes that whenever it has done what it can for a stream, and at the next event the
 * trainer's waiting since then counts as that. Nothing wakes up for it, and for a trainer that has batches ahead nothing
 * is done at all.
 *
 * Loop thread only. */
#ifndef BATCHD_TRAINER_CLOCK_H
#define BATCHD_TRAINER_CLOCK_H

#include <stdbool.h>

#include "core/pool.h"
#include "core/source.h"
#include "core/state-clock.h"

/* What a batch that a trainer waits for lacks. */
enum shortage {
	SHORTAGE_NONE,     /* nothing: the trainer has been told, or is about to be */
	SHORTAGE_ROWS,     /* rows: the clock's state follows from what workers and I/O threads did meanwhile */
	SHORTAGE_COPY,     /* its copy on the GPU */
	SHORTAGE_ORDER,    /* its indices */
	SHORTAGE_PRODUCER, /* a producer's answer */
	SHORTAGE_PEER,     /* a slot, which other trainers keep; or their coming */
	SHORTAGE_MEMORY,   /* a slot, which no other trainer keeps */
};

/* How long the trainer has waited, has asked for nothing, and has chosen indices of its own, since it attached. */
struct trainer_waits {
	uint64_t wait_ns, idle_ns, order_ns;
	bool known; /* false: it has not told yet, which counts as idle */
};

struct trainer_clock {
	struct state_clock states;
	struct trainer_waits told, counted; /* counted: of told, what the clock has; an odd trainer's may be more */
	enum clock_state state;             /* the one that had most of the time accounted last */
	enum shortage shortage;             /* since states.at_ns, or since it was found */
	uint64_t rows_ns;        /* since states.at_ns: what it waited for rows, in periods too short to account */
	struct pool_usage usage; /* when a shortage of rows was found */
	uint64_t unasked_ns;     /* of the source, when a shortage of a producer was found */
	struct source_costs costs, mix; /* the sums when mix was made; what rows have cost lately */
	uint64_t lacked_ns, worked_ns;  /* of recent shortages of rows: their time, and the workers' in them */
};

void trainer_clock_begin(struct trainer_clock *c, uint64_t now_ns);
/* For a period too short to be worth the accounting: only notes what the trainer's waiting in it was for, and returns
 * true. False: it is long enough, or its shortage has to be accounted at once. Batches that take microseconds are
 * accounted together by this, so that the clock's cost has a bound in time and none in batches. */
bool trainer_clock_defer(struct trainer_clock *c, uint64_t now_ns);
/* Accounts the time up to now_ns. usage: now, for SHORTAGE_ROWS. source: what makes the trainer's batches; NULL: it has
 * none. */
void trainer_clock_add(struct trainer_clock *c, uint64_t now_ns, const struct pool_usage *usage,
		       const struct batch_source *source);

#endif
