/* See tickets.h. */
#include "batch/pool/tickets.h"

#include <assert.h>

#include "batch/pool/order.h"
#include "base/list.h"

/* ---- which queue may have a ticket ---- */

/* A queue may have as many of its lane's tickets as it leaves free: a single queue gets half of them, two get a third
 * each, and some are always left for a queue whose files are at hand, however slow the others' disks are. If there are
 * several users, each leaves a quarter to the others, however many queues it has: its disk may never answer. */
bool pool_may_have_ticket(const struct pool_queue *q)
{
	assert(q->lane_user->lane->n_reserved <= q->lane_user->lane->n_free_tickets);
	const struct pool_lane *lane = q->lane_user->lane;
	unsigned left = lane->n_free_tickets - lane->n_reserved, owned = q->lane_user->reads.n_tickets;
	return q->reads.n_tickets < left && (lane->n_users < 2 || owned == 0 || owned < 3 * left);
}

/* ---- rows that wait ---- */

/* Hands a row with its ticket to an I/O thread of its lane. */
static void fetch_later(struct pool *p, struct pool_ticket *t)
{
	assert(t->n > 0);
	struct pool_lane_user *u = t->job->queue->lane_user;
	t->next = NULL;
	*u->to_fetch_end = t;
	u->to_fetch_end = &t->next;
	p->n_parked++;
	if (u->lane->n_io_sleeping)
		pthread_cond_signal(&u->lane->io);
}

/* Changes the counts by this many tickets, and by this many tickets that an I/O thread is fetching. */
static void count_reads(struct pool_queue *q, int tickets, int fetching)
{
	struct pool_reads *of[] = { &q->reads, &q->lane_user->reads };
	for (unsigned i = 0; i < 2; i++) {
		of[i]->n_tickets += (unsigned)tickets;
		of[i]->n_fetching += (unsigned)fetching;
		assert(of[i]->n_fetching <= of[i]->n_tickets && of[i]->n_tickets <= q->lane_user->lane->n_tickets);
	}
}

static void pool_tickets_park(struct pool *p, struct pool_queue *q, const struct pool_piece *piece)
{
	assert(piece->job->queue == q && !piece->ticket && piece->n > 0);
	struct pool_lane *lane = q->lane_user->lane;
	struct pool_ticket *t = lane->free_tickets;
	assert(t && lane->n_free_tickets > 0);
	lane->free_tickets = t->next;
	lane->n_free_tickets--;
	count_reads(q, 1, 0);
	t->job = piece->job;
	t->row = piece->first;
	t->n = piece->n;
	t->stage = t->n_slow = 0;
	fetch_later(p, t);
}

void pool_unlink_starved(struct pool *p, struct pool_queue *q)
{
	assert(q->returned.job);
	list_remove(&q->lane_user->lane->starved, q, next_starved);
	q->returned = (struct pool_piece){ 0 };
	pool_order_update(p, q);
}

/* The list is empty unless a file system hangs. */
void pool_serve_starved(struct pool *p, struct pool_lane *lane)
{
	for (struct pool_queue *q = lane->starved, *next; q && lane->n_free_tickets > lane->n_reserved; q = next) {
		next = q->next_starved;
		if (pool_may_have_ticket(q)) {
			struct pool_piece piece = q->returned;
			pool_unlink_starved(p, q);
			pool_tickets_park(p, q, &piece);
		}
	}
}

void pool_give_ticket_back(struct pool_ticket *t)
{
	assert(t->job);
	struct pool_lane *lane = t->job->queue->lane_user->lane;
	count_reads(t->job->queue, -1, 0);
	assert(lane->n_free_tickets < lane->n_tickets);
	list_push(&lane->free_tickets, t, next);
	lane->n_free_tickets++;
}

void pool_begin_try(struct pool_queue *q, struct pool_piece *piece)
{
	assert(!piece->ticket && !piece->reserved);
	if (!piece->job->ops->fetch)
		return;
	piece->reserved = pool_may_have_ticket(q);
	q->lane_user->lane->n_reserved += piece->reserved;
	q->n_trying += !piece->reserved;
}

void pool_end_try(struct pool_queue *q, struct pool_piece *piece)
{
	struct pool_lane *lane = q->lane_user->lane;
	if (piece->ticket || !piece->job->ops->fetch)
		return;
	assert(piece->reserved ? lane->n_reserved > 0 : q->n_trying > 0);
	lane->n_reserved -= piece->reserved;
	q->n_trying -= !piece->reserved;
	piece->reserved = false;
}

void pool_wait_for_input(struct pool *p, struct pool_queue *q, struct pool_piece *piece)
{
	assert(piece->job->queue == q);
	bool reserved = piece->reserved;
	pool_end_try(q, piece);
	if (piece->ticket) {
		fetch_later(p, piece->ticket);
	} else if (reserved || pool_may_have_ticket(q)) {
		pool_tickets_park(p, q, piece);
	} else {
		assert(!q->returned.job);
		q->returned = *piece;
		list_append(&q->lane_user->lane->starved, q, next_starved);
	}
}

void pool_drop_input(const struct pool *p, const struct pool_ticket *t)
{
	if (p->params.input_drop)
		p->params.input_drop(t->input);
}

/* ---- reads ---- */

/* Whether an I/O thread of the lane may fetch the ticket. If there are several users, one must have no I/O thread yet, or
 * fewer than three times as many as it would leave free. On local disks so must a queue: there are several, and one that
 * does not answer at all holds up the jobs that read from it, and no other job. */
static bool may_fetch(const struct pool_ticket *t)
{
	const struct pool_queue *q = t->job->queue;
	const struct pool_lane *lane = q->lane_user->lane;
	assert(lane->n_io_busy < lane->n_io);
	unsigned left = lane->n_io - lane->n_io_busy - 1;
	unsigned n = q->reads.n_fetching, owned = q->lane_user->reads.n_fetching;
	if (lane->n_users > 1 && owned > 0 && owned >= 3 * left)
		return false;
	return lane->filesystem || n == 0 || n < 3 * left;
}

void pool_count_fetching(const struct pool_ticket *t, int by)
{
	count_reads(t->job->queue, 0, by);
}

/* The place of the user's first ticket that may be fetched; NULL: none. */
static struct pool_ticket **first_to_fetch(struct pool_lane_user *u)
{
	struct pool_ticket **at = &u->to_fetch;
	while (*at && !may_fetch(*at))
		at = &(*at)->next;
	return *at ? at : NULL;
}

/* Of the user for which the fewest threads fetch; among equals, of the one whose turn is the longest ago. */
struct pool_ticket *pool_take_to_fetch(struct pool_lane *lane)
{
	struct pool_lane_user *best = NULL;
	struct pool_ticket **found = NULL;
	for (struct pool_lane_user *u = lane->users; u; u = u->next) {
		if (!u->to_fetch || (best && u->reads.n_fetching >= best->reads.n_fetching))
			continue;
		struct pool_ticket **at = first_to_fetch(u);
		if (at) {
			found = at;
			best = u;
		}
	}
	if (!best)
		return NULL;
	struct pool_ticket *t = *found;
	*found = t->next;
	if (best->to_fetch_end == &t->next)
		best->to_fetch_end = found;
	if (best->next) {
		list_remove(&lane->users, best, next);
		list_append(&lane->users, best, next);
	}
	return t;
}
