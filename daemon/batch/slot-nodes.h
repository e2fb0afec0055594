/* On which NUMA node the memory of each slot of a slab lies. Slots lie on the nodes in turn, so that their memory and
 * the workers that fill them are spread alike, and one slot lies on one node, so that a worker can choose it. Several
 * small slots lie together, so that a slab has at most SLOT_NODES_RUNS pieces however many slots a client asks for. */
#ifndef BATCHD_SLOT_NODES_H
#define BATCHD_SLOT_NODES_H

#include <stddef.h>
#include <stdint.h>

struct nodes;

enum { SLOT_NODES_RUNS = 32 };

struct slot_nodes {
	struct nodes *nodes; /* NULL: it is not known where the slots lie, or there is one node */
	unsigned first;      /* the place in nodes of the first run */
	uint32_t run_slots;
	size_t slot_bytes;
};

/* For n slots. nodes: NULL, or those to spread the slots over; the next slab begins on the next one. */
void slot_nodes_init(struct slot_nodes *s, struct nodes *nodes, size_t slot_bytes, uint32_t n);
/* 1 + the place in nodes; 0: not known. */
unsigned slot_nodes_of(const struct slot_nodes *s, uint32_t slot);
/* All slots have been moved to the kernel's node of that number. */
void slot_nodes_moved(struct slot_nodes *s, int number);
/* Has the pages of the slab, which are still to be made, made where they belong. If the kernel will not, that is logged
 * once, and nodes becomes NULL. Any thread. */
void slot_nodes_place(struct slot_nodes *s, uint8_t *base, size_t bytes);

#endif
