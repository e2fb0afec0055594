/* Producers: clients that make batches themselves, for the trainers that open "serve:NAME".
 *
 *     connected --Produce--> idle ----a job opens its name----> feeding ----the job closes----> idle
 *                              |                                   |
 *                              +-----------------------------------+--> gone; the job's trainers are told why
 *                                hang-up, ProducerEnd, a newer producer of the name
 *
 * A producer feeds one job at a time. Each producer has slabs of its own: made for it, mapped by it, then sealed, and
 * never given to another producer. So a replaced producer cannot write into the slabs of its successor. A batch that
 * does not fit its slot comes in a memfd (batch/large-batch.h); the slots of the next job have room for it. Trainers
 * that come first wait for their producer, for the time that they ask for. Loop thread only. */
#ifndef BATCHD_PRODUCER_H
#define BATCHD_PRODUCER_H

#include "batch/producer-source.h"
#include "batch/large-batch.h"
#include "server/session-message.h"

/* A slab that was sent to the producer and is not mapped yet. */
struct offer {
	struct offer *next;
	struct slots *slots; /* a reference */
	uint32_t rank;
};

/* What the job that it feeds does; implemented by producer-job.c. */
struct producer_ops {
	/* The producer has connected, and feeds no job yet. */
	void (*came)(struct producer *p);
	/* The producer has mapped the slab of these slots; the callee owns the reference. Not sealed: the slots cannot
	 * be used. */
	void (*mapped)(struct producer *p, uint32_t rank, struct slots *slots, bool sealed);
	/* The producer has answered the oldest Fill; the answer is valid in itself. large: the batch's memory, if it does
	 * not fit its slot; the callee owns it, and calls producer_take once there is memory for it. 0 or REFUSED. */
	int (*answered)(struct producer *p, const Batchd__Wire__Filled *m, struct large_batch *large,
			struct refusal *why);
	/* The producer has gone, for this reason; called for a producer with a job. */
	void (*ended)(struct producer *p, Batchd__Wire__ErrorCode code, const char *text);
};

/* producer_move makes each change. */
enum producer_state {
	PRODUCER_IDLE,
	PRODUCER_FEEDING, /* it has a job */
	PRODUCER_GONE,    /* in no list any more; freed with its session */
};

struct producer {
	struct producer *next;   /* in the daemon's list, until it has gone */
	struct session *session; /* its connection */
	enum producer_state state;
	struct job *job; /* that it feeds; NULL: none. ops' own */
	const struct producer_ops *ops;
	struct offer *offers;     /* oldest first; all of `job` */
	uint32_t n_slabs;         /* offered so far; the number of the last */
	uint64_t asked, answered; /* fills, numbered over all jobs */
	bool is_waiting;          /* its last answer is a large batch that is not taken: it may not answer the next */
	/* That batch, while there is no memory for it; ops' own. */
	struct {
		struct large_batch *batch; /* NULL: none */
		uint64_t fill;
		uint32_t n_rows;
	} untaken;
	/* From its Produce. */
	char name[WIRE_MAX_PRODUCER + 1];
	uint64_t slot_bytes, n_batches, n_samples, id, incarnation; /* slot_bytes: of its present slots */
	uint32_t n_rows;
	bool resumable;
	uint64_t most_bytes; /* of a batch so far: the next job's slots have that room */
	/* For the status and the last log line. */
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
/* Its descriptor is the memory of a batch that does not fit its slot. */
int producer_on_filled(struct session *s, const struct message *m, struct refusal *why);
/* Its last message: ends the connection. */
int producer_on_end(struct session *s, const struct message *m, struct refusal *why);
/* Its connection has ended: frees the producer, if there is one. */
void producer_on_closed(struct session *s);

/* ---- for the job that it feeds ---- */

/* Whether this user has a producer of that name. */
bool producer_exists(const struct engine *e, uid_t uid, const char *name);
/* The producer feeds this job from this call on; NULL: no job. */
void producer_bind(struct producer *p, struct job *j);
/* Asks for a batch, or cancels such a Fill. */
void producer_fill(struct producer *p, const Batchd__Wire__Fill *body);
/* Sends an open slab, which the producer maps and which is then sealed (ops->mapped). Takes the reference. 0 or
 * -ENOMEM. */
int producer_offer(struct producer *p, uint32_t rank, struct slots *slots);
bool producer_is_mapping(const struct producer *p, uint32_t rank);
/* Withdraws the slabs that were offered and not yet mapped. */
void producer_drop_offers(struct producer *p);
/* Its last answer, a large batch, has been taken, or is not wanted any more: it may answer the next Fill. */
void producer_take(struct producer *p);

#endif
