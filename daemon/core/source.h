/* Where a loader's batches come from: the pool (core/pool-source.h), or a producer (core/feed.h).
 *
 * A stream begins a batch in a free slot and submits it; the source has the slot filled and then tells the loader,
 * which calls stream_on_filled. Loop thread only, except for the sums. */
#ifndef BATCHD_SOURCE_H
#define BATCHD_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "util/tally.h"

struct batch_source;
struct slot;

struct batch_source_ops {
	/* Called from within a stream: the slot is FILLING. Must not call a stream. */
	void (*submit)(struct batch_source *s, struct slot *slot);
	/* Called from within a stream: the slot is DROPPED. The source tells the loader as soon as it no longer writes
	 * into the slot, but not from within this call. */
	void (*cancel)(struct batch_source *s, struct slot *slot);
	/* Called from within a stream: a stream has moved, or is not wanted any more, and other streams need not wait
	 * for it. */
	void (*moved)(struct batch_source *s);
	/* The loader closes, and every submitted slot has been cancelled. A source that waits for an outside answer
	 * tells the loader of all these slots before it returns. */
	void (*close)(struct batch_source *s);
	/* How long, since the start, a producer was asked for nothing: it is the turn of a rank that has no free slot, or
	 * that has not come. NULL: the source has no producer. */
	uint64_t (*unasked_ns)(const struct batch_source *s, uint64_t now_ns);
};

/* What making rows costs: sums over those rows that were timed, which is one in a few. */
enum source_stage { SOURCE_READ, SOURCE_DECODE, SOURCE_TRANSFORM, SOURCE_MEMORY, SOURCE_N_STAGES };
struct source_costs {
	uint64_t n_rows;              /* timed */
	uint64_t ns[SOURCE_N_STAGES]; /* of a worker; SOURCE_MEMORY: waiting for working memory */
	uint64_t decoded_bytes;       /* of their pixels, as the decoded cache keeps them */
};

/* What all threads add up for a source. */
enum source_sum {
	SOURCE_ROWS,        /* samples made */
	SOURCE_FILE_BYTES,  /* of samples, read from files, again where a cache had lost them */
	SOURCE_ARRAY_BYTES, /* of samples, copied from arrays */
	SOURCE_TIMED_ROWS,  /* and what follows: struct source_costs */
	SOURCE_DECODED_BYTES,
	SOURCE_STAGE_NS,
	SOURCE_N_SUMS = SOURCE_STAGE_NS + SOURCE_N_STAGES
};
_Static_assert((int)SOURCE_N_SUMS <= (int)TALLY_SUMS, "a cell has too few sums");

struct batch_source {
	const struct batch_source_ops *ops;
	bool goes_back;    /* can make a batch again that it has made before */
	bool copies;       /* workers copy rows of arrays, and decode nothing */
	struct tally sums; /* enum source_sum; by any thread */
};

/* The sums so far; each of them is exact, but not all of one moment. */
static inline struct source_costs source_get_costs(const struct batch_source *s)
{
	struct source_costs c = { .n_rows = tally_sum(&s->sums, SOURCE_TIMED_ROWS),
				  .decoded_bytes = tally_sum(&s->sums, SOURCE_DECODED_BYTES) };
	for (unsigned i = 0; i < SOURCE_N_STAGES; i++)
		c.ns[i] = tally_sum(&s->sums, SOURCE_STAGE_NS + i);
	return c;
}

static inline void source_add_costs(struct batch_source *s, const struct source_costs *c)
{
	for (unsigned i = 0; i < SOURCE_N_STAGES; i++)
		tally_add(&s->sums, SOURCE_STAGE_NS + i, c->ns[i]);
	tally_add(&s->sums, SOURCE_DECODED_BYTES, c->decoded_bytes);
	tally_add(&s->sums, SOURCE_TIMED_ROWS, c->n_rows);
}

#endif
