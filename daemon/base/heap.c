/* See heap.h. A node's children are a list; the root has no siblings. */
#include "base/heap.h"

#include <assert.h>

/* Two trees become one: the root of one of them becomes the first child of the other root, which is returned. */
static struct heap_node *meld(struct heap_node *a, struct heap_node *b)
{
	if (b->key <= a->key) {
		struct heap_node *swap = a;
		a = b;
		b = swap;
	}
	b->next = a->child;
	if (b->next)
		b->next->previous = &b->next;
	b->previous = &a->child;
	a->child = b;
	return a;
}

static void set_root(struct heap *h, struct heap_node *n)
{
	h->first = n;
	if (!n)
		return;
	n->previous = &h->first;
	n->next = NULL;
}

/* Melds a list of trees: pairs from the first to the last, then the pairs from the last to the first. */
static struct heap_node *meld_all(struct heap_node *list)
{
	struct heap_node *pairs = NULL, *all;
	while (list) {
		struct heap_node *a = list, *b = a->next;
		list = b ? b->next : NULL;
		if (b)
			a = meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	all = pairs;
	for (pairs = all ? all->next : NULL; pairs; pairs = list) {
		list = pairs->next;
		all = meld(all, pairs);
	}
	return all;
}

static void heap_cut(struct heap_node *n)
{
	*n->previous = n->next;
	if (n->next)
		n->next->previous = n->previous;
}

void heap_insert(struct heap *h, struct heap_node *n, uint64_t key)
{
	assert(!heap_has(n));
	n->key = key;
	n->child = NULL;
	set_root(h, h->first ? meld(h->first, n) : n);
}

void heap_remove(struct heap *h, struct heap_node *n)
{
	assert(heap_has(n));
	struct heap_node *below = meld_all(n->child);
	if (h->first == n) {
		set_root(h, below);
	} else {
		heap_cut(n);
		if (below)
			set_root(h, meld(h->first, below));
	}
	n->child = n->next = NULL;
	n->previous = NULL;
}

void heap_set_key(struct heap *h, struct heap_node *n, uint64_t key)
{
	assert(heap_has(n));
	if (key > n->key && n->child) {
		heap_remove(h, n);
		heap_insert(h, n, key);
		return;
	}
	bool up = key < n->key;
	n->key = key;
	if (!up || h->first == n)
		return;
	heap_cut(n);
	set_root(h, meld(h->first, n));
}
