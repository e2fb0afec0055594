/* A library for LD_PRELOAD that makes system calls as unpleasant as the manual allows: interrupted, short transfers,
 * EAGAIN. A program that passes without it has to pass with it.
 *
 *     FAULTS="eintr=8,short=4,again=8,seed=1" LD_PRELOAD=build/tests/faultinject.so program
 *
 *     eintr      one in N calls that may block fails with EINTR, without any effect
 *     short      one in N transfers to or from files stops early, often after one byte
 *     again      one in N non-blocking receptions, accepts and sends of a long message returns EAGAIN, though it could
 *                have succeeded. Error messages pass: the daemon sends its last words once, and they are lost where a
 *                socket is really full
 *     populate   making a mapping's pages present takes N milliseconds, except the first time in a process
 *     full       1: instead that fails, as if memory were short
 *
 * Only calls of this build's own programs and libraries (and of libuv for them) are broken: compilers, shells, the
 * interpreter and torch are not ours to fix. Calls that libc makes internally (stdio, opendir) are not seen. Counts are
 * written to the file $FAULTS_COUNTS at exit, if it is set, so that a test can check that faults happened. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define API __attribute__((visibility("default")))

enum { LONGEST_ERROR = 4300 }; /* bytes */

static unsigned eintr, shorter, again, populate_ms, full;
static atomic_uint_fast64_t dice;
static atomic_ulong n_eintr, n_short, n_again, n_populated;

static unsigned setting(const char *text, const char *name, unsigned fallback)
{
	const char *at = text ? strstr(text, name) : NULL;
	return at ? (unsigned)strtoul(at + strlen(name), NULL, 10) : fallback;
}

static void find_build(void);

__attribute__((constructor)) static void begin(void)
{
	const char *text = getenv("FAULTS");
	eintr = setting(text, "eintr=", 0);
	shorter = setting(text, "short=", 0);
	again = setting(text, "again=", 0);
	populate_ms = setting(text, "populate=", 0);
	full = setting(text, "full=", 0);
	find_build();
	atomic_store(&dice, setting(text, "seed=", 1) + (uint64_t)getpid());
}

__attribute__((destructor)) static void end(void)
{
	const char *name = getenv("FAULTS_COUNTS");
	int fd = name ? open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	if (fd < 0)
		return;
	dprintf(fd, "%lu %lu %lu\n", n_eintr, n_short, n_again);
	close(fd);
}

/* ---- whose code makes the call ---- */

static char build_folder[PATH_MAX], program[PATH_MAX];
static const void *program_base;

static void find_build(void)
{
	Dl_info self, own;
	char *end;
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
	program[n > 0 ? n : 0] = '\0';
	if (dladdr((const void *)getauxval(AT_ENTRY), &own))
		program_base = own.dli_fbase;
	if (!dladdr((const void *)(uintptr_t)find_build, &self) || !realpath(self.dli_fname, build_folder))
		return;
	for (int up = 0; up < 2 && (end = strrchr(build_folder, '/')); up++) /* BUILD/tests/faultinject.so */
		end[up == 0 ? 0 : 1] = '\0';
}

static int is_in_build(const char *path)
{
	return build_folder[0] && !strncmp(path, build_folder, strlen(build_folder)) && !strstr(path, "/venv/");
}

/* By the address that the call returns to. A program is known by its file, because the loader's name for it may be
 * relative. */
static int is_ours(const void *caller)
{
	Dl_info who;
	if (!dladdr(caller, &who) || !who.dli_fname)
		return 0;
	if (who.dli_fbase == program_base)
		return is_in_build(program);
	return is_in_build(who.dli_fname) || (is_in_build(program) && strstr(who.dli_fname, "/libuv."));
}

#define CALLER __builtin_return_address(0)

/* ---- injected faults ---- */

static uint32_t roll(void)
{
	uint64_t x = atomic_fetch_add(&dice, 0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (uint32_t)((x ^ x >> 31) >> 32);
}

static int happens(unsigned one_in, atomic_ulong *count, const void *caller)
{
	if (!one_in || roll() % one_in || !is_ours(caller))
		return 0;
	atomic_fetch_add(count, 1);
	return 1;
}

static int interrupted(const void *caller)
{
	if (!happens(eintr, &n_eintr, caller))
		return 0;
	errno = EINTR;
	return 1;
}

static int not_now(const void *caller)
{
	if (!happens(again, &n_again, caller))
		return 0;
	errno = EAGAIN;
	return 1;
}

static size_t less(int fd, size_t n, const void *caller)
{
	struct stat st;
	if (n < 2 || fstat(fd, &st) || !S_ISREG(st.st_mode) || !happens(shorter, &n_short, caller))
		return n;
	return roll() % 2 ? 1 : 1 + roll() % (n - 1);
}

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}
/* The look-up takes a lock: once per function and process is enough. */
#define CALL(name, ...) \
	({ \
		static __typeof__(&name) fn; \
		__typeof__(&name) f = __atomic_load_n(&fn, __ATOMIC_RELAXED); \
		if (!f) \
			__atomic_store_n(&fn, f = REAL(name), __ATOMIC_RELAXED); \
		f(__VA_ARGS__); \
	})

API ssize_t read(int fd, void *buf, size_t n)
{
	return interrupted(CALLER) ? -1 : CALL(read, fd, buf, less(fd, n, CALLER));
}

API ssize_t write(int fd, const void *buf, size_t n)
{
	return interrupted(CALLER) ? -1 : CALL(write, fd, buf, less(fd, n, CALLER));
}

API ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
	return interrupted(CALLER) ? -1 : CALL(pread, fd, buf, less(fd, n, CALLER), at);
}

API ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
	return interrupted(CALLER) ? -1 : CALL(pwrite, fd, buf, less(fd, n, CALLER), at);
}

API ssize_t preadv2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	if (flags & RWF_NOWAIT ? not_now(CALLER) : interrupted(CALLER))
		return -1;
	if (n == 1) {
		struct iovec one = { v->iov_base, less(fd, v->iov_len, CALLER) };
		return CALL(preadv2, fd, &one, 1, at, flags);
	}
	return CALL(preadv2, fd, v, n, at, flags);
}

API ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	if (flags & MSG_DONTWAIT ? not_now(CALLER) : interrupted(CALLER))
		return -1;
	return CALL(recvmsg, fd, m, flags);
}

API ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	size_t n = 0;
	for (size_t i = 0; i < (size_t)m->msg_iovlen; i++)
		n += m->msg_iov[i].iov_len;
	if (flags & MSG_DONTWAIT ? (n > LONGEST_ERROR || m->msg_controllen) && not_now(CALLER) : interrupted(CALLER))
		return -1;
	return CALL(sendmsg, fd, m, flags);
}

API int accept4(int fd, struct sockaddr *address, socklen_t *n, int flags)
{
	if (fcntl(fd, F_GETFL) & O_NONBLOCK ? not_now(CALLER) : interrupted(CALLER))
		return -1;
	return CALL(accept4, fd, address, n, flags);
}

API int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	return timeout_ms && interrupted(CALLER) ? -1 : CALL(poll, fds, n, timeout_ms);
}

API int fsync(int fd)
{
	return interrupted(CALLER) ? -1 : CALL(fsync, fd);
}

API int madvise(void *at, size_t n, int advice)
{
	if (advice == MADV_POPULATE_WRITE && atomic_fetch_add(&n_populated, 1) > 0) {
		nanosleep(&(struct timespec){ populate_ms / 1000, populate_ms % 1000 * 1000000L }, NULL);
		if (full) {
			errno = ENOMEM;
			return -1;
		}
	}
	return CALL(madvise, at, n, advice);
}
