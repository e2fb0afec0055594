/* Whose turn it is: which queue a free thread takes rows of. Under the pool's lock. */
#ifndef BATCHD_POOL_TURNS_H
#define BATCHD_POOL_TURNS_H

#include "core/pool-impl.h"

/* For a worker. NULL: none has rows to take. */
struct pool_queue *pool_pick_queue(const struct pool *p, uint64_t now);
bool pool_any_has_rows(const struct pool *p);
/* For a relief thread: a queue of a user that rows that take long keep from its share of the workers. NULL: none. */
struct pool_queue *pool_pick_deprived(const struct pool *p, uint64_t now);
/* The queue's next rows. False: it has none. */
bool pool_take_piece(struct pool *p, struct pool_queue *q, struct pool_piece *out);
/* The thread works on rows of the queue from now on; until now. */
void pool_begin_work(struct pool *p, struct pool_thread *self, struct pool_queue *q, uint64_t now);
void pool_end_work(struct pool *p, struct pool_thread *self, struct pool_queue *q, uint64_t now);
/* Rows of the job took so long each. */
void pool_learn_batch_ns(struct pool_queue *q, const struct pool_job *job, uint64_t row_ns);
/* A queue that begins to have work starts level with the others, or it would have the machine to itself until it had
 * caught up with what it did not ask for. */
void pool_catch_up(const struct pool *p, struct pool_queue *q);

#endif
