/* Tickets: rows that wait for their input, who may have one, and which is fetched next. Under the pool's lock, but for
 * pool_drop_input.
 *
 * A worker that takes a new row reserves a ticket for it. Where a queue may not have one more, one worker at a time
 * tries a row without: what is in memory needs no ticket. A row that turns out to need one is then returned to its
 * queue, which gives out no other until it has got a ticket (`starved`). */
#ifndef BATCHD_POOL_TICKETS_H
#define BATCHD_POOL_TICKETS_H

#include "core/pool-impl.h"

/* Whether the queue may have one ticket more than it has. */
bool pool_may_have_ticket(const struct pool *p, const struct pool_queue *q);
/* A new row is taken: it is tried, with a reserved ticket if the queue may have one. */
void pool_begin_try(struct pool *p, struct pool_queue *q, struct pool_piece *piece);
/* The row is made, or will not be: what was held for it is free. */
void pool_end_try(struct pool *p, struct pool_queue *q, struct pool_piece *piece);
/* A row whose input has to be fetched (again, if it has a ticket). */
void pool_wait_for_input(struct pool *p, struct pool_queue *q, struct pool_piece *piece);
void pool_give_ticket_back(struct pool *p, struct pool_ticket *t);
/* Tickets have become free, or may be taken by others than before. */
void pool_serve_starved(struct pool *p);
/* The queue's returned row will not be made. */
void pool_unlink_starved(struct pool *p, struct pool_queue *q);
/* The next ticket for an I/O thread, which says by pool_count_fetching when it begins (1) and ends (-1). NULL: none. */
struct pool_ticket *pool_take_to_fetch(struct pool *p);
void pool_count_fetching(struct pool *p, const struct pool_ticket *t, int by);
/* What was fetched is not wanted. Not under the lock: it may free much. */
void pool_drop_input(const struct pool *p, const struct pool_ticket *t);

#endif
