#include "base/io-full.h"

#include <errno.h>
#include <unistd.h>

ssize_t io_full_read(int fd, void *buf, size_t n, off_t at)
{
	size_t done = 0;
	while (done < n) {
		ssize_t got = pread(fd, (char *)buf + done, n - done, at + (off_t)done);
		if (got < 0 && errno != EINTR)
			return -errno;
		if (got == 0)
			break;
		done += got > 0 ? (size_t)got : 0;
	}
	return (ssize_t)done;
}

int io_full_sync(int fd)
{
	while (fsync(fd) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}
