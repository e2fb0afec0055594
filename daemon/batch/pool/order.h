/* The order of the queues that have rows to take. Under the pool's lock.
 *
 * Workers' time is divided in a tree: among users, a user's part among its jobs, and a job's part among its queues. At
 * each branch the part with the least *turn* is next: start-time fair queueing (Goyal, Vin, Cheng 1996) by worker time,
 * in a hierarchy. A part that wants less than its share gets all that it wants, however many others there are. Among
 * the queues of one job ready batches count as service received, so that the rank that holds up the others goes first;
 * but only up to a limit: the pool's count may be out of date, because a trainer that goes to sleep does not always
 * report it. A user whose rows take long goes behind the others once it has its share of the workers.
 *
 * Each part has a heap of its parts that have rows to take. A turn grows by itself: with the time that rows in work have
 * taken, and with the level. So keys are lower bounds, and a turn is worked out when the part is first in its heap. A
 * pick looks at a few queues, however many have rows. */
#ifndef BATCHD_POOL_ORDER_H
#define BATCHD_POOL_ORDER_H

#include "batch/pool/impl.h"

enum {
	POOL_CREDIT_NS = 400000000, /* worker time: how far behind the others a part may be and still catch up */
};

/* How long n rows have been in work, summed up. `now` may be older than the youngest: it was taken before the lock. */
static inline uint64_t pool_order_elapsed(unsigned n, uint64_t begun_ns, uint64_t now)
{
	int64_t ns = (int64_t)(n * now - begun_ns);
	return ns > 0 ? (uint64_t)ns : 0;
}

/* Worker time of a part, rows in work included. */
static inline uint64_t pool_order_served(const struct pool_part *part, uint64_t now)
{
	return part->served_ns + pool_order_elapsed(part->n_busy, part->begun_ns, now);
}

/* Whether the queue has rows to take, as far as it alone decides: its next row may also need a ticket. */
static inline bool pool_order_is_ready(const struct pool_queue *q)
{
	if (q->max_busy && q->part.n_busy >= q->max_busy)
		return false;
	return (q->first && (!q->returned.job || !q->first->ops->fetch)) || q->fetched;
}

/* No other queue is in the order. */
static inline bool pool_order_is_alone(const struct pool *p, const struct pool_queue *q)
{
	return !p->queues || (p->queues == q && !q->next);
}

void pool_order_change(struct pool *p, struct pool_queue *q);

/* The queue's jobs, rows or times have changed: puts it into the order, takes it out, or moves it. Key 0 is below every
 * turn, so a queue that is alone, which is the usual case, has no place to move to. */
static inline void pool_order_update(struct pool *p, struct pool_queue *q)
{
	if (!heap_has(&q->part.turn) || q->part.turn.key || !pool_order_is_alone(p, q) || !pool_order_is_ready(q))
		pool_order_change(p, q);
}

/* The same when its turn has only become later: takes it out if it has no rows left. */
static inline void pool_order_drop(struct pool *p, struct pool_queue *q)
{
	if (heap_has(&q->part.turn) && !pool_order_is_ready(q))
		pool_order_change(p, q);
}

struct pool_picks {
	bool (*may_take)(const struct pool *p, const struct pool_queue *q);           /* tickets allow it */
	bool (*last)(const struct pool *p, const struct pool_owner *o, uint64_t now); /* it goes behind the others */
	unsigned most_busy; /* users with so many workers on their rows are left out; 0: none is */
};

/* Of several queues: the first that may take rows, of a user that is not last if there is one. NULL: none. */
struct pool_queue *pool_order_first(struct pool *p, const struct pool_picks *picks, uint64_t now);

#endif
