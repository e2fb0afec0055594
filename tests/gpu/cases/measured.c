/* Measurements: the open questions about time and size. */
#include "case.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* role "context": has a context until told to end. */
void role_context(void)
{
	char c;

	begin();
	spin(stream_new(), 1);
	MUST(cu.cuCtxSynchronize());
	tell("c", 1);
	hear(&c, 1);
}

void case_context_size(void)
{
	size_t before, with, after, total;
	pid_t pid;
	double began;
	char c;

	begin();
	MUST(cu.cuMemGetInfo_v2(&before, &total));
	pid = other("context");
	hear(&c, 1);
	MUST(cu.cuMemGetInfo_v2(&with, &total));
	timed("a process's context takes", (double)(before - with) / MB, "MiB");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	began = now();
	do
		MUST(cu.cuMemGetInfo_v2(&after, &total));
	while (after + 16 * MB < before && now() - began < 5);
	timed("from its death to its memory being free", (now() - began) * 1e3, "ms");
}

void case_registration(void)
{
	size_t n = is_double ? 16 * MB : (size_t)1024 * MB;
	static const char *const how[] = { "prefaulted", "not prefaulted" };

	begin();
	for (int i = 0; i < 2; i++) {
		int fd = memfd_create("conformance", MFD_CLOEXEC);
		char name[64], *p;
		double began;

		if (fd < 0 || ftruncate(fd, (off_t)n))
			must(CUDA_ERROR_OPERATING_SYSTEM, "memfd");
		p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | (i == 0 ? MAP_POPULATE : 0), fd, 0);
		began = now();
		MUST(cu.cuMemHostRegister_v2(p, n, CU_MEMHOSTREGISTER_PORTABLE));
		snprintf(name, sizeof name, "register memfd pages, %s", how[i]);
		timed(name, (now() - began) * 1e3 / ((double)n / (1024.0 * MB)), "ms/GiB");
		began = now();
		MUST(cu.cuMemHostUnregister(p));
		snprintf(name, sizeof name, "unregister them");
		timed(name, (now() - began) * 1e3 / ((double)n / (1024.0 * MB)), "ms/GiB");
		munmap(p, n);
		close(fd);
	}
}

void case_open_time(void)
{
	static const size_t sizes[] = { 2, 16, 256, 2048, 16384 };
	CUipcMemHandle handle;
	CUdeviceptr theirs, mine;
	pid_t pid = other("export");
	size_t left, total;

	begin();
	for (int i = 0; i < (is_double ? 2 : 5); i++) {
		char name[64];
		double began;

		MUST(cu.cuMemGetInfo_v2(&left, &total));
		if (left < 2 * sizes[i] * MB)
			break;
		MUST(export_of(sizes[i] * MB, &handle, &theirs));
		began = now();
		MUST(open_handle(&mine, handle));
		snprintf(name, sizeof name, "open a handle of %zu MiB", sizes[i]);
		timed(name, (now() - began) * 1e6, "us");
		began = now();
		MUST(cu.cuIpcCloseMemHandle(mine));
		snprintf(name, sizeof name, "close a handle of %zu MiB", sizes[i]);
		timed(name, (now() - began) * 1e6, "us");
		CUresult r;
		tell("f", 1);
		hear(&r, sizeof r);
	}
	tell("x", 1);
	waitpid(pid, NULL, 0);
}

/* role "writer": its kernel counts in the other process's memory until it is killed. */
void role_writer(void)
{
	CUipcMemHandle handle;
	CUdeviceptr a;
	uint64_t ns = 20000000000;

	begin();
	hear(&handle, sizeof handle);
	MUST(open_handle(&a, handle));
	MUST(cu.cuLaunchKernel(kernel("conformance_count"), 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){ &a, &ns }, NULL));
	tell("c", 1);
	pause();
}

/* A trainer is killed while its kernel uses the daemon's memory: may the daemon use that memory as soon as the process
 * is gone? */
void case_work_of_the_dead(void)
{
	pid_t pid = other("writer");
	double killed, reaped, last, began = now();
	CUipcMemHandle handle;
	CUdeviceptr a;
	uint32_t before, after;
	char c;

	begin();
	a = slab_of(SLAB);
	MUST(cu.cuMemsetD32_v2(a, 0, SLAB / 4));
	MUST(cu.cuIpcGetMemHandle(&handle, a));
	tell(&handle, sizeof handle);
	if (!hear_soon(&c, 1, 20000)) {
		open_of("a process writes into what it has opened", "it does not come so far");
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return;
	}
	while (!word_at(a) && now() - began < 20)
		;
	exact_bool("a process writes into what it has opened", word_at(a) != 0);
	killed = now();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	last = reaped = now();
	for (before = word_at(a); now() - reaped < (is_double ? 0.2 : 2); before = after) {
		after = word_at(a);
		if (after != before)
			last = now();
	}
	timed("until a process is reaped that is killed in its kernel", (reaped - killed) * 1e3, "ms");
	open_of("its kernel writes after that", last > reaped ? "yes" : "no");
	timed("its kernel writes after that, for", (last - reaped) * 1e3, "ms");
}
