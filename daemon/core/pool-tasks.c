/* See pool-tasks.h.
 *
 * A data set that is opened may be on a disk or a server that never answers, and a user may open many: so all openings
 * together have half of the I/O threads, one user has a quarter, and no more than are left of that half. Other tasks end
 * by themselves but take processors from the workers: a user has a quarter as many threads for them as there are
 * workers, and no more than are left free, or one. Among the tasks that may run, those of the user with the fewest
 * running ones go first, then in rounds: one of each user's in each. */
#include "core/pool-tasks.h"

#include "util/list.h"

static unsigned at_least_one(unsigned n)
{
	return n > 0 ? n : 1;
}

/* Running tasks that open data sets, or the others; of the owner of `like`, and all. */
static void count_running(const struct pool *p, const struct pool_task *like, unsigned *own, unsigned *all)
{
	*own = *all = 0;
	for (const struct pool_task *t = p->tasks_running; t; t = t->next) {
		if (t->opens != like->opens)
			continue;
		++*all;
		*own += t->owner == like->owner;
	}
}

/* own: running tasks of its kind and owner. */
static bool may_run(const struct pool *p, const struct pool_task *t, unsigned *own)
{
	unsigned all, n = p->params.n_io, half = at_least_one(n / 2);
	count_running(p, t, own, &all);
	if (t->opens)
		return all < half && *own < half - all && *own < at_least_one(n / 4);
	return *own == 0 || (*own < p->params.max_workers / 4 && *own + p->n_io_busy + 1 < n);
}

void pool_add_task(struct pool *p, struct pool_task *t)
{
	t->round = p->task_round;
	for (const struct pool_task *other = p->tasks; other; other = other->next) {
		if (other->owner == t->owner && other->round >= t->round)
			t->round = other->round + 1;
	}
	list_append(&p->tasks, t, next);
}

struct pool_task *pool_take_task(struct pool *p)
{
	struct pool_task *best = NULL;
	unsigned least = 0, own;
	for (struct pool_task *t = p->tasks; t; t = t->next) {
		if (!may_run(p, t, &own) || (best && (own > least || (own == least && t->round >= best->round))))
			continue;
		best = t;
		least = own;
	}
	if (best) {
		p->task_round = best->round >= p->task_round ? best->round + 1 : p->task_round;
		list_remove(&p->tasks, best, next);
		list_push(&p->tasks_running, best, next);
	}
	return best;
}

void pool_end_task(struct pool *p, struct pool_task *t)
{
	list_remove(&p->tasks_running, t, next);
	list_push(&p->tasks_done, t, next);
}
