/* The fake driver between processes: memory and events by handle, memory by descriptor, with dying processes and
 * processes without permission. */
#include "support/fakecuda-suite.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Two processes, joined by a socket; the child's part returns its exit status. Neither has loaded the library
 * before. */
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

/* Sends its slab's handle and address, fills it, and continues when told. */
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
	if (go == 'v') { /* frees it although the other process has it open */
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
	/* gone with its owner */
	ck_assert_int_ne(cu.cuIpcOpenMemHandle_v2(&mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
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
	ck_assert_int_eq(cu.cuIpcOpenMemHandle_v2(&b, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
			 CUDA_ERROR_INVALID_CONTEXT);
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
	VIOLATIONS(1); /* of using it; the other process has a violation of freeing it */
	OK(cu.cuIpcCloseMemHandle(mine));
	tell("x", 1);
	reap(other);
	end();
}
END_TEST

/* Reasons for a handle not to open: another PID namespace, another user, MIG, no IPC at all; the other side does not
 * notice. */
START_TEST(test_ipc_refused)
{
	static const struct {
		const char *name, *value;
		CUresult expected;
	} of[] = { { "FAKECUDA_PIDNS", "17", CUDA_ERROR_INVALID_HANDLE },
		   { "FAKECUDA_EUID", "4711", CUDA_ERROR_INVALID_HANDLE },
		   { "FAKECUDA_MIG", "1g", CUDA_ERROR_INVALID_HANDLE },
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
	/* Open memory stays readable, and reads of it are counted. */
	pid_t other = two(exporter);
	CUdeviceptr theirs, mine;
	CUipcMemHandle handle;
	uint32_t out;

	begin();
	hear(&handle, sizeof handle);
	hear(&theirs, sizeof theirs);
	OK(cu.cuIpcOpenMemHandle_v2(&mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
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
	ck_assert_int_ne(out[0], 7); /* not where the allocation begins: allocate multiples of 2 MiB */
	OK(cu.cuIpcCloseMemHandle(mine));
	tell("x", 1);
	reap(other);
	end();
}
END_TEST

/* Records an interprocess event after slow work, then reports that. */
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

static CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
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
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
	};
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
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
	};
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

/* Holds a context until told to end. */
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
	/* With a common folder: memory runs out for all processes, and in exclusive mode the second process gets no
	 * context; a dead process holds nothing. */
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
	ck_assert_int_eq(cu.cuDevicePrimaryCtxRetain(&ctx, 0),
			 _i ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_OUT_OF_MEMORY);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	OK(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cu.cuDevicePrimaryCtxRelease_v2(0));
	snprintf(path, sizeof path, "%s/gpu0", dir);
	unlink(path);
	ck_assert_int_eq(rmdir(dir), 0); /* the folder is empty */
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

SUITE(fakecuda_ipc)
{
	Suite *s = suite_create("fakecuda_ipc");
	TCase *t;

	t = tcase_create("processes");
	tcase_add_test(t, test_ipc_memory_opens_elsewhere);
	tcase_add_test(t, test_ipc_memory_does_not_open_at_home);
	tcase_add_test(t, test_ipc_free_while_open_is_reported);
	tcase_add_loop_test(t, test_ipc_refused, 0, 4);
	tcase_add_test(t, test_ipc_exporter_killed);
	tcase_add_test(t, test_ipc_of_a_small_piece_opens_the_whole_block);
	tcase_add_test(t, test_ipc_event);
	tcase_add_test(t, test_vmm_memory_by_descriptor);
	tcase_add_loop_test(t, test_exclusive_and_shared_memory_budget, 0, 2);
	tcase_add_test(t, test_report_lists_violations_and_leaks);
	suite_add_tcase(s, t);
	return s;
}
