/* npy: memory-mapped arrays, gathered row by row.
 *
 * The first array holds the samples, the second (if any) their labels; both have the same first dimension. Files are
 * mapped, never read whole, so a data set larger than memory works and the page cache is shared with other processes.
 * The price is that another process may truncate a file. An access to a lost page raises SIGBUS, which a guard turns
 * into an error. A truncation within a page would read as zeros, so the size is checked after each read. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "data/dataset-impl.h"
#include "data/file.h"
#include "data/gather.h"
#include "data/npy.h"
#include "util/sigbus.h"
#include "util/transfer.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14; older kernels refuse it */
#define MADV_POPULATE_READ 22
#endif

enum { SMALL_BYTES = 64 << 20, READAHEAD_FROM_BYTES = 16 << 10 };

struct array {
	int fd;    /* owned; -1: absent */
	char *map; /* the whole file, read-only */
	size_t map_bytes;
	const char *rows; /* first element */
	size_t row_bytes;
	struct npy npy;
	uint64_t server;      /* as dataset_server */
	uint64_t fingerprint; /* of this array and the one before */
	char name[200];       /* for messages */
};

struct arrays {
	struct dataset base;
	struct array samples, labels;
	bool widen_labels; /* integer scalars are delivered as int64 */
};

static void array_finish(struct array *a)
{
	if (a->map) {
		munmap(a->map, a->map_bytes);
	}
	if (a->fd >= 0) {
		close(a->fd);
	}
}

static void arrays_destroy(struct dataset *ds)
{
	struct arrays *a = (struct arrays *)ds;

	array_finish(&a->samples);
	array_finish(&a->labels);
	free(a);
}

static int cut_short(const struct array *a, struct dataset_error *err)
{
	return dataset_fail(err, DATASET_E_BAD_DATA, -EIO, "%s: the file has become shorter than its array", a->name);
}

static bool is_whole(const struct array *a)
{
	struct stat st;

	return a->fd < 0 || (fstat(a->fd, &st) == 0 && (uint64_t)st.st_size >= a->map_bytes);
}

static void copy_rows(const struct arrays *a, const uint64_t *indices, size_t n, void *rows, void *labels)
{
	if (rows) {
		gather_rows(rows, a->samples.rows, a->samples.row_bytes, indices, n);
	}
	if (!labels) {
		return;
	}
	if (a->labels.fd < 0) {
		memcpy(labels, indices, n * sizeof(*indices)); /* a sample without label is labelled by its index */
	} else if (a->widen_labels) {
		gather_int64(labels, a->labels.rows, a->labels.npy.dtype, indices, n);
	} else {
		gather_rows(labels, a->labels.rows, a->labels.row_bytes, indices, n);
	}
}

static int arrays_gather(struct dataset *ds, const uint64_t *indices, size_t n, void *const rows[],
			 struct dataset_error *err)
{
	struct arrays *a = (struct arrays *)ds;
	struct sigbus_guard guard = { .begin = { a->samples.map, a->labels.map },
				      .end = { a->samples.map + a->samples.map_bytes,
					       a->labels.map + a->labels.map_bytes } };

	if (!n) {
		return 0;
	}
	if (sigsetjmp(guard.landing, 0)) {
		return cut_short(is_whole(&a->samples) ? &a->labels : &a->samples, err);
	}
	sigbus_guard_enter(&guard);
	copy_rows(a, indices, n, rows[0], rows[1]);
	sigbus_guard_leave();
	if (!is_whole(&a->samples)) {
		return cut_short(&a->samples, err);
	}
	return is_whole(&a->labels) ? 0 : cut_short(&a->labels, err);
}

static void arrays_name(const struct dataset *ds, uint64_t index, char *buf, size_t size)
{
	snprintf(buf, size, "%s[%llu]", ((const struct arrays *)ds)->samples.name, (unsigned long long)index);
}

static const struct dataset_ops arrays_ops = { .destroy = arrays_destroy,
					       .gather = arrays_gather,
					       .name = arrays_name };

/* ---- opening ---- */

static int open_array_fd(const struct dataset_source *source, unsigned which, const char *path, struct stat *st,
			 struct dataset_error *err)
{
	struct statfs fs;
	int fd, r;

	if (which < source->n_fds) {
		fd = fcntl(source->fds[which], F_DUPFD_CLOEXEC, 3);
		fd = fd < 0 ? -errno : fd;
	} else if (source->access->trusted) {
		fd = file_open(path, st);
	} else {
		return dataset_fail(err, DATASET_E_ACCESS, -EACCES,
				    "%s: not named in the configuration, and the client sent no descriptor of the file",
				    path);
	}
	if (fd < 0) {
		return fd == -EINVAL ? dataset_fail(err, DATASET_E_INVALID, fd, "%s: not a regular file", path)
				     : dataset_fail_errno(err, -fd, path);
	}
	r = access_check_file_fd(fd, path, st, err);
	/* Their mappings come and go in whole huge pages, and a file's array seldom ends with one. */
	if (!r && fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC) {
		r = dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				 "%s: in huge pages (hugetlbfs), which are not served; use a plain memfd or file",
				 path);
	}
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

/* The header is read, not mapped: the mapping is not trusted until its size is checked. */
static int read_header(struct array *a, const struct stat *st, struct dataset_error *err)
{
	char *bytes = malloc(NPY_MAX_HEADER_BYTES);
	struct npy_error why;
	ssize_t n;
	int r;

	if (!bytes) {
		return dataset_fail_errno(err, ENOMEM, a->name);
	}
	n = transfer_read(a->fd, bytes, NPY_MAX_HEADER_BYTES, 0);
	r = n < 0 ? dataset_fail_errno(err, (int)-n, a->name) : npy_parse(bytes, (size_t)n, &a->npy, &why);
	free(bytes);
	if (n < 0) {
		return r;
	}
	if (r < 0) {
		return dataset_fail(err, DATASET_E_INVALID, r, "%s: %s", a->name, why.text);
	}
	if ((uint64_t)st->st_size < a->npy.data_offset_bytes + a->npy.data_bytes) {
		return dataset_fail(err, DATASET_E_BAD_DATA, -EINVAL,
				    "%s: %llu bytes long, but its header promises %llu: cut short?", a->name,
				    (unsigned long long)st->st_size,
				    (unsigned long long)(a->npy.data_offset_bytes + a->npy.data_bytes));
	}
	return 0;
}

/* Small arrays are cheap to load whole, page tables included. In large arrays with shuffled access, reading ahead of a
 * row is wasted. */
static void advise(const struct array *a)
{
	if (a->map_bytes > SMALL_BYTES) {
		madvise(a->map, a->map_bytes, a->row_bytes < READAHEAD_FROM_BYTES ? MADV_RANDOM : MADV_NORMAL);
	} else if (madvise(a->map, a->map_bytes, MADV_POPULATE_READ) < 0) {
		madvise(a->map, a->map_bytes, MADV_WILLNEED);
	}
}

/* Hashes the content of an array, independent of its location: its header and a few of its bytes, which another array
 * of the same shape is unlikely to share. */
static uint64_t probe(const struct array *a, uint64_t hash)
{
	enum { PLACES = 8, BYTES = 4096 };
	uint8_t bytes[BYTES];

	hash = XXH3_64bits_withSeed(&a->npy, sizeof(a->npy), hash);
	for (uint64_t i = 0; i < PLACES; i++) {
		uint64_t room = a->npy.data_bytes > BYTES ? a->npy.data_bytes - BYTES : 0;
		ssize_t n =
			transfer_read(a->fd, bytes, BYTES, (off_t)(a->npy.data_offset_bytes + room / (PLACES - 1) * i));

		hash = XXH3_64bits_withSeed(bytes, n > 0 ? (size_t)n : 0, hash);
	}
	return hash;
}

/* Reads go through the mapping; the descriptor only gives the size. An O_PATH descriptor does so, too, and closing it
 * never waits, while the last close of a file on a FUSE file system waits for its server. */
static void keep_path_only(struct array *a)
{
	char link[32];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", a->fd);
	fd = open(link, O_PATH | O_CLOEXEC);
	if (fd >= 0) {
		close(a->fd);
		a->fd = fd;
	}
}

static int array_open(struct array *a, const struct dataset_source *source, unsigned which, const char *path,
		      uint64_t seed, struct dataset_error *err)
{
	struct stat st;
	int r;

	snprintf(a->name, sizeof(a->name), "%s", path);
	a->fd = open_array_fd(source, which, path, &st, err);
	if (a->fd < 0) {
		return a->fd;
	}
	r = read_header(a, &st, err);
	if (r < 0) {
		return r;
	}
	if (!a->npy.n_dims || !a->npy.shape[0]) {
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				    "%s: %s: expected an array whose first dimension counts samples", a->name,
				    a->npy.n_dims ? "no sample" : "a single number");
	}
	a->map_bytes = a->npy.data_offset_bytes + a->npy.data_bytes;
	a->map = mmap(NULL, a->map_bytes, PROT_READ, MAP_SHARED, a->fd, 0);
	if (a->map == MAP_FAILED) {
		a->map = NULL;
		return dataset_fail_errno(err, errno, a->name);
	}
	a->rows = a->map + a->npy.data_offset_bytes;
	a->row_bytes = a->npy.data_bytes / a->npy.shape[0];
	a->server = dir_traits(a->fd, source->access) & DIR_LOCAL ? 0 : st.st_dev ? st.st_dev : 1;
	a->fingerprint = probe(a, seed);
	advise(a);
	keep_path_only(a);
	return 0;
}

static int take_shape(const struct array *a, struct field *f, struct dataset_error *err)
{
	f->n_dims = a->npy.n_dims - 1;
	for (unsigned i = 0; i < f->n_dims; i++) {
		if (a->npy.shape[i + 1] > UINT32_MAX) {
			return dataset_fail(err, DATASET_E_LIMIT, -EFBIG, "%s: a dimension is larger than 2^32 - 1",
					    a->name);
		}
		f->shape[i] = (uint32_t)a->npy.shape[i + 1];
	}
	return 0;
}

/* Losses and indexing need int64 labels: whatever type they were saved as, labels are widened if int64 holds them
 * all. */
static bool is_widened(enum dtype t)
{
	return t == DTYPE_UINT8 || t == DTYPE_INT8 || t == DTYPE_INT16 || t == DTYPE_UINT16 || t == DTYPE_INT32 ||
	       t == DTYPE_UINT32 || t == DTYPE_INT64;
}

static int describe(struct arrays *a, const char *spec, struct dataset_error *err)
{
	struct dataset *ds = &a->base;
	enum dtype stored = a->labels.npy.dtype;
	struct field *rows = dataset_add_field(ds, "data", a->samples.npy.dtype, err);
	int r = rows ? take_shape(&a->samples, rows, err) : -ENOMEM;
	struct field *label = r ? NULL : dataset_add_field(ds, "label", DTYPE_INT64, err);

	if (!label) {
		return r ? r : -ENOMEM;
	}
	ds->server = a->samples.server ? a->samples.server : a->labels.server;
	ds->n = a->samples.npy.shape[0];
	if (a->labels.fd >= 0) {
		if (a->labels.npy.shape[0] != ds->n) {
			return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
					    "%s has %llu samples and %s %llu labels: expected as many", a->samples.name,
					    (unsigned long long)ds->n, a->labels.name,
					    (unsigned long long)a->labels.npy.shape[0]);
		}
		r = take_shape(&a->labels, label, err);
		a->widen_labels = !label->n_dims && is_widened(stored);
		label->dtype = a->widen_labels ? DTYPE_INT64 : stored;
	}
	if (!r) {
		uint64_t id = XXH3_64bits(spec, strlen(spec));

		id = XXH3_64bits_withSeed(&a->samples.npy, sizeof(a->samples.npy), id);
		ds->id = XXH3_64bits_withSeed(&a->labels.npy, sizeof(a->labels.npy), id);
		ds->content_id = a->labels.fd < 0 ? a->samples.fingerprint : a->labels.fingerprint;
	}
	return r;
}

static int open_both(struct arrays *a, const struct dataset_source *source, char *path, struct dataset_error *err)
{
	/* One descriptor means one file, even if its name has a comma. */
	char *comma = source->n_fds == 1 ? NULL : strchr(path, ',');
	int r;

	if (source->n_fds > 2 || (source->n_fds == 2 && !comma)) {
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "npy:%s: %u descriptors for %s", path,
				    source->n_fds, comma ? "two files" : "one file");
	}
	if (comma) {
		*comma++ = '\0';
	}
	r = array_open(&a->samples, source, 0, path, 0, err);
	if (!r && comma) {
		r = array_open(&a->labels, source, 1, comma, a->samples.fingerprint, err);
	}
	return r;
}

int arrays_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	struct arrays *a = calloc(1, sizeof(*a));
	char path[4096];
	int r;

	if (!a) {
		return dataset_fail_errno(err, ENOMEM, rest);
	}
	a->base.ops = &arrays_ops;
	atomic_init(&a->base.refs, 1);
	a->samples.fd = a->labels.fd = -1;
	snprintf(path, sizeof(path), "%s", rest);
	sigbus_install();
	r = open_both(a, source, path, err);
	r = r < 0 ? r : describe(a, rest, err);
	if (r < 0) {
		dataset_destroy(&a->base);
		return r;
	}
	*out = &a->base;
	return 0;
}
