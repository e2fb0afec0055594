/* See pool-turns.h. */
#include "core/pool-turns.h"

#include <assert.h>

#include "core/pool-nodes.h"
#include "core/pool-order.h"
#include "core/pool-queues.h"
#include "core/pool-tickets.h"
#include "util/clock.h"

enum { SLOW_NS = 30000000 /* a row that has been in work for longer takes long */ };

/* ---- shares ---- */

/* How many workers are one user's share, while several users have work. */
static unsigned pool_turns_share(const struct pool *p)
{
	unsigned n = p->n_listed_owners > 1 ? p->target / p->n_listed_owners : p->target;
	return n ? n : 1;
}

/* The user's rows in work take long, and it has its share of the workers. */
static bool has_enough(const struct pool_owner *o, unsigned share, uint64_t now)
{
	return o->n_busy >= share && pool_order_elapsed(o->n_busy, o->begun_ns, now) > (uint64_t)o->n_busy * SLOW_NS;
}

static bool more_urgent(const struct pool *p, const struct pool_queue *a, const struct pool_queue *b, uint64_t now)
{
	if (a->owner != b->owner) {
		bool enough = has_enough(a->owner, pool_turns_share(p), now);
		if (enough != has_enough(b->owner, pool_turns_share(p), now))
			return !enough;
	}
	return pool_order_turn(p, a, now) < pool_order_turn(p, b, now);
}

/* ---- picking ---- */

/* A queue without tickets may always try, with one worker. */
static bool may_take_new(const struct pool *p, const struct pool_queue *q)
{
	if (!q->first)
		return false;
	if (!q->first->ops->fetch)
		return true;
	return !q->returned.job && (pool_may_have_ticket(p, q) || (q->reads.n_tickets == 0 && q->n_trying == 0));
}

/* For a queue in the order. */
static bool may_take(const struct pool *p, const struct pool_queue *q)
{
	return q->fetched || may_take_new(p, q);
}

static bool goes_last(const struct pool *p, const struct pool_owner *o, uint64_t now)
{
	return has_enough(o, pool_turns_share(p), now);
}

struct pool_queue *pool_pick_queue(struct pool *p, uint64_t now)
{
	static const struct pool_picks picks = { .may_take = may_take, .last = goes_last };
	struct pool_queue *q = p->queues;
	if (q && !q->next) /* the usual case */
		return may_take(p, q) ? q : NULL;
	return q ? pool_order_first(p, &picks, now) : NULL;
}

bool pool_any_has_rows(const struct pool *p)
{
	const struct pool_queue *q = p->queues;
	while (q && !may_take(p, q))
		q = q->next;
	return q != NULL;
}

/* Threads that work on long rows keep running beside the relief threads, so an equal number of relief threads is needed
 * for a user to have its share of the processors. */
struct pool_queue *pool_pick_deprived(const struct pool *p, uint64_t now)
{
	struct pool_queue *best = NULL;
	unsigned n_slow = 0;
	for (unsigned i = 0; i < 2 * p->params.max_workers; i++) {
		uint64_t since = p->workers[i].busy_since_ns;
		n_slow += since && now > since + SLOW_NS;
	}
	if (p->n_listed_owners < 2 || !n_slow || p->n_busy - n_slow >= p->target)
		return NULL; /* no other user to share with, or as many fast rows in work as the target */
	unsigned most = n_slow / (p->n_listed_owners - 1) > pool_turns_share(p) ? n_slow / (p->n_listed_owners - 1)
										: pool_turns_share(p);
	for (struct pool_queue *q = p->queues; q; q = q->next) {
		if (may_take(p, q) && q->owner->n_busy < most && (!best || more_urgent(p, q, best, now)))
			best = q;
	}
	return best;
}

static void note_taken(struct pool *p, const struct pool_thread *self, const struct pool_piece *piece)
{
	if (self->node && piece->job->node == self->node)
		p->n_near += piece->n;
}

/* Takes fetched and new rows in turn: a new row that has to be parked costs almost nothing, and keeps the disk as busy
 * as the decoders. */
bool pool_take_piece(struct pool *p, const struct pool_thread *self, struct pool_queue *q, struct pool_piece *out)
{
	bool fetched = q->fetched && !(q->took_fetched && may_take_new(p, q));
	q->took_fetched = fetched;
	if (fetched) {
		struct pool_ticket *before = self->node ? pool_nodes_before(p, q, self->node) : NULL;
		struct pool_ticket *t = before ? before->next : q->fetched;
		*(before ? &before->next : &q->fetched) = t->next;
		if (q->fetched_last == t)
			q->fetched_last = before;
		*out = (struct pool_piece){ .job = t->job, .ticket = t, .first = t->row, .n = t->n };
		note_taken(p, self, out);
		return true;
	}
	struct pool_job *job = self->node ? pool_nodes_job(p, q, self->node) : q->first;
	if (!job)
		return false;
	uint32_t left = job->n_rows - job->n_taken;
	*out = (struct pool_piece){ .job = job, .first = job->n_taken, .n = left < job->chunk ? left : job->chunk };
	pool_begin_try(p, q, out);
	assert(out->n > 0);
	job->n_taken += out->n;
	job->n_open += out->n;
	if (job->n_taken == job->n_rows)
		pool_unlink_job(q, job);
	note_taken(p, self, out);
	return true;
}

/* ---- rows in work ---- */

void pool_begin_work(struct pool *p, struct pool_thread *self, struct pool_queue *q, uint64_t now)
{
	uint64_t start = pool_order_served(q, now);
	if (start + POOL_CREDIT_NS < p->level_ns)
		q->served_ns += p->level_ns - POOL_CREDIT_NS - start;
	if (start > p->level_ns)
		p->level_ns = start;
	assert(!self->busy_since_ns && p->n_busy < 2 * p->params.max_workers);
	q->n_busy++;
	q->begun_ns += now;
	q->owner->n_busy++;
	q->owner->begun_ns += now;
	p->n_busy++;
	p->begun_ns += now;
	self->busy_since_ns = now;
	pool_order_drop(p, q);
}

void pool_end_work(struct pool *p, struct pool_thread *self, struct pool_queue *q, uint64_t now)
{
	uint64_t begun = self->busy_since_ns;
	assert(begun && q->n_busy > 0 && q->owner->n_busy > 0 && p->n_busy > 0);
	q->n_busy--;
	q->begun_ns -= begun;
	q->served_ns += now - begun;
	q->owner->n_busy--;
	q->owner->begun_ns -= begun;
	p->n_busy--;
	p->begun_ns -= begun;
	p->busy_ns += now - begun;
	self->busy_since_ns = 0;
}

uint64_t pool_turns_busy_ns(const struct pool *p, uint64_t now)
{
	return p->busy_ns + pool_order_elapsed(p->n_busy, p->begun_ns, now);
}

void pool_learn_batch_ns(struct pool_queue *q, const struct pool_job *job, uint64_t row_ns)
{
	q->batch_ns += ((int64_t)(row_ns * job->n_rows) - q->batch_ns) / 8;
}

void pool_catch_up(const struct pool *p, struct pool_queue *q)
{
	if (q->served_ns < p->level_ns)
		q->served_ns = p->level_ns;
}
