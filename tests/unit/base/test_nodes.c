/* The NUMA nodes that this process may use, read from simulated machines in a temporary folder; and which workers
 * belong to which. */
#include <check.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/nodes.h"
#include "base/numa.h"
#include "support/machines.h"
#include "support/suite.h"

#define NODE "/sys/devices/system/node/"

static void put_status(const char *processors, const char *memories)
{
	char text[512];
	snprintf(text, sizeof(text),
		 "Name:\tbatchd\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\nMems_allowed:\t3\nMems_allowed_list:\t%s\n"
		 "voluntary_ctxt_switches:\t1\n",
		 processors, memories);
	put("/proc/self/status", text);
}

/* Two nodes of four processors each. */
static void setup(void)
{
	make_root();
	put(NODE "online", "0-1\n");
	put(NODE "has_memory", "0-1\n");
	put(NODE "node0/cpulist", "0-3\n");
	put(NODE "node1/cpulist", "4-7\n");
	put_status("0-7", "0-1");
}

static void teardown(void)
{
	remove_root();
}

/* "0:0,1,2,3 1:4,5,6,7": each node's number and processors. */
static const char *learnt(void)
{
	static char text[4096];
	struct nodes *nodes = nodes_learn(root);
	size_t n = 0;
	*text = '\0';
	for (unsigned k = 0; nodes && k < nodes->n; k++) {
		const struct node *node = &nodes->node[k];
		unsigned found = 0;
		ck_assert_int_eq(node->number >= 0, k < nodes->n_memory);
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%d:", k ? " " : "", node->number);
		for (unsigned i = 0; i < NODES_PROCESSORS; i++) {
			if (node->processors[i / NODES_WORD_BITS] >> i % NODES_WORD_BITS & 1)
				n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%u", found++ ? "," : "", i);
		}
		ck_assert_uint_eq(found, node->n_processors);
	}
	free(nodes);
	return text;
}

START_TEST(test_nodes_have_their_processors)
{
	ck_assert_str_eq(learnt(), "0:0,1,2,3 1:4,5,6,7");
	put(NODE "node0/cpulist", "0,2-3,6\n"); /* as siblings are often numbered */
	put(NODE "node1/cpulist", "1,4-5,7\n");
	ck_assert_str_eq(learnt(), "0:0,2,3,6 1:1,4,5,7");
}
END_TEST

START_TEST(test_affinity_and_cpuset_exclude_processors_and_nodes)
{
	put_status("1,5-6", "0-1");
	ck_assert_str_eq(learnt(), "0:1 1:5,6");
	put_status("0-3", "0-1"); /* the processors of one node */
	ck_assert_str_eq(learnt(), "");
	put_status("0-7", "1"); /* the memory of one node */
	ck_assert_str_eq(learnt(), "");
}
END_TEST

START_TEST(test_machines_without_nodes)
{
	put(NODE "online", "0\n");
	ck_assert_str_eq(learnt(), "");
	char path[128];
	snprintf(path, sizeof(path), "%s" NODE "online", root);
	ck_assert_int_eq(unlink(path), 0); /* a kernel without NUMA, or a container without /sys */
	ck_assert_str_eq(learnt(), "");
	ck_assert_ptr_null(nodes_learn("/nonexistent"));
}
END_TEST

START_TEST(test_processors_without_near_memory_are_the_last_node)
{
	/* Node 2 has no memory, node 3 is offline, node 4 has no processors: a memory expander. Processor 12 is nowhere. */
	put(NODE "online", "0-2,4\n");
	put(NODE "has_memory", "0-1,4\n");
	put(NODE "node2/cpulist", "8-9\n");
	put(NODE "node3/cpulist", "10-11\n");
	put(NODE "node4/cpulist", "\n");
	put_status("0-9,12", "0-4");
	ck_assert_str_eq(learnt(), "0:0,1,2,3 1:4,5,6,7 -1:8,9,12");
}
END_TEST

START_TEST(test_odd_files_do_no_harm)
{
	static const char *const lists[] = { "x\n",
					     "-\n",
					     "7-4\n",
					     "4-\n",
					     ",\n",
					     "4,\n",
					     "4-7,,\n",
					     "4 5\n",
					     "8192\n",
					     "0-8192\n",
					     "-4\n",
					     "4-7:2/4\n",
					     "99999999999999999999\n" };
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		unsigned long set[NODES_WORDS];
		ck_assert_msg(!nodes_parse_list(lists[i], set, NODES_PROCESSORS), "%s", lists[i]);
		put(NODE "node1/cpulist", lists[i]);
		ck_assert_msg(!*learnt(), "%s", lists[i]);
	}
	put(NODE "node1/cpulist", "2-7\n"); /* 2 and 3 are node 0's */
	ck_assert_str_eq(learnt(), "0:0,1,2,3 1:4,5,6,7");
	put(NODE "node1/cpulist", "0-3\n");
	ck_assert_str_eq(learnt(), "");
	put(NODE "node1/cpulist", "4-7");   /* no line's end */
	put(NODE "online", "0-1,5-1023\n"); /* nodes of which there are no files */
	put(NODE "has_memory", "0-1023\n");
	put_status("0-7", "0-1023");
	ck_assert_str_eq(learnt(), "0:0,1,2,3 1:4,5,6,7");
	put(NODE "online", "0-1024\n");
	ck_assert_str_eq(learnt(), "");
}
END_TEST

START_TEST(test_more_nodes_than_are_kept)
{
	/* The processors of the others are the last node's. */
	char path[64], list[16];
	put(NODE "online", "0-99\n");
	put(NODE "has_memory", "0-99\n");
	for (int i = 0; i < 100; i++) {
		snprintf(path, sizeof(path), NODE "node%d/cpulist", i);
		snprintf(list, sizeof(list), "%d\n", i);
		put(path, list);
	}
	put_status("0-99", "0-99");
	struct nodes *nodes = nodes_learn(root);
	ck_assert_ptr_nonnull(nodes);
	ck_assert_uint_eq(nodes->n_memory, NODES_MOST);
	ck_assert_uint_eq(nodes->n, NODES_MOST + 1);
	ck_assert_uint_eq(nodes->node[NODES_MOST].n_processors, 100 - NODES_MOST);
	free(nodes);
}
END_TEST

START_TEST(test_workers_are_in_proportion_to_processors)
{
	/* Also the first few of them: the tuner lets only as many work as are of use. */
	put(NODE "node0/cpulist", "0-5\n");
	put(NODE "node1/cpulist", "6-7\n");
	struct nodes *nodes = nodes_learn(root);
	uint8_t of[64];
	unsigned n[2] = { 0 };
	ck_assert_ptr_nonnull(nodes);
	nodes_share(nodes, 64, of);
	for (unsigned i = 0; i < 64; i++) {
		n[of[i]]++;
		ck_assert_uint_le(n[1], (i + 1 + 3) / 4);
		ck_assert_uint_ge(n[1], (i + 1) / 4);
	}
	ck_assert_uint_eq(n[0], 48);
	free(nodes);
}
END_TEST

START_TEST(test_a_thread_stays_on_its_node)
{
	cpu_set_t own, now;
	ck_assert_int_eq(sched_getaffinity(0, sizeof(own), &own), 0);
	struct node node = { .number = 0 };
	unsigned last = 0;
	for (unsigned i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &own))
			last = i;
	}
	node.processors[last / NODES_WORD_BITS] = 1UL << last % NODES_WORD_BITS;
	ck_assert_int_eq(nodes_bind(&node), 0);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(now), &now), 0);
	ck_assert_int_eq(CPU_COUNT(&now), 1);
	ck_assert_int_ne(CPU_ISSET(last, &now), 0);
	ck_assert_int_lt(nodes_bind(&(struct node){ .number = 0 }), 0); /* no processors */
}
END_TEST

START_TEST(test_a_policy_of_the_operators_is_seen)
{
	unsigned long mask = 1;
	ck_assert_int_eq(numa_has_policy(), false);
	if (syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &mask, 8UL)) {
		printf("skipped: no memory policies here: %m\n");
		return;
	}
	ck_assert_int_eq(numa_has_policy(), true);
}
END_TEST

SUITE(nodes)
{
	Suite *s = suite_create("nodes");
	TCase *t = tcase_create("machines");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, test_nodes_have_their_processors);
	tcase_add_test(t, test_affinity_and_cpuset_exclude_processors_and_nodes);
	tcase_add_test(t, test_machines_without_nodes);
	tcase_add_test(t, test_processors_without_near_memory_are_the_last_node);
	tcase_add_test(t, test_odd_files_do_no_harm);
	tcase_add_test(t, test_more_nodes_than_are_kept);
	tcase_add_test(t, test_workers_are_in_proportion_to_processors);
	tcase_add_test(t, test_a_thread_stays_on_its_node);
	tcase_add_test(t, test_a_policy_of_the_operators_is_seen);
	suite_add_tcase(s, t);
	return s;
}
