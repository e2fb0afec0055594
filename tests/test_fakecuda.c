/* The driver double itself: does it have the rules that it is there to enforce? Every test runs in a process of its own (Check forks), which loads the library
 * as batchd does. */
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakecuda/abi.h"
#include "fakecuda/fakecuda.h"
#include "suite.h"

enum { SLAB = 4 << 20, MB = 1 << 20 };

/* ---- the library ---- */

static struct {
#define MEMBER(name, symbol, since, params) __typeof__(&symbol) symbol;
	FAKECUDA_API(MEMBER)
#undef MEMBER
	__typeof__(&fakecuda_fail) inject;
	__typeof__(&fakecuda_forbid_thread) forbid_thread;
	__typeof__(&fakecuda_counter) counter;
	__typeof__(&fakecuda_alive) alive;
	__typeof__(&fakecuda_last_violation) last_violation;
	__typeof__(&fakecuda_hold_streams) hold_streams;
	void *library;
} cu;

static void find(void *member, const char *name)
{
	void *fn = dlsym(cu.library, name);

	ck_assert_msg(fn, "the double has no %s", name);
	memcpy(member, &fn, sizeof fn);
}

static void load_named(const char *file)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/%s", getenv("BATCHD_BUILD") ? getenv("BATCHD_BUILD") : "build", file);
	cu.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(cu.library, "%s", dlerror());
}

static void load(void)
{
	load_named("libfakecuda.so");
#define FIND(name, symbol, since, params) find(&cu.symbol, #symbol);
	FAKECUDA_API(FIND)
#undef FIND
	find(&cu.inject, "fakecuda_fail");
	find(&cu.forbid_thread, "fakecuda_forbid_thread");
	find(&cu.counter, "fakecuda_counter");
	find(&cu.alive, "fakecuda_alive");
	find(&cu.last_violation, "fakecuda_last_violation");
	find(&cu.hold_streams, "fakecuda_hold_streams");
}

static void ok(CUresult r, int line)
{
	const char *name = "?";

	cu.cuGetErrorName(r, &name);
	ck_assert_msg(r == CUDA_SUCCESS, "line %d: %s (%s)", line, name, cu.last_violation());
}
#define OK(call) ok(call, __LINE__)
#define VIOLATIONS(n) ck_assert_msg(cu.counter("violations") == (n), "%d violations, not %d; the last: %s", (int)cu.counter("violations"), (int)(n), \
	cu.last_violation())

/* Loaded, initialised, the primary context current. */
static CUcontext begin(void)
{
	CUcontext ctx;

	setenv("FAKECUDA_QUIET", "1", 1);
	load();
	OK(cu.cuInit(0));
	OK(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cu.cuCtxSetCurrent(ctx));
	return ctx;
}

static void end(void)
{
	OK(cu.cuCtxSetCurrent(NULL));
	OK(cu.cuDevicePrimaryCtxRelease_v2(0));
	ck_assert_uint_eq(cu.alive(), 0);
}

static void *pinned(size_t n_bytes)
{
	void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	OK(cu.cuMemHostRegister_v2(p, n_bytes, CU_MEMHOSTREGISTER_PORTABLE));
	return p;
}

static void unpin(void *p, size_t n_bytes)
{
	OK(cu.cuMemHostUnregister(p));
	munmap(p, n_bytes);
}

/* ---- memory and copies ---- */

static volatile sig_atomic_t trapped;
static sigjmp_buf back;

static void on_trap(int signal)
{
	trapped = signal;
	siglongjmp(back, 1);
}

START_TEST(test_device_pointer_traps_on_host_access)
{
	/* A program that follows a device pointer on the host must not get away with it. */
	CUdeviceptr ptr;

	begin();
	OK(cu.cuMemAlloc_v2(&ptr, SLAB));
	signal(SIGSEGV, on_trap);
	if (!sigsetjmp(back, 1))
		*(volatile char *)(uintptr_t)ptr = 1;
	signal(SIGSEGV, SIG_DFL);
	ck_assert_int_eq(trapped, SIGSEGV);
	OK(cu.cuMemFree_v2(ptr));
	end();
}
END_TEST

START_TEST(test_copies_there_and_back)
{
	CUdeviceptr a, b;
	CUstream s;
	unsigned char *in, *out;

	begin();
	in = pinned(MB), out = pinned(MB);
	for (int i = 0; i < MB; i++)
		in[i] = (unsigned char)(i * 7);
	OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuMemAlloc_v2(&b, SLAB));
	OK(cu.cuMemcpyHtoDAsync_v2(a + 4096, in, MB, s));
	OK(cu.cuMemcpyDtoDAsync_v2(b, a + 4096, MB, s));
	OK(cu.cuMemcpyDtoHAsync_v2(out, b, MB, s));
	OK(cu.cuStreamSynchronize(s));
	ck_assert_int_eq(memcmp(in, out, MB), 0);
	ck_assert_uint_eq(cu.counter("pageable"), 0);
	ck_assert_uint_eq(cu.counter("bytes-to-device"), MB);
	ck_assert_int_eq(cu.cuMemcpyHtoDAsync_v2(a + SLAB - 10, in, 11, s), CUDA_ERROR_INVALID_VALUE);
	VIOLATIONS(1);
	OK(cu.cuMemcpyHtoDAsync_v2(a + SLAB - 10, in, 10, s));
	OK(cu.cuStreamDestroy_v2(s));
	OK(cu.cuMemFree_v2(a));
	OK(cu.cuMemFree_v2(b));
	unpin(in, MB), unpin(out, MB);
	end();
}
END_TEST

START_TEST(test_source_is_read_when_the_copy_runs)
{
	/* Who writes to a buffer again before its copy has been seen complete gets the wrong bytes to the device, every time. */
	CUdeviceptr a;
	CUstream s;
	char *in, out[16];

	begin();
	in = pinned(4096);
	OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	memset(in, 'a', 16);
	cu.hold_streams(true);
	OK(cu.cuMemcpyHtoDAsync_v2(a, in, 16, s));
	ck_assert_int_eq(cu.cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	memset(in, 'b', 16);
	cu.hold_streams(false);
	OK(cu.cuStreamSynchronize(s));
	OK(cu.cuStreamQuery(s));
	OK(cu.cuMemcpyDtoH_v2(out, a, 16));
	ck_assert_int_eq(memcmp(out, "bbbbbbbbbbbbbbbb", 16), 0);
	OK(cu.cuStreamDestroy_v2(s));
	OK(cu.cuMemFree_v2(a));
	unpin(in, 4096);
	end();
}
END_TEST

START_TEST(test_unregistered_source_waits_and_is_counted)
{
	CUdeviceptr a;
	CUstream s;
	char in[64] = "pageable";

	begin();
	OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuMemcpyHtoDAsync_v2(a, in, sizeof in, s));
	OK(cu.cuStreamQuery(s)); /* done already: the call has waited */
	ck_assert_uint_eq(cu.counter("pageable"), 1);
	ck_assert_uint_eq(cu.counter("pageable-bytes"), sizeof in);
	OK(cu.cuStreamDestroy_v2(s));
	OK(cu.cuMemFree_v2(a));
	end();
}
END_TEST

START_TEST(test_registration_rules)
{
	char *p = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *ro = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr a;

	begin();
	ck_assert_int_eq(cu.cuMemHostRegister_v2(p, 0, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cu.cuMemHostRegister_v2(p, 4 * 4096, 0));
	ck_assert_int_eq(cu.cuMemHostRegister_v2(p + 3 * 4096, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	OK(cu.cuMemHostRegister_v2(p + 4 * 4096, 4096, 0));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuMemcpyHtoD_v2(a, p + 3 * 4096, 4096));
	VIOLATIONS(0);
	ck_assert_int_eq(cu.cuMemcpyHtoD_v2(a, p + 3 * 4096, 4097), CUDA_ERROR_INVALID_VALUE); /* straddles two registrations */
	VIOLATIONS(1);
	ck_assert_int_eq(cu.cuMemHostUnregister(p + 4096), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	VIOLATIONS(2);
	ck_assert_int_eq(cu.cuMemHostRegister_v2(ro, 4096, 0), CUDA_ERROR_INVALID_VALUE); /* not writable */
	OK(cu.cuMemHostRegister_v2(ro, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
	OK(cu.cuMemcpyHtoD_v2(a, ro, 4096));
	ck_assert_int_eq(cu.cuMemHostRegister_v2((void *)4096, 4096, 0), CUDA_ERROR_INVALID_VALUE); /* nothing there */
	OK(cu.cuMemHostUnregister(ro));
	OK(cu.cuMemHostUnregister(p));
	OK(cu.cuMemHostUnregister(p + 4 * 4096));
	OK(cu.cuMemFree_v2(a));
	end();
}
END_TEST

START_TEST(test_memory_runs_out)
{
	CUdeviceptr a, b;
	size_t left, total;

	setenv("FAKECUDA_MEMORY_MB", "510", 1);
	begin();
	OK(cu.cuMemGetInfo_v2(&left, &total));
	ck_assert_uint_eq(left, 10 * MB); /* a context takes 500 */
	ck_assert_int_eq(cu.cuMemAlloc_v2(&a, 10 * MB + 1), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cu.cuMemAlloc_v2(&a, 10 * MB));
	ck_assert_int_eq(cu.cuMemAlloc_v2(&b, 1), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cu.cuMemFree_v2(a));
	OK(cu.cuMemAlloc_v2(&b, 1));
	ck_assert_int_eq(cu.cuMemFree_v2(b + 1), CUDA_ERROR_INVALID_VALUE);
	VIOLATIONS(1);
	OK(cu.cuMemFree_v2(b));
	ck_assert_int_eq(cu.cuMemFree_v2(b), CUDA_ERROR_INVALID_VALUE);
	VIOLATIONS(2);
	end();
}
END_TEST

/* ---- streams and events ---- */

START_TEST(test_event_that_was_never_recorded_is_complete)
{
	CUevent e;
	CUstream s;

	begin();
	OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cu.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(cu.cuEventQuery(e));
	OK(cu.cuEventSynchronize(e));
	OK(cu.cuStreamWaitEvent(s, e, 0));
	OK(cu.cuStreamQuery(s)); /* waits for nothing */
	OK(cu.cuEventDestroy_v2(e));
	OK(cu.cuStreamDestroy_v2(s));
	end();
}
END_TEST

START_TEST(test_wait_means_the_record_of_that_moment)
{
	/* A wait on an event that is recorded again later does not wait for the later work. */
	CUdeviceptr a;
	CUstream one, two;
	CUevent e, done;

	begin();
	OK(cu.cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cu.cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	OK(cu.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(cu.cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuStreamWaitEvent(two, e, 0)); /* before any record: nothing */
	cu.hold_streams(true);
	OK(cu.cuMemsetD8Async(a, 1, 16, one));
	OK(cu.cuEventRecord(e, one));
	ck_assert_int_eq(cu.cuEventQuery(e), CUDA_ERROR_NOT_READY);
	OK(cu.cuEventRecord(done, two));
	ck_assert_int_eq(cu.cuEventQuery(done), CUDA_ERROR_NOT_READY);
	cu.hold_streams(false);
	OK(cu.cuEventSynchronize(done));
	OK(cu.cuEventSynchronize(e));
	OK(cu.cuEventQuery(e));
	OK(cu.cuEventDestroy_v2(e));
	OK(cu.cuEventDestroy_v2(done));
	OK(cu.cuStreamDestroy_v2(one));
	OK(cu.cuStreamDestroy_v2(two));
	OK(cu.cuMemFree_v2(a));
	end();
}
END_TEST

START_TEST(test_streams_wait_for_each_other)
{
	/* 200 times: a copy in one stream, work that depends on it in another; random delays make a missing wait show. */
	CUdeviceptr a, b;
	CUstream one, two;
	CUevent filled, used;
	uint32_t *in, *out;

	begin();
	in = pinned(4096), out = pinned(4096);
	OK(cu.cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cu.cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	OK(cu.cuEventCreate(&filled, CU_EVENT_DISABLE_TIMING));
	OK(cu.cuEventCreate(&used, CU_EVENT_DISABLE_TIMING));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuMemAlloc_v2(&b, SLAB));
	for (unsigned i = 0; i < 200; i++) {
		OK(cu.cuEventSynchronize(filled)); /* `in` is free again */
		in[0] = i;
		OK(cu.cuStreamWaitEvent(one, used, 0));
		OK(cu.cuMemcpyHtoDAsync_v2(a, in, 4, one));
		OK(cu.cuEventRecord(filled, one));
		OK(cu.cuStreamWaitEvent(two, filled, 0));
		OK(cu.cuMemcpyDtoDAsync_v2(b + 4 * i, a, 4, two));
		OK(cu.cuEventRecord(used, two));
	}
	OK(cu.cuMemcpyDtoHAsync_v2(out, b, 800, two));
	OK(cu.cuStreamSynchronize(two));
	for (unsigned i = 0; i < 200; i++)
		ck_assert_uint_eq(out[i], i);
	OK(cu.cuEventDestroy_v2(filled));
	OK(cu.cuEventDestroy_v2(used));
	OK(cu.cuStreamDestroy_v2(one));
	OK(cu.cuStreamDestroy_v2(two));
	OK(cu.cuMemFree_v2(a));
	OK(cu.cuMemFree_v2(b));
	unpin(in, 4096), unpin(out, 4096);
	VIOLATIONS(0);
	end();
}
END_TEST

START_TEST(test_default_stream_joins_blocking_streams)
{
	CUdeviceptr a;
	CUstream s;
	char out[16];

	begin();
	OK(cu.cuStreamCreate(&s, 0));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	for (int i = 0; i < 20; i++) {
		OK(cu.cuMemsetD8Async(a, (unsigned char)i, 16, s));
		OK(cu.cuMemcpyDtoH_v2(out, a, 16)); /* in the default stream */
		ck_assert_int_eq(out[15], i);
		OK(cu.cuMemsetD8Async(a, 99, 16, NULL));
	}
	OK(cu.cuStreamDestroy_v2(s));
	OK(cu.cuMemFree_v2(a));
	end();
}
END_TEST

static void on_host_call(void *arg)
{
	*(CUresult *)arg = cu.cuCtxSynchronize();
}

START_TEST(test_host_function_must_not_call_cuda)
{
	CUresult inside = CUDA_SUCCESS;
	CUstream s;

	begin();
	OK(cu.cuStreamCreate(&s, 0));
	OK(cu.cuLaunchHostFunc(s, on_host_call, &inside));
	OK(cu.cuStreamSynchronize(s));
	ck_assert_int_eq(inside, CUDA_ERROR_NOT_PERMITTED);
	VIOLATIONS(1);
	OK(cu.cuStreamDestroy_v2(s));
	end();
}
END_TEST

START_TEST(test_kernel_runs_in_stream_order)
{
	static const char ptx[] = ".version 7.0\n.target sm_50\n";
	uint32_t add = 5, n = 64, *out;
	CUdeviceptr a, b;
	CUfunction f;
	CUmodule m;
	CUstream s;

	begin();
	out = pinned(4096);
	OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuMemAlloc_v2(&b, SLAB));
	ck_assert_int_eq(cu.cuModuleLoadData(&m, "what is this"), CUDA_ERROR_INVALID_IMAGE);
	OK(cu.cuModuleLoadData(&m, ptx));
	ck_assert_int_eq(cu.cuModuleGetFunction(&f, m, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
	OK(cu.cuModuleGetFunction(&f, m, "conformance_add"));
	OK(cu.cuMemsetD32Async(a, 37, n, s));
	OK(cu.cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, s, (void *[]){ &b, &a, &add, &n }, NULL));
	add = 1000; /* parameters are taken at the call */
	OK(cu.cuMemcpyDtoHAsync_v2(out, b, n * 4, s));
	OK(cu.cuStreamSynchronize(s));
	for (uint32_t i = 0; i < n; i++)
		ck_assert_uint_eq(out[i], 42);
	ck_assert_int_eq(cu.cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, s, (void *[]){ &b, &a, &add, &n }, NULL), CUDA_ERROR_INVALID_VALUE);
	VIOLATIONS(0);
	n = SLAB; /* four times what is there */
	OK(cu.cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, s, (void *[]){ &b, &a, &add, &n }, NULL));
	ck_assert_int_eq(cu.cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(cu.cuMemcpyDtoHAsync_v2(out, b, 4, s), CUDA_ERROR_ILLEGAL_ADDRESS); /* for good */
	ck_assert_uint_gt(cu.counter("violations"), 0);
}
END_TEST

/* ---- who may call ---- */

static void *call_without_context(void *arg)
{
	CUdeviceptr ptr;

	*(CUresult *)arg = cu.cuMemAlloc_v2(&ptr, SLAB);
	return NULL;
}

static void *call_forbidden(void *arg)
{
	int n;

	cu.forbid_thread();
	*(CUresult *)arg = cu.cuDeviceGetCount(&n);
	return NULL;
}

START_TEST(test_calls_from_wrong_threads_are_reported)
{
	CUresult r;
	pthread_t t;

	begin();
	ck_assert_int_eq(pthread_create(&t, NULL, call_without_context, &r), 0);
	pthread_join(t, NULL);
	ck_assert_int_eq(r, CUDA_ERROR_INVALID_CONTEXT);
	VIOLATIONS(1);
	ck_assert_int_eq(pthread_create(&t, NULL, call_forbidden, &r), 0);
	pthread_join(t, NULL);
	ck_assert_int_eq(r, CUDA_ERROR_NOT_PERMITTED);
	VIOLATIONS(2);
	end();
}
END_TEST

START_TEST(test_calls_after_fork_are_reported)
{
	CUdeviceptr a;
	pid_t child;
	int status;

	begin();
	child = fork();
	if (!child) {
		int bad = cu.cuMemAlloc_v2(&a, SLAB) != CUDA_ERROR_NOT_INITIALIZED || cu.counter("violations") != 1;
		_exit(bad);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	end();
}
END_TEST

START_TEST(test_main_thread_is_forbidden_by_environment)
{
	setenv("FAKECUDA_FORBID_THREADS", "main", 1);
	setenv("FAKECUDA_QUIET", "1", 1);
	load();
	ck_assert_int_eq(cu.cuInit(0), CUDA_ERROR_NOT_PERMITTED);
	VIOLATIONS(1);
}
END_TEST

START_TEST(test_calls_before_init_fail)
{
	int n;

	setenv("FAKECUDA_QUIET", "1", 1);
	load();
	ck_assert_int_eq(cu.cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	VIOLATIONS(1);
}
END_TEST

/* ---- errors to order ---- */

START_TEST(test_injected_errors)
{
	CUdeviceptr a;
	CUstream s;

	begin();
	ck_assert(!cu.inject("cuMemAlloc=2"));
	ck_assert(!cu.inject("cuMemAlloc:0=2"));
	ck_assert(cu.inject("cuMemAlloc:2=2,cuStreamCreate:2+=304"));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	ck_assert_int_eq(cu.cuMemAlloc_v2(&a, SLAB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cu.cuMemFree_v2(a));
	OK(cu.cuStreamCreate(&s, 0));
	OK(cu.cuStreamDestroy_v2(s));
	ck_assert_int_eq(cu.cuStreamCreate(&s, 0), CUDA_ERROR_OPERATING_SYSTEM);
	ck_assert_int_eq(cu.cuStreamCreate(&s, 0), CUDA_ERROR_OPERATING_SYSTEM);
	ck_assert_uint_eq(cu.counter("injected"), 3);
	cu.inject(NULL);
	OK(cu.cuStreamCreate(&s, 0));
	OK(cu.cuStreamDestroy_v2(s));
	end();
}
END_TEST

START_TEST(test_error_while_work_runs_is_sticky)
{
	CUdeviceptr a;
	CUevent e;
	CUstream s;

	begin();
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cu.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	ck_assert(cu.inject("run:1=719"));
	cu.hold_streams(true);
	OK(cu.cuMemsetD8Async(a, 1, 100, s));
	OK(cu.cuEventRecord(e, s));
	cu.hold_streams(false);
	ck_assert_int_eq(cu.cuEventSynchronize(e), CUDA_ERROR_LAUNCH_FAILED);
	ck_assert_int_eq(cu.cuEventQuery(e), CUDA_ERROR_LAUNCH_FAILED);
	ck_assert_int_eq(cu.cuMemFree_v2(a), CUDA_ERROR_LAUNCH_FAILED);
}
END_TEST

START_TEST(test_control_file_reaches_a_running_process)
{
	char path[] = "/tmp/fakecuda-control-XXXXXX";
	int fd = mkstemp(path);
	CUdeviceptr a;

	ck_assert_int_ge(fd, 0);
	setenv("FAKECUDA_CONTROL", path, 1);
	begin();
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuMemFree_v2(a));
	ck_assert_int_eq(write(fd, "cuMemAlloc:1=2", 14), 14);
	ck_assert_int_eq(futimens(fd, (struct timespec[]){ { 12345, 0 }, { 12345, 0 } }), 0); /* a clock tick may be long */
	ck_assert_int_eq(cu.cuMemAlloc_v2(&a, SLAB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuMemFree_v2(a));
	close(fd);
	unlink(path);
	end();
}
END_TEST

/* ---- personalities ---- */

START_TEST(test_personalities)
{
	static const struct { const char *name; CUresult init; } of_init[] = { { "no-device", CUDA_ERROR_NO_DEVICE },
		{ "mismatch", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH }, { "broken", CUDA_ERROR_UNKNOWN } };

	setenv("FAKECUDA_PERSONALITY", of_init[_i].name, 1);
	setenv("FAKECUDA_QUIET", "1", 1);
	load();
	ck_assert_int_eq(cu.cuInit(0), of_init[_i].init);
}
END_TEST

START_TEST(test_two_gpus_and_visible_devices)
{
	CUuuid both[2], one;
	int n;

	setenv("FAKECUDA_PERSONALITY", "two-gpus", 1);
	if (_i)
		setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	load();
	OK(cu.cuInit(0));
	OK(cu.cuDeviceGetCount(&n));
	ck_assert_int_eq(n, _i ? 1 : 2);
	for (int i = 0; i < n; i++)
		OK(cu.cuDeviceGetUuid_v2(&both[i], i));
	ck_assert_int_eq(cu.cuDeviceGetUuid_v2(&one, n), CUDA_ERROR_INVALID_DEVICE);
	if (!_i)
		ck_assert_int_ne(memcmp(&both[0], &both[1], 16), 0);
}
END_TEST

START_TEST(test_old_driver_lacks_young_names)
{
	load_named("libfakecuda-old.so");
	ck_assert_ptr_null(dlsym(cu.library, "cuDeviceGetUuid_v2"));
	ck_assert_ptr_nonnull(dlsym(cu.library, "cuDeviceGetUuid"));
}
END_TEST

START_TEST(test_symbols_by_version)
{
	void *fn;
	int status;

	setenv("FAKECUDA_QUIET", "1", 1);
	load();
	OK(cu.cuGetProcAddress_v2("cuMemAlloc", &fn, 13000, 0, &status));
	ck_assert_ptr_eq(fn, (void *)cu.cuMemAlloc_v2);
	OK(cu.cuGetProcAddress_v2("cuCtxCreate", &fn, 12000, 0, &status));
	ck_assert_ptr_eq(fn, (void *)cu.cuCtxCreate_v2);
	OK(cu.cuGetProcAddress_v2("cuCtxCreate", &fn, 13000, 0, &status));
	ck_assert_ptr_eq(fn, (void *)cu.cuCtxCreate_v4);
	OK(cu.cuGetProcAddress_v2("cuNoSuchThing", &fn, 13000, 0, &status));
	ck_assert_int_eq(status, 1);
	ck_assert_ptr_null(fn);
	CUresult (*old)(CUdeviceptr *, unsigned);
	find(&old, "cuMemAlloc");
	ck_assert_int_ne(old(&(CUdeviceptr){ 0 }, 4096), CUDA_SUCCESS);
	VIOLATIONS(1);
}
END_TEST

/* ---- between processes ---- */

/* Two processes, joined by a socket; the child's part returns its exit status. Neither has loaded anything before. */
static int line_fd;

static void tell(const void *data, size_t n)
{
	ck_assert_int_eq(write(line_fd, data, n), (ssize_t)n);
}

static void hear(void *data, size_t n)
{
	ck_assert_int_eq(recv(line_fd, data, n, MSG_WAITALL), (ssize_t)n);
}

static pid_t two(void (*child)(void))
{
	int fds[2];
	pid_t pid;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	pid = fork();
	if (!pid) {
		close(fds[0]);
		line_fd = fds[1];
		child();
		exit(0);
	}
	close(fds[1]);
	line_fd = fds[0];
	return pid;
}

static void reap(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0, "the other process ended with status %#x", status);
}

/* Says its slab's handle and address, fills it, and goes on when told. */
static void exporter(void)
{
	CUipcMemHandle handle;
	CUdeviceptr a;
	char go;

	begin();
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuMemsetD32_v2(a, 0x12345678, SLAB / 4));
	OK(cu.cuCtxSynchronize());
	OK(cu.cuIpcGetMemHandle(&handle, a));
	ck_assert_int_eq(cu.cuIpcGetMemHandle(&handle, a + 4096), CUDA_ERROR_INVALID_VALUE);
	OK(cu.cuIpcGetMemHandle(&handle, a));
	tell(&handle, sizeof handle);
	tell(&a, sizeof a);
	hear(&go, 1);
	if (go == 'v') { /* frees it although the other has it open */
		OK(cu.cuMemFree_v2(a));
		VIOLATIONS(1);
		tell("f", 1);
		hear(&go, 1);
	} else {
		OK(cu.cuMemFree_v2(a));
		VIOLATIONS(0);
	}
	end();
}

START_TEST(test_ipc_memory_opens_elsewhere)
{
	pid_t other = two(exporter);
	CUdeviceptr theirs, mine, again;
	CUipcMemHandle handle;
	uint32_t out[4];

	begin();
	hear(&handle, sizeof handle);
	hear(&theirs, sizeof theirs);
	ck_assert_int_eq(cu.cuIpcOpenMemHandle_v2(&mine, handle, 0), CUDA_ERROR_INVALID_VALUE); /* flags */
	VIOLATIONS(1);
	OK(cu.cuIpcOpenMemHandle_v2(&mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_assert_uint_ne(mine, theirs);
	OK(cu.cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_assert_uint_eq(again, mine);
	OK(cu.cuMemcpyDtoH_v2(out, mine + SLAB - 16, 16));
	ck_assert_uint_eq(out[3], 0x12345678);
	OK(cu.cuIpcCloseMemHandle(mine));
	OK(cu.cuMemcpyDtoH_v2(out, mine, 16)); /* still open once */
	OK(cu.cuIpcCloseMemHandle(mine));
	ck_assert_int_eq(cu.cuIpcCloseMemHandle(mine), CUDA_ERROR_INVALID_VALUE);
	VIOLATIONS(2);
	tell("x", 1);
	reap(other);
	ck_assert_int_ne(cu.cuIpcOpenMemHandle_v2(&mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS); /* gone with its owner */
	end();
}
END_TEST

START_TEST(test_ipc_memory_does_not_open_at_home)
{
	CUipcMemHandle handle;
	CUdeviceptr a, b;

	begin();
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuIpcGetMemHandle(&handle, a));
	ck_assert_int_eq(cu.cuIpcOpenMemHandle_v2(&b, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
	OK(cu.cuMemFree_v2(a));
	end();
}
END_TEST

START_TEST(test_ipc_free_while_open_is_reported)
{
	pid_t other = two(exporter);
	CUdeviceptr theirs, mine;
	CUipcMemHandle handle;
	char out[4];

	begin();
	hear(&handle, sizeof handle);
	hear(&theirs, sizeof theirs);
	OK(cu.cuIpcOpenMemHandle_v2(&mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	tell("v", 1);
	hear(out, 1);
	OK(cu.cuMemcpyDtoH_v2(out, mine, 4));
	VIOLATIONS(1); /* of using it; the other has one of freeing it */
	OK(cu.cuIpcCloseMemHandle(mine));
	tell("x", 1);
	reap(other);
	end();
}
END_TEST

/* What may keep a handle from opening: another PID namespace, another user, MIG, no IPC at all; the other side sees nothing of it. */
START_TEST(test_ipc_refused)
{
	static const struct { const char *name, *value; CUresult expected; } of[] = { { "FAKECUDA_PIDNS", "17", CUDA_ERROR_INVALID_HANDLE },
		{ "FAKECUDA_EUID", "4711", CUDA_ERROR_INVALID_HANDLE }, { "FAKECUDA_MIG", "1g", CUDA_ERROR_INVALID_HANDLE },
		{ "FAKECUDA_PERSONALITY", "no-ipc", CUDA_ERROR_NOT_SUPPORTED } };
	pid_t other = two(exporter);
	CUdeviceptr theirs, mine;
	CUipcMemHandle handle;

	setenv(of[_i].name, of[_i].value, 1);
	begin();
	hear(&handle, sizeof handle);
	hear(&theirs, sizeof theirs);
	ck_assert_int_eq(cu.cuIpcOpenMemHandle_v2(&mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), of[_i].expected);
	VIOLATIONS(0);
	tell("x", 1);
	reap(other);
	end();
}
END_TEST

START_TEST(test_ipc_exporter_killed)
{
	/* What was open stays readable and is counted; with "dead-exporter-fails" it ends the importer's GPU work instead. */
	pid_t other = two(exporter);
	CUdeviceptr theirs, mine;
	CUipcMemHandle handle;
	uint32_t out;

	if (_i)
		setenv("FAKECUDA_PERSONALITY", "dead-exporter-fails", 1);
	begin();
	hear(&handle, sizeof handle);
	hear(&theirs, sizeof theirs);
	OK(cu.cuIpcOpenMemHandle_v2(&mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	if (_i) {
		ck_assert_int_eq(cu.cuMemcpyDtoH_v2(&out, mine, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
		return;
	}
	OK(cu.cuMemcpyDtoH_v2(&out, mine, 4));
	ck_assert_uint_eq(out, 0x12345678);
	ck_assert_uint_eq(cu.counter("reads-after-exporter-died"), 1);
	OK(cu.cuIpcCloseMemHandle(mine));
	end();
}
END_TEST

static void small_exporter(void)
{
	CUipcMemHandle handle;
	CUdeviceptr a;
	char go;

	begin();
	OK(cu.cuMemAlloc_v2(&a, 4096));
	OK(cu.cuMemsetD8_v2(a, 7, 4096));
	OK(cu.cuCtxSynchronize());
	OK(cu.cuIpcGetMemHandle(&handle, a));
	tell(&handle, sizeof handle);
	hear(&go, 1);
	OK(cu.cuMemFree_v2(a));
	end();
}

START_TEST(test_ipc_of_a_small_piece_opens_the_whole_block)
{
	pid_t other = two(small_exporter);
	CUipcMemHandle handle;
	CUdeviceptr mine;
	char out[4096];

	begin();
	hear(&handle, sizeof handle);
	OK(cu.cuIpcOpenMemHandle_v2(&mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cu.cuMemcpyDtoH_v2(out, mine, sizeof out));
	ck_assert_int_ne(out[0], 7); /* not where the piece begins: allocate multiples of 2 MiB */
	OK(cu.cuIpcCloseMemHandle(mine));
	tell("x", 1);
	reap(other);
	end();
}
END_TEST

/* Records an interprocess event after slow work, then says so. */
static void event_exporter(void)
{
	CUipcEventHandle handle;
	CUdeviceptr a;
	CUevent e;
	CUstream s;
	char go;

	setenv("FAKECUDA_DELAY_US", "20000", 1);
	begin();
	ck_assert_int_eq(cu.cuEventCreate(&e, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
	OK(cu.cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuIpcGetEventHandle(&handle, e));
	tell(&handle, sizeof handle);
	hear(&go, 1);
	cu.hold_streams(true);
	OK(cu.cuMemsetD8Async(a, 1, SLAB, s));
	OK(cu.cuEventRecord(e, s));
	tell("r", 1);
	hear(&go, 1);
	cu.hold_streams(false);
	OK(cu.cuEventSynchronize(e));
	hear(&go, 1);
	OK(cu.cuEventDestroy_v2(e));
	OK(cu.cuStreamDestroy_v2(s));
	OK(cu.cuMemFree_v2(a));
	end();
}

START_TEST(test_ipc_event)
{
	pid_t other = two(event_exporter);
	CUipcEventHandle handle;
	CUevent e;
	CUstream s;
	char c;

	begin();
	hear(&handle, sizeof handle);
	OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cu.cuIpcOpenEventHandle(&e, handle));
	OK(cu.cuEventQuery(e)); /* never recorded */
	tell("x", 1);
	hear(&c, 1);
	ck_assert_int_eq(cu.cuEventQuery(e), CUDA_ERROR_NOT_READY);
	OK(cu.cuStreamWaitEvent(s, e, 0));
	ck_assert_int_eq(cu.cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	tell("x", 1);
	OK(cu.cuStreamSynchronize(s));
	OK(cu.cuEventQuery(e));
	tell("x", 1);
	reap(other);
	OK(cu.cuEventDestroy_v2(e));
	OK(cu.cuStreamDestroy_v2(s));
	end();
}
END_TEST

static CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };

static CUdeviceptr vmm_map(CUmemGenericAllocationHandle h, int flags)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, flags };
	CUdeviceptr a;

	OK(cu.cuMemAddressReserve(&a, SLAB, 0, 0, 0));
	OK(cu.cuMemMap(a, SLAB, 0, h, 0));
	OK(cu.cuMemSetAccess(a, SLAB, &access, 1));
	return a;
}

static void vmm_exporter(void)
{
	CUmemGenericAllocationHandle h;
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	CUipcMemHandle legacy;
	CUdeviceptr a;
	int fd;

	begin();
	ck_assert_int_eq(cu.cuMemCreate(&h, 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE); /* granularity */
	OK(cu.cuMemCreate(&h, SLAB, &prop, 0));
	a = vmm_map(h, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ck_assert_int_eq(cu.cuIpcGetMemHandle(&legacy, a), CUDA_ERROR_INVALID_VALUE);
	OK(cu.cuMemsetD8_v2(a, 42, SLAB));
	OK(cu.cuCtxSynchronize());
	OK(cu.cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	ck_assert_int_eq(sendmsg(line_fd, &m, 0), 1);
	_exit(0); /* a crash: the memory lives on with the descriptor */
}

START_TEST(test_vmm_memory_by_descriptor)
{
	pid_t other = two(vmm_exporter);
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte, out[16];
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	CUmemGenericAllocationHandle h;
	CUdeviceptr a;
	int fd;

	begin();
	ck_assert_int_eq(recvmsg(line_fd, &m, 0), 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	reap(other);
	OK(cu.cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	a = vmm_map(h, CU_MEM_ACCESS_FLAGS_PROT_READ);
	OK(cu.cuMemRelease(h));
	OK(cu.cuMemcpyDtoH_v2(out, a, 16));
	ck_assert_int_eq(out[15], 42);
	ck_assert_int_ne(cu.cuMemsetD8_v2(a, 1, 16), CUDA_SUCCESS); /* mapped for reading */
	VIOLATIONS(1);
	OK(cu.cuMemUnmap(a, SLAB));
	OK(cu.cuMemAddressFree(a, SLAB));
	end();
}
END_TEST

/* Holds a context until told. */
static void context_holder(void)
{
	char go;

	begin();
	tell("c", 1);
	hear(&go, 1);
	end();
}

START_TEST(test_exclusive_and_shared_memory_budget)
{
	/* With a common folder: memory runs out for all, and in exclusive mode the second process gets no context; a dead process holds nothing. */
	char dir[] = "/tmp/fakecuda-XXXXXX", path[64], c;
	CUcontext ctx;
	pid_t other;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	setenv("FAKECUDA_DIR", dir, 1);
	setenv("FAKECUDA_PERSONALITY", _i ? "exclusive" : "", 1);
	setenv("FAKECUDA_MEMORY_MB", _i ? "4000" : "900", 1);
	other = two(context_holder);
	hear(&c, 1);
	setenv("FAKECUDA_QUIET", "1", 1);
	load();
	OK(cu.cuInit(0));
	ck_assert_int_eq(cu.cuDevicePrimaryCtxRetain(&ctx, 0), _i ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_OUT_OF_MEMORY);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	OK(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cu.cuDevicePrimaryCtxRelease_v2(0));
	snprintf(path, sizeof path, "%s/gpu0", dir);
	unlink(path);
	ck_assert_int_eq(rmdir(dir), 0); /* that was all */
}
END_TEST

/* Leaves things behind. */
static void leaker(void)
{
	CUdeviceptr a;
	CUstream s;

	begin();
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuStreamCreate(&s, 0));
	cu.cuMemFree_v2(a + 1);
}

START_TEST(test_report_lists_violations_and_leaks)
{
	char path[64], name[128], text[4096];
	pid_t other;
	size_t n;
	FILE *f;

	snprintf(path, sizeof path, "/tmp/fakecuda-report-%d", getpid());
	setenv("FAKECUDA_REPORT", path, 1);
	other = two(leaker);
	reap(other);
	snprintf(name, sizeof name, "%s.%d", path, other);
	f = fopen(name, "r");
	ck_assert_msg(f, "%s: %s", name, strerror(errno));
	n = fread(text, 1, sizeof text - 1, f);
	text[n] = '\0';
	fclose(f);
	unlink(name);
	ck_assert_msg(strstr(text, "violation cuMemFree"), "%s", text);
	ck_assert_msg(strstr(text, "leak memory of 4194304 bytes"), "%s", text);
	ck_assert_msg(strstr(text, "leak 1 stream\n"), "%s", text);
	ck_assert_msg(strstr(text, "leak 1 context\n"), "%s", text);
	ck_assert_msg(strstr(text, "call cuMemAlloc 1\n"), "%s", text);
	ck_assert_msg(strstr(text, "end 1 violations, 3 leaks\n"), "%s", text);
}
END_TEST

/* ---- several threads ---- */

static CUcontext shared_context;

static void *worker(void *arg)
{
	unsigned char *host;
	CUdeviceptr a;
	CUstream s;
	CUevent e;

	OK(cu.cuCtxSetCurrent(shared_context));
	OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cu.cuEventCreate(&e, 0));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	host = pinned(4096);
	for (int i = 0; i < 50; i++) {
		memset(host, i + *(int *)arg, 4096);
		OK(cu.cuMemcpyHtoDAsync_v2(a, host, 4096, s));
		OK(cu.cuEventRecord(e, s));
		OK(cu.cuEventSynchronize(e));
		memset(host, 0, 4096);
		OK(cu.cuMemcpyDtoHAsync_v2(host, a, 4096, s));
		OK(cu.cuStreamSynchronize(s));
		ck_assert_uint_eq(host[4095], (unsigned char)(i + *(int *)arg));
	}
	unpin(host, 4096);
	OK(cu.cuMemFree_v2(a));
	OK(cu.cuEventDestroy_v2(e));
	OK(cu.cuStreamDestroy_v2(s));
	return NULL;
}

START_TEST(test_many_threads)
{
	int seeds[4] = { 1, 40, 80, 120 };
	pthread_t t[4];

	setenv("FAKECUDA_DELAY_US", "100", 1);
	shared_context = begin();
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, worker, &seeds[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	VIOLATIONS(0);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fakecuda");
	TCase *t;

	t = tcase_create("memory");
	tcase_add_test(t, test_device_pointer_traps_on_host_access);
	tcase_add_test(t, test_copies_there_and_back);
	tcase_add_test(t, test_source_is_read_when_the_copy_runs);
	tcase_add_test(t, test_unregistered_source_waits_and_is_counted);
	tcase_add_test(t, test_registration_rules);
	tcase_add_test(t, test_memory_runs_out);
	suite_add_tcase(s, t);
	t = tcase_create("streams");
	tcase_add_test(t, test_event_that_was_never_recorded_is_complete);
	tcase_add_test(t, test_wait_means_the_record_of_that_moment);
	tcase_add_test(t, test_streams_wait_for_each_other);
	tcase_add_test(t, test_default_stream_joins_blocking_streams);
	tcase_add_test(t, test_host_function_must_not_call_cuda);
	tcase_add_test(t, test_kernel_runs_in_stream_order);
	tcase_add_test(t, test_many_threads);
	suite_add_tcase(s, t);
	t = tcase_create("who may call");
	tcase_add_test(t, test_calls_from_wrong_threads_are_reported);
	tcase_add_test(t, test_calls_after_fork_are_reported);
	tcase_add_test(t, test_main_thread_is_forbidden_by_environment);
	tcase_add_test(t, test_calls_before_init_fail);
	suite_add_tcase(s, t);
	t = tcase_create("errors");
	tcase_add_test(t, test_injected_errors);
	tcase_add_test(t, test_error_while_work_runs_is_sticky);
	tcase_add_test(t, test_control_file_reaches_a_running_process);
	tcase_add_test(t, test_report_lists_violations_and_leaks);
	suite_add_tcase(s, t);
	t = tcase_create("personalities");
	tcase_add_loop_test(t, test_personalities, 0, 3);
	tcase_add_loop_test(t, test_two_gpus_and_visible_devices, 0, 2);
	tcase_add_test(t, test_old_driver_lacks_young_names);
	tcase_add_test(t, test_symbols_by_version);
	suite_add_tcase(s, t);
	t = tcase_create("processes");
	tcase_add_test(t, test_ipc_memory_opens_elsewhere);
	tcase_add_test(t, test_ipc_memory_does_not_open_at_home);
	tcase_add_test(t, test_ipc_free_while_open_is_reported);
	tcase_add_loop_test(t, test_ipc_refused, 0, 4);
	tcase_add_loop_test(t, test_ipc_exporter_killed, 0, 2);
	tcase_add_test(t, test_ipc_of_a_small_piece_opens_the_whole_block);
	tcase_add_test(t, test_ipc_event);
	tcase_add_test(t, test_vmm_memory_by_descriptor);
	tcase_add_loop_test(t, test_exclusive_and_shared_memory_budget, 0, 2);
	suite_add_tcase(s, t);
	return suite_run(s);
}
