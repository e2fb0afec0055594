/* Tickets: rows that wait for their input, which queue may have a ticket, and which ticket is fetched next. Under the
 * pool's lock, except for pool_drop_input.
 *
 * A worker that takes a new row reserves a ticket for it. If the queue may not have another ticket, one worker at a
 * time tries a row without a ticket: input that is in memory needs none. A row that turns out to need a ticket is
 * returned to its queue, which gives out no other row until it gets a ticket (`starved`). */
#ifndef BATCHD_POOL_TICKETS_H
#define BATCHD_POOL_TICKETS_H

#include "batch/pool/impl.h"

/* Whether the queue may have another ticket of its lane. */
bool pool_may_have_ticket(const struct pool_queue *q);
/* A worker takes a new row and tries it, with a reserved ticket if the queue may have one. */
void pool_begin_try(struct pool_queue *q, struct pool_piece *piece);
/* The row is made, or will not be made: its reservation ends. */
void pool_end_try(struct pool_queue *q, struct pool_piece *piece);
/* The row's input has to be fetched (again, if it has a ticket). */
void pool_wait_for_input(struct pool *p, struct pool_queue *q, struct pool_piece *piece);
void pool_give_ticket_back(struct pool_ticket *t);
/* Tickets of the lane have become free. */
void pool_serve_starved(struct pool *p, struct pool_lane *lane);
/* The queue's returned row will not be made. */
void pool_unlink_starved(struct pool *p, struct pool_queue *q);
/* The next ticket for an I/O thread of the lane, which calls pool_count_fetching when it begins (1) and ends (-1). NULL:
 * none. */
struct pool_ticket *pool_take_to_fetch(struct pool_lane *lane);
void pool_count_fetching(const struct pool_ticket *t, int by);
/* The fetched input is not wanted. Not under the lock: it may free much memory. */
void pool_drop_input(const struct pool *p, const struct pool_ticket *t);

#endif
