/* Another process of the same program, and a line to it; the role that exports memory. */
#include "case.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

int line_fd;

bool told(const void *data, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t r = write(line_fd, (const char *)data + at, n - at);

		if (r < 0 && errno != EINTR)
			return false;
		at += r > 0 ? (size_t)r : 0;
	}
	return true;
}

void tell(const void *data, size_t n)
{
	if (!told(data, n))
		_exit(3);
}

static bool heard(void *data, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t r = recv(line_fd, (char *)data + at, n - at, MSG_WAITALL);

		if (r == 0 || (r < 0 && errno != EINTR))
			return false;
		at += r > 0 ? (size_t)r : 0;
	}
	return true;
}

void hear(void *data, size_t n)
{
	if (!heard(data, n))
		_exit(4);
}

bool hear_soon(void *data, size_t n, int ms)
{
	int r;

	do
		r = poll(&(struct pollfd){ .fd = line_fd, .events = POLLIN }, 1, ms);
	while (r < 0 && errno == EINTR);
	return r == 1 && heard(data, n);
}

pid_t forked(void)
{
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		_exit(5);
	fcntl(fds[0], F_SETFD, FD_CLOEXEC);
	fflush(stdout);
	pid = fork();
	line_fd = fds[!pid];
	close(fds[!!pid]);
	return pid;
}

/* Another process that starts this program again, in that role. */
pid_t other(const char *role)
{
	char number[16];
	pid_t pid = forked();

	if (!pid) {
		snprintf(number, sizeof number, "%d", line_fd);
		execl("/proc/self/exe", "conformance", "--role", role, number, (char *)NULL);
		_exit(127);
	}
	return pid;
}

/* role "export": memory of the requested size, and its handle; then obeys commands. */

void role_export(void)
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

CUresult export_of(size_t n, CUipcMemHandle *handle, CUdeviceptr *theirs)
{
	CUresult r;

	tell("a", 1);
	tell(&n, sizeof n);
	hear(&r, sizeof r);
	hear(handle, sizeof *handle);
	hear(theirs, sizeof *theirs);
	return r;
}

CUresult open_handle(CUdeviceptr *mine, CUipcMemHandle handle)
{
	return cu.cuIpcOpenMemHandle_v2(mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}
