/* Virtual memory management: memory that is shared by a descriptor. */
#include "case.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };

CUresult vmm_create(CUmemGenericAllocationHandle *h, size_t n)
{
	return cu.cuMemCreate(h, n, &prop, 0);
}

CUresult vmm_map(CUmemGenericAllocationHandle h, size_t n, int flags, CUdeviceptr *a)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, flags };
	CUresult r = cu.cuMemAddressReserve(a, n, 0, 0, 0);

	if (!r)
		r = cu.cuMemMap(*a, n, 0, h, 0);
	return r ? r : cu.cuMemSetAccess(*a, n, &access, 1);
}

void role_vmm(void)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
	};
	CUmemGenericAllocationHandle h;
	CUdeviceptr a;
	int fd;

	begin();
	MUST(vmm_create(&h, SLAB));
	MUST(vmm_map(h, SLAB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &a));
	MUST(cu.cuMemsetD32_v2(a, 0x12345678, SLAB / 4));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	while (sendmsg(line_fd, &m, 0) < 0 && errno == EINTR)
		;
	pause();
}

static int take_fd(void)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
	};
	ssize_t n;
	int fd;

	do
		n = recvmsg(line_fd, &m, 0);
	while (n < 0 && errno == EINTR);
	if (n != 1 || !CMSG_FIRSTHDR(&m))
		must(CUDA_ERROR_UNKNOWN, "receive a descriptor");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

static CUresult import(int fd, CUmemGenericAllocationHandle *h)
{
	CUresult r =
		cu.cuMemImportFromShareableHandle(h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	close(fd);
	return r;
}

void case_vmm(void)
{
	CUmemGenericAllocationHandle h;
	CUipcMemHandle legacy;
	CUdeviceptr a, own;
	size_t n = 0;
	pid_t pid = other("vmm");

	begin();
	own = slab_of(SLAB);
	exact_of("granularity", cu.cuMemGetAllocationGranularity(&n, &prop, 0));
	exact_bool("it is 2 MiB", n == 2 << 20);
	exact_of("create less than that", vmm_create(&h, 4096));
	exact_of("import", import(take_fd(), &h));
	exact_of("map for reading and writing", vmm_map(h, SLAB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &a));
	exact_bool("its bytes", word_at(a + SLAB - 4) == 0x12345678);
	class_of("legacy handle of it", cu.cuIpcGetMemHandle(&legacy, a));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	exact_bool("its bytes after the owner was killed", word_at(a) == 0x12345678);
	exact_of("release the handle", cu.cuMemRelease(h));
	exact_bool("its bytes after that", word_at(a) == 0x12345678);
	exact_of("kernel that reads it", add(own, a, 0, 1024, NULL));
	exact_of("ends", cu.cuCtxSynchronize());
	exact_of("kernel that writes it", add(a, own, 0, 1024, NULL));
	exact_of("it ends", cu.cuCtxSynchronize());
}

/* In a case of its own, because a write to memory that is mapped read-only may end the context. */
void case_vmm_reading(void)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr a, own;
	pid_t pid = other("vmm");
	CUresult r;

	begin();
	own = slab_of(SLAB);
	exact_of("import", import(take_fd(), &h));
	r = vmm_map(h, SLAB, CU_MEM_ACCESS_FLAGS_PROT_READ, &a);
	open_of("map for reading", cuda_name(r));
	if (!r) {
		open_of("its bytes", word_at(a) == 0x12345678 ? "as written" : "others");
		r = cu.cuMemsetD32_v2(a, 1, 4);
		if (!r)
			r = cu.cuCtxSynchronize();
		open_of("fill what is mapped for reading", cuda_name(r));
		r = add(a, own, 0, 4, NULL);
		if (!r)
			r = cu.cuCtxSynchronize();
		open_of("kernel that writes what is mapped for reading", cuda_name(r));
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
