/* On which NUMA node each slot lies: the pieces that the kernel is asked for (numa_place is wrapped), and what is left
 * when it refuses. That pages then lie there is shown by tests/run/numa, on a machine with two nodes. */
#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "batch/slots.h"
#include "base/nodes.h"
#include "base/numa.h"
#include "support/suite.h"

enum { MIB = 1 << 20, HUGE_PAGE = 2 * MIB };

static struct {
	uint8_t *base;
	size_t bytes;
	unsigned node;
} piece[SLOT_NODES_RUNS + 2];
static unsigned n_pieces, n_calls;
static int refusal;        /* what numa_place returns; 0: it records */
static bool any_page_made; /* before numa_place was called */

int __real_numa_place(void *base, size_t n_bytes, unsigned node);
int __wrap_numa_place(void *base, size_t n_bytes, unsigned node);
int __wrap_numa_place(void *base, size_t n_bytes, unsigned node)
{
	unsigned char present;
	n_calls++;
	if (refusal)
		return refusal;
	ck_assert_uint_lt(n_pieces, SLOT_NODES_RUNS + 2);
	ck_assert_int_eq(mincore(base, 4096, &present), 0);
	any_page_made |= present & 1;
	piece[n_pieces].base = base;
	piece[n_pieces].bytes = n_bytes;
	piece[n_pieces++].node = node;
	return 0;
}

/* Nodes 3, 5 and 9 of the kernel, and processors without memory. */
static struct nodes *make_nodes(void)
{
	static const int numbers[] = { 3, 5, 9, -1 };
	struct nodes *nodes = calloc(1, sizeof(*nodes) + 4 * sizeof(nodes->node[0]));
	nodes->n = 4;
	nodes->n_memory = 3;
	for (unsigned i = 0; i < 4; i++)
		nodes->node[i] = (struct node){ .number = numbers[i], .n_processors = 1 };
	n_pieces = 0;
	refusal = 0;
	any_page_made = false;
	return nodes;
}

/* Slots of about that size: rows of a dense field. */
static struct slots *make_slots(struct nodes *nodes, size_t slot_bytes, uint32_t n)
{
	struct slot_field field = { .item_bytes = slot_bytes - 4096 };
	struct slot_layout layout;
	struct slots *slots;
	ck_assert_int_eq(slot_layout_make(&field, 1, 1, &layout), 0);
	ck_assert_uint_eq(layout.slot_bytes, slot_bytes);
	ck_assert_int_eq(slots_create_on(nodes, &layout, n, 1, &slots), 0);
	return slots;
}

/* The kernel's number of the node at an address. */
static unsigned node_at(const uint8_t *at)
{
	for (unsigned i = 0; i < n_pieces; i++) {
		if (at >= piece[i].base && at < piece[i].base + piece[i].bytes)
			return piece[i].node;
	}
	ck_abort_msg("a page has no place");
}

static void check_pieces(const struct slots *s)
{
	const uint8_t *at = s->slab.base;
	for (unsigned i = 0; i < n_pieces; i++) {
		ck_assert_ptr_eq(piece[i].base, at);
		ck_assert_uint_eq((size_t)(at - s->slab.base) % HUGE_PAGE, 0);
		at += piece[i].bytes;
	}
	ck_assert_ptr_eq(at, s->slab.base + s->slab.bytes);
	for (uint32_t i = 0; i < s->n; i++) {
		const uint8_t *middle = slot_data(&s->slot[i]) + s->layout.slot_bytes / 2;
		unsigned node = slot_node(&s->slot[i]);
		ck_assert_uint_ge(node, 1);
		ck_assert_uint_eq((unsigned)s->nodes.nodes->node[node - 1].number, node_at(middle));
	}
}

START_TEST(test_slots_lie_on_the_nodes_in_turn)
{
	/* Large ones, a whole number of huge pages or not; and the policy is there before the first page. */
	static const size_t bytes[] = { 2 * MIB, 4 * MIB, 9633792 };
	struct nodes *nodes = make_nodes();
	struct slots *s = make_slots(nodes, bytes[_i], 7);
	unsigned first = slot_node(&s->slot[0]);
	ck_assert_uint_eq(first, 1);
	for (uint32_t i = 0; i < 7; i++)
		ck_assert_uint_eq(slot_node(&s->slot[i]), 1 + i % 3);
	ck_assert(!any_page_made);
	check_pieces(s);
	slots_unref(s);
	n_pieces = 0;
	s = make_slots(nodes, bytes[_i], 7); /* the next slab begins on the next node */
	ck_assert_uint_eq(slot_node(&s->slot[0]), 2);
	check_pieces(s);
	slots_unref(s);
	free(nodes);
}
END_TEST

START_TEST(test_small_slots_lie_together)
{
	/* A client may ask for thousands: the kernel has a mapping for each piece, of which a process may have 65530. */
	static const struct {
		size_t bytes;
		uint32_t n;
		unsigned n_pieces;
	} cases[] = { { 8192, 16, 1 },      { 8192, 256, 1 },      { 8192, 257, 2 },
		      { 8192, 100000, 32 }, { 4 * MIB, 1000, 32 }, { 1 * MIB, 16, 8 } };
	struct nodes *nodes = make_nodes();
	struct slots *s = make_slots(nodes, cases[_i].bytes, cases[_i].n);
	ck_assert_uint_eq(n_pieces, cases[_i].n_pieces);
	ck_assert_uint_le(n_pieces, SLOT_NODES_RUNS);
	slots_unref(s);
	free(nodes);
}
END_TEST

START_TEST(test_a_refusal_by_the_kernel_is_no_error)
{
	/* A container's system call filter: workers then prefer no rows. */
	struct nodes *nodes = make_nodes();
	refusal = -EPERM;
	struct slots *s = make_slots(nodes, 4 * MIB, 3);
	ck_assert_uint_eq(slot_node(&s->slot[1]), 0);
	ck_assert_int_eq(atomic_load(&nodes->place_error), EPERM);
	memset(slot_data(&s->slot[0]), 1, s->layout.slot_bytes);
	slots_unref(s);
	n_calls = 0;
	s = make_slots(nodes, 4 * MIB, 3);
	ck_assert_msg(!n_calls, "the kernel is asked again for the next slab");
	ck_assert_uint_eq(slot_node(&s->slot[1]), 0);
	slots_unref(s);
	free(nodes);
}
END_TEST

START_TEST(test_slots_that_were_moved_near_a_gpu_lie_there)
{
	struct nodes *nodes = make_nodes();
	struct slots *s = make_slots(nodes, 4 * MIB, 7);
	slot_nodes_moved(&s->nodes, 5);
	for (uint32_t i = 0; i < 7; i++)
		ck_assert_uint_eq(slot_node(&s->slot[i]), 2);
	slot_nodes_moved(&s->nodes, 4); /* a node that is not ours */
	ck_assert_uint_eq(slot_node(&s->slot[0]), 0);
	slots_unref(s);
	free(nodes);
}
END_TEST

START_TEST(test_with_one_node_nothing_is_asked_for)
{
	struct nodes *nodes = make_nodes();
	struct slots *s = make_slots(NULL, 4 * MIB, 3);
	ck_assert_uint_eq(n_pieces, 0);
	ck_assert_uint_eq(slot_node(&s->slot[1]), 0);
	slots_unref(s);
	free(nodes);
}
END_TEST

START_TEST(test_the_kernel_takes_the_policy)
{
	/* This machine's own node. One that it does not have is an error. */
	size_t bytes = 4 * MIB;
	char line[512], begin[32];
	bool found = false;
	uint8_t *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(base, MAP_FAILED);
	int r = __real_numa_place(base + HUGE_PAGE, HUGE_PAGE, 0);
	FILE *maps = fopen("/proc/self/numa_maps", "re");
	if (r || !maps) {
		printf("skipped: no NUMA policies here: %s\n", strerror(-r));
		return;
	}
	snprintf(begin, sizeof(begin), "%lx prefer", (unsigned long)(uintptr_t)(base + HUGE_PAGE));
	while (fgets(line, sizeof(line), maps))
		found |= !strncmp(line, begin, strlen(begin)) && strstr(line, ":0");
	fclose(maps);
	ck_assert(found);
	ck_assert_int_eq(__real_numa_place(base, bytes, 1023), -EINVAL);
}
END_TEST

SUITE(slot_nodes)
{
	Suite *s = suite_create("slot nodes");
	TCase *t = tcase_create("slot nodes");
	tcase_add_loop_test(t, test_slots_lie_on_the_nodes_in_turn, 0, 3);
	tcase_add_loop_test(t, test_small_slots_lie_together, 0, 6);
	tcase_add_test(t, test_a_refusal_by_the_kernel_is_no_error);
	tcase_add_test(t, test_slots_that_were_moved_near_a_gpu_lie_there);
	tcase_add_test(t, test_with_one_node_nothing_is_asked_for);
	tcase_add_test(t, test_the_kernel_takes_the_policy);
	suite_add_tcase(s, t);
	return s;
}
