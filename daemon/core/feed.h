/* A feed: the source of a loader whose batches somebody outside makes, one after the other (a producer).
 *
 * The producer's batches of an epoch are numbered 0, 1, 2, ... over all ranks. In shard mode batch k is step k / W of rank k % W; in share mode W is 1.
 * The feed turns the slots that streams submit into fills in the producer's order, and what the producer says into batches:
 *
 *   turn     the fill that is asked for next is always the earliest that any stream wants. While the stream whose turn it is has no free slot the others wait
 *            for it: ranks of a job go in step anyway, and so the producer makes nothing twice and nothing in vain. A rank that has left is not waited for.
 *   round    a step goes out to the ranks only when all of them have it, so that at the end of an epoch nobody gets a batch more than the others.
 *   end      nobody need know beforehand how long an epoch is: the first fill that the producer has no batch for ends the epoch for everybody with a mark (a batch
 *            of no rows, `last`), and slots that were meant for later steps are meant for the next epoch from then on. Where a rank is elsewhere, and so is not asked
 *            about, only a length known beforehand tells that a last round is not whole.
 *
 * A fill that is on its way cannot be taken back: it is cancelled, and its slot is free when the answer is there. Knows no sockets. Loop thread only. */
#ifndef BATCHD_FEED_H
#define BATCHD_FEED_H

#include <uv.h>

#include "core/slots.h"
#include "core/source.h"

struct loader;
struct feed;

struct feed_ops {
	/* Asks for batch `step` (counted over all ranks) of `epoch` in that slot. */
	void (*fill)(struct feed *f, uint64_t number, uint32_t rank, const struct slot *slot, uint64_t epoch, uint64_t step);
	void (*cancel)(struct feed *f, uint64_t number);
	/* It would have to begin within an epoch, which the producer cannot do. */
	void (*cannot)(struct feed *f, uint64_t epoch, uint64_t step);
};

/* A fill on its way. */
struct feed_fill {
	struct feed_fill *next;
	uint64_t number;
	uint32_t rank;
	struct position at;     /* epoch and step over all ranks */
	struct slot *slot;      /* NULL: it is no longer meant for any */
};

/* FEED_MAX_ASKED: fills on their way, which are answered one by one; all free slots of many ranks at once would be more packets than a client may leave unread. */
enum { FEED_ENDS = 4, FEED_MAX_ASKED = 64 };

struct feed {
	struct batch_source source;
	const struct feed_ops *ops;
	void *owner;                 /* for ops */
	struct loader *loader;
	bool resumable;              /* the producer can begin within an epoch */
	uint64_t n_batches;          /* of an epoch, over all ranks, as the producer has said beforehand; 0: it has not */
	uint64_t next_number;        /* of a fill */
	struct feed_fill *first, *last;
	struct slot *dropped;        /* those that nobody writes into; done at the next kick */
	bool *seen;                  /* by rank: it has been here */
	bool made_any;               /* `at` counts */
	struct position at;          /* epoch and step (over all ranks) that the producer makes next if it just goes on */
	struct { uint64_t epoch, step; bool known; } ends[FEED_ENDS]; /* steps of epochs that are over, for each rank */
	unsigned n_ends;
	bool stopped;
	uv_timer_t kick;             /* does what streams ask for when none of them is on the stack */
};

/* first_number: of its first fill; n_batches: of an epoch, 0: not known. 0 or -ENOMEM. Afterwards loader->source may be set to &f->source. */
int feed_create(uv_loop_t *loop, struct loader *loader, const struct feed_ops *ops, void *owner, bool resumable, uint64_t n_batches,
		uint64_t first_number, struct feed **out);
/* The loader has been closed. Frees itself when its timer has ended. */
void feed_close(struct feed *f);
/* No more fills: the producer has gone. */
void feed_stop(struct feed *f);

enum feed_answer { FEED_MADE, FEED_END, FEED_SKIPPED };
/* The producer's answer to the oldest fill that is on its way, which must have that number. n_bytes: of the slot, that the batch takes. 0 or -EPROTO. */
int feed_answered(struct feed *f, uint64_t number, enum feed_answer answer, uint32_t n_rows, uint64_t n_bytes);
unsigned feed_n_asked(const struct feed *f);
/* Whether that epoch (of a rank, or of the group) is known to have ended before `at`. */
bool feed_is_over(const struct feed *f, const struct position *at);

#endif
