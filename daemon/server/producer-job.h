/* Jobs of served data sets: the second way in which a job opens, and the job's side of its producer.
 *
 *     OPENING --a producer of that name is there, or comes--> READY --it has gone, or needs larger slots--> ENDING
 *        |
 *        +--none comes within the time that a trainer waits: that trainer is refused
 *
 * A job feeds its trainers from one producer (producer.h), and a producer feeds one job at a time. Loop thread only. */
#ifndef BATCHD_PRODUCER_JOB_H
#define BATCHD_PRODUCER_JOB_H

#include "server/job.h"

struct producer_ops;
extern const struct producer_ops producer_job_producer_ops;

/* A session has entered a job that has no loader yet: takes a connected producer, or waits for one. */
void producer_job_await(struct job *j);
/* The slots are made, with an open slab: the producer maps it, then the rank's stream gets them. Takes the
 * reference. */
void producer_job_offer(struct job *j, uint32_t rank, struct slots *slots);
/* Whether a producer is about to map slots for this rank. */
bool producer_job_is_mapping(const struct job *j, uint32_t rank);
/* A trainer of an open share group joins at the position where the group will be. 0 or REFUSED. */
int producer_job_on_join(struct session *s, const Batchd__Wire__Join *m, struct refusal *why);
/* Fills the producer's fields of Opened. */
void producer_job_describe(const struct job *j, Batchd__Wire__Opened *o);

#endif
