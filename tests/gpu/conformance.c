/* What does this driver do? The same calls on whichever driver is loaded, the double or the real one, and a line for each:
 *
 *     exact NAME = OUTCOME    documented, or batchd relies on it: must be the same on both
 *     class NAME = OUTCOME    works or fails is what counts; with what code is the driver's affair
 *     open  NAME = OUTCOME    nobody has written down what happens; to be read by people
 *     time  NAME = VALUE      measured here; open questions of CUDA-NOTES section 11
 *
 * Each case runs in a process of its own, as some of them end the use of the GPU for theirs; a case that dies or hangs says so in its line and
 * the rest goes on. conformance [CASE...]; without a GPU and without the double: exit status 77. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

enum { SLAB = 4 << 20, MB = 1 << 20, PAGE = 4096, SECONDS = 60 };

/* ---- saying ---- */

static void exact(const char *name, const char *outcome)
{
	printf("exact %s = %s\n", name, outcome);
	fflush(stdout);
}

static void exact_of(const char *name, CUresult r)
{
	exact(name, cuda_name(r));
}

static void exact_bool(const char *name, bool value)
{
	exact(name, value ? "yes" : "no");
}

static void class_of(const char *name, CUresult r)
{
	printf("class %s = %s\n", name, r ? "fails" : "works");
	if (r)
		printf("open  %s: code = %s\n", name, cuda_name(r));
	fflush(stdout);
}

static void open_of(const char *name, const char *outcome)
{
	printf("open  %s = %s\n", name, outcome);
	fflush(stdout);
}

static void timed(const char *name, double value, const char *unit)
{
	printf("time  %s = %.3g %s\n", name, value, unit);
	fflush(stdout);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* For calls that a case cannot go on without. */
static void must(CUresult r, const char *what)
{
	if (!r)
		return;
	printf("exact %s = %s, and the case ends here\n", what, cuda_name(r));
	fflush(stdout);
	_exit(1);
}
#define MUST(call) must(call, #call)

/* ---- what most cases begin with ---- */

static CUcontext ctx;
static bool is_double; /* no measurements that take long */

static void begin(void)
{
	MUST(cu.cuInit(0));
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cu.cuCtxSetCurrent(ctx));
}

static CUdeviceptr slab_of(size_t n)
{
	CUdeviceptr a;

	MUST(cu.cuMemAlloc_v2(&a, n));
	return a;
}

static CUstream stream_new(void)
{
	CUstream s;

	MUST(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return s;
}

static CUevent event_new(unsigned flags)
{
	CUevent e;

	MUST(cu.cuEventCreate(&e, flags));
	return e;
}

static char *host_new(size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		must(CUDA_ERROR_OUT_OF_MEMORY, "mmap");
	return p;
}

static char *pinned_new(size_t n)
{
	char *p = host_new(n);

	MUST(cu.cuMemHostRegister_v2(p, n, CU_MEMHOSTREGISTER_PORTABLE));
	return p;
}

static CUfunction kernel(const char *name)
{
	static CUmodule module;
	CUfunction f;

	if (!module)
		MUST(cu.cuModuleLoadData(&module, cuda_kernels));
	MUST(cu.cuModuleGetFunction(&f, module, name));
	return f;
}

/* Keeps the stream busy. */
static void spin(CUstream s, uint64_t ms)
{
	uint64_t ns = ms * 1000000;

	MUST(cu.cuLaunchKernel(kernel("conformance_spin"), 1, 1, 1, 1, 1, 1, 0, s, (void *[]){ &ns }, NULL));
}

static CUresult add(CUdeviceptr to, CUdeviceptr from, uint32_t n_add, uint32_t n, CUstream s)
{
	return cu.cuLaunchKernel(kernel("conformance_add"), 64, 1, 1, 256, 1, 1, 0, s, (void *[]){ &to, &from, &n_add, &n }, NULL);
}

/* ---- the driver itself ---- */

static void case_driver(void)
{
	static const int codes[] = { 1, 2, 3, 100, 101, 200, 201, 208, 400, 500, 600, 700, 712, 713, 719, 800, 801, 999 };
	char name[64], text[128];
	void *fn = NULL;
	CUdevice device = -1;
	const char *error;
	int status, n = 0, value;
	CUuuid uuid = { { 0 } }, zero = { { 0 } };

	exact("every name that the double has", cu.n_missing ? cu.missing : "yes");
	exact_of("a call before cuInit", cu.cuDeviceGetCount(&n));
	exact_of("cuInit with flags", cu.cuInit(1));
	exact_of("cuInit", cu.cuInit(0));
	exact_of("cuInit again", cu.cuInit(0));
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
		snprintf(name, sizeof name, "name of error %d", codes[i]);
		exact(name, cu.cuGetErrorName(codes[i], &error) ? "none" : error);
	}
	exact_of("name of an error that does not exist", cu.cuGetErrorName(12345, &error));
	cu.cuDriverGetVersion(&value);
	snprintf(text, sizeof text, "%d.%d", value / 1000, value % 1000 / 10);
	open_of("version", text);
	cu.cuDeviceGetCount(&n);
	exact_bool("at least one GPU", n > 0);
	exact_of("a GPU that does not exist", cu.cuDeviceGet(&device, n));
	exact_of("UUID", cu.cuDeviceGetUuid_v2(&uuid, 0));
	exact_bool("UUID is not zero", memcmp(&uuid, &zero, sizeof zero) != 0);
	cu.cuDeviceGetName(text, sizeof text, 0);
	open_of("name of the GPU", text);
	static const struct { int attribute; const char *name; } attributes[] = { { 16, "multiprocessors" }, { 20, "compute mode" },
		{ 40, "copy engines" }, { 41, "unified addressing" }, { 75, "compute capability, major" }, { 91, "host pointers are device pointers" },
		{ 99, "host registration" }, { 102, "virtual memory" }, { 103, "file descriptor handles" }, { 113, "read-only registration" },
		{ 125, "IPC events" }, { 133, "MPS" }, { 134, "NUMA node" } };
	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
		if (cu.cuDeviceGetAttribute(&value, attributes[i].attribute, 0))
			value = -999;
		snprintf(name, sizeof name, "attribute %d, %s", attributes[i].attribute, attributes[i].name);
		snprintf(text, sizeof text, "%d", value);
		open_of(name, text);
	}
	exact_of("attribute 0", cu.cuDeviceGetAttribute(&value, 0, 0));
	exact_of("cuGetProcAddress of cuMemAlloc", cu.cuGetProcAddress_v2("cuMemAlloc", &fn, 12000, 0, &status));
	exact_bool("it is cuMemAlloc_v2", fn == (void *)cu.cuMemAlloc_v2);
	cu.cuGetProcAddress_v2("cuMemAlloc", &fn, 2000, 0, &status);
	open_of("cuGetProcAddress of cuMemAlloc as of 2.0", fn == (void *)cu.cuMemAlloc_v2 ? "the young one" : fn ? "another one" : "nothing");
	fn = NULL;
	class_of("cuGetProcAddress of no such name", cu.cuGetProcAddress_v2("cuNoSuchThing", &fn, 12000, 0, &status) ? 1 : status == 1 && !fn ? 500 : 0);
	class_of("cuGetProcAddress with a suffix", cu.cuGetProcAddress_v2("cuMemAlloc_v2", &fn, 12000, 0, &status) ? 1 : fn ? 0 : 500);
}

static void case_contexts(void)
{
	CUdeviceptr a;
	CUcontext c = (CUcontext)1, again;
	unsigned flags = 9;
	int active = 9;
	double began;

	MUST(cu.cuInit(0));
	exact_of("allocate without a context", cu.cuMemAlloc_v2(&a, SLAB));
	exact_of("synchronise without a context", cu.cuCtxSynchronize());
	cu.cuCtxGetCurrent(&c);
	exact_bool("no context is current at first", c == NULL);
	exact_of("pop without a context", cu.cuCtxPopCurrent_v2(&c));
	exact_of("release without a retain", cu.cuDevicePrimaryCtxRelease_v2(0));
	exact_of("flags before the context is there", cu.cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
	exact_of("state", cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	exact_bool("primary context is not active", active == 0);
	began = now();
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	timed("make a context", (now() - began) * 1e3, "ms");
	cu.cuDevicePrimaryCtxGetState(0, &flags, &active);
	exact_bool("primary context is active", active == 1);
	exact_bool("flags were kept", flags == CU_CTX_SCHED_BLOCKING_SYNC);
	MUST(cu.cuDevicePrimaryCtxRetain(&again, 0));
	exact_bool("the same context again", again == ctx);
	exact_of("retained is not current", cu.cuMemAlloc_v2(&a, SLAB));
	exact_of("push", cu.cuCtxPushCurrent_v2(ctx));
	exact_of("allocate", cu.cuMemAlloc_v2(&a, SLAB));
	exact_of("free", cu.cuMemFree_v2(a));
	exact_of("pop", cu.cuCtxPopCurrent_v2(&c));
	exact_bool("popped what was pushed", c == ctx);
	exact_of("release", cu.cuDevicePrimaryCtxRelease_v2(0));
	exact_of("release again", cu.cuDevicePrimaryCtxRelease_v2(0));
	cu.cuDevicePrimaryCtxGetState(0, &flags, &active);
	exact_bool("primary context is gone", active == 0);
}

/* ---- memory ---- */

static void case_memory(void)
{
	CUdeviceptr a, base = 0;
	size_t n = 0, left, total;
	unsigned type = 0;
	int capable = -1, x = 0;

	begin();
	exact_of("allocate 0 bytes", cu.cuMemAlloc_v2(&a, 0));
	exact_of("allocate more than there is", cu.cuMemAlloc_v2(&a, (size_t)1 << 46));
	class_of("free nothing", cu.cuMemFree_v2(0));
	exact_of("memory info", cu.cuMemGetInfo_v2(&left, &total));
	exact_bool("some of it is free", left > 0 && left <= total);
	a = slab_of(SLAB);
	exact_bool("2 MiB aligned", a % (2 << 20) == 0);
	exact_of("range of an address in the middle", cu.cuMemGetAddressRange_v2(&base, &n, a + 12345));
	exact_bool("it is the piece", base == a && n == SLAB);
	exact_of("memory type", cu.cuPointerGetAttribute(&type, 2, a));
	exact_bool("it is device memory", type == CU_MEMORYTYPE_DEVICE);
	exact_of("may be shared by handle", cu.cuPointerGetAttribute(&capable, 10, a));
	exact_bool("it may", capable == 1);
	exact_of("type of a stack address", cu.cuPointerGetAttribute(&type, 2, (uintptr_t)&x));
	exact_of("fill", cu.cuMemsetD8_v2(a, 7, SLAB));
	class_of("fill past the end", cu.cuMemsetD8_v2(a, 7, (size_t)1 << 40));
	class_of("free an address in the middle", cu.cuMemFree_v2(a + 4096));
	exact_of("free", cu.cuMemFree_v2(a));
	class_of("free again", cu.cuMemFree_v2(a));
}

static int sealed_memfd(size_t n, char **writable, char **readable)
{
	int fd = memfd_create("conformance", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)n))
		must(CUDA_ERROR_OPERATING_SYSTEM, "memfd");
	*writable = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	*readable = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
	if (*writable == MAP_FAILED || *readable == MAP_FAILED)
		must(CUDA_ERROR_OPERATING_SYSTEM, "mmap");
	return fd;
}

static void case_host(void)
{
	char *p, *writable, *readable, *gone;
	CUdeviceptr a, d;
	CUstream s;
	unsigned type = 0;

	begin();
	a = slab_of(SLAB);
	s = stream_new();
	p = host_new(64 * PAGE);
	exact_of("register 0 bytes", cu.cuMemHostRegister_v2(p, 0, 0));
	exact_of("register", cu.cuMemHostRegister_v2(p, 16 * PAGE, CU_MEMHOSTREGISTER_PORTABLE));
	exact_of("register again", cu.cuMemHostRegister_v2(p, 16 * PAGE, 0));
	exact_of("register what overlaps", cu.cuMemHostRegister_v2(p + 15 * PAGE, 2 * PAGE, 0));
	exact_of("register next to it", cu.cuMemHostRegister_v2(p + 16 * PAGE, 16 * PAGE, 0));
	exact_of("copy from a registered piece", cu.cuMemcpyHtoDAsync_v2(a, p, 16 * PAGE, s));
	MUST(cu.cuStreamSynchronize(s));
	class_of("copy that straddles two registrations", cu.cuMemcpyHtoDAsync_v2(a, p + 15 * PAGE, 2 * PAGE, s));
	cu.cuStreamSynchronize(s);
	class_of("copy that leaves a registration", cu.cuMemcpyHtoDAsync_v2(a, p + 31 * PAGE, 2 * PAGE, s));
	cu.cuStreamSynchronize(s);
	exact_of("device pointer", cu.cuMemHostGetDevicePointer_v2(&d, p, 0));
	exact_bool("it is the same address", d == (uintptr_t)p);
	exact_of("type of registered memory", cu.cuPointerGetAttribute(&type, 2, (uintptr_t)p));
	exact_bool("it is host memory", type == CU_MEMORYTYPE_HOST);
	exact_of("unregister an address in the middle", cu.cuMemHostUnregister(p + PAGE));
	exact_of("unregister", cu.cuMemHostUnregister(p));
	exact_of("unregister again", cu.cuMemHostUnregister(p));
	exact_of("unregister its neighbour", cu.cuMemHostUnregister(p + 16 * PAGE));
	gone = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(gone, PAGE);
	class_of("register what is not mapped", cu.cuMemHostRegister_v2(gone, PAGE, 0));
	sealed_memfd(SLAB, &writable, &readable);
	exact_of("register the daemon's mapping of a sealed memfd", cu.cuMemHostRegister_v2(writable, SLAB, CU_MEMHOSTREGISTER_PORTABLE));
	class_of("register a read-only mapping", cu.cuMemHostRegister_v2(readable, SLAB, CU_MEMHOSTREGISTER_PORTABLE));
	CUresult r = cu.cuMemHostRegister_v2(readable, SLAB, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY);
	class_of("register a read-only mapping as such", r);
	memset(writable, 42, SLAB);
	if (!r) {
		char out[16];

		exact_of("copy from it", cu.cuMemcpyHtoDAsync_v2(a, readable, SLAB, s));
		exact_of("wait for that", cu.cuStreamSynchronize(s));
		cu.cuMemcpyDtoH_v2(out, a + SLAB - 16, 16);
		exact_bool("the bytes came over", out[15] == 42);
		exact_of("unregister it", cu.cuMemHostUnregister(readable));
	}
	exact_of("unregister the daemon's mapping", cu.cuMemHostUnregister(writable));
}

/* ---- streams, events, kernels ---- */

static void case_streams(void)
{
	CUdeviceptr a, b;
	CUstream one, two;
	CUevent e, f;
	int least, greatest;
	char *in, *out;

	begin();
	a = slab_of(SLAB), b = slab_of(SLAB);
	in = pinned_new(SLAB), out = pinned_new(SLAB);
	exact_of("priorities", cu.cuCtxGetStreamPriorityRange(&least, &greatest));
	exact_bool("the greatest is the smaller number", greatest < least);
	one = stream_new(), two = stream_new();
	exact_of("an idle stream", cu.cuStreamQuery(one));
	spin(one, 1); /* the first launch loads the kernel */
	MUST(cu.cuStreamSynchronize(one));
	spin(one, 100);
	exact_of("a busy stream", cu.cuStreamQuery(one));
	exact_of("another stream is not busy", cu.cuStreamQuery(two));
	e = event_new(CU_EVENT_DISABLE_TIMING), f = event_new(CU_EVENT_DISABLE_TIMING);
	exact_of("an event never recorded", cu.cuEventQuery(e));
	exact_of("wait for an event never recorded", cu.cuEventSynchronize(e));
	exact_of("record behind work", cu.cuEventRecord(e, one));
	exact_of("it is not ready", cu.cuEventQuery(e));
	exact_of("stream waits for an event never recorded", cu.cuStreamWaitEvent(two, f, 0));
	MUST(cu.cuEventRecord(f, two));
	exact_of("that did not wait", cu.cuEventSynchronize(f));
	exact_of("and the first still runs", cu.cuEventQuery(e));
	exact_of("it ends", cu.cuEventSynchronize(e));
	exact_of("and is ready", cu.cuEventQuery(e));

	/* Waiting means the record that was current at the call. */
	spin(one, 5);
	MUST(cu.cuEventRecord(e, one));
	MUST(cu.cuStreamWaitEvent(two, e, 0));
	spin(one, 300);
	MUST(cu.cuEventRecord(e, one));
	MUST(cu.cuEventRecord(f, two));
	MUST(cu.cuEventSynchronize(f));
	exact_of("a wait does not mean a later record", cu.cuEventQuery(e));
	MUST(cu.cuStreamSynchronize(one));

	/* The source is read when the copy runs. */
	memset(in, 'a', 64);
	spin(one, 50);
	MUST(cu.cuMemcpyHtoDAsync_v2(a, in, 64, one));
	exact_of("a copy behind work has not run", cu.cuStreamQuery(one));
	memset(in, 'b', 64);
	MUST(cu.cuMemcpyDtoHAsync_v2(out, a, 64, one));
	MUST(cu.cuStreamSynchronize(one));
	exact("source changed before the copy ran", out[0] == 'b' ? "the change was copied" : "the old bytes were copied");
	class_of("copy past the end", cu.cuMemcpyHtoDAsync_v2(a + SLAB - 10, in, 1 << 20, one));
	exact_of("a copy of 0 bytes", cu.cuMemcpyHtoDAsync_v2(a, in, 0, one));
	memset(in, 5, SLAB);
	MUST(cu.cuMemcpyHtoDAsync_v2(a, in, SLAB, one));
	MUST(cu.cuMemcpyDtoDAsync_v2(b, a, SLAB, one));
	exact_of("kernel", add(a, b, 0x01010101, SLAB / 4, one));
	MUST(cu.cuMemcpyDtoHAsync_v2(out, a, SLAB, one));
	exact_of("all of it ends", cu.cuStreamSynchronize(one));
	exact_bool("every byte is right", out[0] == 6 && !memcmp(out, out + 1, SLAB - 1));
	exact_of("kernel writes to registered memory", add((uintptr_t)out, a, 0x01010101, 1024, one));
	MUST(cu.cuStreamSynchronize(one));
	exact_bool("it is there", out[0] == 7 && out[4095] == 7 && out[4096] == 6);

	exact_of("an interprocess event with timing", cu.cuEventCreate(&e, CU_EVENT_INTERPROCESS));
	e = event_new(0), f = event_new(0);
	float ms = -1;
	exact_of("time between events never recorded", cu.cuEventElapsedTime(&ms, e, f));
	MUST(cu.cuEventRecord(e, one));
	spin(one, 20);
	MUST(cu.cuEventRecord(f, one));
	exact_of("time of work that still runs", cu.cuEventElapsedTime(&ms, e, f));
	MUST(cu.cuStreamSynchronize(one));
	exact_of("time between events", cu.cuEventElapsedTime(&ms, e, f));
	exact_bool("it is about right", ms >= 19.5 && ms < 2000);
	spin(one, 50);
	exact_of("destroy a busy stream", cu.cuStreamDestroy_v2(one));
	exact_of("everything ends", cu.cuCtxSynchronize());
	exact_of("destroy an event", cu.cuEventDestroy_v2(e));
}

static void case_kernels(void)
{
	static char junk[256] = "this is neither PTX nor a cubin";
	CUdeviceptr a;
	CUfunction f;
	CUmodule m;
	uint32_t one = 1, n = 16;

	begin();
	a = slab_of(SLAB);
	class_of("load junk", cu.cuModuleLoadData(&m, junk));
	exact_of("load PTX", cu.cuModuleLoadData(&m, cuda_kernels));
	exact_of("a kernel that is not there", cu.cuModuleGetFunction(&f, m, "no_such_kernel"));
	exact_of("a kernel", cu.cuModuleGetFunction(&f, m, "conformance_add"));
	exact_of("1025 threads", cu.cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, NULL, (void *[]){ &a, &a, &one, &n }, NULL));
	exact_of("no blocks", cu.cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, (void *[]){ &a, &a, &one, &n }, NULL));
	exact_of("launch", cu.cuLaunchKernel(f, 1, 1, 1, 16, 1, 1, 0, NULL, (void *[]){ &a, &a, &one, &n }, NULL));
	one = 999; /* parameters are taken at the call */
	exact_of("ends", cu.cuCtxSynchronize());
	exact_of("unload", cu.cuModuleUnload(m));
}

static void case_sticky(void)
{
	CUdeviceptr a, b;
	CUevent e;

	begin();
	a = slab_of(SLAB);
	e = event_new(CU_EVENT_DISABLE_TIMING);
	MUST(add(0x10, a, 1, 16, NULL)); /* where nothing is */
	exact_of("a kernel that writes to nowhere", cu.cuCtxSynchronize());
	exact_of("allocate afterwards", cu.cuMemAlloc_v2(&b, SLAB));
	exact_of("record afterwards", cu.cuEventRecord(e, NULL));
	exact_of("copy afterwards", cu.cuMemcpyHtoD_v2(a, "x", 1));
	exact_of("free afterwards", cu.cuMemFree_v2(a));
	CUresult r = cu.cuDevicePrimaryCtxRelease_v2(0);
	open_of("release afterwards", cuda_name(r));
}

static void case_fork(void)
{
	CUdeviceptr a;
	pid_t child;

	begin();
	a = slab_of(SLAB);
	fflush(stdout);
	child = fork();
	if (!child) {
		exact_of("allocate in a forked child", cu.cuMemAlloc_v2(&a, SLAB));
		_exit(0);
	}
	waitpid(child, NULL, 0);
	exact_of("and the parent goes on", cu.cuMemsetD8_v2(a, 1, SLAB));
}

/* ---- two processes ---- */

static int line_fd; /* to the other process */

static void tell(const void *data, size_t n)
{
	if (write(line_fd, data, n) != (ssize_t)n)
		_exit(3);
}

static void hear(void *data, size_t n)
{
	if (recv(line_fd, data, n, MSG_WAITALL) != (ssize_t)n)
		_exit(4);
}

static bool hear_soon(void *data, size_t n, int ms)
{
	return poll(&(struct pollfd){ .fd = line_fd, .events = POLLIN }, 1, ms) == 1 && recv(line_fd, data, n, MSG_WAITALL) == (ssize_t)n;
}

/* Another process that begins anew with this program, in the role. */
static pid_t other(const char *role)
{
	char number[16];
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		_exit(5);
	fcntl(fds[0], F_SETFD, FD_CLOEXEC);
	snprintf(number, sizeof number, "%d", fds[1]);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		execl("/proc/self/exe", "conformance", "--role", role, number, (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	line_fd = fds[0];
	return pid;
}

/* role "export": memory of the size it is told, and its handle; then does as it is told. */
static void role_export(void)
{
	CUipcMemHandle handle;
	CUdeviceptr a = 0;
	size_t n;
	char c;

	begin();
	for (;;) {
		hear(&c, 1);
		if (c == 'a') { /* allocate */
			hear(&n, sizeof n);
			a = slab_of(n);
			MUST(cu.cuMemsetD32_v2(a, 0x12345678, n / 4));
			MUST(cu.cuCtxSynchronize());
			CUresult r = cu.cuIpcGetMemHandle(&handle, a);
			tell(&r, sizeof r);
			tell(&handle, sizeof handle);
			tell(&a, sizeof a);
		} else if (c == 'w') { /* write */
			MUST(cu.cuMemsetD32_v2(a, 0x9abcdef0, 4));
			MUST(cu.cuCtxSynchronize());
			tell("w", 1);
		} else if (c == 'f') { /* free */
			CUresult r = cu.cuMemFree_v2(a);
			tell(&r, sizeof r);
		} else {
			_exit(0);
		}
	}
}

static CUresult export_of(size_t n, CUipcMemHandle *handle, CUdeviceptr *theirs)
{
	CUresult r;

	tell("a", 1);
	tell(&n, sizeof n);
	hear(&r, sizeof r);
	hear(handle, sizeof *handle);
	hear(theirs, sizeof *theirs);
	return r;
}

static CUresult open_handle(CUdeviceptr *mine, CUipcMemHandle handle)
{
	return cu.cuIpcOpenMemHandle_v2(mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static uint32_t word_at(CUdeviceptr a)
{
	uint32_t word = 0;

	MUST(cu.cuMemcpyDtoH_v2(&word, a, 4));
	return word;
}

static void case_ipc(void)
{
	CUipcMemHandle handle, mine_handle, junk;
	CUdeviceptr theirs, mine, again, own, base;
	pid_t pid = other("export");
	size_t n = 0;
	char c;

	begin();
	own = slab_of(SLAB);
	exact_of("handle", cu.cuIpcGetMemHandle(&mine_handle, own));
	class_of("handle of an address in the middle", cu.cuIpcGetMemHandle(&junk, own + 4096));
	class_of("handle of a host address", cu.cuIpcGetMemHandle(&junk, (uintptr_t)&n));
	class_of("open at home", open_handle(&mine, mine_handle));
	exact_of("export", export_of(SLAB, &handle, &theirs));
	exact_of("open with flags 0", cu.cuIpcOpenMemHandle_v2(&mine, handle, 0));
	exact_of("open", open_handle(&mine, handle));
	open_of("the address is another one", mine != theirs ? "yes" : "no");
	exact_of("range", cu.cuMemGetAddressRange_v2(&base, &n, mine));
	exact_bool("it is the piece", base == mine && n == SLAB);
	exact_bool("its bytes", word_at(mine) == 0x12345678 && word_at(mine + SLAB - 4) == 0x12345678);
	tell("w", 1);
	hear(&c, 1);
	exact_bool("what the owner writes later", word_at(mine) == 0x9abcdef0);
	exact_of("open again", open_handle(&again, handle));
	exact_bool("the same address again", again == mine);
	class_of("handle of imported memory", cu.cuIpcGetMemHandle(&junk, mine));
	class_of("free imported memory", cu.cuMemFree_v2(mine));
	exact_of("close", cu.cuIpcCloseMemHandle(mine));
	exact_of("close again", cu.cuIpcCloseMemHandle(again));
	class_of("close once too often", cu.cuIpcCloseMemHandle(mine));
	exact_of("open after all were closed", open_handle(&mine, handle));
	exact_of("close it", cu.cuIpcCloseMemHandle(mine));
	memset(&junk, 0x5a, sizeof junk);
	class_of("open junk", open_handle(&mine, junk));
	CUresult r;
	tell("f", 1);
	hear(&r, sizeof r);
	exact_of("the owner frees it", r);
	class_of("open after that", open_handle(&mine, handle));
	tell("x", 1);
	waitpid(pid, NULL, 0);
}

static void case_ipc_small(void)
{
	/* A piece of less than 2 MiB: where does the handle lead? */
	CUipcMemHandle handle;
	CUdeviceptr theirs, first, second;
	pid_t pid = other("export");
	char text[64];

	begin();
	class_of("handle of 64 KiB", export_of(65536, &handle, &theirs));
	CUresult r = open_handle(&first, handle);
	open_of("open it", cuda_name(r));
	class_of("handle of another 64 KiB", export_of(65536, &handle, &theirs));
	if (!r) {
		r = open_handle(&second, handle);
		open_of("open the other", cuda_name(r));
	}
	if (!r) {
		CUdeviceptr base;
		size_t n;

		cu.cuMemGetAddressRange_v2(&base, &n, second);
		snprintf(text, sizeof text, "%zu bytes, first word %s", n, word_at(second) == 0x12345678 ? "as written" : "of somebody else");
		open_of("what it leads to", text);
	}
	tell("x", 1);
	waitpid(pid, NULL, 0);
}

static void case_ipc_stale(void)
{
	/* The owner frees while it is open here, allocates again, and hands out a new handle. Undefined by the documentation. */
	CUipcMemHandle handle;
	CUdeviceptr theirs, second, mine, again;
	pid_t pid = other("export");
	CUresult r;

	begin();
	MUST(export_of(SLAB, &handle, &theirs));
	MUST(open_handle(&mine, handle));
	tell("f", 1);
	hear(&r, sizeof r);
	open_of("the owner frees what is open here", cuda_name(r));
	MUST(export_of(SLAB, &handle, &second));
	open_of("the owner gets the same address again", second == theirs ? "yes" : "no");
	r = open_handle(&again, handle);
	open_of("open the new handle with the old one open", cuda_name(r));
	if (!r)
		open_of("its address", again == mine ? "that of the old one" : "another");
	tell("x", 1);
	waitpid(pid, NULL, 0);
}

static void case_ipc_killed(void)
{
	CUipcMemHandle handle;
	CUdeviceptr theirs, mine, again, own;
	pid_t pid = other("export");
	size_t before, after, total;
	uint32_t word = 0;
	CUresult r;
	double began;

	begin();
	own = slab_of(SLAB);
	MUST(export_of(64 * MB, &handle, &theirs));
	MUST(open_handle(&mine, handle));
	MUST(cu.cuMemGetInfo_v2(&before, &total));
	kill(pid, SIGKILL);
	began = now();
	waitpid(pid, NULL, 0);
	timed("until a killed owner is reaped", (now() - began) * 1e3, "ms");
	r = cu.cuMemcpyDtoH_v2(&word, mine, 4);
	open_of("read after the owner was killed", r ? cuda_name(r) : word == 0x12345678 ? "the bytes are still there" : "other bytes");
	if (!is_double)
		sleep(2);
	r = cu.cuMemcpyDtoH_v2(&word, mine + 64 * MB - 4, 4);
	open_of("read two seconds later", r ? cuda_name(r) : word == 0x12345678 ? "the bytes are still there" : "other bytes");
	r = add(own, mine, 0, 1024, NULL);
	if (!r)
		r = cu.cuCtxSynchronize();
	open_of("kernel that reads it", cuda_name(r));
	class_of("open the dead owner's handle again", open_handle(&again, handle) == 0 && again == mine ? 0 : 400);
	r = cu.cuIpcCloseMemHandle(mine);
	open_of("close", cuda_name(r));
	r = cu.cuCtxSynchronize();
	exact_of("the reader can go on", r);
	exact_of("with memory of its own", cu.cuMemsetD8_v2(own, 1, SLAB));
	MUST(cu.cuMemGetInfo_v2(&after, &total));
	open_of("memory came back", after > before ? "yes" : "no");
}

/* role "open": opens a handle that it is told, as another user or in other namespaces ($CONFORMANCE_AS). */
static void role_open(void)
{
	CUipcMemHandle handle;
	CUdeviceptr a;
	CUresult r;

	hear(&handle, sizeof handle);
	r = cu.cuInit(0);
	if (!r)
		r = cu.cuDevicePrimaryCtxRetain(&ctx, 0);
	if (!r)
		r = cu.cuCtxSetCurrent(ctx);
	if (r)
		r += 100000; /* it did not get so far */
	else
		r = open_handle(&a, handle);
	tell(&r, sizeof r);
}

/* Starts role "open" as another user, or in a new namespace. */
static pid_t stranger(const char *how)
{
	char number[16];
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		_exit(5);
	fcntl(fds[0], F_SETFD, FD_CLOEXEC);
	snprintf(number, sizeof number, "%d", fds[1]);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		bool ok = true;

		if (!strcmp(how, "another user"))
			ok = !syscall(SYS_setresuid, 65534, 65534, 65534); /* the binary may lie where that user cannot reach it */
		else if (!strcmp(how, "another PID namespace"))
			ok = !unshare(CLONE_NEWPID);
		else if (!strcmp(how, "another IPC namespace"))
			ok = !unshare(CLONE_NEWIPC);
		if (!ok)
			_exit(77);
		if (!strcmp(how, "another PID namespace")) { /* only children are in it */
			pid_t child = fork();
			int status;

			if (child) {
				waitpid(child, &status, 0);
				_exit(WEXITSTATUS(status));
			}
		}
		line_fd = fds[1];
		role_open(); /* no exec needed: CUDA has not begun in this process */
		_exit(0);
	}
	close(fds[1]);
	line_fd = fds[0];
	return pid;
}

static void case_ipc_strangers(void)
{
	static const char *const how[] = { "the same user", "another user", "another PID namespace", "another IPC namespace" };
	int lines[4];
	pid_t pids[4];
	CUipcMemHandle handle;
	CUdeviceptr a;

	for (int i = 0; i < 4; i++) { /* all before CUDA begins here */
		pids[i] = stranger(how[i]);
		lines[i] = line_fd;
	}
	begin();
	a = slab_of(SLAB);
	MUST(cu.cuIpcGetMemHandle(&handle, a));
	for (int i = 0; i < 4; i++) {
		char name[64];
		CUresult r;

		line_fd = lines[i];
		snprintf(name, sizeof name, "open as %s", how[i]);
		signal(SIGPIPE, SIG_IGN);
		if (write(line_fd, &handle, sizeof handle) != sizeof handle || !hear_soon(&r, sizeof r, 20000))
			open_of(name, "could not be tried");
		else if (r >= 100000)
			open_of(name, "no context there");
		else if (i == 0)
			exact_of(name, r);
		else
			open_of(name, cuda_name(r));
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
}

/* role "event": an interprocess event and work before it. */
static void role_event(void)
{
	CUipcEventHandle handle;
	CUstream s;
	CUevent e;
	char c;

	begin();
	s = stream_new();
	spin(s, 1);
	e = event_new(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
	MUST(cu.cuIpcGetEventHandle(&handle, e));
	MUST(cu.cuStreamSynchronize(s));
	tell(&handle, sizeof handle);
	hear(&c, 1);
	spin(s, 300);
	MUST(cu.cuEventRecord(e, s));
	tell("r", 1);
	hear(&c, 1);
}

static void case_ipc_events(void)
{
	CUipcEventHandle handle;
	pid_t pid = other("event");
	CUstream s;
	CUevent e;
	char c;

	begin();
	s = stream_new();
	hear(&handle, sizeof handle);
	exact_of("open an event", cu.cuIpcOpenEventHandle(&e, handle));
	exact_of("never recorded", cu.cuEventQuery(e));
	tell("x", 1);
	hear(&c, 1);
	exact_of("recorded by the other", cu.cuEventQuery(e));
	exact_of("stream waits for it", cu.cuStreamWaitEvent(s, e, 0));
	exact_of("stream waits", cu.cuStreamQuery(s));
	exact_of("and goes on", cu.cuStreamSynchronize(s));
	exact_of("complete", cu.cuEventQuery(e));
	exact_of("destroy", cu.cuEventDestroy_v2(e));
	tell("x", 1);
	waitpid(pid, NULL, 0);
}

/* ---- virtual memory ---- */

static CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };

static CUdeviceptr vmm_map(CUmemGenericAllocationHandle h, size_t n, int flags)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, flags };
	CUdeviceptr a;

	MUST(cu.cuMemAddressReserve(&a, n, 0, 0, 0));
	MUST(cu.cuMemMap(a, n, 0, h, 0));
	MUST(cu.cuMemSetAccess(a, n, &access, 1));
	return a;
}

static void role_vmm(void)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	CUmemGenericAllocationHandle h;
	CUdeviceptr a;
	int fd;

	begin();
	MUST(cu.cuMemCreate(&h, SLAB, &prop, 0));
	a = vmm_map(h, SLAB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(cu.cuMemsetD32_v2(a, 0x12345678, SLAB / 4));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	sendmsg(line_fd, &m, 0);
	pause();
}

static void case_vmm(void)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	CUmemGenericAllocationHandle h;
	CUipcMemHandle legacy;
	CUdeviceptr a, own;
	size_t n = 0;
	pid_t pid = other("vmm");
	CUresult r;
	int fd;

	begin();
	own = slab_of(SLAB);
	exact_of("granularity", cu.cuMemGetAllocationGranularity(&n, &prop, 0));
	exact_bool("it is 2 MiB", n == 2 << 20);
	exact_of("create less than that", cu.cuMemCreate(&h, 4096, &prop, 0));
	if (recvmsg(line_fd, &m, 0) != 1 || !CMSG_FIRSTHDR(&m))
		must(CUDA_ERROR_UNKNOWN, "receive a descriptor");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	exact_of("import", cu.cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	a = vmm_map(h, SLAB, CU_MEM_ACCESS_FLAGS_PROT_READ);
	exact_bool("its bytes", word_at(a + SLAB - 4) == 0x12345678);
	class_of("legacy handle of it", cu.cuIpcGetMemHandle(&legacy, a));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	exact_bool("its bytes after the owner was killed", word_at(a) == 0x12345678);
	exact_of("release the handle", cu.cuMemRelease(h));
	exact_bool("its bytes after that", word_at(a) == 0x12345678);
	exact_of("kernel that reads it", add(own, a, 0, 1024, NULL));
	exact_of("ends", cu.cuCtxSynchronize());
	/* May it be written? It was mapped for reading. Last, as it may be the end of the context. */
	r = cu.cuMemsetD32_v2(a, 1, 4);
	if (!r)
		r = cu.cuCtxSynchronize();
	open_of("fill what is mapped for reading", cuda_name(r));
	r = add(a, own, 0, 4, NULL);
	if (!r)
		r = cu.cuCtxSynchronize();
	open_of("kernel that writes what is mapped for reading", cuda_name(r));
}

/* ---- measurements ---- */

/* role "context": has one until told to go. */
static void role_context(void)
{
	char c;

	begin();
	spin(stream_new(), 1);
	MUST(cu.cuCtxSynchronize());
	tell("c", 1);
	hear(&c, 1);
}

static void case_context_size(void)
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

static void case_registration(void)
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

static void case_open_time(void)
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

/* role "copier": copies from pinned memory to the GPU until it hears something, and says how much. */
static void role_copier(void)
{
	size_t n = (is_double ? 1u : 64u) * MB, total = 0;
	char *p, c;
	CUdeviceptr a;
	CUstream s;
	double began;

	begin();
	p = pinned_new(n);
	a = slab_of(n);
	s = stream_new();
	tell("c", 1);
	hear(&c, 1);
	began = now();
	while (recv(line_fd, &c, 1, MSG_DONTWAIT) != 1) {
		MUST(cu.cuMemcpyHtoDAsync_v2(a, p, n, s));
		MUST(cu.cuStreamSynchronize(s));
		total += n;
	}
	double rate = (double)total / (now() - began) * 1e-9;
	tell(&rate, sizeof rate);
}

/* A step that uses all of the GPU's arithmetic, by itself and while another process copies; without MPS their contexts may take turns. */
static double fma_step(CUfunction f, CUdeviceptr a, CUstream s, uint32_t rounds, int blocks, int repeats)
{
	CUevent from = event_new(0), to = event_new(0);
	float ms = 0;

	MUST(cu.cuEventRecord(from, s));
	for (int i = 0; i < repeats; i++)
		MUST(cu.cuLaunchKernel(f, (unsigned)blocks, 1, 1, 256, 1, 1, 0, s, (void *[]){ &a, &rounds }, NULL));
	MUST(cu.cuEventRecord(to, s));
	MUST(cu.cuEventSynchronize(to));
	MUST(cu.cuEventElapsedTime(&ms, from, to));
	MUST(cu.cuEventDestroy_v2(from));
	MUST(cu.cuEventDestroy_v2(to));
	return (double)ms / repeats;
}

static void case_overlap(void)
{
	pid_t pid = other("copier");
	CUdeviceptr a;
	CUfunction f;
	CUstream s;
	uint32_t rounds = is_double ? 1000 : 200000;
	int sms = 1, repeats = is_double ? 2 : 50;
	double alone, together, rate, rate_alone;
	char c;

	begin();
	cu.cuDeviceGetAttribute(&sms, 16, 0);
	a = slab_of(SLAB);
	s = stream_new();
	f = kernel("conformance_fma");
	hear(&c, 1);
	fma_step(f, a, s, rounds, 8 * sms, 3);
	alone = fma_step(f, a, s, rounds, 8 * sms, repeats);
	tell("g", 1);
	together = fma_step(f, a, s, rounds, 8 * sms, repeats);
	tell("x", 1);
	hear(&rate, sizeof rate);
	waitpid(pid, NULL, 0);
	pid = other("copier");
	hear(&c, 1);
	tell("g", 1);
	usleep(is_double ? 10000 : 1000000);
	tell("x", 1);
	hear(&rate_alone, sizeof rate_alone);
	waitpid(pid, NULL, 0);
	timed("compute step alone", alone, "ms");
	timed("compute step while another process copies", together, "ms");
	timed("it is slower by", (together / alone - 1) * 100, "%");
	timed("the other process copies meanwhile at", rate, "GB/s");
	timed("and alone at", rate_alone, "GB/s");
}

/* ---- running ---- */

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = { { "driver", case_driver }, { "contexts", case_contexts }, { "memory", case_memory }, { "host memory", case_host },
	      { "streams", case_streams }, { "kernels", case_kernels }, { "sticky", case_sticky }, { "fork", case_fork }, { "ipc", case_ipc },
	      { "ipc small", case_ipc_small }, { "ipc stale", case_ipc_stale }, { "ipc killed", case_ipc_killed },
	      { "ipc strangers", case_ipc_strangers }, { "ipc events", case_ipc_events }, { "vmm", case_vmm }, { "context size", case_context_size },
	      { "registration", case_registration }, { "open time", case_open_time }, { "overlap", case_overlap } },
  roles[] = { { "export", role_export }, { "event", role_event }, { "vmm", role_vmm }, { "context", role_context }, { "copier", role_copier } };

/* In a child whose children die with it: they end when their line closes. */
static void run_case(size_t i)
{
	int status;
	pid_t pid;

	printf("# %s\n", cases[i].name);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(SECONDS);
		cases[i].run();
		fflush(stdout);
		_exit(0); /* what is left over is the driver's to clean up, as after a crash */
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status)) {
		printf("exact case %s = %s\n", cases[i].name, WTERMSIG(status) == SIGALRM ? "hung" : strsignal(WTERMSIG(status)));
		fflush(stdout);
	}
}

/* "NVIDIA H200, CUDA 13.0 driver": is there a GPU that a program can use? */
static int probe(void)
{
	char name[128] = "?", text[64] = "";
	int version = 0, n = 0;
	FILE *f;

	if (!cu.cuInit || cu.cuInit(0) || cu.cuDeviceGetCount(&n) || n < 1)
		return 77;
	cu.cuDeviceGetName(name, sizeof name, 0);
	cu.cuDriverGetVersion(&version);
	f = fopen("/sys/module/nvidia/version", "re");
	if (f && fscanf(f, "%63s", text) != 1)
		*text = '\0';
	if (f)
		fclose(f);
	printf("%s, driver %s (CUDA %d.%d)\n", name, *text ? text : "?", version / 1000, version % 1000 / 10);
	return 0;
}

int main(int argc, char **argv)
{
	const char *why = cuda_load();

	if (why) {
		fprintf(stderr, "conformance: no driver: %s\n", why);
		return 77;
	}
	if (argc == 2 && !strcmp(argv[1], "--probe"))
		return probe();
	is_double = getenv("BATCHD_LIBCUDA") && strstr(getenv("BATCHD_LIBCUDA"), "fakecuda");
	if (argc == 4 && !strcmp(argv[1], "--role")) {
		line_fd = atoi(argv[3]);
		alarm(SECONDS);
		for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
			if (!strcmp(roles[i].name, argv[2]))
				roles[i].run();
		fflush(stdout);
		_exit(0);
	}
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		bool wanted = argc == 1;

		for (int k = 1; k < argc; k++)
			wanted |= !strcmp(argv[k], cases[i].name);
		if (wanted)
			run_case(i);
	}
	return 0;
}
