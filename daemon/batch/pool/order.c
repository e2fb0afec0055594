/* See order.h. */
#include "batch/pool/order.h"

#include "base/container.h"

/* A part that is divided no further is a queue's. */
static struct pool_queue *queue_of(struct pool_part *part)
{
	return container_of(part, struct pool_queue, part);
}

static bool is_queue(const struct pool_part *part)
{
	return part->of && part->of->of && part->of->of->of;
}

/* ---- turns ---- */

static uint64_t turn_after(const struct pool_part *part, uint64_t served_ns)
{
	uint64_t at = served_ns + POOL_CREDIT_NS;
	return at > part->of->level_ns ? at : part->of->level_ns;
}

static uint64_t for_ready_batches(const struct pool_queue *q)
{
	uint64_t ns = (uint64_t)q->n_ready * (uint64_t)q->batch_ns;
	return ns < POOL_CREDIT_NS ? ns : POOL_CREDIT_NS;
}

static uint64_t turn_of(struct pool_part *part, uint64_t now)
{
	uint64_t turn = turn_after(part, pool_order_served(part, now));
	return is_queue(part) ? turn + for_ready_batches(queue_of(part)) : turn;
}

/* ---- which queues are in the order ---- */

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

/* With the parts that it is of, as far as they were not in their heaps. */
static void pool_order_insert(struct pool_queue *q, uint64_t key)
{
	heap_insert(&q->part.of->ready, &q->part.turn, key);
	for (struct pool_part *part = q->part.of; part->of && !heap_has(&part->turn); part = part->of)
		heap_insert(&part->of->ready, &part->turn, turn_after(part, part->served_ns));
}

/* With the parts that have no other. A user that was put aside is in no heap. */
static void pool_order_remove(struct pool_queue *q)
{
	for (struct pool_part *part = &q->part; part->of && heap_has(&part->turn); part = part->of) {
		heap_remove(&part->of->ready, &part->turn);
		if (part->of->ready.first)
			break;
	}
}

/* Rows in work only add to a turn without them. */
static uint64_t least_turn(const struct pool *p, const struct pool_queue *q)
{
	return pool_order_is_alone(p, q) ? 0 : turn_after(&q->part, q->part.served_ns) + for_ready_batches(q);
}

void pool_order_change(struct pool *p, struct pool_queue *q)
{
	bool ready = pool_order_is_ready(q), was = heap_has(&q->part.turn);
	if (was && ready) {
		uint64_t key = least_turn(p, q);
		if (key != q->part.turn.key)
			heap_set_key(&q->part.of->ready, &q->part.turn, key);
	} else if (was) {
		pool_order_unlink(p, q);
		pool_order_remove(q);
	} else if (ready) {
		pool_order_insert(q, least_turn(p, q));
		pool_order_link(p, q);
	}
}

/* ---- the first ---- */

/* Of a part's parts, the one that is next at this moment. NULL: none has rows. */
static struct pool_part *settle_first(struct pool_part *of, uint64_t now)
{
	while (of->ready.first) {
		struct pool_part *part = container_of(of->ready.first, struct pool_part, turn);
		uint64_t key = turn_of(part, now);
		if (key <= part->turn.key)
			return part;
		heap_set_key(&of->ready, &part->turn, key);
	}
	return NULL;
}

static struct pool_queue *first_queue(struct pool *p, uint64_t now)
{
	struct pool_part *part = settle_first(&p->all, now);
	while (part && !is_queue(part))
		part = settle_first(part, now);
	return part ? queue_of(part) : NULL;
}

/* Queues that may not take rows, and users that are last or left out, are put aside while the search goes on. Of the
 * former there are at most as many as there are tickets and workers, of the latter as many as workers. */
struct pool_queue *pool_order_first(struct pool *p, const struct pool_picks *picks, uint64_t now)
{
	struct pool_queue *q, *of_last = NULL, *queues = NULL;
	struct pool_owner *owners = NULL;
	while ((q = first_queue(p, now))) {
		struct pool_owner *o = q->owner;
		bool left_out = picks->most_busy && o->part.n_busy >= picks->most_busy;
		if (!left_out && !picks->may_take(p, q)) {
			pool_order_remove(q);
			q->next_aside = queues;
			queues = q;
		} else if (left_out || ((owners || !heap_has_one(&p->all.ready)) && picks->last(p, o, now))) {
			if (!left_out && !of_last)
				of_last = q;
			heap_remove(&p->all.ready, &o->part.turn);
			o->next_aside = owners;
			owners = o;
		} else {
			break;
		}
	}
	for (; owners; owners = owners->next_aside)
		heap_insert(&p->all.ready, &owners->part.turn, owners->part.turn.key);
	for (; queues; queues = queues->next_aside)
		pool_order_insert(queues, queues->part.turn.key);
	return q ? q : of_last;
}
