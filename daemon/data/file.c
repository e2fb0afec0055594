/* One file: open, fstat, read, close, and no system call more.
 *
 * openat2 (Linux 5.6) lets the kernel keep a path beneath its folder, whatever anybody renames meanwhile;
 * RESOLVE_CACHED (5.12) and RWF_NOWAIT let a decoding thread ask for a file without ever waiting for a disk. Where a
 * sandbox forbids openat2 the same rules are kept by walking the path folder by folder, and READ_NOWAIT is answered
 * with EAGAIN, so that a thread that may wait does it. */
#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "data/dataset-impl.h"

#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif
#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20
#endif

enum { OPEN_FLAGS = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, PAD_BYTES = 64, GRAIN_BYTES = 64 << 10 };
enum { FULL_TABLE_PAUSE_MS = 10, FULL_TABLE_PAUSES = 1000 };

/* What this kernel and sandbox allow; found out once for the whole process, because nothing changes it later. */
static struct {
	pthread_once_t once;
	bool openat2, cached;
} kernel = { .once = PTHREAD_ONCE_INIT };

static int sys_openat2(int dir_fd, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = { .flags = (uint64_t)(unsigned)flags, .resolve = resolve };

	return (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
}

static void probe_kernel(void)
{
	int fd = sys_openat2(AT_FDCWD, "/", O_PATH | O_CLOEXEC, RESOLVE_NO_MAGICLINKS);

	kernel.openat2 = fd >= 0;
	if (fd >= 0) {
		close(fd);
		fd = sys_openat2(AT_FDCWD, "/", O_PATH | O_CLOEXEC, RESOLVE_CACHED);
		kernel.cached = fd >= 0 || errno == EAGAIN;
		if (fd >= 0) {
			close(fd);
		}
	}
}

static bool in_group(const struct data_access *access, gid_t gid)
{
	for (unsigned i = 0; i < access->n_gids; i++) {
		if (access->gids[i] == gid) {
			return true;
		}
	}
	return false;
}

bool access_allows(const struct data_access *access, int fd, const struct stat *st, unsigned need)
{
	if (access->trusted) {
		return true;
	}
	if (access->uid == st->st_uid) {
		return (st->st_mode >> 6 & need) == need;
	}
	/* With an access control list the group bits are a mask, not a right. We do not judge such lists, so we refuse.
	 */
	if (fgetxattr(fd, "system.posix_acl_access", NULL, 0) >= 0) {
		return false;
	}
	return ((in_group(access, st->st_gid) ? st->st_mode >> 3 : st->st_mode) & need) == need;
}

int access_check_file_fd(const struct data_access *access, int fd, const char *name, struct stat *st,
			 struct dataset_error *err)
{
	int flags = fcntl(fd, F_GETFL);
	struct statfs fs;

	if (flags < 0 || fstat(fd, st) < 0) {
		return dataset_fail_errno(err, errno, name);
	}
	if (!S_ISREG(st->st_mode)) {
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "%s: not a regular file", name);
	}
	if ((flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY) {
		return dataset_fail(err, DATASET_E_ACCESS, -EACCES, "%s: the descriptor is not open for reading", name);
	}
	/* Its owner could let every read hang for ever. */
	if (!access->trusted && fstatfs(fd, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC) {
		return dataset_fail(
			err, DATASET_E_ACCESS, -EACCES,
			"%s: on a FUSE file system, which is only read for data sets that the configuration names",
			name);
	}
	return 0;
}

/* One step of a path, never across a link: -ELOOP for one, also where open says ENOTDIR because a folder was wanted. */
static int open_step(int at, const char *step, int flags)
{
	int fd = openat(at, step, flags | O_NOFOLLOW), error = errno;
	struct stat st;

	if (fd >= 0) {
		return fd;
	}
	return error == ENOTDIR && fstatat(at, step, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode) ? -ELOOP
													   : -error;
}

/* The rules of RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS without openat2: no "..", no leading slash, no link at any step.
 */
static int open_step_by_step(int dir_fd, const char *path, int flags)
{
	int at = dir_fd, fd = -EINVAL;

	if (*path == '/') {
		return -EXDEV;
	}
	for (;;) {
		size_t n = strcspn(path, "/");
		bool is_last = path[n + strspn(path + n, "/")] == '\0';
		char step[256];

		if (n >= sizeof(step)) {
			fd = -ENAMETOOLONG;
			break;
		}
		memcpy(step, path, n);
		step[n] = '\0';
		if (!strcmp(step, "..")) {
			fd = -EXDEV;
			break;
		}
		fd = open_step(at, n ? step : ".", is_last ? flags : O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (is_last || fd < 0) {
			break;
		}
		if (at != dir_fd) {
			close(at);
		}
		at = fd;
		path += n + 1;
	}
	if (at != dir_fd) {
		close(at);
	}
	return fd;
}

static int open_once(int dir_fd, const char *path, int flags, bool trusted, enum read_how how)
{
	uint64_t resolve = RESOLVE_NO_MAGICLINKS;
	int fd;

	flags |= O_CLOEXEC;
	pthread_once(&kernel.once, probe_kernel);
	if (how == READ_NOWAIT && !kernel.cached) {
		return -EAGAIN;
	}
	if (!kernel.openat2) {
		if (!trusted) {
			return open_step_by_step(dir_fd, path, flags);
		}
		fd = openat(dir_fd, path, flags);
		return fd < 0 ? -errno : fd;
	}
	if (!trusted) {
		resolve |= RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
	}
	if (how == READ_NOWAIT) {
		resolve |= RESOLVE_CACHED;
	}
	do {
		fd = sys_openat2(dir_fd, path, flags, resolve);
		/* Without RESOLVE_CACHED, EAGAIN means that somebody renamed a folder above meanwhile. */
	} while (fd < 0 && (errno == EINTR || (errno == EAGAIN && how == READ_WAIT)));
	return fd < 0 ? -errno : fd;
}

int file_open(int dir_fd, const char *path, int flags, bool trusted, enum read_how how)
{
	const struct timespec pause = { .tv_nsec = FULL_TABLE_PAUSE_MS * 1000000 };

	for (int i = 0;; i++) {
		int fd = open_once(dir_fd, path, flags, trusted, how);

		/* A full table of descriptors says nothing about the file, and passes. */
		if ((fd != -EMFILE && fd != -ENFILE) || i == FULL_TABLE_PAUSES) {
			return fd;
		}
		if (how == READ_NOWAIT) {
			return -EAGAIN;
		}
		nanosleep(&pause, NULL);
	}
}

static uint64_t ns_of(struct timespec t)
{
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int reserve(struct file_bytes *b, size_t n_bytes)
{
	size_t capacity = (n_bytes + PAD_BYTES + GRAIN_BYTES - 1) / GRAIN_BYTES * GRAIN_BYTES;

	if (b->capacity_bytes >= n_bytes + PAD_BYTES) {
		return 0;
	}
	free(b->data);
	b->data = malloc(capacity);
	b->capacity_bytes = b->data ? capacity : 0;
	return b->data ? 0 : -ENOMEM;
}

/* tmpfs does not know RWF_NOWAIT on older kernels, but never waits for a disk either. */
static bool lives_in_memory(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

static ssize_t read_nowait(int fd, uint8_t *data, size_t n)
{
	struct iovec v = { data, n };
	ssize_t got = preadv2(fd, &v, 1, 0, RWF_NOWAIT);

	if (got < 0 && (errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS || errno == EPERM)) {
		return lives_in_memory(fd) ? pread(fd, data, n, 0) : -EAGAIN;
	}
	return got < 0 ? -errno : got;
}

static ssize_t read_wait(int fd, uint8_t *data, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = pread(fd, data + done, n - done, (off_t)done);

		if (got < 0 && errno != EINTR) {
			return -errno;
		}
		if (got == 0) {
			break;
		}
		done += got > 0 ? (size_t)got : 0;
	}
	return (ssize_t)done;
}

static int read_open_file(int fd, const struct data_access *access, enum read_how how, struct file_bytes *out)
{
	struct stat st;
	size_t size;
	ssize_t got;
	int r;

	if (fstat(fd, &st) < 0) {
		return -errno;
	}
	if (!S_ISREG(st.st_mode)) {
		return -EINVAL;
	}
	if (!access_allows(access, fd, &st, ACCESS_READ)) {
		return -EACCES;
	}
	if ((uint64_t)st.st_size > FILE_MAX_BYTES) {
		return -EFBIG;
	}
	size = (size_t)st.st_size;
	r = reserve(out, size);
	if (r < 0) {
		return r;
	}
	got = !size ? 0 : how == READ_NOWAIT ? read_nowait(fd, out->data, size) : read_wait(fd, out->data, size);
	if (got < 0) {
		return (int)got;
	}
	if (how == READ_NOWAIT && (size_t)got < size) {
		return -EAGAIN;
	}
	out->n_bytes = (size_t)got;
	memset(out->data + got, 0, PAD_BYTES);
	out->mtime_ns = ns_of(st.st_mtim);
	out->ino = st.st_ino;
	out->dev = st.st_dev;
	return 0;
}

int file_read(int dir_fd, const char *name, const struct data_access *access, enum read_how how, struct file_bytes *out)
{
	int fd = file_open(dir_fd, name, OPEN_FLAGS, access->trusted, how);
	int r;

	if (fd < 0) {
		return fd;
	}
	r = read_open_file(fd, access, how, out);
	close(fd);
	return r;
}

/* For others a look at the inode is not enough: what is cached was perhaps read for somebody who may, so their right is
 * checked as at a read. */
static bool stat_for_other(int dir_fd, const char *name, const struct data_access *access, struct stat *st)
{
	int fd = file_open(dir_fd, name, OPEN_FLAGS, false, READ_WAIT);
	bool allowed = fd >= 0 && fstat(fd, st) == 0 && access_allows(access, fd, st, ACCESS_READ);

	if (fd >= 0) {
		close(fd);
	}
	return allowed;
}

bool file_is_current(int dir_fd, const char *name, const struct data_access *access, const struct file_bytes *b)
{
	struct stat st;

	if (access->trusted ? fstatat(dir_fd, name, &st, 0) < 0 : !stat_for_other(dir_fd, name, access, &st)) {
		return false;
	}
	return st.st_ino == b->ino && (uint64_t)st.st_size == b->n_bytes && ns_of(st.st_mtim) == b->mtime_ns &&
	       st.st_dev == b->dev;
}

int file_slurp(int fd, uint64_t max_bytes, char **bytes, size_t *n_bytes)
{
	struct stat st;
	ssize_t got;
	char *data;

	if (fstat(fd, &st) < 0) {
		return -errno;
	}
	if (!S_ISREG(st.st_mode)) {
		return -EINVAL;
	}
	if ((uint64_t)st.st_size > max_bytes) {
		return -EFBIG;
	}
	data = malloc((size_t)st.st_size + 1);
	if (!data) {
		return -ENOMEM;
	}
	got = read_wait(fd, (uint8_t *)data, (size_t)st.st_size);
	if (got < 0) {
		free(data);
		return (int)got;
	}
	data[got] = '\0';
	*bytes = data;
	*n_bytes = (size_t)got;
	return 0;
}

void file_bytes_finish(struct file_bytes *b)
{
	free(b->data);
	*b = (struct file_bytes){ 0 };
}
