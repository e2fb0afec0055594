/* See turns.h. */
#include "batch/pool/turns.h"

#include <assert.h>

#include "batch/pool/nodes.h"
#include "batch/pool/order.h"
#include "batch/pool/queues.h"
#include "batch/pool/tickets.h"
#include "base/clock.h"

enum { SLOW_NS = 30000000 /* a row that has been in work for longer takes long */ };

/* ---- shares ---- */

/* How many workers are one user's share, while several users have work. */
static unsigned pool_turns_share(const struct pool *p)
{
	unsigned n = p->all.n_listed > 1 ? p->target / p->all.n_listed : p->target;
	return n ? n : 1;
}

/* The user's rows in work take long, and it has its share of the workers. */
static bool has_enough(const struct pool_owner *o, unsigned share, uint64_t now)
{
	const struct pool_part *part = &o->part;
	return part->n_busy >= share &&
	       pool_order_elapsed(part->n_busy, part->begun_ns, now) > (uint64_t)part->n_busy * SLOW_NS;
}

/* ---- picking ---- */

/* A queue without tickets may always try, with one worker. */
static bool may_take_new(const struct pool_queue *q)
{
	if (!q->first)
		return false;
	if (!q->first->ops->fetch)
		return true;
	return !q->returned.job && (pool_may_have_ticket(q) || (q->reads.n_tickets == 0 && q->n_trying == 0));
}

/* For a queue in the order. */
static bool may_take(const struct pool *p, const struct pool_queue *q)
{
	(void)p;
	return q->fetched || may_take_new(q);
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
struct pool_queue *pool_pick_deprived(struct pool *p, uint64_t now)
{
	unsigned n_slow = 0, n_users = p->all.n_listed;
	for (unsigned i = 0; i < 2 * p->params.max_workers; i++) {
		uint64_t since = p->workers[i].busy_since_ns;
		n_slow += since && now > since + SLOW_NS;
	}
	if (n_users < 2 || !n_slow || p->all.n_busy - n_slow >= p->target)
		return NULL; /* no other user to share with, or as many fast rows in work as the target */
	unsigned share = pool_turns_share(p), most = n_slow / (n_users - 1) > share ? n_slow / (n_users - 1) : share;
	return pool_order_first(p, &(struct pool_picks){ .may_take = may_take, .last = goes_last, .most_busy = most },
				now);
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
	bool fetched = q->fetched && !(q->took_fetched && may_take_new(q));
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
	pool_begin_try(q, out);
	assert(out->n > 0);
	job->n_taken += out->n;
	job->n_open += out->n;
	if (job->n_taken == job->n_rows)
		pool_unlink_job(q, job);
	note_taken(p, self, out);
	return true;
}

/* ---- rows in work ---- */

/* Before one of the part's rows is taken: it is not further behind than the credit, and its time counts for the level. */
static void start_from_level(struct pool_part *part, uint64_t now)
{
	uint64_t start = pool_order_served(part, now), *level_ns = &part->of->level_ns;
	if (start + POOL_CREDIT_NS < *level_ns)
		part->served_ns += *level_ns - POOL_CREDIT_NS - start;
	if (start > *level_ns)
		*level_ns = start;
}

void pool_begin_work(struct pool *p, struct pool_thread *self, struct pool_queue *q, uint64_t now)
{
	assert(!self->busy_since_ns && p->all.n_busy < 2 * p->params.max_workers);
	for (struct pool_part *part = &q->part; part; part = part->of) {
		if (part->of)
			start_from_level(part, now);
		part->n_busy++;
		part->begun_ns += now;
	}
	self->busy_since_ns = now;
	self->at = q;
	pool_order_drop(p, q);
}

void pool_end_work(struct pool_thread *self, struct pool_queue *q, uint64_t now)
{
	uint64_t begun = self->busy_since_ns;
	for (struct pool_part *part = &q->part; part; part = part->of) {
		assert(begun && part->n_busy > 0);
		part->n_busy--;
		part->begun_ns -= begun;
		part->served_ns += now - begun;
	}
	self->busy_since_ns = 0;
	self->at = NULL;
}

void pool_learn_batch_ns(struct pool_queue *q, const struct pool_job *job, uint64_t row_ns)
{
	assert(job->n_rows > 0);
	q->batch_ns += ((int64_t)(row_ns * job->n_rows) - q->batch_ns) / 8;
}

void pool_catch_up(struct pool_queue *q)
{
	assert(!q->part.n_listed);
	for (struct pool_part *part = &q->part; part->of && !part->n_listed; part = part->of) {
		if (part->served_ns < part->of->level_ns)
			part->served_ns = part->of->level_ns;
	}
}
