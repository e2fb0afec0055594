/* Where a loader's batches come from: the pool (batch/pool/rows.h), or a producer (batch/producer-source.h).
 *
 * A stream begins a batch in a free slot and submits it; the source has the slot filled and then tells the loader,
 * which calls stream_on_filled. Loop thread only, except for the sums. */
#ifndef BATCHD_SOURCE_H
#define BATCHD_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/stage.h"
#include "base/tally.h"

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
	/* Whether a producer is asked for a batch; otherwise it is the turn of a rank that has no free slot, or that has not
	 * come. NULL: the source has no producer. */
	bool (*is_asked)(const struct batch_source *s);
};

/* What all threads add up for a source. */
enum source_sum {
	SOURCE_ROWS,         /* samples made */
	SOURCE_FILE_BYTES,   /* of samples, read from files, again where a cache had lost them */
	SOURCE_ARRAY_BYTES,  /* of samples, copied from arrays */
	SOURCE_DECODED_ROWS, /* of which sample_decoded_bytes is known */
	SOURCE_DECODED_BYTES,
	SOURCE_N_SUMS
};
_Static_assert((int)SOURCE_N_SUMS <= (int)TALLY_SUMS, "a cell has too few sums");

struct batch_source {
	const struct batch_source_ops *ops;
	bool goes_back;              /* can make a batch again that it has made before */
	bool copies;                 /* workers copy rows of arrays, and decode nothing */
	struct tally sums;           /* enum source_sum; by any thread */
	uint64_t stage_ns[N_STAGES]; /* of workers, sampled while a trainer is attached (sampler.h) */
};

#endif
