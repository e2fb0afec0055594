/* See memory.h. "max" and v1's huge number both mean no limit: neither is smaller than the machine. */
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"

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

/* The number after a key in a file of "key number" lines; 0 if there is none. */
static uint64_t value_of(const char *directory, const char *file, const char *key)
{
	char path[2048], name[64];
	unsigned long long value, found = 0;
	snprintf(path, sizeof(path), "%s/%s", directory, file);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	while (!found && fscanf(f, "%63s %llu%*[^\n]", name, &value) == 2) {
		if (strcmp(name, key) == 0)
			found = value;
	}
	fclose(f);
	return found;
}

static uint64_t number_in(const char *directory, const char *file)
{
	char path[2048];
	unsigned long long value = 0;
	snprintf(path, sizeof(path), "%s/%s", directory, file);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%llu", &value) != 1)
		value = 0;
	fclose(f);
	return value;
}

/* What a group has left: its limit, less its use without the page cache, which is reclaimable. */
static void take_left(void *arg, const char *text, const char *directory)
{
	uint64_t *least = arg;
	char *end;
	unsigned long long limit = strtoull(text, &end, 10);
	if (end == text || limit == 0)
		return;
	uint64_t used = number_in(directory, "memory.current");
	if (!used)
		used = number_in(directory, "memory.usage_in_bytes");
	uint64_t cached =
		value_of(directory, "memory.stat", "inactive_file") + value_of(directory, "memory.stat", "active_file");
	used = used > cached ? used - cached : 0;
	uint64_t left = limit > used ? limit - used : 0;
	if (left < *least)
		*least = left;
}

uint64_t memory_left(const char *root)
{
	char proc[512];
	root = root ? root : "";
	snprintf(proc, sizeof(proc), "%s/proc", root);
	uint64_t least = value_of(proc, "meminfo", "MemAvailable:") * 1024;
	cgroup_each(root, "memory.max", "memory", "memory.limit_in_bytes", take_left, &least);
	return least;
}

uint64_t memory_available(const char *root)
{
	root = root ? root : "";
	uint64_t least = machine_bytes(root);
	cgroup_each(root, "memory.max", "memory", "memory.limit_in_bytes", take_limit, &least);
	return least;
}
