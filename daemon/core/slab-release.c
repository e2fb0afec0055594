/* See slab-release.h. */
#include "core/slab-release.h"

#include <assert.h>
#include <stdlib.h>

#include "core/pool.h"
#include "util/container.h"

struct release {
	struct pool_task task;
	struct slab_releases *of;
	struct slab slab;
	struct charge bytes, fd;
};

static void free_pages(struct pool_task *t)
{
	slab_finish(&container_of(t, struct release, task)->slab);
}

static void on_freed(struct pool_task *t)
{
	struct release *r = container_of(t, struct release, task);
	struct slab_releases *of = r->of;
	charge_release(&r->bytes);
	charge_release(&r->fd);
	free(r);
	assert(of->n > 0);
	of->n--;
	of->done(of->arg);
}

void slab_release(struct slab_releases *of, struct slab *s, struct charge *bytes, struct charge *fd)
{
	struct release *r = of && of->pool && s->base ? malloc(sizeof(*r)) : NULL;
	if (!r) {
		slab_finish(s);
		charge_release(bytes);
		charge_release(fd);
		return;
	}
	*r = (struct release){
		.task = { .run = free_pages, .done = on_freed, .owner = bytes->account ? bytes->account->uid : 0 },
		.of = of,
		.slab = *s
	};
	charge_move(&r->bytes, bytes);
	charge_move(&r->fd, fd);
	*s = (struct slab){ .fd = -1, .writable_fd = -1 };
	of->n++;
	pool_run_task(of->pool, &r->task);
}
