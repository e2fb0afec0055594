/* Tasks: which one an I/O thread of a lane runs next. Under the pool's lock. */
#ifndef BATCHD_POOL_TASKS_H
#define BATCHD_POOL_TASKS_H

#include "batch/pool/impl.h"

/* The task waits for a thread from now on. */
void pool_add_task(struct pool_lane *lane, struct pool_task *t);
/* Takes it from those that wait, and counts it as running until pool_end_task. NULL: none may run now. */
struct pool_task *pool_take_task(struct pool_lane *lane);
void pool_end_task(struct pool_lane *lane, struct pool_task *t);

#endif
