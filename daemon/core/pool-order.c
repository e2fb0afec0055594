/* See pool-order.h. */
#include "core/pool-order.h"

#include "util/container.h"

static uint64_t turn_after(const struct pool *p, const struct pool_queue *q, uint64_t served_ns)
{
	uint64_t at = served_ns + POOL_CREDIT_NS, ready_ns = (uint64_t)q->n_ready * (uint64_t)q->batch_ns;
	return (at > p->level_ns ? at : p->level_ns) + (ready_ns < POOL_CREDIT_NS ? ready_ns : POOL_CREDIT_NS);
}

uint64_t pool_order_turn(const struct pool *p, const struct pool_queue *q, uint64_t now)
{
	return turn_after(p, q, pool_order_served(q, now));
}

/* ---- which queues are in the order ---- */

/* After a change in the user's heap. */
static void update_owner(struct pool *p, struct pool_owner *o)
{
	if (!o->ready.first) {
		if (heap_has(&o->turn))
			heap_remove(&p->owners_ready, &o->turn);
	} else if (!heap_has(&o->turn)) {
		heap_insert(&p->owners_ready, &o->turn, o->ready.first->key);
	} else if (o->turn.key != o->ready.first->key) {
		heap_set_key(&p->owners_ready, &o->turn, o->ready.first->key);
	}
}

static void pool_order_link(struct pool *p, struct pool_queue *q)
{
	q->previous = NULL;
	q->next = p->queues;
	if (p->queues)
		p->queues->previous = q;
	p->queues = q;
}

static void pool_order_unlink(struct pool *p, struct pool_queue *q)
{
	*(q->previous ? &q->previous->next : &p->queues) = q->next;
	if (q->next)
		q->next->previous = q->previous;
}

static void pool_order_insert(struct pool *p, struct pool_queue *q, uint64_t key)
{
	heap_insert(&q->owner->ready, &q->turn, key);
	update_owner(p, q->owner);
}

static void pool_order_remove(struct pool *p, struct pool_queue *q)
{
	heap_remove(&q->owner->ready, &q->turn);
	update_owner(p, q->owner);
}

static void pool_order_move(struct pool *p, struct pool_queue *q, uint64_t key)
{
	if (q->turn.key == key)
		return;
	heap_set_key(&q->owner->ready, &q->turn, key);
	update_owner(p, q->owner);
}

/* Rows in work only add to a turn without them. */
static uint64_t least_turn(const struct pool *p, const struct pool_queue *q)
{
	return pool_order_is_alone(p, q) ? 0 : turn_after(p, q, q->served_ns);
}

void pool_order_change(struct pool *p, struct pool_queue *q)
{
	bool ready = pool_order_is_ready(q), was = heap_has(&q->turn);
	if (was && ready) {
		pool_order_move(p, q, least_turn(p, q));
	} else if (was) {
		pool_order_unlink(p, q);
		pool_order_remove(p, q);
	} else if (ready) {
		pool_order_insert(p, q, least_turn(p, q));
		pool_order_link(p, q);
	}
}

/* ---- the first ---- */

/* The queue that seems to be first, with its turn at this moment. */
static struct pool_queue *settle_first(struct pool *p, uint64_t now)
{
	while (p->owners_ready.first) {
		struct pool_owner *o = container_of(p->owners_ready.first, struct pool_owner, turn);
		struct pool_queue *q = container_of(o->ready.first, struct pool_queue, turn);
		uint64_t key = pool_order_turn(p, q, now);
		if (key <= q->turn.key)
			return q;
		pool_order_move(p, q, key);
	}
	return NULL;
}

/* Queues that may not take rows, and users that are last, are put aside while the search goes on. Of the former there
 * are at most as many as there are tickets and workers, of the latter as many as workers. */
struct pool_queue *pool_order_first(struct pool *p, const struct pool_picks *picks, uint64_t now)
{
	struct pool_queue *q, *of_last = NULL, *queues = NULL;
	struct pool_owner *owners = NULL;
	while ((q = settle_first(p, now))) {
		struct pool_owner *o = q->owner;
		if (!picks->may_take(p, q)) {
			pool_order_remove(p, q);
			q->next_aside = queues;
			queues = q;
		} else if ((owners || !heap_has_one(&p->owners_ready)) && picks->last(p, o, now)) {
			of_last = of_last ? of_last : q;
			heap_remove(&p->owners_ready, &o->turn);
			o->next_aside = owners;
			owners = o;
		} else {
			break;
		}
	}
	for (; owners; owners = owners->next_aside)
		heap_insert(&p->owners_ready, &owners->turn, owners->ready.first->key);
	for (; queues; queues = queues->next_aside)
		pool_order_insert(p, queues, queues->turn.key);
	return q ? q : of_last;
}
