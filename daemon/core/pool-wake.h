/* Who is woken for what. Under the pool's lock. */
#ifndef BATCHD_POOL_WAKE_H
#define BATCHD_POOL_WAKE_H

#include "core/pool-impl.h"

/* Whether a worker is to be woken for new work, by pthread_cond_signal(&p->work) as soon as the lock is free. */
bool pool_must_wake(struct pool *p);
/* The same for the watcher and &p->watch. */
bool pool_must_wake_watch(struct pool *p);
void pool_wake_worker(struct pool *p);
/* Wakes the loop to drain, once until it has. */
void pool_tell_loop(struct pool *p);

#endif
