/* See pool-queues.h. */
#include "core/pool-queues.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "core/pool-debts.h"
#include "core/pool-order.h"
#include "util/list.h"

enum { FIRST_BATCH_NS = 100000000 /* the worker time that a batch takes, until one was made */ };

void pool_list_or_unlist(struct pool *p, struct pool_queue *q)
{
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
	if (job->finished || job->n_open > 0 || (!job->cancelled && job->n_taken < job->n_rows))
		return false;
	job->finished = true;
	bool tell = job->cancelled || job->queue->waited_for;
	list_push(&p->done, job, next);
	return tell;
}

/* ---- users and file systems ---- */

static struct pool_owner *find_or_make_owner(struct pool *p, uid_t uid)
{
	struct pool_owner *o = pool_find_owner(p, uid);
	if (o || !(o = calloc(1, sizeof(*o))))
		return o;
	o->uid = uid;
	o->part.of = &p->all;
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
	assert(!o->jobs && !o->part.n_busy && !o->part.n_listed && !o->reads.n_tickets && !o->far.n_tickets);
	pthread_mutex_lock(&p->lock);
	list_remove(&p->owners, o, next);
	pool_debts_leave(p, o);
	pthread_mutex_unlock(&p->lock);
	free(o);
}

int pool_queue_add(struct pool *p, struct pool_queue *q, unsigned max_busy, uid_t owner, const void *job)
{
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
	if (o->n_queues++ == 0) {
		pthread_mutex_lock(&p->lock);
		p->n_owners++;
		pthread_mutex_unlock(&p->lock);
	}
	return 0;
}

static struct pool_filesystem *join_filesystem(struct pool *p, uint64_t number)
{
	struct pool_filesystem *f = p->filesystems;
	while (f && f->number != number)
		f = f->next;
	if (!f && (f = calloc(1, sizeof(*f)))) {
		f->number = number;
		list_push(&p->filesystems, f, next);
	}
	f = f ? f : &p->any;
	f->n_queues++;
	return f;
}

static void leave_filesystem(struct pool *p, struct pool_filesystem *f)
{
	assert(!f || f->n_queues > 0);
	if (!f || --f->n_queues > 0 || f == &p->any)
		return;
	list_remove(&p->filesystems, f, next);
	free(f);
}

void pool_queue_set_origin(struct pool *p, struct pool_queue *q, uint64_t filesystem)
{
	pthread_mutex_lock(&p->lock);
	assert(!q->filesystem && !q->first && !q->reads.n_tickets);
	q->filesystem = join_filesystem(p, filesystem);
	pthread_mutex_unlock(&p->lock);
}

void pool_queue_remove(struct pool *p, struct pool_queue *q)
{
	struct pool_owner *o = q->owner;
	struct pool_user_job *j = q->user_job;
	pthread_mutex_lock(&p->lock);
	assert(!q->part.n_listed && !heap_has(&q->part.turn) && !q->reads.n_tickets && !q->returned.job);
	leave_filesystem(p, q->filesystem);
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
