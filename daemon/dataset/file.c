/* One file: open, fstat, read, close, and in the usual case no other system call.
 *
 * openat2 (Linux 5.6) lets the kernel keep a path beneath its folder, even if a client renames folders meanwhile;
 * RESOLVE_CACHED (5.12) and RWF_NOWAIT let a decoding thread read a file without ever waiting for a disk. They limit
 * the walk and the read, but not the file system's own open and stat, which on NFS or FUSE is a message to a server. So
 * READ_NOWAIT is for folders on local file systems only (DIR_LOCAL), and never crosses a mount point. Where a sandbox
 * forbids openat2, the same rules are kept by opening one step at a time, and READ_NOWAIT returns EAGAIN, so that a
 * thread that may wait does the work.
 *
 * For access that is not trusted, each folder on the way is opened and checked by its own descriptor, and a file is one
 * name in such a folder. So a folder that is swapped after the check is not used. A file is checked before it is opened
 * (O_PATH, fstat, then opened again through /proc/self/fd), because opening alone starts a watchdog or rewinds a tape.
 * That takes two more system calls; a mount without device nodes (nodev) saves them. */
#include "dataset/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "dataset/impl.h"
#include "base/workspace.h"

#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20
#endif

enum { OPEN_FLAGS = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, PAD_BYTES = 64, GRAIN_BYTES = WORK_AHEAD_FREE_BYTES };
enum { PAUSE_MS = 10, FULL_TABLE_PAUSES = 1000, LEASE_TRIES = 16, LEASE_PAUSES = 100 };

/* How a path may be walked. */
enum {
	BENEATH = 1,   /* no link, and not out of the folder; without openat2 for single steps only */
	ONE_MOUNT = 2, /* needs openat2 */
	CACHED = 4,    /* needs openat2 */
};

/* The features of this kernel and sandbox; looked up once for the whole process, because nothing changes them later. */
static struct {
	pthread_once_t once;
	bool openat2, cached;
} kernel = { .once = PTHREAD_ONCE_INIT };

static int sys_openat2(int dir_fd, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = { .flags = (uint64_t)(unsigned)flags, .resolve = resolve };

	/* The kernel's name: a C library of 2019 has no SYS_openat2 yet. */
	return (int)syscall(__NR_openat2, dir_fd, path, &how, sizeof(how));
}

static void probe_kernel(void)
{
	int fd = sys_openat2(AT_FDCWD, "/", O_PATH | O_CLOEXEC, RESOLVE_NO_MAGICLINKS);

	kernel.openat2 = fd >= 0;
	if (fd >= 0) {
		close(fd);
		fd = sys_openat2(AT_FDCWD, "/", O_PATH | O_CLOEXEC, RESOLVE_CACHED);
		kernel.cached = fd >= 0 || errno == EAGAIN;
		if (fd >= 0)
			close(fd);
	}
}

/* ---- what a peer may do ---- */

static bool in_group(const struct data_access *access, gid_t gid)
{
	for (unsigned i = 0; i < access->n_gids; i++) {
		if (access->gids[i] == gid)
			return true;
	}
	return false;
}

/* fgetxattr refuses O_PATH descriptors; the name behind them works for all. Every answer but a clear no counts as a
 * list. */
static bool has_acl(int fd, bool is_path)
{
	static const char name[] = "system.posix_acl_access";
	char link[32];
	ssize_t n;

	if (is_path) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = getxattr(link, name, NULL, 0);
	} else {
		n = fgetxattr(fd, name, NULL, 0);
	}
	return n >= 0 || (errno != ENODATA && errno != EOPNOTSUPP);
}

static bool file_allows(const struct data_access *access, int fd, bool is_path, const struct stat *st, unsigned need)
{
	if (access->trusted)
		return true;
	if (access->uid == st->st_uid)
		return (st->st_mode >> 6 & need) == need;
	/* With an access control list the group bits are a mask, not a right. This code does not evaluate such lists,
	 * so it refuses. */
	if (has_acl(fd, is_path))
		return false;
	return ((in_group(access, st->st_gid) ? st->st_mode >> 3 : st->st_mode) & need) == need;
}

bool access_allows(const struct data_access *access, int fd, const struct stat *st, unsigned need)
{
	return file_allows(access, fd, false, st, need);
}

int access_check_file_fd(int fd, const char *name, struct stat *st, struct dataset_error *err)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fstat(fd, st) < 0)
		return dataset_fail_errno(err, errno, name);
	if (!S_ISREG(st->st_mode))
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "%s: not a regular file", name);
	if ((flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY)
		return dataset_fail(err, DATASET_E_ACCESS, -EACCES, "%s: the descriptor is not open for reading", name);
	return 0;
}

/* ---- opening ---- */

/* Opens one step of a path, never across a link: -ELOOP for a link, also where open returns ENOTDIR because a folder
 * was wanted. */
static int open_step(int at, const char *step, int flags)
{
	struct stat st;
	int fd;

	if (strchr(step, '/') || !strcmp(step, ".."))
		return -EXDEV;
	fd = openat(at, step, flags | O_NOFOLLOW);
	if (fd < 0) {
		int error = errno;
		bool is_link =
			error == ENOTDIR && fstatat(at, step, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);

		return is_link ? -ELOOP : -error;
	}
	/* O_PATH opens the link itself. */
	if ((flags & O_PATH) && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode)) {
		close(fd);
		return -ELOOP;
	}
	return fd;
}

static int file_open_once(int dir_fd, const char *path, int flags, unsigned rules)
{
	uint64_t resolve = RESOLVE_NO_MAGICLINKS;
	int fd;

	flags |= O_CLOEXEC;
	if ((rules & CACHED) && !kernel.cached)
		return -EAGAIN;
	if (!kernel.openat2) {
		if (rules & BENEATH)
			return open_step(dir_fd, path, flags);
		fd = openat(dir_fd, path, flags);
		return fd < 0 ? -errno : fd;
	}
	if (rules & BENEATH)
		resolve |= RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
	if (rules & ONE_MOUNT)
		resolve |= RESOLVE_NO_XDEV;
	if (rules & CACHED)
		resolve |= RESOLVE_CACHED;
	fd = sys_openat2(dir_fd, path, flags, resolve);
	return fd < 0 ? -errno : fd;
}

/* How long to retry a failed open: true to try again, perhaps after a pause. */
struct patience {
	int n_full, n_refused;
};

static bool try_again(struct patience *p, int *error)
{
	const struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000 };

	if (*error == -EINTR)
		return true;
	/* A full descriptor table is temporary and says nothing about the file. */
	if (*error == -EMFILE || *error == -ENFILE) {
		if (p->n_full++ == FULL_TABLE_PAUSES)
			return false;
		nanosleep(&pause, NULL);
		return true;
	}
	if (*error != -EAGAIN)
		return false;
	/* Either a folder above was renamed meanwhile, and a retry works at once, or another process has a lease on the
	 * file (F_SETLEASE), which it may keep for any time. */
	if (p->n_refused++ == LEASE_TRIES + LEASE_PAUSES) {
		*error = -EBUSY;
		return false;
	}
	if (p->n_refused > LEASE_TRIES)
		nanosleep(&pause, NULL);
	return true;
}

static int open_by_rules(int dir_fd, const char *path, int flags, unsigned rules)
{
	struct patience patience = { 0 };
	int fd;

	pthread_once(&kernel.once, probe_kernel);
	do {
		fd = file_open_once(dir_fd, path, flags, rules);
		if (rules & CACHED)
			return fd == -EMFILE || fd == -ENFILE || fd == -EINTR ? -EAGAIN : fd;
	} while (fd < 0 && try_again(&patience, &fd));
	return fd;
}

/* Opens the file behind an O_PATH descriptor for reading. Not by openat2's rules: this link must be followed. */
static int open_again(int path_fd, enum read_how how)
{
	struct patience patience = { 0 };
	char link[32];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	do {
		fd = open(link, OPEN_FLAGS);
		fd = fd < 0 ? -errno : fd;
		if (how == READ_NOWAIT)
			return fd == -EMFILE || fd == -ENFILE || fd == -EINTR ? -EAGAIN : fd;
	} while (fd < 0 && try_again(&patience, &fd));
	return fd;
}

/* ---- folders ---- */

unsigned dir_traits(int fd, const struct data_access *access)
{
	/* On these an open, a stat and a read of cached data never wait for another machine or process. */
	static const uint32_t local[] = {
		0xef53,                               /* ext2, ext3, ext4 */
		0x58465342,                           /* xfs */
		0x9123683e,                           /* btrfs */
		TMPFS_MAGIC, RAMFS_MAGIC, 0xf2f52010, /* f2fs */
		0xca451a4e,                           /* bcachefs */
		0x2fc12fc1,                           /* zfs */
		0x73717368,                           /* squashfs */
		0xe0f5e1e2,                           /* erofs */
		0x3153464a,                           /* jfs */
		0x3434,                               /* nilfs */
		0x4d44,                               /* vfat */
		0x2011bab0,                           /* exfat */
		0x7366746e,                           /* ntfs3 */
		0x9660,                               /* iso9660 */
		0x15013346,                           /* udf */
		0x52654973,                           /* reiserfs */
	};
	struct statfs fs;
	unsigned traits;

	if (fstatfs(fd, &fs) < 0)
		return 0;
	traits = (unsigned long)fs.f_flags & ST_NODEV ? DIR_NODEV : 0;
	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++) {
		if ((uint32_t)fs.f_type == local[i])
			return traits | DIR_LOCAL;
	}
	/* An overlay is as local as its layers, which cannot be queried; a client can mount an overlay over FUSE. */
	return (uint32_t)fs.f_type == OVERLAYFS_SUPER_MAGIC && access->trusted ? traits | DIR_LOCAL : traits;
}

/* Goes one step down: to the folder `step` in `at`, if the peer may search it. */
static int enter_dir(int at, const char *step, const struct data_access *access, bool any_mount)
{
	int fd = open_by_rules(at, step, O_PATH | O_DIRECTORY, BENEATH | (any_mount ? 0 : ONE_MOUNT));
	struct stat st;
	int r;

	if (fd < 0)
		return fd;
	r = fstat(fd, &st) < 0 ? -errno : file_allows(access, fd, true, &st, ACCESS_SEARCH) ? 0 : -EACCES;
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

/* Takes the next name of a path, without its slash; "" at the end. Skips empty names and ".". */
static int next_step(const char **path, char *step, size_t size)
{
	const char *at = *path;
	size_t n;

	for (;;) {
		n = strcspn(at, "/");
		if (n > 1 || (n == 1 && *at != '.') || !at[n])
			break;
		at += n + 1;
	}
	n = n == 1 && *at == '.' ? 0 : n;
	if (n >= size)
		return -ENAMETOOLONG;
	memcpy(step, at, n);
	step[n] = '\0';
	*path = at + strcspn(at, "/");
	return 0;
}

static int walk_dirs(int root_fd, const char *path, const struct data_access *access, bool any_mount)
{
	int at = *path == '/' ? -EXDEV : enter_dir(root_fd, ".", access, any_mount);
	char step[256];

	while (at >= 0) {
		int next = next_step(&path, step, sizeof(step));

		if (!next && !*step)
			return at;
		next = next < 0 ? next : enter_dir(at, step, access, any_mount);
		close(at);
		at = next;
	}
	return at;
}

int dir_open(int root_fd, const char *path, const struct data_access *access, bool any_mount)
{
	if (access->trusted)
		return open_by_rules(root_fd, path, O_PATH | O_DIRECTORY, 0);
	return walk_dirs(root_fd, path, access, any_mount);
}

int dir_open_first(int root_fd, const char *path, const struct data_access *access, bool *crosses)
{
	int fd = dir_open(root_fd, path, access, false);

	if (fd == -EXDEV && !access->trusted) {
		fd = dir_open(root_fd, path, access, true);
		*crosses = *crosses || fd >= 0;
	}
	return fd;
}

int dir_open_nowait(int root_fd, const char *path, const struct data_access *access)
{
	int fd = access->trusted ? open_by_rules(root_fd, path, O_PATH | O_DIRECTORY, CACHED | ONE_MOUNT) : -EAGAIN;

	return fd == -EXDEV ? -EAGAIN : fd;
}

int dir_open_to_list(int root_fd, const char *path, const struct data_access *access, struct stat *st, bool *crosses)
{
	int at = dir_open_first(root_fd, path, access, crosses);
	int fd, r;

	if (at < 0)
		return at;
	fd = open_by_rules(at, ".", O_RDONLY | O_DIRECTORY, 0);
	close(at);
	if (fd < 0)
		return fd;
	r = fstat(fd, st) < 0 ? -errno : access_allows(access, fd, st, ACCESS_READ | ACCESS_SEARCH) ? 0 : -EACCES;
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

/* ---- files ---- */

static uint64_t ns_of(struct timespec t)
{
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int file_bytes_reserve(struct file_bytes *b, size_t n_bytes)
{
	size_t capacity = (n_bytes + PAD_BYTES + GRAIN_BYTES - 1) / GRAIN_BYTES * GRAIN_BYTES;

	if (b->capacity_bytes >= n_bytes + PAD_BYTES)
		return 0;
	work_free(b->data, b->capacity_bytes, b->payer);
	b->data = work_alloc(capacity, &b->payer);
	b->capacity_bytes = b->data ? capacity : 0;
	return b->data ? 0 : -ENOMEM;
}

/* Older kernels have no RWF_NOWAIT on tmpfs, but tmpfs never waits for a disk either. */
static bool lives_in_memory(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

static ssize_t read_nowait(int fd, uint8_t *data, size_t n, off_t at)
{
	struct iovec v = { data, n };
	ssize_t got = preadv2(fd, &v, 1, at, RWF_NOWAIT);

	if (got < 0 && (errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS || errno == EPERM))
		return lives_in_memory(fd) ? pread(fd, data, n, at) : -EAGAIN;
	return got < 0 ? -errno : got;
}

static ssize_t read_wait(int fd, uint8_t *data, size_t n, off_t at)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = pread(fd, data + done, n - done, at + (off_t)done);

		if (got < 0 && errno != EINTR)
			return -errno;
		if (got == 0)
			break;
		done += got > 0 ? (size_t)got : 0;
	}
	return (ssize_t)done;
}

/* Makes the kernel read the file into its cache although there is no room for it here, so that a worker finds it in
 * memory. */
static void file_touch(int fd, off_t at, size_t n)
{
	uint8_t piece[16 << 10];
	ssize_t got = 1;

	while (n && got > 0) {
		got = pread(fd, piece, n < sizeof(piece) ? n : sizeof(piece), at);
		at += got > 0 ? got : 0;
		n -= got > 0 ? (size_t)got : 0;
	}
}

/* The rules for the walk to a file, from the peer's access and whether the caller may wait. */
static unsigned rules_of(const struct data_access *access, unsigned traits, enum read_how how)
{
	unsigned rules = how == READ_NOWAIT ? CACHED | ONE_MOUNT : 0;

	if (access->trusted)
		return rules;
	return rules | BENEATH | (traits & DIR_ANY_MOUNT ? 0 : ONE_MOUNT);
}

static int file_judge(const struct data_access *access, int fd, bool is_path, const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return -EINVAL;
	return file_allows(access, fd, is_path, st, ACCESS_READ) ? 0 : -EACCES;
}

static int open_straight(int dir_fd, const char *name, const struct data_access *access, unsigned rules,
			 struct stat *st)
{
	int fd = open_by_rules(dir_fd, name, OPEN_FLAGS, rules);
	int r;

	if (fd < 0)
		return fd;
	r = fstat(fd, st) < 0 ? -errno : file_judge(access, fd, false, st);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

static int open_judged(int dir_fd, const char *name, const struct data_access *access, unsigned rules,
		       enum read_how how, struct stat *st)
{
	int path_fd = open_by_rules(dir_fd, name, O_PATH, rules);
	int r;

	if (path_fd < 0)
		return path_fd;
	r = fstat(path_fd, st) < 0 ? -errno : file_judge(access, path_fd, true, st);
	r = r < 0 ? r : open_again(path_fd, how);
	close(path_fd);
	return r;
}

/* Opens a file for reading, with checks; *st is its state. Trusted access opens the named file. For other access, a
 * mount without device nodes holds nothing that is harmful to open, except behind a mount point. */
static int file_open_file(int dir_fd, unsigned traits, const char *name, const struct data_access *access,
			  enum read_how how, struct stat *st)
{
	unsigned rules = rules_of(access, traits, how);
	int fd = -EXDEV;

	pthread_once(&kernel.once, probe_kernel);
	if (access->trusted)
		return open_straight(dir_fd, name, access, rules, st);
	if ((traits & DIR_NODEV) && kernel.openat2)
		fd = open_straight(dir_fd, name, access, rules | ONE_MOUNT, st);
	return fd == -EXDEV ? open_judged(dir_fd, name, access, rules, how, st) : fd;
}

int file_open(const char *path, struct stat *st)
{
	static const struct data_access anything = { .trusted = true };

	return open_judged(AT_FDCWD, path, &anything, 0, READ_WAIT, st);
}

int file_open_at(int dir_fd, unsigned traits, const char *name, const struct data_access *access, struct stat *st)
{
	return file_open_file(dir_fd, traits, name, access, READ_WAIT, st);
}

int file_read_at(int fd, enum read_how how, uint64_t at, size_t n, struct file_bytes *out)
{
	ssize_t got;
	int r;

	if (n > FILE_MAX_BYTES)
		return -EFBIG;
	r = file_bytes_reserve(out, n);
	if (r < 0) {
		if (workspace_is_ahead())
			file_touch(fd, (off_t)at, n);
		return r;
	}
	got = !n                   ? 0
	      : how == READ_NOWAIT ? read_nowait(fd, out->data, n, (off_t)at)
				   : read_wait(fd, out->data, n, (off_t)at);
	if (got < 0)
		return (int)got;
	if (how == READ_NOWAIT && (size_t)got < n)
		return -EAGAIN;
	out->n_bytes = (size_t)got;
	memset(out->data + got, 0, PAD_BYTES);
	return 0;
}

void file_identify(struct file_bytes *b, const struct stat *st)
{
	b->mtime_ns = ns_of(st->st_mtim);
	b->ctime_ns = ns_of(st->st_ctim);
	b->ino = st->st_ino;
	b->dev = st->st_dev;
}

static int read_open_file(int fd, const struct stat *st, enum read_how how, struct file_bytes *out)
{
	int r = (uint64_t)st->st_size > FILE_MAX_BYTES ? -EFBIG : file_read_at(fd, how, 0, (size_t)st->st_size, out);

	if (r == 0)
		file_identify(out, st);
	return r;
}

int file_read(int dir_fd, unsigned traits, const char *name, const struct data_access *access, enum read_how how,
	      struct file_bytes *out)
{
	struct stat st;
	int fd, r;

	if (how == READ_NOWAIT && !(traits & DIR_LOCAL))
		return -EAGAIN;
	fd = file_open_file(dir_fd, traits, name, access, how, &st);
	if (fd < 0) {
		/* A mount point, a missing folder, a replaced folder: a thread that may wait finds out which. */
		return how == READ_NOWAIT && (fd == -EXDEV || fd == -ENOENT || fd == -ESTALE) ? -EAGAIN : fd;
	}
	/* A server tells the current size at open. */
	r = !(traits & DIR_LOCAL) && fstat(fd, &st) < 0 ? -errno : read_open_file(fd, &st, how, out);
	close(fd);
	return r;
}

/* For access that is not trusted the inode alone is not enough: the cached data may have been read for a peer that may
 * read the file, so this peer's right is checked as for a read. Negative errno if there is no such file. */
static int stat_judged(int dir_fd, unsigned traits, const char *name, const struct data_access *access,
		       enum read_how how, struct stat *st)
{
	int fd = open_by_rules(dir_fd, name, O_PATH, rules_of(access, traits, how));
	int r;

	if (fd < 0)
		return fd == -EXDEV && how == READ_NOWAIT ? -EAGAIN : fd;
	r = fstat(fd, st) < 0 ? -errno : file_judge(access, fd, true, st);
	close(fd);
	return r;
}

static int stat_trusted(int dir_fd, const char *name, enum read_how how, struct stat *st)
{
	if (how == READ_WAIT)
		return fstatat(dir_fd, name, st, 0) < 0 ? -errno : 0;
	if (fstatat(dir_fd, name, st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
		return -errno;
	return S_ISLNK(st->st_mode) ? -EAGAIN : 0; /* it may lead to another file system */
}

int file_stat_at(int dir_fd, unsigned traits, const char *name, const struct data_access *access, struct stat *st)
{
	return access->trusted ? stat_trusted(dir_fd, name, READ_WAIT, st)
			       : stat_judged(dir_fd, traits, name, access, READ_WAIT, st);
}

int file_is_current(int dir_fd, unsigned traits, const char *name, const struct data_access *access, enum read_how how,
		    const struct file_bytes *b)
{
	struct stat st;
	int r;

	if (how == READ_NOWAIT && !(traits & DIR_LOCAL))
		return -EAGAIN;
	/* A path of several steps may cross a mount point. */
	r = access->trusted && (how == READ_WAIT || !strchr(name, '/'))
		    ? stat_trusted(dir_fd, name, how, &st)
		    : stat_judged(dir_fd, traits, name, access, how, &st);
	if (r < 0)
		return r == -EAGAIN ? r : 0;
	return st.st_ino == b->ino && (uint64_t)st.st_size == b->n_bytes && ns_of(st.st_mtim) == b->mtime_ns &&
	       ns_of(st.st_ctim) == b->ctime_ns && st.st_dev == b->dev;
}

int file_slurp(int fd, uint64_t max_bytes, char **bytes, size_t *n_bytes)
{
	struct stat st;
	ssize_t got;
	char *data;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if ((uint64_t)st.st_size > max_bytes)
		return -EFBIG;
	data = malloc((size_t)st.st_size + 1);
	if (!data)
		return -ENOMEM;
	got = read_wait(fd, (uint8_t *)data, (size_t)st.st_size, 0);
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
	work_free(b->data, b->capacity_bytes, b->payer);
	*b = (struct file_bytes){ 0 };
}
