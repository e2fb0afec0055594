/* Jobs of served data sets: the second way in which a job opens, and what it has of its producer then.
 *
 *     OPENING --a producer of that name is there, or comes--> READY --it has gone, or needs larger slots--> ENDING
 *        |
 *        +--none comes within the time that a trainer waits: that trainer is refused
 *
 * A job feeds its trainers what one producer makes (producer.h), and a producer feeds one job at a time. Loop thread
 * only. */
#ifndef BATCHD_SERVED_JOB_H
#define BATCHD_SERVED_JOB_H

#include "job.h"

struct producer_ops;
extern const struct producer_ops served_job_producer_ops;

/* A session has entered a job that has no loader yet: takes a producer that is there, or waits for one. The session may
 * be gone afterwards. */
void served_job_await(struct job *j);
/* The slots are made, with an open slab: the producer is to map it, then the rank's stream gets them. Takes the
 * reference. */
void served_job_offer(struct job *j, uint32_t rank, struct slots *slots);
/* Whether such slots are on their way. */
bool served_job_is_mapping(const struct job *j, uint32_t rank);
/* A trainer of an open share group begins where the group will be. 0 or REFUSED. */
int served_job_on_join(struct session *s, const Batchd__Wire__Join *m, struct refusal *why);
/* What Opened says of the producer. */
void served_job_describe(const struct job *j, Batchd__Wire__Opened *o);

#endif
