/* See cpu.h. A quota of one and a half processors gives two workers: one worker would leave half a processor idle,
 * while two are throttled a little. */
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"

static unsigned cpu_affinity(void)
{
	enum { MOST = 8192 };
	size_t size = CPU_ALLOC_SIZE(MOST);
	cpu_set_t *set = CPU_ALLOC(MOST);
	unsigned n = 0;
	if (set && sched_getaffinity(0, size, set) == 0)
		n = (unsigned)CPU_COUNT_S(size, set);
	CPU_FREE(set);
	if (n == 0) {
		long online = sysconf(_SC_NPROCESSORS_ONLN);
		n = online > 0 ? (unsigned)online : 1;
	}
	return n;
}

static void take_quota(void *arg, const char *text, const char *directory)
{
	unsigned *least = arg;
	long long quota, period;
	if (sscanf(text, "%lld %lld", &quota, &period) != 2) {
		/* v1: the period is in a file of its own. */
		char path[2048];
		snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", directory);
		FILE *f = sscanf(text, "%lld", &quota) == 1 ? fopen(path, "re") : NULL;
		if (!f)
			return; /* "max 100000", or no period */
		if (fscanf(f, "%lld", &period) != 1)
			period = 0;
		fclose(f);
	}
	if (quota <= 0 || period <= 0)
		return;
	unsigned long long n =
		((unsigned long long)quota + (unsigned long long)period - 1) / (unsigned long long)period;
	if (n < *least)
		*least = (unsigned)n;
}

unsigned cpu_available(const char *root)
{
	unsigned least = cpu_affinity();
	cgroup_each(root ? root : "", "cpu.max", "cpu", "cpu.cfs_quota_us", take_quota, &least);
	return least;
}
