/* See pool-queues.h. */
#include "core/pool-queues.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "core/pool-order.h"
#include "util/list.h"

enum { FIRST_BATCH_NS = 100000000 /* the worker time that a batch takes, until one was made */ };

void pool_list_or_unlist(struct pool *p, struct pool_queue *q)
{
	bool listed = q->first || q->fetched || q->n_busy;
	pool_order_update(p, q);
	if (listed == q->listed)
		return;
	q->listed = listed;
	if (listed) {
		p->n_listed++;
		p->n_listed_owners += q->owner->n_listed++ == 0;
	} else {
		p->n_listed--;
		p->n_listed_owners -= --q->owner->n_listed == 0;
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
	struct pool_owner *o = p->owners;
	while (o && o->uid != uid)
		o = o->next;
	if (o || !(o = calloc(1, sizeof(*o))))
		return o;
	o->uid = uid;
	list_push(&p->owners, o, next);
	return o;
}

int pool_queue_add(struct pool *p, struct pool_queue *q, unsigned max_busy, uid_t owner)
{
	struct pool_owner *o = find_or_make_owner(p, owner);
	if (!o)
		return -ENOMEM;
	*q = (struct pool_queue){ .owner = o, .max_busy = max_busy, .waited_for = true, .batch_ns = FIRST_BATCH_NS };
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
	pthread_mutex_lock(&p->lock);
	assert(!q->listed && !heap_has(&q->turn) && !q->reads.n_tickets && !q->returned.job);
	leave_filesystem(p, q->filesystem);
	p->n_owners -= o->n_queues == 1;
	pthread_mutex_unlock(&p->lock);
	assert(o->n_queues > 0);
	if (--o->n_queues > 0)
		return;
	assert(!o->n_busy && !o->n_listed && !o->reads.n_tickets && !o->far.n_tickets);
	list_remove(&p->owners, o, next);
	free(o);
}
