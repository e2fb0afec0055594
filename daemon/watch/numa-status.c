/* See numa-status.h. */
#include "watch/numa-status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch/pool/pool.h"
#include "server/engine.h"
#include "base/nodes.h"

enum { TEXT_BYTES = 8192 };

static json_t *numa_nodes(const struct nodes *nodes, unsigned n_workers)
{
	json_t *list = json_array();
	uint8_t *of = malloc(n_workers);
	if (!of)
		return list;
	nodes_share(nodes, n_workers, of);
	for (unsigned k = 0; k < nodes->n; k++) {
		unsigned n = 0;
		for (unsigned i = 0; i < n_workers; i++)
			n += of[i] == k;
		json_array_append_new(list, json_pack("{s:i, s:i, s:i}", "node", nodes->node[k].number, "processors",
						      (int)nodes->node[k].n_processors, "workers", (int)n));
	}
	free(of);
	return list;
}

/* "node 0 has 8 of the workers and 16 processors, ..." */
static void say_nodes(const json_t *list, char *text, size_t size)
{
	size_t n = 0, i;
	json_t *o;
	*text = '\0';
	json_array_foreach (list, i, o) {
		int node, processors, workers;
		if (json_unpack(o, "{s:i, s:i, s:i}", "node", &node, "processors", &processors, "workers", &workers))
			continue;
		char name[32];
		snprintf(name, sizeof(name), node < 0 ? "no node" : "node %d", node);
		n += (size_t)snprintf(text + n, size - n, "%s%s has %d workers on %d processors", i ? ", " : "", name,
				      workers, processors);
		if (n >= size)
			return;
	}
}

static void say_slots(const struct nodes *nodes, const struct pool_stats *s, char *text, size_t size)
{
	int placed = atomic_load(&nodes->place_error), bound = atomic_load(&nodes->bind_error);
	if (bound)
		snprintf(text, size, "but not every worker could be bound: %s", strerror(bound));
	else if (placed)
		snprintf(text, size, "but batches lie where the kernel puts them: %s", strerror(placed));
	else if (s->n_rows)
		snprintf(text, size, "%.0f %% of the rows were made on the node where they lie",
			 100.0 * (double)s->n_near / (double)s->n_rows);
	else
		snprintf(text, size, "batches lie on the nodes in turn");
}

json_t *numa_status_json(const struct engine *e)
{
	struct pool_stats s;
	char where[TEXT_BYTES], slots[256];
	const struct nodes *nodes = e->nodes;
	if (!nodes)
		return NULL;
	pool_get_stats(e->pool, &s);
	json_t *list = numa_nodes(nodes, s.max);
	say_nodes(list, where, sizeof(where));
	say_slots(nodes, &s, slots, sizeof(slots));
	bool error = atomic_load(&nodes->place_error) || atomic_load(&nodes->bind_error);
	return json_pack("{s:o, s:I, s:b, s:o}", "nodes", list, "rows_near", (json_int_t)s.n_near, "error", error,
			 "text", json_sprintf("%s; %s", where, slots));
}
