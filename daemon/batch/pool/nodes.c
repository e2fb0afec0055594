/* See nodes.h. Jobs are looked at in their order, and only twice as many as there are nodes: slots lie on the
 * nodes in turn, so that most workers find a job of theirs, and no worker runs further ahead of the batch that its
 * trainer gets next. */
#include "batch/pool/nodes.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/nodes.h"

enum { MOST_LOOKS = 16 };

int pool_nodes_assign(struct pool *p)
{
	unsigned n = p->params.max_workers;
	uint8_t *of = malloc(n);
	if (!of)
		return -ENOMEM;
	nodes_share(p->params.nodes, n, of);
	for (unsigned i = 0; i < n; i++)
		p->workers[i].node = 1U + of[i];
	free(of);
	return 0;
}

void pool_nodes_bind(struct pool_thread *self)
{
	assert(self->node > 0);
	struct nodes *nodes = self->pool->params.nodes;
	const struct node *node = &nodes->node[self->node - 1];
	int r = nodes_bind(node), none = 0;
	if (self->node > nodes->n_memory || r)
		self->node = 0;
	if (r && atomic_compare_exchange_strong(&nodes->bind_error, &none, -r))
		log_record(LOG_LEVEL_INFO, "not-bound",
			   "a worker cannot be bound to the processors of NUMA node %d, and runs on all: %s",
			   node->number, strerror(-r));
}

static unsigned looks(const struct pool *p)
{
	unsigned n = 2 * p->params.nodes->n_memory;
	return n < MOST_LOOKS ? n : MOST_LOOKS;
}

struct pool_job *pool_nodes_job(const struct pool *p, const struct pool_queue *q, unsigned node)
{
	assert(node > 0);
	unsigned left = looks(p);
	for (struct pool_job *job = q->first; job && left > 0; job = job->next, left--) {
		if (job->node == node)
			return job;
	}
	return q->first;
}

struct pool_ticket *pool_nodes_before(const struct pool *p, const struct pool_queue *q, unsigned node)
{
	assert(node > 0);
	unsigned left = looks(p);
	struct pool_ticket *before = NULL;
	for (struct pool_ticket *t = q->fetched; t && left > 0; before = t, t = t->next, left--) {
		if (t->job->node == node)
			return before;
	}
	return NULL;
}
