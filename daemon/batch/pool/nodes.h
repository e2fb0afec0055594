/* Workers on a machine with several NUMA nodes. Each is bound to the processors of one node, so that what it works in
 * (decoder, tables, scratch memory) lies there, as the kernel places a page by the thread that touches it first. It
 * prefers rows that lie there, too, but never sleeps while there are others. With one node nothing of this is called.
 */
#ifndef BATCHD_POOL_NODES_H
#define BATCHD_POOL_NODES_H

#include "batch/pool/impl.h"

/* Before the workers start: which node each belongs to. 0 or -ENOMEM. */
int pool_nodes_assign(struct pool *p);
/* The worker's own thread, first of all. A worker that cannot be bound is logged and goes without. */
void pool_nodes_bind(struct pool_thread *self);

/* Under the lock: */

/* Of the queue's next jobs one that lies on the worker's node; without one, the first job. */
struct pool_job *pool_nodes_job(const struct pool *p, const struct pool_queue *q, unsigned node);
/* The same for fetched rows: the ticket before the one to take. NULL: take the first. */
struct pool_ticket *pool_nodes_before(const struct pool *p, const struct pool_queue *q, unsigned node);

#endif
