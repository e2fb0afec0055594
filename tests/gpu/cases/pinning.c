/* The cost of attaching: each stage of it, and its effect on other processes while one of them pins memory. */
#include "case.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PREFERRED = 1, MF_MOVE = 2 }; /* mbind(2), as linux/mempolicy.h has them */

static char *memfd_new(size_t n)
{
	int fd = memfd_create("conformance", MFD_CLOEXEC);
	char *p = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, (off_t)n))
		p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		must(CUDA_ERROR_OUT_OF_MEMORY, "memfd");
	close(fd);
	return p;
}

static double lap(double *began)
{
	double t = now(), took = (t - *began) * 1e3;

	*began = t;
	return took;
}

/* The steps from nothing to a slab that a trainer has open, as in the daemon. */
void case_attach(void)
{
	size_t n = is_double ? 16 * MB : (size_t)512 * MB;
	pid_t pid = other("export");
	CUipcMemHandle handle;
	CUdeviceptr theirs, mine;
	double began = now();
	unsigned long node_mask;
	int node = -1;
	char *p;

	MUST(cu.cuInit(0));
	timed("cuInit", lap(&began), "ms");
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cu.cuCtxSetCurrent(ctx));
	timed("make a context", lap(&began), "ms");
	p = memfd_new(n);
	timed("make 512 MiB of memfd pages present", lap(&began) * 512 * MB / (double)n, "ms");
	cu.cuDeviceGetAttribute(&node, 134, 0);
	if (node >= 0 && node < 64) {
		node_mask = 1ul << node;
		long r = syscall(SYS_mbind, p, n, PREFERRED, &node_mask, 65ul, MF_MOVE);
		open_of("mbind to the GPU's node", r ? strerror(errno) : "works");
	} else {
		open_of("mbind to the GPU's node", "the driver names no node");
	}
	timed("mbind 512 MiB", lap(&began) * 512 * MB / (double)n, "ms");
	MUST(cu.cuMemHostRegister_v2(p, n, CU_MEMHOSTREGISTER_PORTABLE));
	timed("pin 512 MiB", lap(&began) * 512 * MB / (double)n, "ms");
	slab_of(n);
	timed("allocate 512 MiB on the GPU", lap(&began), "ms");
	MUST(export_of(n, &handle, &theirs));
	lap(&began);
	MUST(open_handle(&mine, handle));
	timed("open a handle of 512 MiB", lap(&began), "ms");
	MUST(cu.cuMemHostUnregister(p));
	timed("unpin 512 MiB", lap(&began) * 512 * MB / (double)n, "ms");
	tell("x", 1);
	waitpid(pid, NULL, 0);
}

/* role "pinner": has memory present; pins all of it in pieces of the requested size, unpins it, and reports that. */
void role_pinner(void)
{
	size_t n, piece;
	char *p;

	begin();
	hear(&n, sizeof n);
	p = memfd_new(n);
	tell("c", 1);
	for (;;) {
		double began, took[2];

		hear(&piece, sizeof piece);
		if (!piece)
			return;
		began = now();
		for (size_t at = 0; at < n; at += piece)
			MUST(cu.cuMemHostRegister_v2(p + at, piece, CU_MEMHOSTREGISTER_PORTABLE));
		took[0] = lap(&began);
		for (size_t at = 0; at < n; at += piece)
			MUST(cu.cuMemHostUnregister(p + at));
		took[1] = lap(&began);
		tell(took, sizeof took);
	}
}

static void pause_us(long us)
{
	nanosleep(&(struct timespec){ 0, us * 1000 }, NULL);
}

enum { MOST_TURNS = 20000 };

/* The typical calls of a training process, repeated; returns when the line has something, or after that time. */
static void live(const char *when, double seconds)
{
	static double info[MOST_TURNS], alloc[MOST_TURNS], work[MOST_TURNS];
	CUdeviceptr from = slab_of(SLAB), to = slab_of(SLAB), a;
	CUstream s = stream_new();
	double until = now() + seconds, began;
	size_t left, total, n = 0;
	char name[96], c;

	while (n < MOST_TURNS && now() < until && recv(line_fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) != 1) {
		began = now();
		MUST(cu.cuMemGetInfo_v2(&left, &total));
		info[n] = lap(&began);
		MUST(cu.cuMemAlloc_v2(&a, 2 * MB));
		MUST(cu.cuMemFree_v2(a));
		alloc[n] = lap(&began);
		MUST(add(to, from, 1, 1024, s));
		MUST(cu.cuStreamSynchronize(s));
		work[n] = lap(&began);
		n++;
		pause_us(1000);
	}
	if (!n)
		return;
	snprintf(name, sizeof name, "cuMemGetInfo %s", when);
	timed_spread(name, info, n, "ms");
	snprintf(name, sizeof name, "cuMemAlloc and cuMemFree %s", when);
	timed_spread(name, alloc, n, "ms");
	snprintf(name, sizeof name, "a small kernel %s", when);
	timed_spread(name, work, n, "ms");
	MUST(cu.cuMemFree_v2(from));
	MUST(cu.cuMemFree_v2(to));
	MUST(cu.cuStreamDestroy_v2(s));
}

void case_pin_stall(void)
{
	static const size_t pieces[] = { 1024, 128, 64, 32 };
	size_t n = is_double ? 8 * MB : (size_t)8192 * MB;
	pid_t pid = other("pinner");
	char c;

	begin();
	tell(&n, sizeof n);
	if (!hear_soon(&c, 1, SECONDS * 500)) {
		open_of("another process pins 8 GiB", "it does not come so far");
		return;
	}
	live("undisturbed", is_double ? 0.02 : 1);
	for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
		size_t piece = is_double ? (size_t)(8 * MB) >> i : pieces[i] * MB;
		char name[96];
		double took[2];

		tell(&piece, sizeof piece);
		snprintf(name, sizeof name, "while another process pins in pieces of %zu MiB", pieces[i]);
		live(name, 15);
		hear(took, sizeof took);
		snprintf(name, sizeof name, "pin and unpin 8 GiB in pieces of %zu MiB", pieces[i]);
		timed(name, (took[0] + took[1]) * 1e-3, "s");
	}
	n = 0;
	tell(&n, sizeof n);
	waitpid(pid, NULL, 0);
}
