/* See shards.h. A shard that is replaced by another file of its name keeps its old bytes as long as it is open here, as
 * any open file does. A shard that is changed in place is noticed at the next read, whose bytes are not used: the state
 * of the descriptor is compared after the read, so that a change during it is seen as well. */
#include "dataset/shards/shards.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/file.h"
#include "dataset/kept-fds.h"
#include "dataset/servers.h"
#include "base/closing.h"
#include "base/size.h"

enum { TRAIT_BITS = 3, PAD_BYTES = 64 };

static int shards_pack(int fd, unsigned traits)
{
	return (int)((unsigned)(fd + 1) << TRAIT_BITS | traits);
}

static int shards_unpack(int packed, unsigned *traits)
{
	*traits = (unsigned)packed & ((1u << TRAIT_BITS) - 1);
	return (packed >> TRAIT_BITS) - 1;
}

int shards_init(struct shards *s, struct shard_names *names, const struct data_access *access)
{
	int r = meter_take(names->meter, names->n * sizeof(*s->fds));

	*s = (struct shards){ .access = *access, .names = *names };
	*names = (struct shard_names){ 0 };
	s->fds = r ? NULL : calloc(s->names.n, sizeof(*s->fds));
	if (!s->fds)
		return r ? r : -ENOMEM;
	for (unsigned i = 0; i < s->names.n_roots; i++) {
		s->root_traits[i] = dir_traits(s->names.roots[i], access);
		if (!(s->root_traits[i] & DIR_LOCAL) || s->names.crosses)
			s->any_mount = DIR_ANY_MOUNT;
	}
	return 0;
}

void shards_finish(struct shards *s)
{
	for (size_t i = 0; s->fds && i < s->names.n; i++) {
		int packed = atomic_load(&s->fds[i]), fd;
		unsigned traits;

		if (!packed)
			continue;
		fd = shards_unpack(packed, &traits);
		if (traits & DIR_LOCAL)
			close(fd);
		else
			closing_add(s->access.uid, &fd, 1);
		kept_fds_give(s->access.uid);
	}
	for (size_t i = 0; s->contents && i < s->names.n; i++) {
		if (!s->contents[i].is_lent)
			free((void *)(uintptr_t)s->contents[i].bytes);
	}
	free(s->contents);
	free(s->fds);
	shard_names_finish(&s->names);
	*s = (struct shards){ 0 };
}

uint64_t shards_memory_bytes(const struct shards *s)
{
	uint64_t sum =
		s->names.n * sizeof(*s->fds) + s->names.capacity * sizeof(*s->names.list) + s->names.text.capacity;

	for (size_t i = 0; s->contents && i < s->names.n; i++)
		sum += sizeof(*s->contents) + (s->contents[i].is_lent ? 0 : s->contents[i].n_bytes);
	return sum;
}

static int put_content(struct shards *s, uint32_t i, const struct shard_content *content)
{
	int r = s->contents ? 0 : meter_take(s->names.meter, s->names.n * sizeof(*s->contents));

	if (r)
		return r;
	s->contents = s->contents ? s->contents : calloc(s->names.n, sizeof(*s->contents));
	if (!s->contents)
		return -ENOMEM;
	s->contents[i] = *content;
	return 0;
}

int shards_hold(struct shards *s, uint32_t i, uint8_t *bytes, size_t n_bytes)
{
	return put_content(s, i, &(struct shard_content){ bytes, n_bytes, false });
}

int shards_lend(struct shards *s, uint32_t i, const uint8_t *bytes, size_t n_bytes)
{
	return put_content(s, i, &(struct shard_content){ bytes, n_bytes, true });
}

const struct shard_content *shards_content(const struct shards *s, uint32_t i)
{
	return s->contents && s->contents[i].bytes ? &s->contents[i] : NULL;
}

/* A content is what the file was when it was opened, whatever becomes of the file. */
static int read_content(const struct shard_content *c, const struct shard_stamp *stamp, uint64_t at, size_t n,
			struct file_bytes *out, struct dataset_error *err)
{
	if (at > c->n_bytes || n > c->n_bytes - at)
		return dataset_fail(err, DATASET_E_BAD_DATA, -EINVAL, "a sample beyond its shard's end");
	if (n > FILE_MAX_BYTES)
		return dataset_fail(err, DATASET_E_BAD_DATA, -EFBIG, "a sample of more than 256 MiB");
	if (file_bytes_reserve(out, n))
		return -ENOMEM;
	memcpy(out->data, c->bytes + at, n);
	memset(out->data + n, 0, PAD_BYTES);
	out->n_bytes = n;
	out->dev = stamp->dev;
	out->ino = stamp->ino;
	out->mtime_ns = stamp->mtime_ns;
	out->ctime_ns = stamp->ctime_ns;
	return 0;
}

void shards_path(const struct shards *s, uint32_t i, char *buf, size_t size)
{
	const char *root = s->names.root_path[s->names.list[i].root];

	if (!s->names.n_roots) {
		snprintf(buf, size, "%s", shard_names_path(&s->names, i));
		return;
	}
	snprintf(buf, size, "%.230s%s%.160s", root, !strcmp(root, "/") ? "" : "/", shard_names_path(&s->names, i));
}

static int shards_fail(const struct shards *s, uint32_t i, int error, struct dataset_error *err)
{
	char path[400];

	shards_path(s, i, path, sizeof(path));
	return error == -EINVAL ? dataset_fail(err, DATASET_E_INVALID, error, "%s: not a regular file", path)
				: dataset_fail_errno(err, -error, path);
}

/* A shard's folder, if the way there must be checked: a peer that is not trusted must be able to search each step. -1: the
 * root. *name: the way to the shard from there. */
static int find_folder(const struct shards *s, uint32_t i, const char *path, const char **name, int *folder_fd)
{
	const char *slash = strrchr(path, '/');
	char folder[4096];

	*folder_fd = -1;
	*name = path;
	if (s->access.trusted || !slash)
		return 0;
	snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
	*folder_fd = dir_open(s->names.roots[s->names.list[i].root], folder, &s->access, s->any_mount);
	*name = slash + 1;
	return *folder_fd < 0 ? *folder_fd : 0;
}

typedef int look_fn(int dir_fd, unsigned traits, const char *name, const struct data_access *access, struct stat *st);

/* Opens a file below the shard's root, or asks for its state. */
static int look_at(const struct shards *s, uint32_t i, const char *path, look_fn *look, struct stat *st)
{
	unsigned root = s->names.list[i].root;
	const char *name;
	int folder, r = find_folder(s, i, path, &name, &folder);

	if (r < 0)
		return r;
	if (folder < 0)
		return look(s->names.roots[root], s->root_traits[root] | s->any_mount, name, &s->access, st);
	r = look(folder, dir_traits(folder, &s->access) | s->any_mount, name, &s->access, st);
	close(folder);
	return r;
}

static int look_below(const struct shards *s, uint32_t i, look_fn *look, struct stat *st)
{
	return look_at(s, i, shard_names_path(&s->names, i), look, st);
}

int shards_open_beside(const struct shards *s, uint32_t i, const char *ending, struct stat *st)
{
	const char *path = shard_names_path(&s->names, i), *slash = strrchr(path, '/');
	const char *dot = strrchr(slash ? slash + 1 : path, '.');
	char name[4096];

	return snprintf(name, sizeof(name), "%.*s%s", (int)(dot ? (size_t)(dot - path) : strlen(path)), path, ending) <
			       (int)sizeof(name)
		       ? look_at(s, i, name, file_open_at, st)
		       : -ENAMETOOLONG;
}

uint64_t shards_size(const struct shards *s, uint32_t i)
{
	struct stat st;

	return look_below(s, i, file_stat_at, &st) < 0 ? 0 : (uint64_t)st.st_size;
}

static int shards_keep(struct shards *s, uint32_t i, int fd, unsigned traits, bool *is_kept)
{
	int none = 0;

	*is_kept = kept_fds_take(s->access.uid);
	if (!*is_kept || atomic_compare_exchange_strong(&s->fds[i], &none, shards_pack(fd, traits)))
		return fd;
	close(fd);
	kept_fds_give(s->access.uid);
	return shards_unpack(none, &traits);
}

int shards_open(struct shards *s, uint32_t i, struct stat *st, bool *is_kept, struct dataset_error *err)
{
	int packed = atomic_load_explicit(&s->fds[i], memory_order_acquire), fd;
	unsigned traits;

	*is_kept = packed != 0;
	if (packed) {
		fd = shards_unpack(packed, &traits);
		return fstat(fd, st) < 0 ? shards_fail(s, i, -errno, err) : fd;
	}
	fd = look_below(s, i, file_open_at, st);
	if (fd < 0)
		return shards_fail(s, i, fd, err);
	return shards_keep(s, i, fd, dir_traits(fd, &s->access), is_kept);
}

void shards_note(struct shards *s, int fd, const struct stat *st)
{
	if (!(dir_traits(fd, &s->access) & DIR_LOCAL))
		s->server = servers_both(s->server, servers_number(st));
}

/* For a running job, which the change of a shard's name or rights must not end: so without the ctime, which a cache's
 * key has. */
static bool is_unchanged(const struct shard_stamp *stamp, const struct stat *st)
{
	struct shard_stamp now = shard_stamp_of(st);

	return now.dev == stamp->dev && now.ino == stamp->ino && now.n_bytes == stamp->n_bytes &&
	       now.mtime_ns == stamp->mtime_ns;
}

static bool is_cached_from(const struct file_bytes *b, const struct shard_stamp *stamp, const struct stat *st)
{
	return is_unchanged(stamp, st) && b->ctime_ns == shard_stamp_of(st).ctime_ns;
}

static int shards_changed(const struct shards *s, uint32_t i, const struct shard_stamp *stamp, const struct stat *st,
			  struct dataset_error *err)
{
	char path[400], was[32], is[32];

	shards_path(s, i, path, sizeof(path));
	if ((uint64_t)st->st_size < stamp->n_bytes)
		return dataset_fail(
			err, DATASET_E_BAD_DATA, -ESTALE,
			"%.380s: cut short since it was indexed (%s, then %s): restore it, or open the data set again",
			path, size_format((uint64_t)st->st_size, is, sizeof(is)),
			size_format(stamp->n_bytes, was, sizeof(was)));
	return dataset_fail(err, DATASET_E_BAD_DATA, -ESTALE,
			    "%s: changed since it was indexed: open the data set again", path);
}

static int read_and_check(const struct shards *s, uint32_t i, int fd, const struct shard_stamp *stamp,
			  enum read_how how, uint64_t at, size_t n, struct file_bytes *out, struct dataset_error *err)
{
	int r = file_read_at(fd, how, at, n, out);
	struct stat st;
	char path[400];

	if (r == -EAGAIN || r == -ENOMEM)
		return r;
	if (r < 0) {
		shards_path(s, i, path, sizeof(path));
		return r == -EFBIG ? dataset_fail(err, DATASET_E_BAD_DATA, r, "%s: a sample of more than 256 MiB", path)
				   : shards_fail(s, i, r, err);
	}
	if (fstat(fd, &st) < 0)
		return shards_fail(s, i, -errno, err);
	if (out->n_bytes < n || !is_unchanged(stamp, &st))
		return shards_changed(s, i, stamp, &st, err);
	file_identify(out, &st);
	return 0;
}

int shards_read(struct shards *s, uint32_t i, const struct shard_stamp *stamp, enum read_how how, uint64_t at, size_t n,
		struct file_bytes *out, struct dataset_error *err)
{
	int packed = atomic_load_explicit(&s->fds[i], memory_order_acquire), fd, r;
	const struct shard_content *content = shards_content(s, i);
	unsigned traits = 0;
	struct stat st;
	bool is_kept;

	if (content)
		return read_content(content, stamp, at, n, out, err);
	if (how == READ_NOWAIT) {
		fd = packed ? shards_unpack(packed, &traits) : -1;
		return traits & DIR_LOCAL ? read_and_check(s, i, fd, stamp, how, at, n, out, err) : -EAGAIN;
	}
	fd = shards_open(s, i, &st, &is_kept, err);
	if (fd < 0)
		return fd;
	r = read_and_check(s, i, fd, stamp, how, at, n, out, err);
	if (!is_kept)
		close(fd);
	return r;
}

int shards_is_current(struct shards *s, uint32_t i, const struct shard_stamp *stamp, enum read_how how,
		      const struct file_bytes *b)
{
	int packed = atomic_load_explicit(&s->fds[i], memory_order_acquire), fd = -1;
	struct dataset_error unused;
	unsigned traits = 0;
	struct stat st;
	bool is_kept;

	if (b->ino != stamp->ino || b->dev != stamp->dev || b->mtime_ns != stamp->mtime_ns)
		return 0;
	if (shards_content(s, i))
		return b->ctime_ns == stamp->ctime_ns;
	if (packed)
		fd = shards_unpack(packed, &traits);
	if (how == READ_NOWAIT)
		return !(traits & DIR_LOCAL) ? -EAGAIN : fstat(fd, &st) == 0 && is_cached_from(b, stamp, &st);
	fd = shards_open(s, i, &st, &is_kept, &unused);
	if (fd < 0)
		return 0;
	if (!is_kept)
		close(fd);
	return is_cached_from(b, stamp, &st);
}
