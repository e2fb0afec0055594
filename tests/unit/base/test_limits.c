/* The resources that this process may use, read from simulated machines in a temporary folder. */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "support/machines.h"
#include "support/suite.h"

static void setup(void)
{
	make_root();
	put("/proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\n");
}

static void teardown(void)
{
	remove_root();
}

START_TEST(test_without_groups_the_machine_is_the_limit)
{
	/* No /proc/self/cgroup at all. */
	ck_assert_uint_eq(memory_available(root), 1048576ull * 1024);
	ck_assert_uint_ge(cpu_available(root), 1);
}
END_TEST

START_TEST(test_the_smallest_limit_on_the_way_up_counts)
{
	/* The parent's 256 MiB is below our own 512 MiB; "max" is no limit. */
	put("/proc/self/cgroup", "0::/a/b/c\n");
	put("/sys/fs/cgroup/a/b/c/memory.max", "536870912\n");
	put("/sys/fs/cgroup/a/b/memory.max", "268435456\n");
	put("/sys/fs/cgroup/a/memory.max", "max\n");
	put("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
	put("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
	ck_assert_uint_eq(memory_available(root), 268435456);
	ck_assert_uint_eq(cpu_available(root), 1); /* half a processor, rounded up */
}
END_TEST

START_TEST(test_the_old_hierarchies_are_read_too)
{
	/* v1: one mount per controller, quota and period in two files, a huge number for no limit. */
	put("/proc/self/cgroup", "5:memory:/docker/x\n4:cpuacct,cpu:/docker/x\n");
	put("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "134217728\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "100000\n");
	put("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
	ck_assert_uint_eq(memory_available(root), 134217728);
	ck_assert_uint_eq(cpu_available(root), 1);
}
END_TEST

START_TEST(test_what_is_left_is_the_least_of_machine_and_groups)
{
	/* The machine reports the available memory; a group has its limit less its usage, and its page cache is
	 * reclaimable. */
	put("/proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\nMemAvailable:   524288 kB\nBuffers: 3 kB\n");
	ck_assert_uint_eq(memory_left(root), 524288ull * 1024);
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/memory.max", "1000000\n");
	put("/sys/fs/cgroup/a/b/memory.current", "700000\n");
	put("/sys/fs/cgroup/a/b/memory.stat", "anon 5\nfile 9\ninactive_file 100000\nactive_file 50000\n");
	put("/sys/fs/cgroup/a/memory.max", "max\n");
	ck_assert_uint_eq(memory_left(root), 450000);
	put("/sys/fs/cgroup/a/memory.max", "800000\n");
	put("/sys/fs/cgroup/a/memory.current", "900000\n"); /* above the limit at the moment */
	ck_assert_uint_eq(memory_left(root), 0);
}
END_TEST

START_TEST(test_nonsense_in_the_files_is_no_limit)
{
	/* Empty, text, negative. */
	put("/proc/self/cgroup", "0::/\nrubbish\n");
	put("/sys/fs/cgroup/memory.max", "-\n");
	put("/sys/fs/cgroup/cpu.max", "0 0\n");
	ck_assert_uint_eq(memory_available(root), 1048576ull * 1024);
	ck_assert_uint_ge(cpu_available(root), 1);
}
END_TEST

SUITE(limits)
{
	Suite *s = suite_create("limits");
	TCase *t = tcase_create("limits");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, test_without_groups_the_machine_is_the_limit);
	tcase_add_test(t, test_the_smallest_limit_on_the_way_up_counts);
	tcase_add_test(t, test_the_old_hierarchies_are_read_too);
	tcase_add_test(t, test_nonsense_in_the_files_is_no_limit);
	tcase_add_test(t, test_what_is_left_is_the_least_of_machine_and_groups);
	suite_add_tcase(s, t);
	return s;
}
