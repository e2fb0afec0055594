/* Producers: clients that make batches themselves, for whoever opens "serve:NAME".
 *
 *     connected --Produce--> idle ----a job opens its name----> feeding ----the job closes----> idle
 *                              |                                   |
 *                              |<---a batch that does not fit: the---+
 *                              |    job's trainers open another, with larger slots
 *                              |                                   |
 *                              +----- hang-up, ProducerEnd, a newer producer of the name -----> gone; the job's
 * trainers are told why
 *
 * A producer feeds one job at a time. The slabs it writes into are its own: made for it, mapped by it, sealed then, and
 * never given to another producer, so that one which was replaced cannot write into what its successor's trainers read.
 * Trainers that come first wait for their producer, for as long as they say. Loop thread only. */
#ifndef BATCHD_PRODUCER_H
#define BATCHD_PRODUCER_H

#include "core/feed.h"
#include "state.h"

/* A slab that the producer has been sent and has not mapped yet. */
struct offer {
	struct offer *next;
	struct slots *slots;   /* a reference */
	uint32_t rank;
};

struct producer {
	struct producer *next;        /* in the daemon's list */
	struct session *session;      /* its connection */
	struct job *job;              /* whom it feeds; NULL: nobody */
	struct offer *offers;         /* oldest first; all of `job` */
	uint32_t n_slabs;             /* offered so far; the number of the last */
	uint64_t asked, answered;     /* fills, numbered over all jobs */
	/* As it said. */
	char name[WIRE_MAX_PRODUCER + 1];
	uint64_t slot_bytes, n_batches, n_samples, id, incarnation;
	uint32_t n_rows;
	bool resumable, peeks;
	struct feed_maker successor;  /* what its next feed is to know, if successor.stands */
	/* For status and last words. */
	uid_t uid;
	pid_t pid;
	uint64_t created_ns, n_made, rows_made;
	struct position at;           /* epoch and step (over all ranks) of the last batch */
	bool made_any;
};

/* ---- a producer's messages ---- */

/* Each returns 0 or REFUSED. */
int producer_on_produce(struct session *s, const Batchd__Wire__Produce *m, struct refusal *why);
int producer_on_filled(struct session *s, const Batchd__Wire__Filled *m, struct refusal *why);
/* Its last words: the connection ends, too. */
int producer_on_end(struct session *s, const Batchd__Wire__ProducerEnd *m, struct refusal *why);
/* Its connection has ended without last words. */
void producer_on_closed(struct session *s);

/* ---- for jobs of served data sets; they have job.served set ---- */

/* Whether this user has a producer of that name. */
bool producer_exists(const struct batchd *b, uid_t uid, const char *name);
/* A session has entered a job that has no loader yet: takes a producer that is there, or waits for one. The session may
 * be gone afterwards. */
void producer_await(struct job *j);
/* The slots are made, with an open slab: the producer is to map it, then the rank's stream gets them. Takes the
 * reference. */
void producer_offer(struct job *j, uint32_t rank, struct slots *slots);
/* Whether such slots are on their way. */
bool producer_is_mapping(const struct job *j, uint32_t rank);
/* The job is closing. */
void producer_leave(struct job *j);
/* A trainer of an open share group begins where the group will be. 0 or REFUSED. */
int producer_on_join(struct session *s, const Batchd__Wire__Join *m, struct refusal *why);
/* What Opened says of it. */
void producer_describe(const struct job *j, Batchd__Wire__Opened *o);

#endif
