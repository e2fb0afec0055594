/* Which threads are woken for which work. Under the pool's lock. */
#ifndef BATCHD_POOL_WAKE_H
#define BATCHD_POOL_WAKE_H

#include "batch/pool/impl.h"

/* Whether a worker must be woken for new work; the caller signals &p->work as soon as the lock is free. */
bool pool_must_wake(struct pool *p);
/* The same for the watcher and &p->watch. */
bool pool_must_wake_watch(struct pool *p);
void pool_wake_worker(struct pool *p);
/* Wakes the loop to drain; only once until it has drained. */
void pool_tell_loop(struct pool *p);

#endif
