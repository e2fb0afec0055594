/* Reads the files of an index, with few and short path walks.
 *
 * A folder's descriptor is kept from its first use on, so that opening a file resolves one name. A folder is checked
 * when it is opened, and later swaps of names do not change its descriptor. The number of kept descriptors is limited
 * (kept-fds.h). Beyond that, files are opened by their whole path; no other folder is closed, because with
 * shuffled access it is as likely to be needed next. A folder that was replaced meanwhile is noticed when a file is
 * missing in the old one. */
#include "dataset/folder/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "dataset/shards/column-fields.h"
#include "dataset/file.h"
#include "dataset/kept-fds.h"
#include "dataset/servers.h"

struct tree {
	struct dataset base;
	struct data_access access;
	int root_fd; /* owned */
	struct manifest index;
	unsigned root_traits; /* of root_fd */
	unsigned any_mount;   /* DIR_ANY_MOUNT: mount points are crossed, also those that appear later */
	char *values;         /* the columns' block; NULL: none */
	struct columns columns;
	unsigned n_own;      /* fields before the columns: image and, unless a column has this name, label */
	atomic_int *dir_fds; /* of each folder: pack_dir, or 0 while there is none. Set once */
};

enum { TRAIT_BITS = 3 };

static int pack_dir(int fd, unsigned traits)
{
	return (int)((unsigned)(fd + 1) << TRAIT_BITS | traits);
}

static int unpack_dir(int packed, unsigned *traits)
{
	*traits = (unsigned)packed & ((1u << TRAIT_BITS) - 1);
	return (packed >> TRAIT_BITS) - 1;
}

static int open_dir(const struct tree *t, uint32_t dir, enum read_how how, unsigned *traits)
{
	const char *path = manifest_dir_path(&t->index, dir);
	int fd;

	if (how == READ_NOWAIT) {
		*traits = t->root_traits;
		return dir_open_nowait(t->root_fd, path, &t->access);
	}
	fd = dir_open(t->root_fd, path, &t->access, t->any_mount);
	*traits = fd < 0 ? 0 : dir_traits(fd, &t->access) | t->any_mount;
	return fd;
}

/* A kept descriptor of a folder and the traits of its file system. -EAGAIN with READ_NOWAIT; -EMFILE when no more may
 * be kept; other negative errno when it cannot be opened. */
static int kept_dir(struct tree *t, uint32_t dir, enum read_how how, unsigned *traits)
{
	int kept = atomic_load_explicit(&t->dir_fds[dir], memory_order_acquire), none = 0, fd;

	if (kept)
		return unpack_dir(kept, traits);
	if (how == READ_NOWAIT && !(t->root_traits & DIR_LOCAL))
		return -EAGAIN;
	if (!kept_fds_take(t->access.uid))
		return -EMFILE;
	fd = open_dir(t, dir, how, traits);
	if (fd < 0) {
		kept_fds_give(t->access.uid);
		return fd;
	}
	if (!atomic_compare_exchange_strong(&t->dir_fds[dir], &none, pack_dir(fd, *traits))) {
		close(fd);
		kept_fds_give(t->access.uid);
		return unpack_dir(none, traits);
	}
	return fd;
}

/* The place of a file without a kept folder: below the root, or, if the way there must be checked, in a folder that is
 * opened for it. */
struct place {
	int fd;
	unsigned traits;
	const char *name;
	bool is_own; /* close fd afterwards */
	char path[4096 + 256];
};

static int find_place(const struct tree *t, uint64_t index, enum read_how how, struct place *p)
{
	if (t->access.trusted) {
		manifest_name(&t->index, index, p->path, sizeof(p->path));
		p->fd = t->root_fd;
		p->traits = how == READ_NOWAIT ? t->root_traits : 0;
		p->name = p->path;
		p->is_own = false;
		return 0;
	}
	if (how == READ_NOWAIT)
		return -EAGAIN;
	p->fd = dir_open(t->root_fd, manifest_dir_path(&t->index, t->index.file_dir[index]), &t->access, t->any_mount);
	p->traits = t->any_mount;
	p->name = manifest_file_name(&t->index, index);
	p->is_own = true;
	return p->fd < 0 ? p->fd : 0;
}

static void leave_place(const struct place *p)
{
	if (p->is_own)
		close(p->fd);
}

static int read_by_path(const struct tree *t, uint64_t index, enum read_how how, struct file_bytes *out)
{
	struct place p;
	int r = find_place(t, index, how, &p);

	if (r < 0)
		return r;
	r = file_read(p.fd, p.traits, p.name, &t->access, how, out);
	leave_place(&p);
	return r;
}

static int read_file(struct tree *t, uint64_t index, enum read_how how, struct file_bytes *out)
{
	unsigned traits;
	int fd = kept_dir(t, t->index.file_dir[index], how, &traits);
	int r = fd;

	if (fd >= 0)
		r = file_read(fd, traits, manifest_file_name(&t->index, index), &t->access, how, out);
	/* No free descriptor, or the folder was replaced since it was opened. */
	if (fd == -EMFILE || r == -ENOENT || r == -ESTALE)
		r = read_by_path(t, index, how, out);
	return r;
}

static int tree_read(struct dataset *ds, uint64_t index, enum read_how how, struct file_bytes *out,
		     struct dataset_error *err)
{
	struct tree *t = (struct tree *)ds;
	int r = read_file(t, index, how, out);
	char name[400];

	if (!r || (r == -EAGAIN && how == READ_NOWAIT))
		return r;
	manifest_name(&t->index, index, name, sizeof(name));
	if (r == -EFBIG)
		return dataset_fail(err, DATASET_E_BAD_DATA, r, "%s: larger than 256 MiB", name);
	if (r == -EINVAL)
		return dataset_fail(err, DATASET_E_BAD_DATA, r, "%s: not a regular file", name);
	return dataset_fail_errno(err, -r, name);
}

static int tree_is_current(struct dataset *ds, uint64_t index, enum read_how how, const struct file_bytes *b)
{
	struct tree *t = (struct tree *)ds;
	unsigned traits;
	int fd = kept_dir(t, t->index.file_dir[index], how, &traits);
	struct place p;
	int r;

	if (fd >= 0)
		return file_is_current(fd, traits, manifest_file_name(&t->index, index), &t->access, how, b);
	r = fd == -EMFILE ? find_place(t, index, how, &p) : fd;
	if (r < 0)
		return r == -EAGAIN ? r : 0;
	r = file_is_current(p.fd, p.traits, p.name, &t->access, how, b);
	leave_place(&p);
	return r;
}

static void tree_value(const struct dataset *ds, uint64_t index, unsigned field, struct field_value *out)
{
	const struct tree *t = (const struct tree *)ds;

	if (field < t->n_own)
		field_value_set_scalar(out, manifest_label(&t->index, index));
	else
		out->bytes = columns_value(&t->columns, field - t->n_own, index, &out->n_bytes);
}

static void tree_name(const struct dataset *ds, uint64_t index, char *buf, size_t size)
{
	manifest_name(&((const struct tree *)ds)->index, index, buf, size);
}

static const char *tree_class(const struct dataset *ds, uint32_t i)
{
	const struct manifest *ix = &((const struct tree *)ds)->index;

	return ix->text + ix->class_name[i];
}

static void tree_destroy(struct dataset *ds)
{
	struct tree *t = (struct tree *)ds;

	for (uint32_t i = 0; t->dir_fds && i < t->index.n_dirs; i++) {
		int kept = atomic_load(&t->dir_fds[i]);

		if (kept) {
			unsigned traits;

			close(unpack_dir(kept, &traits));
			kept_fds_give(t->access.uid);
		}
	}
	free(t->dir_fds);
	free(t->values);
	manifest_finish(&t->index);
	close(t->root_fd);
	free(t);
}

static const struct dataset_ops tree_ops = {
	.destroy = tree_destroy,
	.read = tree_read,
	.is_current = tree_is_current,
	.value = tree_value,
	.name = tree_name,
	.class_name = tree_class,
};

void tree_identify(int root_fd, uint64_t key[2])
{
	struct statfs fs;
	struct stat st;

	key[0] = key[1] = 0;
	if (fstat(root_fd, &st) == 0) {
		key[0] = st.st_dev;
		key[1] = st.st_ino;
	}
	if (fstatfs(root_fd, &fs) == 0 && (fs.f_fsid.__val[0] || fs.f_fsid.__val[1]))
		key[0] = XXH3_64bits(&fs.f_fsid, sizeof(fs.f_fsid));
}

static uint64_t make_cache_id(uint64_t id, int root_fd, const struct data_access *access)
{
	struct {
		uint64_t id, root[2], user;
	} key = { .id = id };

	tree_identify(root_fd, key.root);
	key.user = access->trusted ? UINT64_MAX : access->uid;
	return XXH3_64bits(&key, sizeof(key));
}

bool tree_reaches_server(int root_fd, const struct manifest *index, const struct data_access *access)
{
	uint64_t known = 0;
	struct stat st;

	if (fstat(root_fd, &st) == 0)
		known = st.st_dev;
	for (uint32_t i = 0; i < index->n_dirs; i++) {
		const char *path = manifest_dir_path(index, i);
		uint64_t dev = index->dirs[i].dev;
		bool local;
		int fd;

		if (!dev && fstatat(root_fd, path, &st, 0) == 0)
			dev = st.st_dev;
		if (!dev || dev == known)
			continue;
		fd = dir_open(root_fd, path, access, true);
		local = fd < 0 || (dir_traits(fd, access) & DIR_LOCAL);
		if (fd >= 0)
			close(fd);
		if (!local)
			return true;
		known = dev;
	}
	return false;
}

/* A set that crosses mounts reads from file systems that are not known one by one. */
static void find_server(struct tree *t, bool crosses)
{
	struct stat st = { 0 };

	t->root_traits = dir_traits(t->root_fd, &t->access);
	if (!(t->root_traits & DIR_LOCAL) || crosses) {
		if (!crosses)
			fstat(t->root_fd, &st);
		t->base.server = crosses ? t->base.cache_id | SERVERS_SEVERAL : servers_number(&st);
		t->any_mount = DIR_ANY_MOUNT;
		t->root_traits |= DIR_ANY_MOUNT;
	}
}

int tree_create(const struct dataset_source *source, const char *path, int root_fd, struct manifest *index,
		bool crosses, struct dataset **out, struct dataset_error *err)
{
	int r = meter_take(source->meter, sizeof(struct tree) + index->n_dirs * sizeof(atomic_int));
	struct tree *t = r ? NULL : calloc(1, sizeof(*t));
	atomic_int *dir_fds = r ? NULL : calloc(index->n_dirs, sizeof(*dir_fds));

	if (!t || !dir_fds) {
		free(t);
		free(dir_fds);
		manifest_finish(index);
		close(root_fd);
		return dataset_fail_errno(err, r ? -r : ENOMEM, path);
	}
	t->base.ops = &tree_ops;
	atomic_init(&t->base.refs, 1);
	t->base.n = index->n_files;
	t->base.memory_bytes = sizeof(*t) + index->block_bytes + index->n_dirs * sizeof(*dir_fds);
	t->base.n_classes = index->n_classes;
	t->base.is_image = true;
	t->base.id = manifest_hash(index, XXH3_64bits(path, strlen(path)));
	t->base.content_id = manifest_hash(index, 0);
	t->base.cache_id = make_cache_id(t->base.id, root_fd, source->access);
	t->access = *source->access;
	t->root_fd = root_fd;
	find_server(t, crosses);
	t->index = *index;
	t->dir_fds = dir_fds;
	*index = (struct manifest){ 0 };
	r = dataset_add_image_fields(&t->base, err);
	if (r < 0) {
		dataset_destroy(&t->base);
		return r;
	}
	t->n_own = t->base.n_fields;
	*out = &t->base;
	return 0;
}

int tree_add_columns(struct dataset *ds, struct columns_builder *columns, bool has_label, struct dataset_error *err)
{
	struct tree *t = (struct tree *)ds;
	size_t n_bytes = columns_size(columns);
	int r = columns->n ? meter_take(columns->meter, n_bytes) : 0;

	if (!has_label) {
		ds->n_fields = t->n_own = 1; /* the image alone */
		ds->label = 0;
	}
	if (!columns->n)
		return 0;
	t->values = r ? NULL : malloc(n_bytes);
	if (!t->values)
		return dataset_fail_errno(err, r ? -r : ENOMEM, "values of a list");
	columns_write(columns, t->values);
	columns_builder_finish(columns);
	r = columns_parse(t->values, n_bytes, t->base.n, &t->columns);
	if (r < 0)
		return dataset_fail(err, DATASET_E_INVALID, r, "the values of a list do not fit its samples");
	t->base.memory_bytes += n_bytes;
	t->base.id = XXH3_64bits_withSeed(t->values, n_bytes, t->base.id);
	t->base.content_id = XXH3_64bits_withSeed(t->values, n_bytes, t->base.content_id);
	return column_fields_add(ds, &t->columns, err);
}

int tree_open_root(const struct dataset_source *source, unsigned which, const char *path, struct dataset_error *err)
{
	struct stat st;
	int fd;

	if (which < source->n_fds) {
		/* Opened again: the peer could move the offset of its own description during use, and that may be
		 * O_PATH. */
		fd = openat(source->fds[which], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	} else if (source->access->trusted) {
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	} else {
		return dataset_fail(
			err, DATASET_E_ACCESS, -EACCES,
			"%s: not named in the configuration, and the client sent no descriptor of its folder", path);
	}
	if (fd < 0)
		return errno == ENOTDIR ? dataset_fail(err, DATASET_E_INVALID, -ENOTDIR, "%s: not a folder", path)
					: dataset_fail_errno(err, errno, path);
	if (fstat(fd, &st) < 0 || !access_allows(source->access, fd, &st, ACCESS_READ | ACCESS_SEARCH)) {
		close(fd);
		return dataset_fail_errno(err, EACCES, path);
	}
	return fd;
}
