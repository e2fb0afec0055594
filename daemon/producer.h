/* Producers: clients that make batches themselves, for the trainers that open "serve:NAME".
 *
 *     connected --Produce--> idle ----a job opens its name----> feeding ----the job closes----> idle
 *                              |                                   |
 *                              |<--- a batch that does not fit: ---+
 *                              |     the job's trainers open another, with larger slots
 *                              |                                   |
 *                              +-----------------------------------+--> gone; the job's trainers are told why
 *                                hang-up, ProducerEnd, a newer producer of the name
 *
 * A producer feeds one job at a time. The slabs it writes into are its own: made for it, mapped by it, sealed then, and
 * never given to another producer, so that one which was replaced cannot write into what its successor's trainers read.
 * Trainers that come first wait for their producer, for as long as they say. Loop thread only. */
#ifndef BATCHD_PRODUCER_H
#define BATCHD_PRODUCER_H

#include "core/feed.h"
#include "refusal.h"
#include "session-state.h"

/* A slab that the producer has been sent and has not mapped yet. */
struct offer {
	struct offer *next;
	struct slots *slots; /* a reference */
	uint32_t rank;
};

/* What the job that it feeds does; served-job.c. */
struct producer_ops {
	/* It is there, and feeds none yet. */
	void (*came)(struct producer *p);
	/* It has mapped the slab of these slots, whose reference is the callee's now; not sealed: they cannot be used. */
	void (*mapped)(struct producer *p, uint32_t rank, struct slots *slots, bool sealed);
	/* It has answered the oldest Fill; the answer is possible in itself. 0 or REFUSED. */
	int (*answered)(struct producer *p, const Batchd__Wire__Filled *m, struct refusal *why);
	/* It has gone, for this reason; of one with a job. p is freed afterwards. */
	void (*ended)(struct producer *p, Batchd__Wire__ErrorCode code, const char *text);
};

struct producer {
	struct producer *next;   /* in the daemon's list */
	struct session *session; /* its connection */
	struct job *job;         /* that it feeds; NULL: none. ops' own */
	const struct producer_ops *ops;
	struct offer *offers;     /* oldest first; all of `job` */
	uint32_t n_slabs;         /* offered so far; the number of the last */
	uint64_t asked, answered; /* fills, numbered over all jobs */
	/* As it said. */
	char name[WIRE_MAX_PRODUCER + 1];
	uint64_t slot_bytes, n_batches, n_samples, id, incarnation;
	uint32_t n_rows;
	bool resumable, peeks;
	struct feed_maker successor; /* what its next feed is to know, if successor.stands */
	/* For status and last words. */
	uid_t uid;
	pid_t pid;
	uint64_t created_ns, n_made, rows_made;
	struct position at; /* epoch and step (over all ranks) of the last batch */
	bool made_any;
};

/* ---- a producer's messages ---- */

/* Each returns 0 or REFUSED. */
int producer_on_produce(struct session *s, const Batchd__Wire__Produce *m, const struct producer_ops *ops,
			struct refusal *why);
int producer_on_filled(struct session *s, const Batchd__Wire__Filled *m, struct refusal *why);
/* Its last words: the connection ends, too. */
int producer_on_end(struct session *s, const Batchd__Wire__ProducerEnd *m, struct refusal *why);
/* Its connection has ended without last words. */
void producer_on_closed(struct session *s);

/* ---- for the job that it feeds ---- */

/* Whether this user has a producer of that name. */
bool producer_exists(const struct engine *e, uid_t uid, const char *name);
/* It feeds this job from now on; NULL: none any more. */
void producer_bind(struct producer *p, struct job *j);
/* Asks for a batch, or takes that back. */
void producer_fill(struct producer *p, const Batchd__Wire__Fill *body);
/* Sends an open slab to be mapped, and sealed then (ops->mapped). Takes the reference. 0 or -ENOMEM. */
int producer_offer(struct producer *p, uint32_t rank, uint32_t world_size, struct slots *slots);
bool producer_is_mapping(const struct producer *p, uint32_t rank);
/* What it was offered is not wanted any more. */
void producer_drop_offers(struct producer *p);
/* A batch takes more than its slots have: the next ones are larger. 0; REFUSED: larger than a batch may be, and the
 * producer is gone. */
int producer_grow(struct producer *p, uint64_t need_bytes, struct refusal *why);

#endif
