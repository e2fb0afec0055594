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
 *            epoch. If the last rank cannot be asked for its batch (it has left, or is ahead), the feed asks the
 *            producer whether it has that batch (a peek), which takes no slot.
 *   end      The length of an epoch need not be known beforehand: the first fill or peek for which the producer has no
 *            batch ends the epoch for all ranks with a mark (a batch of no rows, `last`). Slots that were meant for
 *            later steps are then meant for the next epoch.
 *
 * A pending fill cannot be taken back: it is cancelled, and its slot becomes free when the answer arrives. The feed
 * knows no sockets. Loop thread only. */
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
	/* Asks whether there is such a batch; it stays the producer's next batch. */
	void (*peek)(struct feed *f, uint64_t number, uint64_t epoch, uint64_t step);
	void (*cancel)(struct feed *f, uint64_t number);
	/* The feed would have to begin within an epoch, which this producer cannot do. */
	void (*cannot)(struct feed *f, uint64_t epoch, uint64_t step);
};

/* A pending fill. */
struct feed_fill {
	struct feed_fill *next;
	uint64_t number;
	struct position at; /* epoch and step over all ranks */
	struct slot *slot;  /* NULL: a peek, or the fill is no longer meant for any slot */
	bool peek;
};

/* What a producer has announced about itself. */
struct producer_caps {
	bool resumable;     /* the producer can begin within an epoch */
	uint64_t n_batches; /* of an epoch, over all ranks; 0: not known. Ignored once it has proved wrong */
	/* The producer fed another loader before this one, which replaces it (with larger slots). */
	bool stands;          /* the producer can be asked for the batches from `at` on */
	struct position at;   /* epoch and step over all ranks */
	uint32_t n_returning; /* consumers that come back from there; nothing is asked for before they are here */
};

/* FEED_MAX_ASKED: pending fills, which the producer answers one by one. The free slots of many ranks at once would be
 * more packets than a client may leave unread. */
enum { FEED_ENDS = 4, FEED_MAX_ASKED = 64 };
/* How long consumers that come back are waited for. */
enum { FEED_RETURN_MS = 60000 };

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
		bool known;
	} ends[FEED_ENDS]; /* per-rank steps of epochs that are over */
	unsigned n_ends;
	bool stopped;
	uint64_t return_until_ms; /* how long n_returning are waited for: some may never come */
	uv_timer_t kick;          /* runs what streams ask for when no stream is on the stack */
};

/* first_number: the number of the first fill. 0 or -ENOMEM. Afterwards loader->source may be set to &f->source. */
int feed_create(uv_loop_t *loop, struct loader *loader, const struct feed_ops *ops, void *owner,
		const struct producer_caps *caps, uint64_t first_number, struct feed **out);
/* The loader has been closed. The feed frees itself when its timer is closed. */
void feed_close(struct feed *f);
/* No more fills: the producer has disconnected. */
void feed_stop(struct feed *f);

/* TOO_LARGE: the producer has made the batch and keeps it until it is asked for in a larger slot; the feed asks for
 * nothing more. */
enum feed_outcome { FEED_MADE, FEED_END, FEED_SKIPPED, FEED_TOO_LARGE };
struct feed_answer {
	enum feed_outcome outcome;
	uint32_t n_rows;
	uint64_t n_bytes;   /* bytes of the slot that the batch takes */
	uint64_t n_batches; /* FEED_END: of the epoch, over all ranks; 0: not known */
};
/* The producer's answer to the oldest pending fill, which must have that number. 0 or -EPROTO. */
int feed_answered(struct feed *f, uint64_t number, const struct feed_answer *answer);
unsigned feed_n_asked(const struct feed *f);
/* What a feed that replaces this one needs to know of the producer, which continues with batch `at`. */
struct producer_caps feed_successor(const struct feed *f, const struct position *at);
/* Whether that epoch (of a rank, or of the group) is known to have ended before `at`. */
bool feed_is_over(const struct feed *f, const struct position *at);

#endif
