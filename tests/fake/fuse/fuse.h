/* A read-only FUSE file system that shows a folder of this machine, written for the kernel's own protocol. A test can
 * stop its server (SIGSTOP) and continue it, as a network file system hangs and comes back. The kernel keeps names for
 * an hour, so that walking a path does not need the server; opening a file and reading its attributes does. */
#ifndef BATCHD_TESTS_FUSE_H
#define BATCHD_TESTS_FUSE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FUSE_BUFFER = 256 << 10, FUSE_CACHED_S = 3600, FUSE_MAX_NODES = 65536 };

/* Node n is the file or folder behind fuse_paths[n]; 1 is the root. */
static char **fuse_paths;
static unsigned fuse_n_paths;

static inline unsigned fuse_node(const char *path)
{
	for (unsigned i = 1; i < fuse_n_paths; i++) {
		if (!strcmp(fuse_paths[i], path)) {
			return i;
		}
	}
	if (fuse_n_paths == FUSE_MAX_NODES) {
		return 0;
	}
	fuse_paths[fuse_n_paths] = strdup(path);
	return fuse_n_paths++;
}

static inline void fuse_answer(int fd, uint64_t unique, int error, const void *data, size_t n)
{
	struct fuse_out_header head = { .len = (uint32_t)(sizeof(head) + (error ? 0 : n)),
					.error = -error,
					.unique = unique };
	struct iovec v[2] = { { &head, sizeof(head) }, { (void *)data, error ? 0 : n } };

	if (writev(fd, v, 2) < 0 && errno == ENODEV) {
		_exit(0);
	}
}

static inline void fuse_attr_of(const struct stat *st, unsigned node, struct fuse_attr *a)
{
	*a = (struct fuse_attr){ .ino = node,
				 .size = (uint64_t)st->st_size,
				 .blocks = (uint64_t)st->st_blocks,
				 .mtime = (uint64_t)st->st_mtim.tv_sec,
				 .mtimensec = (uint32_t)st->st_mtim.tv_nsec,
				 .ctime = (uint64_t)st->st_ctim.tv_sec,
				 .ctimensec = (uint32_t)st->st_ctim.tv_nsec,
				 .mode = st->st_mode,
				 .nlink = (uint32_t)st->st_nlink,
				 .uid = st->st_uid,
				 .gid = st->st_gid,
				 .blksize = 4096 };
}

static inline void fuse_look_up(int fd, uint64_t unique, const char *folder, const char *name)
{
	struct fuse_entry_out out = { .entry_valid = FUSE_CACHED_S };
	char path[4096];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (lstat(path, &st) < 0) {
		fuse_answer(fd, unique, errno, NULL, 0);
		return;
	}
	out.nodeid = fuse_node(path);
	fuse_attr_of(&st, (unsigned)out.nodeid, &out.attr);
	fuse_answer(fd, unique, out.nodeid ? 0 : ENFILE, &out, sizeof(out));
}

static inline void fuse_list(int fd, uint64_t unique, const char *folder, const struct fuse_read_in *in)
{
	static char bytes[FUSE_BUFFER];
	DIR *d = opendir(folder);
	struct dirent *entry;
	uint64_t at = 0;
	size_t n = 0;

	while (d && (entry = readdir(d))) {
		size_t n_name = strlen(entry->d_name);
		size_t size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + n_name);
		struct fuse_dirent *out = (void *)(bytes + n);

		if (at++ < in->offset) {
			continue;
		}
		if (n + size > in->size || n + size > sizeof(bytes)) {
			break;
		}
		memset(out, 0, size);
		*out = (struct fuse_dirent){ .ino = at, .off = at, .namelen = (uint32_t)n_name, .type = entry->d_type };
		memcpy(out->name, entry->d_name, n_name);
		n += size;
	}
	fuse_answer(fd, unique, d ? 0 : errno, bytes, n);
	if (d) {
		closedir(d);
	}
}

static inline void fuse_read_file(int fd, uint64_t unique, const char *path, const struct fuse_read_in *in)
{
	static char bytes[FUSE_BUFFER];
	int file = open(path, O_RDONLY | O_CLOEXEC);
	size_t most = in->size < FUSE_BUFFER ? in->size : FUSE_BUFFER;
	ssize_t n = file < 0 ? -1 : pread(file, bytes, most, (off_t)in->offset);

	fuse_answer(fd, unique, n < 0 ? errno : 0, bytes, n < 0 ? 0 : (size_t)n);
	if (file >= 0) {
		close(file);
	}
}

static inline void fuse_serve_one(int fd, const struct fuse_in_header *in)
{
	const char *path = in->nodeid < fuse_n_paths ? fuse_paths[in->nodeid] : NULL;
	const void *body = in + 1;
	struct fuse_attr_out attr = { 0 };
	struct fuse_init_out init = {
		.major = FUSE_KERNEL_VERSION, .minor = 31, .max_readahead = 65536, .max_write = 65536
	};
	struct fuse_statfs_out statfs = { .st = { .bsize = 4096, .namelen = 255 } };
	struct fuse_open_out open_out = { .open_flags = FOPEN_KEEP_CACHE };
	struct stat st;

	switch (in->opcode) {
	case FUSE_INIT:
		fuse_answer(fd, in->unique, 0, &init, sizeof(init));
		return;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return;
	case FUSE_LOOKUP:
		fuse_look_up(fd, in->unique, path, body);
		return;
	case FUSE_GETATTR:
		if (stat(path, &st) < 0) {
			fuse_answer(fd, in->unique, errno, NULL, 0);
			return;
		}
		fuse_attr_of(&st, (unsigned)in->nodeid, &attr.attr);
		fuse_answer(fd, in->unique, 0, &attr, sizeof(attr));
		return;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		fuse_answer(fd, in->unique, 0, &open_out, sizeof(open_out));
		return;
	case FUSE_READ:
		fuse_read_file(fd, in->unique, path, body);
		return;
	case FUSE_READDIR:
		fuse_list(fd, in->unique, path, body);
		return;
	case FUSE_STATFS:
		fuse_answer(fd, in->unique, 0, &statfs, sizeof(statfs));
		return;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
		fuse_answer(fd, in->unique, 0, NULL, 0);
		return;
	default:
		fuse_answer(fd, in->unique, ENOSYS, NULL, 0);
	}
}

/* Answers requests for as long as the file system is mounted. */
static inline void fuse_serve(int fd, const char *folder)
{
	char *bytes = malloc(FUSE_BUFFER);

	fuse_paths = calloc(FUSE_MAX_NODES, sizeof(*fuse_paths));
	fuse_n_paths = 1;
	fuse_node(folder);
	for (;;) {
		ssize_t n = read(fd, bytes, FUSE_BUFFER);

		if (n >= (ssize_t)sizeof(struct fuse_in_header)) {
			fuse_serve_one(fd, (const void *)bytes);
		} else if (n < 0 && errno == EPERM) {
			usleep(1000); /* not mounted yet */
		} else if (n >= 0 || (errno != EINTR && errno != ENOENT && errno != EAGAIN)) {
			_exit(0);
		}
	}
}

/* Mounts `folder` at `at`, visible to this process and its children only. Returns the server, or -1 where FUSE or
 * mounting is not allowed; then prints why. */
static inline pid_t fuse_start(const char *folder, const char *at)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[128];
	pid_t server;

	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd);
	if (fd < 0 || unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("batchd-test", at, "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
		printf("skipped: no FUSE here: %s\n", strerror(errno));
		if (fd >= 0) {
			close(fd);
		}
		return -1;
	}
	server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fuse_serve(fd, folder);
	}
	close(fd); /* the file system ends with its server */
	return server;
}

#endif
