/* See memory.h. "max" and v1's huge number both mean no limit: neither is smaller than the machine. */
#include "util/memory.h"

#include <stdio.h>
#include <stdlib.h>

#include "util/cgroup.h"

static uint64_t machine_bytes(const char *root)
{
	char path[512];
	unsigned long long kib = 0;
	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "MemTotal: %llu kB", &kib) != 1)
		kib = 0;
	fclose(f);
	return kib * 1024;
}

static void take_limit(void *arg, const char *text, const char *directory)
{
	uint64_t *least = arg;
	char *end;
	unsigned long long n = strtoull(text, &end, 10);
	(void)directory;
	if (end != text && n > 0 && n < *least)
		*least = n;
}

uint64_t memory_available(const char *root)
{
	root = root ? root : "";
	uint64_t least = machine_bytes(root);
	cgroup_each(root, "memory.max", "memory", "memory.limit_in_bytes", take_limit, &least);
	return least;
}
