/* Copies to the GPU from each kind of page that the daemon could use: h2d [--small] [--kind KIND]
 *
 * Slots of 38.5 MB, a batch of 256 pictures, in memory that the driver allocated, in a memfd with ordinary pages, in
 * one with transparent huge pages and in one of huge pages (hugetlb), each with 1, 2, 4 and 16 copies in flight, and
 * the time to pin each; and in the memory of each NUMA node. Lines "NAME<tab>VALUE<tab>UNIT". A kind that this machine
 * does not offer is left out, with a line on standard error; bench.py says how to get all of them. --kind: one of them
 * only, by the name that its lines begin with. --small: sizes for the fake driver. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

enum { N_SLOTS = 16, HUGE_PAGE = 2 << 20, PICTURES = 256 * 224 * 224 * 3 };
enum { BIND = 2 }; /* mbind(2), as linux/mempolicy.h has it */

static bool small;
static size_t slot_bytes = PICTURES, all_bytes;
static CUstream stream;
static CUdeviceptr device;

static void say(const char *kind, const char *what, double value, const char *unit)
{
	printf("%s: %s\t%.6g\t%s\n", kind, what, value, unit);
	fflush(stdout);
}

static void must(CUresult r, const char *what)
{
	if (r) {
		fprintf(stderr, "h2d: %s: %s\n", what, cuda_name(r));
		exit(1);
	}
}
#define MUST(call) must(call, #call)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* How much of the mapping at p the kernel maps by huge pages; -1: unknown. */
static double huge_bytes(const void *p)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	double found = -1;
	bool here = false;
	char line[512];

	while (f && fgets(line, sizeof line, f)) {
		unsigned long begin, kib;

		if (sscanf(line, "%lx-%*x ", &begin) == 1 && strchr(line, '-'))
			here = begin == (unsigned long)(uintptr_t)p;
		else if (here && sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1)
			found = (double)kib * 1024;
	}
	if (f)
		fclose(f);
	return found;
}

static char *map(const char *kind, unsigned flags, bool advise)
{
	int fd = memfd_create("h2d", MFD_CLOEXEC | flags);
	char *p = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, (off_t)all_bytes))
		p = mmap(NULL, all_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (p == MAP_FAILED) {
		fprintf(stderr, "h2d: %s: not to be had here: %m\n", kind);
		return NULL;
	}
	if (advise)
		madvise(p, all_bytes, MADV_HUGEPAGE);
	memset(p, 1, all_bytes);
	if (advise && huge_bytes(p) < (double)all_bytes / 2) {
		fprintf(stderr, "h2d: %s: the kernel gives none (/sys/kernel/mm/transparent_hugepage/shmem_enabled)\n",
			kind);
		munmap(p, all_bytes);
		return NULL;
	}
	return p;
}

/* GB/s with this many copies in flight: it waits for the oldest before it starts the next. */
static double rate(const char *from, unsigned in_flight, unsigned n)
{
	CUevent done[N_SLOTS];
	double began;

	for (unsigned i = 0; i < in_flight; i++)
		MUST(cu.cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING | 1 /* CU_EVENT_BLOCKING_SYNC */));
	began = now();
	for (unsigned i = 0; i < n; i++) {
		size_t at = i % N_SLOTS * slot_bytes;

		if (i >= in_flight)
			MUST(cu.cuEventSynchronize(done[i % in_flight]));
		MUST(cu.cuMemcpyHtoDAsync_v2(device + at, from + at, slot_bytes, stream));
		MUST(cu.cuEventRecord(done[i % in_flight], stream));
	}
	MUST(cu.cuStreamSynchronize(stream));
	began = now() - began;
	for (unsigned i = 0; i < in_flight; i++)
		MUST(cu.cuEventDestroy_v2(done[i]));
	return (double)n * (double)slot_bytes / began * 1e-9;
}

static void measure(const char *kind, const char *from)
{
	static const unsigned in_flight[] = { 1, 2, 4, 16 };
	unsigned n = small ? 20 : 300;
	char what[64];

	rate(from, N_SLOTS, small ? 2 : 50);
	for (size_t i = 0; i < sizeof in_flight / sizeof *in_flight; i++) {
		snprintf(what, sizeof what, "%u in flight", in_flight[i]);
		say(kind, what, rate(from, in_flight[i], n), "GB/s");
	}
}

static void measure_memfd(const char *kind, unsigned flags, bool advise)
{
	char *p = map(kind, flags, advise);
	double began = now(), per_gib = (double)all_bytes / (1 << 30);
	CUresult r;

	if (!p)
		return;
	r = cu.cuMemHostRegister_v2(p, all_bytes, CU_MEMHOSTREGISTER_PORTABLE);
	if (r) {
		fprintf(stderr, "h2d: %s: the driver does not register it: %s\n", kind, cuda_name(r));
	} else {
		say(kind, "pin", (now() - began) * 1e3 / per_gib, "ms/GiB");
		measure(kind, p);
		began = now();
		MUST(cu.cuMemHostUnregister(p));
		say(kind, "unpin", (now() - began) * 1e3 / per_gib, "ms/GiB");
	}
	munmap(p, all_bytes);
}

/* From the memory of each NUMA node; the driver may name the nearest one to the GPU. */
static void measure_nodes(void)
{
	char path[64], kind[64];
	int near = -1;

	cu.cuDeviceGetAttribute(&near, 134, 0);
	for (int node = 0; node < 64; node++) {
		unsigned long mask = 1ul << node;
		double found = 0;

		snprintf(path, sizeof path, "/sys/devices/system/node/node%d", node);
		if (access(path, F_OK))
			break;
		char *p = mmap(NULL, all_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED || syscall(SYS_mbind, p, all_bytes, BIND, &mask, 65ul, 0)) {
			fprintf(stderr, "h2d: memory of node %d: not to be had here: %m\n", node);
		} else {
			memset(p, 1, all_bytes);
			MUST(cu.cuMemHostRegister_v2(p, all_bytes, CU_MEMHOSTREGISTER_PORTABLE));
			found = rate(p, 4, small ? 20 : 300);
			MUST(cu.cuMemHostUnregister(p));
			snprintf(kind, sizeof kind, "memory of node %d", node);
			say(kind, "4 in flight", found, "GB/s");
		}
		if (p != MAP_FAILED)
			munmap(p, all_bytes);
		if (found > 0 && near >= 0)
			printf("%s\t%.6g\tGB/s\n",
			       node == near ? "copies from the GPU's own node" : "copies from another node", found);
	}
}

static void measure_allocated(void)
{
	double began = now();
	void *p;

	MUST(cu.cuMemHostAlloc(&p, all_bytes, CU_MEMHOSTREGISTER_PORTABLE));
	say("cuMemHostAlloc", "allocate, pinned", (now() - began) * 1e3 / ((double)all_bytes / (1 << 30)), "ms/GiB");
	memset(p, 1, all_bytes);
	measure("cuMemHostAlloc", p);
	MUST(cu.cuMemFreeHost(p));
}

static const char *only; /* NULL: all kinds */

static bool wanted(const char *kind)
{
	return !only || !strcmp(only, kind);
}

static void measure_kinds(void)
{
	static const struct {
		const char *kind;
		unsigned flags;
		bool advise;
	} memfds[] = {
		{ "memfd", 0, false },
		{ "memfd, transparent huge pages", 0, true },
		{ "memfd, hugetlb", MFD_HUGETLB, false },
	};

	if (wanted("cuMemHostAlloc"))
		measure_allocated();
	for (size_t i = 0; i < sizeof memfds / sizeof *memfds; i++) {
		if (wanted(memfds[i].kind))
			measure_memfd(memfds[i].kind, memfds[i].flags, memfds[i].advise);
	}
	if (!only)
		measure_nodes();
}

int main(int argc, char **argv)
{
	const char *why = cuda_load();
	CUcontext ctx;
	CUresult r;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--small"))
			small = true;
		else if (!strcmp(argv[i], "--kind") && i + 1 < argc)
			only = argv[++i];
		else
			return 64;
	}
	if (small)
		slot_bytes = 1 << 20;
	all_bytes = (N_SLOTS * slot_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	r = why ? CUDA_ERROR_NO_DEVICE : cu.cuInit(0);
	if (r) {
		fprintf(stderr, "h2d: no GPU: %s\n", why ? why : cuda_name(r));
		return 77;
	}
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cu.cuCtxSetCurrent(ctx));
	MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cu.cuMemAlloc_v2(&device, all_bytes));
	measure_kinds();
	MUST(cu.cuMemFree_v2(device));
	MUST(cu.cuStreamDestroy_v2(stream));
	MUST(cu.cuCtxSetCurrent(NULL));
	MUST(cu.cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}
