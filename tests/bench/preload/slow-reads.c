/* For any program that this is preloaded into, makes the files below $SLOW_READS as slow as those of a disk or a
 * network that answers after $SLOW_READS_MS. The first read of an opened file takes that long, and a read that may not
 * wait (RWF_NOWAIT) finds nothing cached. With $SLOW_READS_INLINE such a read waits as well, like in a loader whose
 * decoding threads read files themselves.
 *
 * Waiting costs no processor time, as with a real disk; any number of reads may wait at once, as with a network or an
 * array of disks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int is_slow(int fd)
{
	const char *below = getenv("SLOW_READS");
	char link[64], path[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = below ? readlink(link, path, sizeof(path)) : -1;
	return n > 0 && (size_t)n > strlen(below) && !strncmp(path, below, strlen(below));
}

static void take_long(void)
{
	const char *ms = getenv("SLOW_READS_MS");
	long us = ms ? (long)(atof(ms) * 1000) : 5000;
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
	static ssize_t (*real)(int, const struct iovec *, int, off_t, int);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "preadv2");
	if (offset == 0 && is_slow(fd)) {
		if ((flags & RWF_NOWAIT) && !getenv("SLOW_READS_INLINE")) {
			errno = EAGAIN;
			return -1;
		}
		take_long();
	}
	return real(fd, iov, n, offset, flags);
}

ssize_t pread(int fd, void *buf, size_t n, off_t offset)
{
	static ssize_t (*real)(int, void *, size_t, off_t);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pread");
	if (offset == 0 && is_slow(fd))
		take_long();
	return real(fd, buf, n, offset);
}

ssize_t pread64(int fd, void *buf, size_t n, off_t offset)
{
	return pread(fd, buf, n, offset);
}

ssize_t read(int fd, void *buf, size_t n)
{
	static ssize_t (*real)(int, void *, size_t);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "read");
	if (is_slow(fd) && lseek(fd, 0, SEEK_CUR) == 0)
		take_long();
	return real(fd, buf, n);
}
