/* A feed: the source of a loader whose batches a client makes, one after the other (a producer).
 *
 * The producer's batches of an epoch are numbered 0, 1, 2, ... over all ranks. In shard mode batch k is step k / W of
 * rank k % W; in share mode W is 1. The feed turns the slots that streams submit into fills in the producer's order,
 * and the producer's answers into batches:
 *
 *   turn     The next fill is always for the earliest batch that any stream wants. While the stream whose turn it is
 *            has no free slot, the others wait for it: ranks of a job go in step anyway, and so the producer makes no
 *            batch twice and none in vain. A rank that has left is not waited for.
 *   round    A step goes out to the ranks only when the last batch of its round exists and all ranks that are there
 *            have theirs, so that at the end of an epoch no rank gets a batch more than the others. Where the last rank
 *            cannot be asked for its batch (it has left, or is ahead), the producer is asked whether it has one (a
 *            peek), which takes no slot. For a producer that cannot peek, the length that it gave for its epochs
 *            decides.
 *   end      The length of an epoch need not be known beforehand: the first fill or peek that the producer has no batch
 *            for ends the epoch for all ranks with a mark (a batch of no rows, `last`). Slots that were meant for later
 *            steps are meant for the next epoch from then on.
 *
 * A fill that is on its way cannot be taken back: it is cancelled, and its slot is free when the answer is there. Knows
 * no sockets. Loop thread only. */
#ifndef BATCHD_FEED_H
#define BATCHD_FEED_H

#include <uv.h>

#include "core/slots.h"
#include "core/source.h"

struct loader;
struct feed;

struct feed_ops {
	/* Asks for batch `step` (counted over all ranks) of `epoch` in that slot. */
	void (*fill)(struct feed *f, uint64_t number, uint32_t rank, const struct slot *slot, uint64_t epoch,
		     uint64_t step);
	/* Asks whether there is such a batch; it stays the producer's next. Only if it peeks. */
	void (*peek)(struct feed *f, uint64_t number, uint64_t epoch, uint64_t step);
	void (*cancel)(struct feed *f, uint64_t number);
	/* It would have to begin within an epoch, which the producer cannot do. */
	void (*cannot)(struct feed *f, uint64_t epoch, uint64_t step);
};

/* A fill on its way. */
struct feed_fill {
	struct feed_fill *next;
	uint64_t number;
	struct position at; /* epoch and step over all ranks */
	struct slot *slot;  /* NULL: it is no longer meant for any, or a peek */
	bool peek;
};

/* What a producer has said of itself. */
struct feed_maker {
	bool resumable;     /* it can begin within an epoch */
	bool peeks;         /* it can look ahead */
	uint64_t n_batches; /* of an epoch, over all ranks; 0: not known. Not believed any more once it has
	                         * proved wrong */
	/* It has fed another loader before this one, in whose place this one is (with larger slots). */
	bool stands;          /* it can be asked for the batches from `at` on */
	struct position at;   /* epoch and step over all ranks */
	uint32_t n_returning; /* consumers that come back from there; nothing is asked for before they are here */
};

/* FEED_MAX_ASKED: fills on their way, which are answered one by one; all free slots of many ranks at once would be more
 * packets than a client may leave unread. */
enum { FEED_ENDS = 4, FEED_MAX_ASKED = 64 };

struct feed {
	struct batch_source source;
	const struct feed_ops *ops;
	void *owner; /* for ops */
	struct loader *loader;
	struct feed_maker maker;
	uint64_t next_number; /* of a fill */
	struct feed_fill *first, *last;
	struct slot *dropped;       /* those that nobody writes into; done at the next kick */
	bool made_any, reached_any; /* `at`, `reached` count */
	struct position at;         /* epoch and step (over all ranks) that the producer makes next if it just goes
	                              * on behind all that it has been asked for */
	struct position reached;    /* the same behind its last answer; what was cancelled on the way it may have
	                              * passed over */
	struct {
		uint64_t epoch, step;
		bool known;
	} ends[FEED_ENDS]; /* steps of epochs that are over, for each rank */
	unsigned n_ends;
	bool stopped;
	uint64_t return_until_ms; /* for how long n_returning are waited for: some may never come */
	uv_timer_t kick;          /* does what streams ask for when none of them is on the stack */
};

/* first_number: of its first fill. 0 or -ENOMEM. Afterwards loader->source may be set to &f->source. */
int feed_create(uv_loop_t *loop, struct loader *loader, const struct feed_ops *ops, void *owner,
		const struct feed_maker *maker, uint64_t first_number, struct feed **out);
/* The loader has been closed. Frees itself when its timer has ended. */
void feed_close(struct feed *f);
/* No more fills: the producer has gone. */
void feed_stop(struct feed *f);

/* TOO_LARGE: the batch is made, and kept until it is asked for in a larger slot; the feed asks for nothing more. */
enum feed_outcome { FEED_MADE, FEED_END, FEED_SKIPPED, FEED_TOO_LARGE };
struct feed_answer {
	enum feed_outcome outcome;
	uint32_t n_rows;
	uint64_t n_bytes;   /* of the slot, that the batch takes */
	uint64_t n_batches; /* FEED_END: of the epoch, over all ranks; 0: not known */
};
/* The producer's answer to the oldest fill that is on its way, which must have that number. 0 or -EPROTO. */
int feed_answered(struct feed *f, uint64_t number, const struct feed_answer *answer);
unsigned feed_n_asked(const struct feed *f);
/* What another feed in this one's place is to know of the producer, which goes on with batch `at`. */
struct feed_maker feed_successor(const struct feed *f, const struct position *at);
/* Whether that epoch (of a rank, or of the group) is known to have ended before `at`. */
bool feed_is_over(const struct feed *f, const struct position *at);

#endif
