/* Tests of the fake driver itself: whether it enforces its rules. Every test runs in a process of its own (Check
 * forks), which loads the library as batchd does. Tests that need two processes are in test_fakecuda_ipc.c. */
#include "support/fakecuda-suite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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
	/* A program that dereferences a device pointer on the host must trap. */
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
	/* A program that writes to a buffer again before it has seen the copy complete sends the wrong bytes to the
	 * device, every time. */
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
	OK(cu.cuStreamQuery(s)); /* already complete: the call has waited */
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

	setenv("FAKECUDA_PERSONALITY", "read-only-register", 1);
	begin();
	ck_assert_int_eq(cu.cuMemHostRegister_v2(p, 0, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cu.cuMemHostRegister_v2(p, 4 * 4096, 0));
	ck_assert_int_eq(cu.cuMemHostRegister_v2(p + 3 * 4096, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	OK(cu.cuMemHostRegister_v2(p + 4 * 4096, 4096, 0));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuMemcpyHtoD_v2(a, p + 3 * 4096, 4096));
	VIOLATIONS(0);
	/* straddles two registrations */
	ck_assert_int_eq(cu.cuMemcpyHtoD_v2(a, p + 3 * 4096, 4097), CUDA_ERROR_INVALID_VALUE);
	VIOLATIONS(1);
	ck_assert_int_eq(cu.cuMemHostUnregister(p + 4096), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	VIOLATIONS(2);
	ck_assert_int_eq(cu.cuMemHostRegister_v2(ro, 4096, 0), CUDA_ERROR_INVALID_VALUE); /* not writable */
	OK(cu.cuMemHostRegister_v2(ro, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
	OK(cu.cuMemcpyHtoD_v2(a, ro, 4096));
	ck_assert_int_eq(cu.cuMemHostRegister_v2((void *)4096, 4096, 0), CUDA_ERROR_INVALID_VALUE); /* nothing is mapped
	                                                                                             * there */
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
	/* A wait for an event that is recorded again later does not wait for the later work. */
	CUdeviceptr a;
	CUstream one, two;
	CUevent e, done;

	begin();
	OK(cu.cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cu.cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	OK(cu.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(cu.cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuStreamWaitEvent(two, e, 0)); /* before any record: waits for nothing */
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
	/* 200 times: a copy in one stream, work that depends on it in another; random delays make a missing wait show.
	 */
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
	static const char ptx[] = ".version 7.0\n.target sm_50\n", newer[] = ".version 9.1\n.target sm_75\n";
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
	ck_assert_int_eq(cu.cuModuleLoadData(&m, newer), CUDA_ERROR_UNSUPPORTED_PTX_VERSION); /* this is CUDA 13.0 */
	OK(cu.cuModuleLoadData(&m, ptx));
	ck_assert_int_eq(cu.cuModuleGetFunction(&f, m, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
	OK(cu.cuModuleGetFunction(&f, m, "conformance_add"));
	OK(cu.cuMemsetD32Async(a, 37, n, s));
	OK(cu.cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, s, (void *[]){ &b, &a, &add, &n }, NULL));
	add = 1000; /* parameters are copied during the call */
	OK(cu.cuMemcpyDtoHAsync_v2(out, b, n * 4, s));
	OK(cu.cuStreamSynchronize(s));
	for (uint32_t i = 0; i < n; i++)
		ck_assert_uint_eq(out[i], 42);
	ck_assert_int_eq(cu.cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, s, (void *[]){ &b, &a, &add, &n }, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	VIOLATIONS(0);
	n = SLAB; /* four times the size of the memory */
	OK(cu.cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, s, (void *[]){ &b, &a, &add, &n }, NULL));
	ck_assert_int_eq(cu.cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(cu.cuMemcpyDtoHAsync_v2(out, b, 4, s), CUDA_ERROR_ILLEGAL_ADDRESS); /* the error stays */
	ck_assert_uint_gt(cu.counter("violations"), 0);
}
END_TEST

/* ---- which threads may call ---- */

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

/* ---- capture ---- */

START_TEST(test_capture_holds_work_back_and_is_spoilt_by_what_it_forbids)
{
	CUdeviceptr a;
	CUstream s;
	CUevent before, within;
	CUgraph graph;
	int status;

	begin();
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cu.cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
	OK(cu.cuEventCreate(&within, CU_EVENT_DISABLE_TIMING));
	OK(cu.cuMemsetD8Async(a, 1, SLAB, s));
	OK(cu.cuEventRecord(before, s));
	OK(cu.cuStreamSynchronize(s));
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuMemsetD8Async(a, 2, SLAB, s));
	OK(cu.cuEventRecord(within, s));
	OK(cu.cuStreamEndCapture(s, &graph));
	ck_assert_ptr_nonnull(graph);
	OK(cu.cuGraphDestroy(graph));
	char byte = 0;
	OK(cu.cuMemcpyDtoH_v2(&byte, a, 1));
	ck_assert_int_eq(byte, 1);
	ck_assert_int_eq(cu.cuEventQuery(within), CUDA_ERROR_CAPTURED_EVENT);
	for (int i = 0; i < 3; i++) {
		CUdeviceptr more;

		OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		ck_assert_int_eq(i == 0   ? cu.cuMemAlloc_v2(&more, SLAB)
				 : i == 1 ? cu.cuStreamWaitEvent(s, before, 0)
					  : cu.cuEventQuery(before),
				 i == 1 ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		OK(cu.cuStreamIsCapturing(s, &status));
		ck_assert_int_eq(status, 2);
		ck_assert_int_eq(cu.cuMemsetD8Async(a, 3, SLAB, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		ck_assert_int_eq(cu.cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		ck_assert_ptr_null(graph);
	}
	OK(cu.cuEventDestroy_v2(before));
	OK(cu.cuEventDestroy_v2(within));
	OK(cu.cuStreamDestroy_v2(s));
	OK(cu.cuMemFree_v2(a));
	end();
}
END_TEST

static void *look_at_own_stream(void *arg)
{
	CUcontext *ctx = arg;

	cu.cuCtxSetCurrent(*ctx);
	return (void *)(intptr_t)cu.cuStreamQuery(CU_STREAM_PER_THREAD);
}

START_TEST(test_each_thread_has_a_default_stream_of_its_own)
{
	CUcontext ctx;
	CUdeviceptr a;
	pthread_t thread;
	void *r;

	begin();
	OK(cu.cuCtxGetCurrent(&ctx));
	OK(cu.cuMemAlloc_v2(&a, SLAB));
	cu.hold_streams(true);
	OK(cu.cuMemsetD8Async(a, 1, SLAB, CU_STREAM_PER_THREAD));
	ck_assert_int_eq(cu.cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
	pthread_create(&thread, NULL, look_at_own_stream, &ctx);
	pthread_join(thread, &r);
	ck_assert_int_eq((int)(intptr_t)r, CUDA_SUCCESS);
	cu.hold_streams(false);
	OK(cu.cuMemFree_v2(a));
	end();
}
END_TEST

/* ---- injected errors ---- */

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
	/* a clock tick may be long */
	ck_assert_int_eq(futimens(fd, (struct timespec[]){ { 12345, 0 }, { 12345, 0 } }), 0);
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
	static const struct {
		const char *name;
		CUresult init;
	} of_init[] = { { "no-device", CUDA_ERROR_NO_DEVICE },
			{ "mismatch", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH },
			{ "broken", CUDA_ERROR_UNKNOWN } };

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

SUITE(fakecuda)
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
	tcase_add_test(t, test_capture_holds_work_back_and_is_spoilt_by_what_it_forbids);
	tcase_add_test(t, test_each_thread_has_a_default_stream_of_its_own);
	tcase_add_test(t, test_injected_errors);
	tcase_add_test(t, test_error_while_work_runs_is_sticky);
	tcase_add_test(t, test_control_file_reaches_a_running_process);
	suite_add_tcase(s, t);
	t = tcase_create("personalities");
	tcase_add_loop_test(t, test_personalities, 0, 3);
	tcase_add_loop_test(t, test_two_gpus_and_visible_devices, 0, 2);
	tcase_add_test(t, test_old_driver_lacks_young_names);
	tcase_add_test(t, test_symbols_by_version);
	suite_add_tcase(s, t);
	return s;
}
