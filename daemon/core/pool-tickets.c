/* See pool-tickets.h. */
#include "core/pool-tickets.h"

#include <assert.h>

#include "core/pool-order.h"
#include "util/list.h"

/* ---- which queue may have a ticket ---- */

/* How many tickets, and how many I/O threads, queues with a file system may have together: the rest is for queues whose
 * files are on local disks, however many other machines hang. */
static unsigned far_tickets(const struct pool *p)
{
	return p->params.n_tickets > 1 ? p->params.n_tickets / 2 : 1;
}

static unsigned far_threads(const struct pool *p)
{
	unsigned n = p->params.n_io * 5 / 8;
	return n > 0 ? n : 1;
}

/* A queue may have as many tickets as it leaves free: a single queue gets half of them, two get a third each, and some
 * are always left for a queue whose files are at hand, however slow the others' disks are. If there are several users,
 * each leaves a quarter to the others, however many queues it has: its disk may never answer. For files that a server
 * has to answer, a user and a file system leave as many free as they have, so that neither many jobs nor many mounts
 * get more. */
bool pool_may_have_ticket(const struct pool *p, const struct pool_queue *q)
{
	unsigned left = p->n_free_tickets - p->n_reserved;
	unsigned owned = q->owner->reads.n_tickets;
	if (p->n_owners > 1 && owned > 0 && owned >= 3 * left)
		return false;
	if (!q->filesystem)
		return q->reads.n_tickets < left;
	unsigned far = far_tickets(p);
	unsigned far_left = p->far.n_tickets < far ? far - p->far.n_tickets : 0;
	left = left < far_left ? left : far_left;
	return q->reads.n_tickets < left && q->owner->far.n_tickets < left && q->filesystem->reads.n_tickets < left;
}

/* ---- rows that wait ---- */

/* Hands a row with its ticket to an I/O thread. */
static void fetch_later(struct pool *p, struct pool_ticket *t)
{
	t->next = NULL;
	*p->to_fetch_end = t;
	p->to_fetch_end = &t->next;
	p->n_parked++;
	t->job->queue->n_parked++;
	if (p->n_io_sleeping)
		pthread_cond_signal(&p->io);
}

/* Changes the counts by this many tickets, and by this many tickets that an I/O thread is fetching. */
static void count_reads(struct pool *p, struct pool_queue *q, int tickets, int fetching)
{
	struct pool_reads *of[] = { &q->reads, &q->owner->reads, &q->owner->far, &p->far,
				    q->filesystem ? &q->filesystem->reads : NULL };
	unsigned n = q->filesystem ? 5 : 2;
	for (unsigned i = 0; i < n; i++) {
		of[i]->n_tickets += (unsigned)tickets;
		of[i]->n_fetching += (unsigned)fetching;
		assert(of[i]->n_tickets <= p->params.n_tickets && of[i]->n_fetching <= p->params.n_io);
	}
}

static void pool_tickets_park(struct pool *p, struct pool_queue *q, const struct pool_piece *piece)
{
	struct pool_ticket *t = p->free_tickets;
	assert(t && p->n_free_tickets > 0);
	p->free_tickets = t->next;
	p->n_free_tickets--;
	count_reads(p, q, 1, 0);
	t->job = piece->job;
	t->row = piece->first;
	t->n = piece->n;
	t->stage = t->n_slow = 0;
	fetch_later(p, t);
}

void pool_unlink_starved(struct pool *p, struct pool_queue *q)
{
	list_remove(&p->starved, q, next_starved);
	q->returned = (struct pool_piece){ 0 };
	pool_order_update(p, q);
}

/* The list is empty unless a file system hangs. */
void pool_serve_starved(struct pool *p)
{
	for (struct pool_queue *q = p->starved, *next; q && p->n_free_tickets > p->n_reserved; q = next) {
		next = q->next_starved;
		if (pool_may_have_ticket(p, q)) {
			struct pool_piece piece = q->returned;
			pool_unlink_starved(p, q);
			pool_tickets_park(p, q, &piece);
		}
	}
}

void pool_give_ticket_back(struct pool *p, struct pool_ticket *t)
{
	count_reads(p, t->job->queue, -1, 0);
	assert(p->n_free_tickets < p->params.n_tickets);
	list_push(&p->free_tickets, t, next);
	p->n_free_tickets++;
}

void pool_begin_try(struct pool *p, struct pool_queue *q, struct pool_piece *piece)
{
	if (!piece->job->ops->fetch)
		return;
	piece->reserved = pool_may_have_ticket(p, q);
	p->n_reserved += piece->reserved;
	q->n_trying += !piece->reserved;
}

void pool_end_try(struct pool *p, struct pool_queue *q, struct pool_piece *piece)
{
	if (piece->ticket || !piece->job->ops->fetch)
		return;
	assert(piece->reserved ? p->n_reserved > 0 : q->n_trying > 0);
	p->n_reserved -= piece->reserved;
	q->n_trying -= !piece->reserved;
	piece->reserved = false;
}

void pool_wait_for_input(struct pool *p, struct pool_queue *q, struct pool_piece *piece)
{
	bool reserved = piece->reserved;
	pool_end_try(p, q, piece);
	if (piece->ticket) {
		fetch_later(p, piece->ticket);
	} else if (reserved || pool_may_have_ticket(p, q)) {
		pool_tickets_park(p, q, piece);
	} else {
		assert(!q->returned.job);
		q->returned = *piece;
		list_append(&p->starved, q, next_starved);
	}
}

void pool_drop_input(const struct pool *p, const struct pool_ticket *t)
{
	if (p->params.input_drop)
		p->params.input_drop(t->input);
}

/* ---- reads ---- */

/* Whether an I/O thread may fetch the ticket. A queue, and its user if there are several, must have no I/O thread yet,
 * or fewer than three times as many as it would leave free: a disk that does not answer at all holds up the users that
 * read from it, and no other user, however many queues read from it. The same holds for users and file systems that a
 * server has to answer, within the threads reserved for those. */
static bool may_fetch(const struct pool *p, const struct pool_ticket *t)
{
	const struct pool_queue *q = t->job->queue;
	unsigned left = p->params.n_io - p->n_io_busy - 1;
	unsigned n = q->reads.n_fetching, owned = q->owner->reads.n_fetching;
	if ((n > 0 && n >= 3 * left) || (p->n_owners > 1 && owned > 0 && owned >= 3 * left))
		return false;
	if (!q->filesystem)
		return true;
	unsigned far = far_threads(p);
	unsigned far_left = p->far.n_fetching < far ? far - p->far.n_fetching : 0;
	return q->owner->far.n_fetching < 3 * far_left && q->filesystem->reads.n_fetching < 3 * far_left;
}

void pool_count_fetching(struct pool *p, const struct pool_ticket *t, int by)
{
	count_reads(p, t->job->queue, 0, by);
}

struct pool_ticket *pool_take_to_fetch(struct pool *p)
{
	for (struct pool_ticket **at = &p->to_fetch; *at; at = &(*at)->next) {
		struct pool_ticket *t = *at;
		if (!may_fetch(p, t))
			continue;
		*at = t->next;
		if (p->to_fetch_end == &t->next)
			p->to_fetch_end = at;
		return t;
	}
	return NULL;
}
