/* See slot-nodes.h. The policies stay for as long as the slab: that also keeps the kernel's automatic balancing from
 * unmapping pages to find out where they would be better. Pieces end at multiples of 2 MiB, because a huge page has one
 * place, so up to so much of a slot lies with the slot after it.
 *
 * The caches have no such placing. A cached sample is read once an epoch, by any worker, so no node is the right one;
 * each worker's own entries lie near it by first touch, and that spreads them over the nodes as well as interleaving
 * would, without a policy for each of the cache's mappings. */
#include "batch/slot-nodes.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/nodes.h"
#include "base/numa.h"

enum { HUGE_PAGE = 2 << 20 };

void slot_nodes_init(struct slot_nodes *s, struct nodes *nodes, size_t slot_bytes, uint32_t n)
{
	*s = (struct slot_nodes){ .nodes = nodes, .slot_bytes = slot_bytes };
	if (!nodes)
		return;
	int refused = atomic_load(&nodes->place_error);
	if (refused == EPERM || refused == ENOSYS) { /* a filter of system calls: it will not change */
		s->nodes = NULL;
		return;
	}
	size_t huge = (HUGE_PAGE + slot_bytes - 1) / slot_bytes, runs = (n + SLOT_NODES_RUNS - 1) / SLOT_NODES_RUNS;
	s->run_slots = (uint32_t)(huge > runs ? huge : runs);
	s->first = atomic_fetch_add_explicit(&nodes->n_slabs, 1, memory_order_relaxed) % nodes->n_memory;
}

static unsigned node_of_run(const struct slot_nodes *s, uint32_t run)
{
	return (s->first + run) % s->nodes->n_memory;
}

unsigned slot_nodes_of(const struct slot_nodes *s, uint32_t slot)
{
	return s->nodes ? 1 + node_of_run(s, slot / s->run_slots) : 0;
}

void slot_nodes_moved(struct slot_nodes *s, int number)
{
	struct nodes *nodes = s->nodes;
	s->nodes = NULL;
	for (unsigned i = 0; nodes && i < nodes->n_memory; i++) {
		if (nodes->node[i].number != number)
			continue;
		s->nodes = nodes;
		s->first = i;
		s->run_slots = UINT32_MAX;
	}
}

void slot_nodes_place(struct slot_nodes *s, uint8_t *base, size_t bytes)
{
	struct nodes *nodes = s->nodes;
	size_t run_bytes = s->run_slots * s->slot_bytes;
	int r = 0, none = 0;
	if (!nodes)
		return;
	size_t at = 0;
	for (uint32_t run = 0; r == 0 && at < bytes; run++) {
		size_t end = (run + 1) * run_bytes;
		end = end < bytes ? end / HUGE_PAGE * HUGE_PAGE : bytes;
		r = numa_place(base + at, end - at, (unsigned)nodes->node[node_of_run(s, run)].number);
		at = end;
	}
	if (r == 0)
		return;
	s->nodes = NULL;
	if (atomic_compare_exchange_strong(&nodes->place_error, &none, -r))
		log_record(
			LOG_LEVEL_INFO, "not-placed",
			"batches cannot be placed on the machine's %u NUMA nodes, and lie where the kernel puts them: %s",
			nodes->n_memory, strerror(-r));
}
