/* Queues of jobs and their owners: pool_queue_add, pool_queue_set_lane and pool_queue_remove of pool.h, and the
 * functions that change a queue's jobs, under the pool's lock. */
#ifndef BATCHD_POOL_QUEUES_H
#define BATCHD_POOL_QUEUES_H

#include "batch/pool/impl.h"

/* After a change of the queue's jobs, rows or times. A queue is listed exactly while it has rows to take, fetched rows
 * or rows in work; listed queues with rows to take are in the order of turns. */
void pool_list_or_unlist(struct pool *p, struct pool_queue *q);
/* Takes the job out of the queue's list, if it is there. */
void pool_unlink_job(struct pool_queue *q, struct pool_job *job);
/* Moves the job to the done list if it has no rows left to do. Returns whether the loop must be told now. */
bool pool_finish_if_done(struct pool *p, struct pool_job *job);

/* A user of a lane comes and goes. Loop thread, not under the lock. */
void pool_add_lane_user(struct pool *p, struct pool_lane *lane, struct pool_lane_user *u, uid_t uid);
void pool_remove_lane_user(struct pool *p, struct pool_lane_user *u);

#endif
