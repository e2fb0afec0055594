/* See nodes.h. A node counts where this process may use both processors and memory of it: nodes that are offline,
 * excluded by a cpuset, or without memory or processors (memory expanders) get no slots, and processors without near
 * memory form one last node. What the files say is not trusted to be consistent: a processor belongs to the first node
 * that lists it. */
#include "base/nodes.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 1024 /* of nodes, in the kernel */, TEXT_BYTES = 64 << 10 };

typedef unsigned long node_numbers[NUMBERS / NODES_WORD_BITS];

static bool has_bit(const unsigned long *set, unsigned i)
{
	return set[i / NODES_WORD_BITS] >> i % NODES_WORD_BITS & 1;
}

/* Digits only; false also for what is not below n_bits. */
static bool parse_number(const char **at, unsigned n_bits, unsigned *out)
{
	unsigned n = 0;
	const char *begin = *at;
	for (; **at >= '0' && **at <= '9'; ++*at) {
		n = n * 10 + (unsigned)(**at - '0');
		if (n >= n_bits)
			return false;
	}
	*out = n;
	return *at > begin;
}

bool nodes_parse_list(const char *text, unsigned long *set, unsigned n_bits)
{
	memset(set, 0, n_bits / NODES_WORD_BITS * sizeof(*set));
	const char *at = text + strspn(text, " \t");
	if (!*at || *at == '\n')
		return true; /* an empty list: a node without processors */
	for (;; at++) {
		unsigned first, last;
		if (!parse_number(&at, n_bits, &first))
			return false;
		last = first;
		if (*at == '-') {
			at++;
			if (!parse_number(&at, n_bits, &last) || last < first)
				return false;
		}
		for (unsigned i = first; i <= last; i++)
			set[i / NODES_WORD_BITS] |= 1UL << i % NODES_WORD_BITS;
		if (*at != ',')
			return !*at || *at == '\n';
	}
}

/* ---- files ---- */

/* False: there is no such file, or it is longer than any list. */
static bool nodes_read(const char *root, const char *path, char *text)
{
	char full[512];
	snprintf(full, sizeof(full), "%s%s", root, path);
	FILE *f = fopen(full, "re");
	if (!f)
		return false;
	size_t n = fread(text, 1, TEXT_BYTES, f);
	fclose(f);
	text[n < TEXT_BYTES ? n : 0] = '\0';
	return n < TEXT_BYTES;
}

static bool read_list(const char *root, const char *path, char *text, unsigned long *set, unsigned n_bits)
{
	return nodes_read(root, path, text) && nodes_parse_list(text, set, n_bits);
}

/* A line of /proc/self/status. */
static bool find_list(const char *status, const char *key, unsigned long *set, unsigned n_bits)
{
	const char *at = strstr(status, key);
	return at && nodes_parse_list(at + strlen(key), set, n_bits);
}

/* ---- nodes ---- */

struct allowed {
	node_numbers online;
	unsigned long processors[NODES_WORDS]; /* that belong to no node yet */
};

/* The nodes whose memory this process may use, and its processors. */
static bool read_allowed(const char *root, char *text, struct allowed *a)
{
	node_numbers memory;
	if (!read_list(root, "/sys/devices/system/node/online", text, a->online, NUMBERS))
		return false;
	if (read_list(root, "/sys/devices/system/node/has_memory", text, memory, NUMBERS)) {
		for (unsigned i = 0; i < NUMBERS / NODES_WORD_BITS; i++)
			a->online[i] &= memory[i];
	}
	unsigned n = 0;
	for (unsigned i = 0; i < NUMBERS; i++)
		n += has_bit(a->online, i);
	if (n < 2 || !nodes_read(root, "/proc/self/status", text))
		return false;
	if (find_list(text, "\nMems_allowed_list:", memory, NUMBERS)) { /* a kernel without cpusets has none */
		for (unsigned i = 0; i < NUMBERS / NODES_WORD_BITS; i++)
			a->online[i] &= memory[i];
	}
	return find_list(text, "\nCpus_allowed_list:", a->processors, NODES_PROCESSORS);
}

static unsigned count_processors(const struct node *node)
{
	unsigned n = 0;
	for (unsigned i = 0; i < NODES_WORDS; i++)
		n += (unsigned)__builtin_popcountl(node->processors[i]);
	return n;
}

/* Adds the node with the processors that it has of those that are left, if any. */
static void add_node(struct nodes *nodes, int number, const unsigned long *processors, struct allowed *a)
{
	struct node *node = &nodes->node[nodes->n];
	node->number = number;
	for (unsigned i = 0; i < NODES_WORDS; i++)
		node->processors[i] = processors[i] & a->processors[i];
	node->n_processors = count_processors(node);
	if (!node->n_processors)
		return;
	for (unsigned i = 0; i < NODES_WORDS; i++)
		a->processors[i] &= ~node->processors[i];
	nodes->n++;
	nodes->n_memory += number >= 0;
}

static void add_nodes(const char *root, char *text, struct allowed *a, struct nodes *nodes)
{
	for (unsigned i = 0; i < NUMBERS && nodes->n < NODES_MOST; i++) {
		char path[64];
		unsigned long processors[NODES_WORDS];
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist", i);
		if (has_bit(a->online, i) && read_list(root, path, text, processors, NODES_PROCESSORS))
			add_node(nodes, (int)i, processors, a);
	}
	add_node(nodes, -1, a->processors, a);
}

struct nodes *nodes_learn(const char *root)
{
	struct allowed a;
	struct nodes *nodes = NULL;
	char *text = malloc(TEXT_BYTES);
	if (text && read_allowed(root ? root : "", text, &a))
		nodes = calloc(1, sizeof(*nodes) + (NODES_MOST + 1) * sizeof(nodes->node[0]));
	if (nodes)
		add_nodes(root ? root : "", text, &a, nodes);
	free(text);
	if (nodes && nodes->n_memory >= 2)
		return nodes;
	free(nodes);
	return NULL;
}

/* ---- workers ---- */

void nodes_share(const struct nodes *nodes, unsigned n, uint8_t *out)
{
	unsigned taken[NODES_MOST + 1] = { 0 };
	for (unsigned i = 0; i < n; i++) {
		unsigned best = 0;
		for (unsigned k = 1; k < nodes->n; k++) {
			/* whose workers would have the most of a processor each */
			if ((uint64_t)nodes->node[k].n_processors * (taken[best] + 1) >
			    (uint64_t)nodes->node[best].n_processors * (taken[k] + 1))
				best = k;
		}
		taken[best]++;
		out[i] = (uint8_t)best;
	}
}

int nodes_bind(const struct node *node)
{
	const cpu_set_t *set = (const cpu_set_t *)(const void *)node->processors;
	return sched_setaffinity(0, sizeof(node->processors), set) ? -errno : 0;
}
