/* See wake.h. */
#include "batch/pool/wake.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

#include "base/clock.h"

/* Waking one worker at a time is enough: a woken worker looks at all the work there is, and wakes the next worker
 * (pool_worker_main) when there is more than it takes. So a thread that brings work pays for only one wake-up. */
bool pool_must_wake(struct pool *p)
{
	assert(p->n_sleeping + p->n_waking <= p->params.max_workers);
	if (p->n_sleeping == 0 || p->n_waking > 0)
		return false;
	p->n_sleeping--;
	p->n_waking++;
	p->waking_since_ns = clock_now_ns();
	p->n_wakes++;
	return true;
}

bool pool_must_wake_watch(struct pool *p)
{
	if (!p->watch_asleep || p->n_owners < 2)
		return false;
	p->watch_asleep = false;
	p->n_idle_watches = 0;
	return true;
}

void pool_wake_worker(struct pool *p)
{
	if (pool_must_wake(p))
		pthread_cond_signal(&p->work);
}

void pool_tell_loop(struct pool *p)
{
	assert(p->wake_fd >= 0);
	uint64_t one = 1;
	if (p->told)
		return;
	p->told = true;
	while (write(p->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}
