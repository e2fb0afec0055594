/* See queues.h. */
#include "batch/pool/queues.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "batch/pool/debts.h"
#include "batch/pool/order.h"
#include "base/list.h"
#include "base/thread-kind.h"

enum { FIRST_BATCH_NS = 100000000 /* the worker time that a batch takes, until one was made */ };

void pool_list_or_unlist(struct pool *p, struct pool_queue *q)
{
	assert(q->owner);
	bool listed = q->first || q->fetched || q->part.n_busy;
	pool_order_update(p, q);
	if (listed == (q->part.n_listed > 0))
		return;
	if (listed) {
		for (struct pool_part *part = &q->part; part && part->n_listed++ == 0; part = part->of)
			;
	} else {
		for (struct pool_part *part = &q->part; part && --part->n_listed == 0; part = part->of)
			;
	}
}

void pool_unlink_job(struct pool_queue *q, struct pool_job *job)
{
	struct pool_job **at = &q->first, *before = NULL;
	for (; *at && *at != job; at = &(*at)->next)
		before = *at;
	if (!*at)
		return;
	*at = job->next;
	if (q->last == job)
		q->last = before;
	job->next = NULL;
}

/* Wake-ups of the loop merge, so telling it twice does no harm. */
bool pool_finish_if_done(struct pool *p, struct pool_job *job)
{
	assert(job->queue && job->n_taken <= job->n_rows);
	if (job->finished || job->n_open > 0 || (!job->cancelled && job->n_taken < job->n_rows))
		return false;
	job->finished = true;
	bool tell = job->cancelled || job->queue->waited_for;
	list_push(&p->done, job, next);
	return tell;
}

/* ---- users ---- */

void pool_add_lane_user(struct pool *p, struct pool_lane *lane, struct pool_lane_user *u, uid_t uid)
{
	assert(is_loop_thread());
	*u = (struct pool_lane_user){ .lane = lane, .uid = uid };
	u->to_fetch_end = &u->to_fetch;
	pthread_mutex_lock(&p->lock);
	list_push(&lane->users, u, next);
	pthread_mutex_unlock(&p->lock);
}

void pool_remove_lane_user(struct pool *p, struct pool_lane_user *u)
{
	assert(is_loop_thread());
	pthread_mutex_lock(&p->lock);
	assert(!u->n_queues && !u->reads.n_tickets && !u->reads.n_fetching && !u->to_fetch);
	list_remove(&u->lane->users, u, next);
	pthread_mutex_unlock(&p->lock);
}

static struct pool_owner *find_or_make_owner(struct pool *p, uid_t uid)
{
	struct pool_owner *o = pool_find_owner(p, uid);
	if (o || !(o = calloc(1, sizeof(*o))))
		return o;
	o->uid = uid;
	o->part.of = &p->all;
	pool_add_lane_user(p, &p->local, &o->local, uid);
	pthread_mutex_lock(&p->lock);
	pool_debts_return(p, o);
	list_push(&p->owners, o, next);
	pthread_mutex_unlock(&p->lock);
	return o;
}

static struct pool_user_job *find_or_make_job(struct pool_owner *o, const void *job)
{
	struct pool_user_job *j = o->jobs;
	while (j && j->job != job)
		j = j->next;
	if (j || !(j = calloc(1, sizeof(*j))))
		return j;
	j->job = job;
	j->part.of = &o->part;
	list_push(&o->jobs, j, next);
	return j;
}

static void drop_owner(struct pool *p, struct pool_owner *o)
{
	if (o->n_queues > 0)
		return;
	assert(!o->jobs && !o->part.n_busy && !o->part.n_listed);
	pool_remove_lane_user(p, &o->local);
	pthread_mutex_lock(&p->lock);
	list_remove(&p->owners, o, next);
	pool_debts_leave(p, o);
	pthread_mutex_unlock(&p->lock);
	free(o);
}

/* The queue has reads in this lane from now on; NULL: it ends. */
static void enter_lane(struct pool_queue *q, struct pool_lane_user *u)
{
	struct pool_lane_user *old = q->lane_user;
	if (old && --old->n_queues == 0)
		old->lane->n_users--;
	if (u && u->n_queues++ == 0)
		u->lane->n_users++;
	q->lane_user = u;
}

int pool_queue_add(struct pool *p, struct pool_queue *q, unsigned max_busy, uid_t owner, const void *job)
{
	assert(is_loop_thread());
	struct pool_owner *o = find_or_make_owner(p, owner);
	if (!o)
		return -ENOMEM;
	struct pool_user_job *j = find_or_make_job(o, job);
	if (!j) {
		drop_owner(p, o);
		return -ENOMEM;
	}
	j->n_queues++;
	*q = (struct pool_queue){ .owner = o,
				  .user_job = j,
				  .part = { .of = &j->part },
				  .max_busy = max_busy,
				  .waited_for = true,
				  .batch_ns = FIRST_BATCH_NS };
	pthread_mutex_lock(&p->lock);
	enter_lane(q, &o->local);
	p->n_owners += o->n_queues++ == 0;
	pthread_mutex_unlock(&p->lock);
	return 0;
}

void pool_queue_set_lane(struct pool *p, struct pool_queue *q, struct pool_lane_user *u)
{
	assert(is_loop_thread());
	assert(u->lane->filesystem);
	pthread_mutex_lock(&p->lock);
	assert(u->uid == q->owner->uid && u->n_joined > 0);
	assert(q->lane_user == &q->owner->local && !q->first && !q->reads.n_tickets && !q->n_trying);
	enter_lane(q, u);
	pthread_mutex_unlock(&p->lock);
}

void pool_queue_remove(struct pool *p, struct pool_queue *q)
{
	assert(is_loop_thread());
	assert(q->owner && q->user_job);
	struct pool_owner *o = q->owner;
	struct pool_user_job *j = q->user_job;
	pthread_mutex_lock(&p->lock);
	assert(!q->part.n_listed && !heap_has(&q->part.turn) && !q->reads.n_tickets && !q->returned.job);
	enter_lane(q, NULL);
	p->n_owners -= o->n_queues == 1;
	pthread_mutex_unlock(&p->lock);
	assert(o->n_queues > 0 && j->n_queues > 0);
	if (--j->n_queues == 0) {
		assert(!j->part.n_busy && !j->part.n_listed);
		list_remove(&o->jobs, j, next);
		free(j);
	}
	o->n_queues--;
	drop_owner(p, o);
}
