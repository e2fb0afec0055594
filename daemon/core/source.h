/* Where a loader's batches come from when it is not the pool: somebody outside who writes them into slots.
 *
 * A stream begins a batch in a free slot and submits it; the source sees to it that the slot is filled and then says
 * loader_source_done. Loop thread only. */
#ifndef BATCHD_SOURCE_H
#define BATCHD_SOURCE_H

#include <stdbool.h>

struct batch_source;
struct slot;

struct batch_source_ops {
	/* Called from within a stream: the slot is FILLING. Does nothing but take a note. */
	void (*submit)(struct batch_source *s, struct slot *slot);
	/* The same: the slot is DROPPED. loader_source_done is still to come, as soon as nobody writes into the slot
	 * any more, but not from in here. */
	void (*cancel)(struct batch_source *s, struct slot *slot);
	/* The same: a stream stands somewhere else, or is not wanted any more, and others need not wait for it. */
	void (*moved)(struct batch_source *s);
	/* The loader closes, every submitted slot has been cancelled: loader_source_done of all of them before this
	 * returns. */
	void (*close)(struct batch_source *s);
};

struct batch_source {
	const struct batch_source_ops *ops;
	bool goes_back;            /* makes a batch that it has made before once more */
};

#endif
