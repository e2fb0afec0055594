/* imagefolder: one folder per class, as torchvision.datasets.ImageFolder reads it, file for file.
 *
 * Classes are the sub-folders in Python's order of names. Below each, all folders are sorted by their whole path ("a-b"
 * before "a/b", which a walk in order would get wrong), and in each the files by name. Links to folders are followed,
 * as in torchvision. A link back to a folder above itself is not followed; torchvision would loop until the kernel
 * stops it.
 *
 * Listing a million files takes seconds, so the index is kept, as soon as a further change would show in the folders'
 * time stamps (imagefolder_is_racy). It is used again if no folder has changed since: one stat per folder tells, because adding,
 * removing or renaming a file changes its folder's time stamps. An invalid kept index is replaced by a new one, and is
 * never an error. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dataset/cache/dir.h"
#include "dataset/impl.h"
#include "dataset/file.h"
#include "dataset/folder/manifest.h"
#include "dataset/name.h"
#include "dataset/folder/tree.h"
#include "base/clock.h"
#include "base/log.h"

#define NS_PER_S 1000000000ull
#define RACY_WHOLE_NS (2 * NS_PER_S)  /* as RACY_NS, for time stamps in whole seconds */
#define RACY_SERVER_NS (5 * NS_PER_S) /* as RACY_NS, for another machine's clock */

enum {
	MAX_DEPTH = 128,
	PROGRESS_EVERY_NS = 100000000,
	RACY_NS = 20000000, /* a folder changed within this time before it was listed may change again with the same
	                     * time stamp, because the kernel's tick makes time stamps coarse */
	ENTRIES_BYTES = 256 << 10,
};

struct found_dir {
	struct manifest_dir stamp;  /* its path is an offset in walk.paths */
	size_t parent;              /* in walk.dirs, or SIZE_MAX for a class folder */
	size_t first_file, n_files; /* in walk.files */
	unsigned depth;
};

/* Besides the index itself, one class at a time is in memory. */
struct walk {
	const struct dataset_source *source;
	const char *root; /* for messages */
	int root_fd;
	struct dataset_error *err;
	struct manifest_builder builder;
	struct text paths, names; /* of the class being walked */
	struct found_dir *dirs;
	size_t n_dirs, dirs_capacity;
	uint64_t *files; /* offsets in names */
	size_t n_files, files_capacity;
	char *entries;       /* ENTRIES_BYTES for getdents64 */
	bool racy;           /* a folder's time stamps cannot yet show whether it has changed since */
	uint64_t server_dev; /* a device whose time stamps come from another machine's clock; 0: none known */
	uint64_t local_dev;  /* a device of this machine */
	bool crosses;        /* a folder lies on another mount than the root; see tree_create */
	uint64_t n_found;    /* files so far, for progress */
	uint64_t reported_ns;
	/* The list of classes without files, for the error. */
	char empty[320];
	size_t n_empty;
};

static void imagefolder_report(struct walk *w, const char *phase, uint64_t done, uint64_t total, bool always)
{
	uint64_t now = clock_now_ns();

	if (w->source->on_progress && (always || now - w->reported_ns >= PROGRESS_EVERY_NS)) {
		w->reported_ns = now;
		w->source->on_progress(w->source->progress_arg, phase, done, total);
	}
}

static int imagefolder_fail_at(struct walk *w, int error, const char *path)
{
	char what[400];

	snprintf(what, sizeof(what), "%.160s/%.230s", w->root, path);
	if (error == EFBIG)
		return dataset_fail(w->err, DATASET_E_LIMIT, -EFBIG,
				    "%s: more names than one data set may have (4 GiB of them)", w->root);
	return dataset_fail_errno(w->err, error, what);
}

static struct manifest_dir stamp_of(const struct stat *st, uint32_t class_id)
{
	return (struct manifest_dir){
		.dev = st->st_dev,
		.ino = st->st_ino,
		.mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec,
		.ctime_ns = (uint64_t)st->st_ctim.tv_sec * 1000000000u + (uint64_t)st->st_ctim.tv_nsec,
		.class_id = class_id,
	};
}

/* 1 for a folder, 0 for anything else (a dangling link too, as in os.walk), negative errno. A link is followed for
 * trusted sources only. For other sources, a link with an image's name keeps its place as a file that will not open;
 * any other link might have been a folder and is an error. */
static int imagefolder_is_folder(struct walk *w, int dir_fd, const char *name, unsigned char type, const char *path)
{
	struct stat st;

	if (type == DT_UNKNOWN) {
		if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return 0;
		type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISLNK(st.st_mode) ? DT_LNK : DT_REG;
	}
	if (type != DT_LNK)
		return type == DT_DIR;
	if (w->source->access->trusted)
		return fstatat(dir_fd, name, &st, 0) == 0 && S_ISDIR(st.st_mode);
	if (!name_is_image(name)) {
		char what[240];

		snprintf(what, sizeof(what), "%.110s/%.120s", path, name);
		return imagefolder_fail_at(w, ELOOP, what);
	}
	return 0;
}

/* Calls `each` for every entry of an open folder; stops at its first negative return. */
static int for_each_entry(struct walk *w, int fd, const char *path, void *arg,
			  int (*each)(struct walk *w, void *arg, const char *name, bool folder))
{
	for (;;) {
		ssize_t n = getdents64(fd, w->entries, ENTRIES_BYTES);

		if (n <= 0)
			return n < 0 ? imagefolder_fail_at(w, errno, path) : 0;
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *entry = (const void *)(w->entries + at);
			int folder, r;

			at += entry->d_reclen;
			if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
				continue;
			folder = imagefolder_is_folder(w, fd, entry->d_name, entry->d_type, path);
			r = folder < 0 ? folder : each(w, arg, entry->d_name, folder);
			if (r < 0)
				return r;
		}
		imagefolder_report(w, "index", w->n_found + w->n_files, 0, false);
		if (dataset_is_stopped(w->source))
			return -ECANCELED;
	}
}

/* Whether another machine stamps this folder's changes. Usually determined once per device. */
static bool is_on_server(struct walk *w, int fd, uint64_t dev)
{
	if (dev != w->server_dev && dev != w->local_dev)
		*(dir_traits(fd, w->source->access) & DIR_LOCAL ? &w->local_dev : &w->server_dev) = dev;
	return dev == w->server_dev;
}

/* A folder that changes again after it was listed may keep its time stamp, if that is at most one step of its clock old
 * (git's "racy" rule). Steps are a second, or two (FAT), where time stamps are whole seconds. Another machine's clock
 * may be some seconds behind, and a stamp ahead of this machine's clock says nothing about order. */
static bool imagefolder_is_racy(struct walk *w, int fd, const struct manifest_dir *stamp)
{
	uint64_t now = clock_ns(CLOCK_REALTIME_COARSE);
	bool whole = stamp->mtime_ns % NS_PER_S == 0 || stamp->ctime_ns % NS_PER_S == 0;
	uint64_t step = whole ? RACY_WHOLE_NS : RACY_NS;

	if (stamp->ctime_ns + RACY_SERVER_NS <= now)
		return false;
	return stamp->ctime_ns + step > now || is_on_server(w, fd, stamp->dev);
}

static int imagefolder_open_folder(struct walk *w, const char *path, uint32_t class_id, struct manifest_dir *stamp)
{
	struct stat st;
	int fd = dir_open_to_list(w->root_fd, path, w->source->access, &st, &w->crosses);

	if (fd < 0)
		return imagefolder_fail_at(w, -fd, path);
	*stamp = stamp_of(&st, class_id);
	w->racy = w->racy || imagefolder_is_racy(w, fd, stamp);
	return fd;
}

static bool is_above_itself(const struct walk *w, size_t parent, const struct stat *st)
{
	for (; parent != SIZE_MAX; parent = w->dirs[parent].parent) {
		if (w->dirs[parent].stamp.dev == st->st_dev && w->dirs[parent].stamp.ino == st->st_ino)
			return true;
	}
	return w->builder.dirs[0].dev == st->st_dev && w->builder.dirs[0].ino == st->st_ino;
}

static int add_dir(struct walk *w, const char *path, size_t parent)
{
	unsigned depth = parent == SIZE_MAX ? 0 : w->dirs[parent].depth + 1;
	int r;

	if (depth > MAX_DEPTH)
		return dataset_fail(w->err, DATASET_E_LIMIT, -ELOOP, "%s/%.200s: more than %d folders deep", w->root,
				    path, MAX_DEPTH);
	if (w->n_dirs == w->dirs_capacity) {
		size_t capacity = w->dirs_capacity ? w->dirs_capacity * 2 : 64;
		struct found_dir *larger;

		r = meter_take(w->source->meter, (capacity - w->dirs_capacity) * sizeof(*larger));
		larger = r ? NULL : reallocarray(w->dirs, capacity, sizeof(*larger));
		if (!larger)
			return imagefolder_fail_at(w, r ? -r : ENOMEM, path);
		w->dirs = larger;
		w->dirs_capacity = capacity;
	}
	w->dirs[w->n_dirs] = (struct found_dir){ .parent = parent, .depth = depth };
	r = text_add(&w->paths, path, strlen(path), &w->dirs[w->n_dirs].stamp.path);
	if (r < 0)
		return imagefolder_fail_at(w, -r, path);
	w->n_dirs++;
	return 0;
}

static int imagefolder_add_file(struct walk *w, const char *name)
{
	int r;

	if (w->n_files == w->files_capacity) {
		size_t capacity = w->files_capacity ? w->files_capacity * 2 : 1024;
		uint64_t *larger;

		r = meter_take(w->source->meter, (capacity - w->files_capacity) * sizeof(*larger));
		larger = r ? NULL : reallocarray(w->files, capacity, sizeof(*larger));
		if (!larger)
			return imagefolder_fail_at(w, r ? -r : ENOMEM, name);
		w->files = larger;
		w->files_capacity = capacity;
	}
	r = text_add(&w->names, name, strlen(name), &w->files[w->n_files]);
	if (r < 0)
		return imagefolder_fail_at(w, -r, name);
	w->n_files++;
	return 0;
}

/* The folder being listed: its place in walk.dirs and its path, which may move while entries are added. */
struct listing {
	size_t dir;
	char path[4096];
};

static int on_class_entry(struct walk *w, void *arg, const char *name, bool folder)
{
	const struct listing *l = arg;
	char path[4096 + 256];

	if (!folder)
		return name_is_image(name) ? imagefolder_add_file(w, name) : 0;
	if (snprintf(path, sizeof(path), "%s/%s", l->path, name) >= 4096)
		return imagefolder_fail_at(w, ENAMETOOLONG, path);
	return add_dir(w, path, l->dir);
}

static int compare_files(const void *a, const void *b, void *arg)
{
	const struct walk *w = arg;

	return name_compare(w->names.bytes + *(const uint64_t *)a, w->names.bytes + *(const uint64_t *)b);
}

static int compare_dirs(const void *a, const void *b, void *arg)
{
	const struct walk *w = arg;
	const struct found_dir *p = a, *q = b;

	return name_compare(w->paths.bytes + p->stamp.path, w->paths.bytes + q->stamp.path);
}

static int list_dir(struct walk *w, size_t i, uint32_t class_id)
{
	uint64_t path_at = w->dirs[i].stamp.path;
	size_t parent = w->dirs[i].parent;
	struct listing l = { .dir = i };
	struct manifest_dir stamp;
	int fd, r;

	snprintf(l.path, sizeof(l.path), "%s", w->paths.bytes + path_at);
	fd = imagefolder_open_folder(w, l.path, class_id, &stamp);
	if (fd < 0)
		return fd;
	w->dirs[i].first_file = w->n_files;
	stamp.path = path_at;
	w->dirs[i].stamp = stamp;
	if (is_above_itself(w, parent, &(struct stat){ .st_dev = stamp.dev, .st_ino = stamp.ino })) {
		close(fd);
		return 0;
	}
	r = for_each_entry(w, fd, l.path, &l, on_class_entry);
	close(fd);
	if (r < 0)
		return r;
	w->dirs[i].n_files = w->n_files - w->dirs[i].first_file;
	if (w->dirs[i].n_files)
		qsort_r(w->files + w->dirs[i].first_file, w->dirs[i].n_files, sizeof(*w->files), compare_files, w);
	return 0;
}

/* Moves the class just walked into the index, in the final order. */
static int emit_class(struct walk *w)
{
	qsort_r(w->dirs, w->n_dirs, sizeof(*w->dirs), compare_dirs, w);
	for (size_t i = 0; i < w->n_dirs; i++) {
		const struct found_dir *d = &w->dirs[i];
		const char *path = w->paths.bytes + d->stamp.path;
		uint32_t dir = (uint32_t)w->builder.n_dirs;
		int r = manifest_add_dir(&w->builder, path, strlen(path), &d->stamp);

		for (size_t k = 0; !r && k < d->n_files; k++) {
			const char *name = w->names.bytes + w->files[d->first_file + k];

			r = manifest_add_file(&w->builder, dir, name, strlen(name));
		}
		if (r < 0)
			return imagefolder_fail_at(w, -r, path);
	}
	return 0;
}

static void note_empty_class(struct walk *w, const char *name)
{
	size_t used = strlen(w->empty);

	if (used + strlen(name) + 32 < sizeof(w->empty))
		snprintf(w->empty + used, sizeof(w->empty) - used, "%s%s", used ? ", " : "", name);
	else if (!strstr(w->empty, ", ..."))
		snprintf(w->empty + used, sizeof(w->empty) - used, ", ...");
	w->n_empty++;
}

static int walk_class(struct walk *w, const char *name, uint32_t class_id)
{
	int r;

	w->paths.n = w->names.n = w->n_dirs = w->n_files = 0;
	r = add_dir(w, name, SIZE_MAX);
	for (size_t i = 0; !r && i < w->n_dirs; i++)
		r = list_dir(w, i, class_id);
	if (r < 0)
		return r;
	if (!w->n_files)
		note_empty_class(w, name);
	w->n_found += w->n_files;
	return emit_class(w);
}

static int on_root_entry(struct walk *w, void *arg, const char *name, bool folder)
{
	(void)arg;
	return folder ? imagefolder_add_file(w, name) : 0; /* collected and sorted like names; they become classes */
}

static int list_classes(struct walk *w)
{
	struct manifest_dir stamp;
	int fd = imagefolder_open_folder(w, ".", MANIFEST_NO_CLASS, &stamp), r;

	if (fd < 0)
		return fd;
	r = manifest_add_dir(&w->builder, ".", 1, &stamp);
	r = r < 0 ? imagefolder_fail_at(w, -r, ".") : for_each_entry(w, fd, ".", NULL, on_root_entry);
	close(fd);
	if (r < 0)
		return r;
	if (!w->n_files) {
		return dataset_fail(w->err, DATASET_E_NOT_FOUND, -ENOENT,
				    "Couldn't find any class folder in %s. Images lie in a folder per class; "
				    "those without classes can be given as a list (files:LIST), with any labels",
				    w->root);
	}
	qsort_r(w->files, w->n_files, sizeof(*w->files), compare_files, w);
	for (size_t i = 0; i < w->n_files; i++) {
		r = manifest_add_class(&w->builder, w->names.bytes + w->files[i]);
		if (r < 0)
			return imagefolder_fail_at(w, -r, ".");
	}
	return 0;
}

static int walk_root(struct walk *w)
{
	int r = list_classes(w);

	for (uint32_t i = 0; !r && i < w->builder.n_classes; i++) {
		char name[256];

		snprintf(name, sizeof(name), "%s", w->builder.classes.bytes + w->builder.class_name[i]);
		r = walk_class(w, name, i);
	}
	if (!r && w->n_empty)
		return dataset_fail(
			w->err, DATASET_E_NOT_FOUND, -ENOENT,
			"%.60s: Found no valid file for the classes %s. Supported extensions are: " NAME_IMAGE_EXTENSIONS
			" (remove the empty folders, or name the images in a list, files:LIST)",
			w->root, w->empty);
	return r;
}

static int imagefolder_build(struct walk *w, struct manifest *out)
{
	int r;

	w->builder.meter = w->paths.meter = w->names.meter = w->source->meter;
	w->entries = malloc(ENTRIES_BYTES);
	r = w->entries ? walk_root(w) : imagefolder_fail_at(w, ENOMEM, ".");
	if (!r) {
		imagefolder_report(w, "index", w->n_found, w->n_found, true);
		r = manifest_build(&w->builder, out);
		r = r < 0 ? imagefolder_fail_at(w, -r, ".") : 0;
	}
	manifest_builder_finish(&w->builder);
	free(w->paths.bytes);
	free(w->names.bytes);
	free(w->dirs);
	free(w->files);
	free(w->entries);
	return r;
}

/* ---- the kept index ---- */

/* The name includes the folder's location and identity, and the user for whom it was listed unless the access was
 * trusted: device numbers are used again, and a user may have mounts of its own. False when no index is to be kept. */
static bool imagefolder_kept_path(const struct walk *w, char *path, size_t size)
{
	struct {
		uint64_t dev, ino, user;
		char real[4096];
	} key = { 0 };
	char link[64];
	struct stat st;
	ssize_t n;

	if (!w->source->cache_dir || fstat(w->root_fd, &st) < 0)
		return false;
	key.dev = st.st_dev;
	key.ino = st.st_ino;
	key.user = w->source->access->trusted ? UINT64_MAX : w->source->access->uid;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", w->root_fd);
	n = readlink(link, key.real, sizeof(key.real));
	return n >= 0 &&
	       snprintf(path, size, "%s/imagefolder-%016llx.index", w->source->cache_dir,
			(unsigned long long)XXH3_64bits(&key, offsetof(__typeof__(key), real) + (size_t)n)) < (int)size;
}

static bool dir_is_unchanged(struct walk *w, const struct manifest *ix, uint32_t i)
{
	const struct manifest_dir *d = &ix->dirs[i];
	struct manifest_dir now;
	struct stat st;

	if (w->source->access->trusted) {
		if (fstatat(w->root_fd, manifest_dir_path(ix, i), &st, 0) < 0)
			return false;
	} else {
		int fd = dir_open_to_list(w->root_fd, manifest_dir_path(ix, i), w->source->access, &st, &w->crosses);

		if (fd < 0)
			return false;
		close(fd);
	}
	now = stamp_of(&st, d->class_id);
	return now.dev == d->dev && now.ino == d->ino && now.mtime_ns == d->mtime_ns && now.ctime_ns == d->ctime_ns;
}

static bool imagefolder_load_kept(struct walk *w, const char *path, struct manifest *out)
{
	int r = manifest_load(path, w->source->meter, out);

	if (r < 0) {
		/* Without memory for it, building it reports the error. */
		if (r != -ENOENT && r != -EDQUOT && r != -ECANCELED)
			log_record(LOG_LEVEL_INFO, "index-rebuilt", "%s: index %s is %s", w->root, path,
				   r == -EINVAL ? "damaged" : "unreadable");
		return false;
	}
	for (uint32_t i = 0; i < out->n_dirs; i++) {
		imagefolder_report(w, "check", i, out->n_dirs, false);
		if (!dir_is_unchanged(w, out, i)) {
			meter_give(w->source->meter, out->block_bytes);
			manifest_finish(out);
			return false;
		}
	}
	return true;
}

static void imagefolder_keep(const struct walk *w, const char *path, const struct manifest *ix)
{
	int r = manifest_save(path, ix);

	if (r < 0) {
		log_record(LOG_LEVEL_WARNING, "index-not-kept",
			   "%s: cannot write %s: %s; the folder will be listed again next time", w->root, path,
			   strerror(-r));
	} else if (w->source->cache_limit_bytes) {
		cache_dir_trim(w->source->cache_dir, w->source->cache_limit_bytes);
	}
}

int imagefolder_open(const struct dataset_source *source, const char *rest, struct dataset **out,
		     struct dataset_error *err)
{
	struct walk w = { .source = source, .root = rest, .err = err, .reported_ns = clock_now_ns() };
	struct manifest index = { 0 };
	char path[4096];
	bool keeps;
	int r;

	w.root_fd = tree_open_root(source, 0, rest, err);
	if (w.root_fd < 0)
		return w.root_fd;
	keeps = imagefolder_kept_path(&w, path, sizeof(path));
	if (!keeps || !imagefolder_load_kept(&w, path, &index)) {
		r = imagefolder_build(&w, &index);
		if (r < 0) {
			close(w.root_fd);
			return r;
		}
		if (keeps && !w.racy)
			imagefolder_keep(&w, path, &index);
	}
	if (source->access->trusted)
		w.crosses = tree_reaches_server(w.root_fd, &index, source->access);
	return tree_create(source, rest, w.root_fd, &index, w.crosses, out, err);
}
