/* The batch source of a loader whose batches a client makes, one after the other (a producer).
 *
 * The producer's batches of an epoch are numbered 0, 1, 2, ... over all ranks. In shard mode batch k is step k / W of
 * rank k % W; in share mode W is 1. The source turns the slots that streams submit into fills in the producer's order,
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
 * A pending fill cannot be taken back: it is cancelled, and its slot becomes free when the answer arrives. The source
 * knows no sockets. Loop thread only. */
#ifndef BATCHD_PRODUCER_SOURCE_H
#define BATCHD_PRODUCER_SOURCE_H

#include <uv.h>

#include "batch/slots.h"
#include "batch/source.h"

struct loader;
struct producer_source;

struct producer_source_ops {
	/* Asks for batch `step` (counted over all ranks) of `epoch` in that slot. */
	void (*fill)(struct producer_source *p, uint64_t number, uint32_t rank, const struct slot *slot, uint64_t epoch,
		     uint64_t step);
	void (*cancel)(struct producer_source *p, uint64_t number);
	/* A slot may have been given back since the last call. May answer a fill. */
	void (*look)(struct producer_source *p);
	/* The source would have to begin within an epoch, which this producer cannot do. */
	void (*cannot)(struct producer_source *p, uint64_t epoch, uint64_t step);
};

/* A pending fill. */
struct source_fill {
	struct source_fill *next;
	uint64_t number;
	struct position at; /* epoch and step over all ranks */
	struct slot *slot;  /* NULL: the fill is no longer meant for any slot */
};

/* What a producer has announced about itself. */
struct producer_caps {
	bool resumable;     /* the producer can begin within an epoch */
	uint64_t n_batches; /* of an epoch, over all ranks; 0: not known. Ignored once it has proved wrong */
};

/* SOURCE_MAX_ASKED: pending fills, which the producer answers one by one. The free slots of many ranks at once would be
 * more packets than a client may leave unread. */
enum { SOURCE_ENDS = 4, SOURCE_MAX_ASKED = 64 };

struct producer_source {
	struct batch_source source;
	const struct producer_source_ops *ops;
	void *owner; /* for ops */
	struct loader *loader;
	struct producer_caps caps;
	uint64_t next_number; /* of a fill */
	struct source_fill *first, *last;
	struct slot *dropped;       /* slots that no producer writes into; completed at the next kick */
	bool made_any, reached_any; /* `at`, `reached` are valid */
	struct position at;         /* epoch and step (over all ranks) that the producer makes next if it continues
	                             * after everything it has been asked for */
	struct position reached;    /* epoch and step after the producer's last answer; it may have skipped batches that
	                             * were cancelled */
	struct {
		uint64_t epoch, step;
		bool known, certain; /* certain: every round before it is whole */
	} ends[SOURCE_ENDS];         /* per-rank steps of epochs that are over */
	unsigned n_ends;
	bool stopped;
	uv_timer_t kick; /* runs what streams ask for when no stream is on the stack */
};

/* first_number: the number of the first fill. 0 or -ENOMEM. Afterwards loader->source may be set to &p->source. */
int producer_source_create(uv_loop_t *loop, struct loader *loader, const struct producer_source_ops *ops, void *owner,
			   const struct producer_caps *caps, uint64_t first_number, struct producer_source **out);
/* The loader has been closed. The source frees itself when its timer is closed. */
void producer_source_close(struct producer_source *p);
/* No more fills: the producer has disconnected. */
void producer_source_stop(struct producer_source *p);

enum source_outcome { SOURCE_MADE, SOURCE_END, SOURCE_SKIPPED };
struct source_answer {
	enum source_outcome outcome;
	uint32_t n_rows;
	uint64_t n_bytes;          /* bytes of the slot that the batch takes */
	struct large_batch *large; /* SOURCE_MADE: the memory of a batch that does not fit its slot; else NULL */
	uint64_t n_batches;        /* SOURCE_END: of the epoch, over all ranks; 0: not known */
};
/* The producer's answer to the oldest pending fill, which must have that number. 0 or -EPROTO. Takes answer->large. */
int producer_source_answered(struct producer_source *p, uint64_t number, const struct source_answer *answer);
/* Whether a stream still wants the batch of the oldest pending fill. */
bool producer_source_is_wanted(const struct producer_source *p);
unsigned producer_source_n_asked(const struct producer_source *p);
/* Whether that epoch (of a rank, or of the group) is known to have ended before `at`. */
bool producer_source_is_over(const struct producer_source *p, const struct position *at);

#endif
