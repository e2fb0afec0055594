/* See mapped.h. */
#include "dataset/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <xxhash.h>

#include "dataset/file.h"
#include "dataset/servers.h"
#include "base/io-full.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14; older kernels refuse it */
#define MADV_POPULATE_READ 22
#endif

enum { SMALL_BYTES = 64 << 20, READAHEAD_FROM_BYTES = 16 << 10 };

static int open_fd(const struct dataset_source *source, unsigned which, const char *path, struct stat *st,
		   struct dataset_error *err)
{
	if (which < source->n_fds) {
		int fd = fcntl(source->fds[which], F_DUPFD_CLOEXEC, 3);

		return fd < 0 ? dataset_fail_errno(err, errno, path) : fd;
	}
	if (source->access->trusted) {
		int fd = file_open(path, st);

		if (fd == -EINVAL)
			return dataset_fail(err, DATASET_E_INVALID, fd, "%s: not a regular file", path);
		return fd < 0 ? dataset_fail_errno(err, -fd, path) : fd;
	}
	return dataset_fail(err, DATASET_E_ACCESS, -EACCES,
			    "%s: not named in the configuration, and the client sent no descriptor of the file", path);
}

int mapped_open(struct mapped *m, const struct dataset_source *source, unsigned which, const char *path,
		struct stat *st, struct dataset_error *err)
{
	struct statfs fs;
	int r;

	sigbus_install();
	snprintf(m->name, sizeof(m->name), "%s", path);
	m->fd = open_fd(source, which, path, st, err);
	if (m->fd < 0) {
		r = m->fd;
		m->fd = -1;
		return r;
	}
	r = access_check_file_fd(m->fd, path, st, err);
	/* Their mappings come and go in whole huge pages, and a file's array seldom ends with one. */
	if (!r && fstatfs(m->fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC) {
		r = dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				 "%s: in huge pages (hugetlbfs), which are not served; use a plain memfd or file",
				 path);
	}
	return r;
}

static int hold(struct mapped *m, const struct dataset_source *source, uint64_t n_bytes, struct dataset_error *err)
{
	int r = meter_take(source->meter, n_bytes);

	m->held_bytes = r < 0 ? 0 : n_bytes;
	return r < 0 ? dataset_fail_errno(err, -r, m->name) : 0;
}

int mapped_hold_sealed(struct mapped *m, const struct dataset_source *source, struct stat *st,
		       struct dataset_error *err)
{
	int seals = fcntl(m->fd, F_GET_SEALS), needed = F_SEAL_SHRINK | F_SEAL_GROW;

	if (seals < 0 || (seals & needed) != needed)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				    "memory: '%s' is no memfd that is sealed against shrinking and growing "
				    "(F_SEAL_SHRINK, F_SEAL_GROW)",
				    m->name);
	/* The size is the one that was sealed, not one from before. */
	if (fstat(m->fd, st) < 0)
		return dataset_fail_errno(err, errno, m->name);
	m->sealed = true;
	return hold(m, source, (uint64_t)st->st_size, err);
}

/* A hole of a file in memory takes memory when it is read through a mapping, and that is then the daemon's; a file
 * without a name, such as a memfd, stays in memory for the daemon alone. */
static int hold_memory(struct mapped *m, const struct dataset_source *source, const struct stat *st, size_t n_bytes,
		       struct dataset_error *err)
{
	uint64_t present = (uint64_t)st->st_blocks * 512;
	struct statfs fs;

	if (m->sealed || source->access->trusted || fstatfs(m->fd, &fs) < 0 ||
	    (fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC))
		return 0;
	return hold(m, source, !st->st_nlink ? n_bytes : n_bytes > present ? n_bytes - present : 0, err);
}

/* Small files are cheap to load whole, page tables included. In large files with shuffled access, reading ahead of a row
 * is wasted. */
static void mapped_advise(const struct mapped *m, size_t row_bytes)
{
	if (m->map_bytes > SMALL_BYTES)
		madvise(m->map, m->map_bytes, row_bytes < READAHEAD_FROM_BYTES ? MADV_RANDOM : MADV_NORMAL);
	else if (madvise(m->map, m->map_bytes, MADV_POPULATE_READ) < 0)
		madvise(m->map, m->map_bytes, MADV_WILLNEED);
}

/* Reads go through the mapping; the descriptor only gives the size. An O_PATH descriptor does so, too, and closing it
 * never waits, while the last close of a file on a FUSE file system waits for its server. */
static void keep_path_only(struct mapped *m)
{
	char link[32];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", m->fd);
	fd = open(link, O_PATH | O_CLOEXEC);
	if (fd >= 0) {
		close(m->fd);
		m->fd = fd;
	}
}

int mapped_map(struct mapped *m, const struct dataset_source *source, const struct stat *st, size_t n_bytes,
	       size_t row_bytes, struct dataset_error *err)
{
	int r = hold_memory(m, source, st, n_bytes, err);
	void *map = r < 0 ? NULL : mmap(NULL, n_bytes, PROT_READ, MAP_SHARED, m->fd, 0);

	if (!map)
		return r;
	if (map == MAP_FAILED)
		return dataset_fail_errno(err, errno, m->name);
	m->map = map;
	m->map_bytes = n_bytes;
	m->server = dir_traits(m->fd, source->access) & DIR_LOCAL ? 0 : servers_number(st);
	mapped_advise(m, row_bytes);
	keep_path_only(m);
	return 0;
}

void mapped_finish(struct mapped *m)
{
	if (m->map)
		munmap(m->map, m->map_bytes);
	if (m->fd >= 0)
		close(m->fd);
	m->map = NULL;
	m->fd = -1;
}

bool mapped_is_whole(const struct mapped *m)
{
	struct stat st;

	return m->fd < 0 || m->sealed || (fstat(m->fd, &st) == 0 && (uint64_t)st.st_size >= m->map_bytes);
}

int mapped_cut_short(const struct mapped *m, struct dataset_error *err)
{
	return dataset_fail(err, DATASET_E_BAD_DATA, -EIO, "%s: the file has become shorter than its content", m->name);
}

uint64_t mapped_probe(const struct mapped *m, uint64_t offset, uint64_t n_bytes, uint64_t hash)
{
	enum { PLACES = 8, BYTES = 4096 };
	uint8_t bytes[BYTES];
	uint64_t room = n_bytes > BYTES ? n_bytes - BYTES : 0;

	for (uint64_t i = 0; i < PLACES; i++) {
		ssize_t n = io_full_read(m->fd, bytes, BYTES, (off_t)(offset + room / (PLACES - 1) * i));

		hash = XXH3_64bits_withSeed(bytes, n > 0 ? (size_t)n : 0, hash);
	}
	return hash;
}
