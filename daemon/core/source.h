/* Where a loader's batches come from: the pool (core/pool-source.h), or a producer (core/feed.h).
 *
 * A stream begins a batch in a free slot and submits it; the source has the slot filled and then tells the loader,
 * which calls stream_on_filled. Loop thread only, except for n_made and the costs. */
#ifndef BATCHD_SOURCE_H
#define BATCHD_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

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

struct batch_source {
	const struct batch_source_ops *ops;
	bool goes_back;              /* can make a batch again that it has made before */
	bool copies;                 /* workers copy rows of arrays, and decode nothing */
	atomic_uint_fast64_t n_made; /* samples, by any thread */
	/* Of samples: read from files, again where a cache had lost them; copied from arrays. By any thread. */
	atomic_uint_fast64_t file_bytes, array_bytes;
	/* struct source_costs, by any thread: */
	atomic_uint_fast64_t n_timed, stage_ns[SOURCE_N_STAGES], decoded_bytes;
};

/* The sums so far; each of them is exact, but not all of one moment. */
static inline struct source_costs source_get_costs(const struct batch_source *s)
{
	struct source_costs c = { .n_rows = atomic_load_explicit(&s->n_timed, memory_order_relaxed) };
	for (int i = 0; i < SOURCE_N_STAGES; i++)
		c.ns[i] = atomic_load_explicit(&s->stage_ns[i], memory_order_relaxed);
	c.decoded_bytes = atomic_load_explicit(&s->decoded_bytes, memory_order_relaxed);
	return c;
}

static inline void source_add_costs(struct batch_source *s, const struct source_costs *c)
{
	for (int i = 0; i < SOURCE_N_STAGES; i++)
		atomic_fetch_add_explicit(&s->stage_ns[i], c->ns[i], memory_order_relaxed);
	atomic_fetch_add_explicit(&s->decoded_bytes, c->decoded_bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->n_timed, c->n_rows, memory_order_relaxed);
}

#endif
