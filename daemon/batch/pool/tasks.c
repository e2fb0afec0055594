/* See tasks.h.
 *
 * A data set that is opened may be on a disk or a server that never answers, and a user may open many: so all openings of
 * a lane together have half of its threads, one user has a quarter, and no more than are left of that half. Other tasks
 * end by themselves but take processors from the workers: a user has a quarter as many threads for them as there are
 * workers, and no more than are left free, or one. Among the tasks that may run, those of the user with the fewest
 * running ones go first, then in rounds: one of each user's in each. */
#include "batch/pool/tasks.h"

#include <assert.h>

#include "base/list.h"

static unsigned at_least_one(unsigned n)
{
	return n > 0 ? n : 1;
}

/* Running tasks that open data sets, or the others; of the owner of `like`, and all. */
static void count_running(const struct pool_lane *lane, const struct pool_task *like, unsigned *own, unsigned *all)
{
	*own = *all = 0;
	for (const struct pool_task *t = lane->tasks_running; t; t = t->next) {
		if (t->opens != like->opens)
			continue;
		++*all;
		*own += t->owner == like->owner;
	}
}

/* own: running tasks of its kind and owner. */
static bool may_run(const struct pool_lane *lane, const struct pool_task *t, unsigned *own)
{
	unsigned all, n = lane->n_io, half = at_least_one(n / 2);
	count_running(lane, t, own, &all);
	if (t->opens)
		return all < half && *own < half - all && *own < at_least_one(n / 4);
	return *own == 0 || (*own < lane->pool->params.max_workers / 4 && *own + lane->n_io_busy + 1 < n);
}

void pool_add_task(struct pool_lane *lane, struct pool_task *t)
{
	assert(!list_has(&lane->tasks, t, next));
	t->round = lane->task_round;
	for (const struct pool_task *other = lane->tasks; other; other = other->next) {
		if (other->owner == t->owner && other->round >= t->round)
			t->round = other->round + 1;
	}
	list_append(&lane->tasks, t, next);
}

struct pool_task *pool_take_task(struct pool_lane *lane)
{
	struct pool_task *best = NULL;
	unsigned least = 0, own;
	for (struct pool_task *t = lane->tasks; t; t = t->next) {
		if (!may_run(lane, t, &own) || (best && (own > least || (own == least && t->round >= best->round))))
			continue;
		best = t;
		least = own;
	}
	if (best) {
		lane->task_round = best->round >= lane->task_round ? best->round + 1 : lane->task_round;
		list_remove(&lane->tasks, best, next);
		list_push(&lane->tasks_running, best, next);
	}
	return best;
}

void pool_end_task(struct pool_lane *lane, struct pool_task *t)
{
	list_remove(&lane->tasks_running, t, next);
	list_push(&lane->pool->tasks_done, t, next);
}
