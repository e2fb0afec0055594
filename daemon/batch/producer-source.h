/* A feed: the batch source of a loader whose batches a client makes, one after the other (a producer).
 *
 * The producer's batches of an epoch are numbered 0, 1, 2, ... over all ranks. In shard mode batch k is step k / W of
 * rank k % W; in share mode W is 1. The feed turns the slots that streams submit into fills in the producer's order,
 * and the producer's answers into batches:
 *
 *   turn     The next fill is always for the earliest batch that any stream wants. While the stream whose turn it is
 *            has no free slot, the others wait for it. The ranks of a job keep step anyway, and this way the producer
 *            makes each batch once and makes none that is not used. A rank that has left is not waited for.
 *   round    The batches of a step go out to the ranks only when the last batch of the round exists and every rank
 *            that is present has its batch, so that no rank gets one batch more than the others at the end of an
 *            epoch. If the last rank has left, or is ahead, the round waits for it, as every step of a DDP job does.
 *   end      The length of an epoch need not be known beforehand: the first fill for which the producer has no
 *            batch ends the epoch for all ranks with a mark (a batch of no rows, `last`). Slots that were meant for
 *            later steps are then meant for the next epoch.
 *
 * A pending fill cannot be taken back: it is cancelled, and its slot becomes free when the answer arrives. The feed
 * knows no sockets. Loop thread only. */
#ifndef BATCHD_FEED_H
#define BATCHD_FEED_H

#include <uv.h>

#include "batch/slots.h"
#include "batch/source.h"

struct loader;
struct feed;

struct feed_ops {
	/* Asks for batch `step` (counted over all ranks) of `epoch` in that slot. */
	void (*fill)(struct feed *f, uint64_t number, uint32_t rank, const struct slot *slot, uint64_t epoch,
		     uint64_t step);
	void (*cancel)(struct feed *f, uint64_t number);
	/* A slot may have been given back since the last call. May answer a fill. */
	void (*look)(struct feed *f);
	/* The feed would have to begin within an epoch, which this producer cannot do. */
	void (*cannot)(struct feed *f, uint64_t epoch, uint64_t step);
};

/* A pending fill. */
struct feed_fill {
	struct feed_fill *next;
	uint64_t number;
	struct position at; /* epoch and step over all ranks */
	struct slot *slot;  /* NULL: the fill is no longer meant for any slot */
};

/* What a producer has announced about itself. */
struct producer_caps {
	bool resumable;     /* the producer can begin within an epoch */
	uint64_t n_batches; /* of an epoch, over all ranks; 0: not known. Ignored once it has proved wrong */
};

/* FEED_MAX_ASKED: pending fills, which the producer answers one by one. The free slots of many ranks at once would be
 * more packets than a client may leave unread. */
enum { FEED_ENDS = 4, FEED_MAX_ASKED = 64 };

struct feed {
	struct batch_source source;
	const struct feed_ops *ops;
	void *owner; /* for ops */
	struct loader *loader;
	struct producer_caps caps;
	uint64_t next_number; /* of a fill */
	struct feed_fill *first, *last;
	struct slot *dropped;       /* slots that no producer writes into; completed at the next kick */
	bool made_any, reached_any; /* `at`, `reached` are valid */
	struct position at;         /* epoch and step (over all ranks) that the producer makes next if it continues
	                             * after everything it has been asked for */
	struct position reached;    /* epoch and step after the producer's last answer; it may have skipped batches that
	                             * were cancelled */
	struct {
		uint64_t epoch, step;
		bool known, certain; /* certain: every round before it is whole */
	} ends[FEED_ENDS];           /* per-rank steps of epochs that are over */
	unsigned n_ends;
	bool stopped;
	uv_timer_t kick; /* runs what streams ask for when no stream is on the stack */
};

/* first_number: the number of the first fill. 0 or -ENOMEM. Afterwards loader->source may be set to &f->source. */
int feed_create(uv_loop_t *loop, struct loader *loader, const struct feed_ops *ops, void *owner,
		const struct producer_caps *caps, uint64_t first_number, struct feed **out);
/* The loader has been closed. The feed frees itself when its timer is closed. */
void feed_close(struct feed *f);
/* No more fills: the producer has disconnected. */
void feed_stop(struct feed *f);

enum feed_outcome { FEED_MADE, FEED_END, FEED_SKIPPED };
struct feed_answer {
	enum feed_outcome outcome;
	uint32_t n_rows;
	uint64_t n_bytes;          /* bytes of the slot that the batch takes */
	struct large_batch *large; /* FEED_MADE: the memory of a batch that does not fit its slot; else NULL */
	uint64_t n_batches;        /* FEED_END: of the epoch, over all ranks; 0: not known */
};
/* The producer's answer to the oldest pending fill, which must have that number. 0 or -EPROTO. Takes answer->large. */
int feed_answered(struct feed *f, uint64_t number, const struct feed_answer *answer);
/* Whether a stream still wants the batch of the oldest pending fill. */
bool feed_is_wanted(const struct feed *f);
unsigned feed_n_asked(const struct feed *f);
/* Whether that epoch (of a rank, or of the group) is known to have ended before `at`. */
bool feed_is_over(const struct feed *f, const struct position *at);

#endif
