/* Where a loader's batches come from: the pool (core/pool-source.h), or a producer (core/feed.h).
 *
 * A stream begins a batch in a free slot and submits it; the source has the slot filled and then tells the loader,
 * which calls stream_on_filled. Loop thread only, except for n_made. */
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
};

struct batch_source {
	const struct batch_source_ops *ops;
	bool goes_back;              /* can make a batch again that it has made before */
	atomic_uint_fast64_t n_made; /* samples, by any thread */
};

#endif
