/* The machine's NUMA nodes: processors with the memory that is near to them. The daemon learns once, at its start,
 * which of them it may use. Constant afterwards, except for the two errors; any thread. */
#ifndef BATCHD_NODES_H
#define BATCHD_NODES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	NODES_MOST = 64,
	NODES_PROCESSORS = 8192,
	NODES_WORD_BITS = 8 * sizeof(unsigned long),
	NODES_WORDS = NODES_PROCESSORS / NODES_WORD_BITS,
};

struct node {
	int number; /* the kernel's; -1: processors that are near to no memory of ours */
	unsigned n_processors;
	unsigned long processors[NODES_WORDS]; /* a bit each: those that this process may use */
};

struct nodes {
	unsigned n, n_memory; /* the first n_memory nodes, at least 2, have memory; at most one follows, without */
	atomic_uint n_slabs;  /* slabs spread over them so far: each begins on the next node */
	atomic_int place_error, bind_error; /* errno of the first slab that could not be placed, and of the first
	                                     * worker that could not be bound; 0: none */
	struct node node[];
};

/* NULL: this process may use processors and memory of one node only, or the kernel reports no nodes, or memory is
 * short. What the affinity mask and the cpuset exclude counts for nothing. root: NULL, or a directory that replaces /
 * (tests). */
struct nodes *nodes_learn(const char *root);
/* A list as the kernel writes it, "0-3,8", into the bits of a set. False: it is malformed, or beyond the set. */
bool nodes_parse_list(const char *text, unsigned long *set, unsigned n_bits);
/* Which node each of n workers belongs to, an index each: however few of the first workers work, they are spread over
 * the nodes in proportion to the processors there. */
void nodes_share(const struct nodes *nodes, unsigned n, uint8_t *out);
/* Keeps the calling thread on the node's processors, so that the memory that it touches first lies there. 0 or negative
 * errno. */
int nodes_bind(const struct node *node);

#endif
