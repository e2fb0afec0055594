/* Where a loader's batches come from: the pool (core/pool-source.h), or a producer (core/feed.h).
 *
 * A stream begins a batch in a free slot and submits it; the source sees to it that the slot is filled and then tells
 * the loader, which calls stream_on_filled. Loop thread only, but for n_made. */
#ifndef BATCHD_SOURCE_H
#define BATCHD_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct batch_source;
struct slot;

struct batch_source_ops {
	/* Called from within a stream: the slot is FILLING. Calls no stream from in here. */
	void (*submit)(struct batch_source *s, struct slot *slot);
	/* The same: the slot is DROPPED. The loader is still to be told, as soon as the source writes into the slot no
	 * more, but not from in here. */
	void (*cancel)(struct batch_source *s, struct slot *slot);
	/* The same: a stream stands somewhere else, or is not wanted any more, and others need not wait for it. */
	void (*moved)(struct batch_source *s);
	/* The loader closes, and every submitted slot has been cancelled. A source that waits for something outside
	 * tells the loader of all of them before this returns. */
	void (*close)(struct batch_source *s);
};

struct batch_source {
	const struct batch_source_ops *ops;
	bool goes_back;              /* makes a batch that it has made before once more */
	atomic_uint_fast64_t n_made; /* samples, by any thread */
};

#endif
