/* Priority queues through a member of the items: a pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986). The item
 * with the least key is first; among equal keys, the one that was inserted last. No allocation. To insert or to lower a
 * key takes constant time, to remove or to raise one takes logarithmic time, averaged over all calls. */
#ifndef BATCHD_HEAP_H
#define BATCHD_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
	uint64_t key;                /* change it by heap_set_key */
	struct heap_node *child;     /* the first of those with greater or equal keys */
	struct heap_node *next;      /* the next child of the same node */
	struct heap_node **previous; /* the pointer to this node; NULL: not in a heap */
};

/* All zero: empty. */
struct heap {
	struct heap_node *first;
};

void heap_insert(struct heap *h, struct heap_node *n, uint64_t key);
void heap_remove(struct heap *h, struct heap_node *n);
/* The node is in the heap. */
void heap_set_key(struct heap *h, struct heap_node *n, uint64_t key);

static inline bool heap_has(const struct heap_node *n)
{
	return n->previous != NULL;
}

static inline bool heap_has_one(const struct heap *h)
{
	return h->first && !h->first->child;
}

#endif
