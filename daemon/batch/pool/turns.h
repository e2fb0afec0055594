/* Scheduling: the queue from which a free thread takes rows. Under the pool's lock. */
#ifndef BATCHD_POOL_TURNS_H
#define BATCHD_POOL_TURNS_H

#include "batch/pool/impl.h"

/* For a worker. NULL: no queue has rows to take. */
struct pool_queue *pool_pick_queue(struct pool *p, uint64_t now);
bool pool_any_has_rows(const struct pool *p);
/* For a relief thread: a queue of a user that does not get its share of the workers because other users' rows take
 * long. NULL: none. */
struct pool_queue *pool_pick_deprived(struct pool *p, uint64_t now);
/* The queue's next rows. False: it has none. */
bool pool_take_piece(struct pool *p, const struct pool_thread *self, struct pool_queue *q, struct pool_piece *out);
/* The thread begins to work on rows of the queue, and ends that work. pool_list_or_unlist must follow the end. */
void pool_begin_work(struct pool *p, struct pool_thread *self, struct pool_queue *q, uint64_t now);
void pool_end_work(struct pool_thread *self, struct pool_queue *q, uint64_t now);
/* Rows of the job took row_ns each. */
void pool_learn_batch_ns(struct pool_queue *q, const struct pool_job *job, uint64_t row_ns);
/* A queue that begins to have work starts level with the others, and so do its job and its user if they had none.
 * Otherwise it would have the machine to itself until it had caught up on time that it never asked for. */
void pool_catch_up(struct pool_queue *q);

#endif
