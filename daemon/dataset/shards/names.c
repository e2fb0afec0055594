/* See names.h. Braces are expanded first, wildcards then, and only in the last name of a path: a folder is listed,
 * no tree is walked. */
#include "dataset/shards/names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/file.h"
#include "dataset/name.h"
#include "dataset/shards/list.h"
#include "dataset/folder/tree.h"
#include "braces.h"
#include "base/io-full.h"

enum {
	PATH_BYTES = 4096,
	MAX_LISTED = 1024, /* folders of a pattern: braces and a wildcard together may list one a million times */
};

/* ---- names ---- */

struct expansion {
	const struct dataset_source *source;
	struct shard_names *names;
	unsigned root;
	struct dataset_error *err;
	unsigned n_listed;
};

static int shard_names_no_room(const struct expansion *x, int error)
{
	return dataset_fail(x->err, DATASET_E_LIMIT, error, "%s: %s", x->names->root_path[x->root],
			    error == -EDQUOT ? "more shards than there is memory for" : "out of memory");
}

static int add_shard(struct expansion *x, const char *path)
{
	struct shard_names *names = x->names;
	int r = names->n < SHARDS_MAX
			? block_grow(names->meter, &names->list, &names->capacity, names->n + 1, sizeof(*names->list))
			: -EFBIG;

	if (r == -EFBIG)
		return dataset_fail(x->err, DATASET_E_LIMIT, r, "%s: more than %d shards", names->root_path[x->root],
				    SHARDS_MAX);
	names->text.meter = names->meter;
	r = r ? r : text_add(&names->text, path, strlen(path), &names->list[names->n].name);
	if (r < 0)
		return shard_names_no_room(x, r);
	names->list[names->n++].root = x->root;
	return 0;
}

static _Thread_local const char *sorting; /* the text, as qsort has no argument */

static int shard_names_by_name(const void *a, const void *b)
{
	return name_compare(sorting + ((const struct shard_path *)a)->name,
			    sorting + ((const struct shard_path *)b)->name);
}

static int shard_names_add_matches(struct expansion *x, DIR *d, const char *folder, const char *pattern)
{
	size_t first = x->names->n;
	int r = 0;

	for (struct dirent *e; !r && (e = readdir(d));) {
		char path[PATH_BYTES];

		if (fnmatch(pattern, e->d_name, FNM_PERIOD))
			continue;
		r = snprintf(path, sizeof(path), "%s%s%s", folder, *folder ? "/" : "", e->d_name) < (int)sizeof(path)
			    ? add_shard(x, path)
			    : dataset_fail(x->err, DATASET_E_INVALID, -ENAMETOOLONG, "%.300s: the path is too long",
					   folder);
	}
	sorting = x->names->text.bytes;
	if (!r && x->names->n > first)
		qsort(x->names->list + first, x->names->n - first, sizeof(*x->names->list), shard_names_by_name);
	return r;
}

const char *const shard_names_compressed[] = { ".zstd", ".zst", ".gz", ".bz2", ".br", ".snappy", NULL };

static bool is_mds(const char *pattern)
{
	size_t n = strlen(pattern);

	return n >= 4 && strcmp(pattern + n - 4, ".mds") == 0;
}

static int add_wildcard(struct expansion *x, const char *path, const char *last)
{
	struct shard_names *names = x->names;
	size_t before = names->n;
	char folder[PATH_BYTES], what[1400];
	struct stat st;
	DIR *d;
	int fd, r;

	snprintf(folder, sizeof(folder), "%.*s", (int)(last > path ? last - path - 1 : 0), path);
	snprintf(what, sizeof(what), "%s/%.300s", names->root_path[x->root], folder);
	if (x->n_listed++ == MAX_LISTED)
		return dataset_fail(x->err, DATASET_E_LIMIT, -EFBIG,
				    "%.300s: braces give more than %d paths with a wildcard", names->root_path[x->root],
				    MAX_LISTED);
	if (strpbrk(folder, "*?[")) {
		return dataset_fail(x->err, DATASET_E_INVALID, -EINVAL,
				    "%.400s: a wildcard in the name of a folder; expected it in the name of the shards",
				    path);
	}
	fd = dir_open_to_list(names->roots[x->root], *folder ? folder : ".", x->source->access, &st, &names->crosses);
	if (fd < 0)
		return dataset_fail_errno(x->err, -fd, what);
	d = fdopendir(fd);
	if (!d) {
		r = dataset_fail_errno(x->err, errno, what);
		close(fd);
		return r;
	}
	r = shard_names_add_matches(x, d, folder, last);
	for (unsigned k = 0; !r && names->n == before && is_mds(last) && shard_names_compressed[k]; k++) {
		char longer[PATH_BYTES];

		snprintf(longer, sizeof(longer), "%.1000s%s", last, shard_names_compressed[k]);
		rewinddir(d);
		r = shard_names_add_matches(x, d, folder, longer);
	}
	closedir(d);
	return r || names->n > before ? r
				      : dataset_fail(x->err, DATASET_E_NOT_FOUND, -ENOENT,
						     "%.400s: no file matches %.100s", what, last);
}

/* ---- lists of shards ---- */

enum { JSON_COSTS = 80 }; /* memory for a byte of JSON text, while it is read: "{},{}," */

/* Opens a file below the root, by the peer's rights. */
static int list_open(const struct expansion *x, const char *path, struct stat *st)
{
	const struct data_access *access = x->source->access;
	const char *slash = strrchr(path, '/');
	int root = x->names->roots[x->root], folder = root, fd;
	unsigned traits = dir_traits(root, access);
	bool any_mount = !(traits & DIR_LOCAL) || x->names->crosses;
	char name[PATH_BYTES];

	if (slash && !access->trusted) {
		snprintf(name, sizeof(name), "%.*s", (int)(slash - path), path);
		folder = dir_open(root, name, access, any_mount);
		if (folder < 0)
			return folder;
		traits = dir_traits(folder, access);
		path = slash + 1;
	}
	fd = file_open_at(folder, traits | (any_mount ? DIR_ANY_MOUNT : 0), path, access, st);
	if (folder != root)
		close(folder);
	return fd;
}

static int look_at_listed(const struct expansion *x, const char *path, struct stat *st)
{
	int fd = list_open(x, path, st);

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static int add_listed(void *arg, const struct listed_file *files, unsigned n)
{
	struct expansion *x = arg;
	const char *root = x->names->root_path[x->root];
	const struct listed_file *last = files + n - 1;
	struct stat st;
	int r;

	if (n == 1 && files->n_bytes == UINT64_MAX)
		return add_shard(x, files->path);
	while ((r = look_at_listed(x, files->path, &st)) == -ENOENT && files < last)
		files++;
	if (r < 0) {
		char name[400];

		snprintf(name, sizeof(name), "%.200s/%.150s", root, files->path);
		return dataset_fail_errno(x->err, -r, name);
	}
	if (files->n_bytes != UINT64_MAX && (uint64_t)st.st_size != files->n_bytes)
		return dataset_fail(x->err, DATASET_E_BAD_DATA, -EINVAL,
				    "%.200s/%.150s: %llu bytes, and its list says %llu: cut short or changed?", root,
				    files->path, (unsigned long long)st.st_size, (unsigned long long)files->n_bytes);
	return add_shard(x, files->path);
}

/* The shards of a list: wids', or streaming's. */
static int add_list(struct expansion *x, const char *path)
{
	char name[400], *text;
	struct stat st;
	int fd = list_open(x, path, &st), r;
	size_t n;

	snprintf(name, sizeof(name), "%.230s/%.160s", x->names->root_path[x->root], path);
	if (fd < 0)
		return dataset_fail_errno(x->err, -fd, name);
	n = (size_t)st.st_size;
	r = st.st_size > SOURCE_LIST_MAX_BYTES ? -EFBIG : meter_take(x->source->meter, n * JSON_COSTS);
	text = r ? NULL : malloc(n + 1);
	if (r)
		r = r == -EFBIG ? dataset_fail(x->err, DATASET_E_LIMIT, r, "%s: more than 16 MiB", name)
				: shard_names_no_room(x, r);
	else if (!text)
		r = dataset_fail_errno(x->err, ENOMEM, name);
	else if (io_full_read(fd, text, n, 0) != (ssize_t)n)
		r = dataset_fail(x->err, DATASET_E_BAD_DATA, -EIO, "%s: cannot be read whole", name);
	else
		r = shard_list_parse(name, x->names->root_path[x->root], text, n, add_listed, x, x->err);
	if (text)
		meter_give(x->source->meter, n * JSON_COSTS);
	free(text);
	close(fd);
	return r;
}

static int add_path(void *arg, const char *path)
{
	struct expansion *x = arg;
	const char *slash = strrchr(path, '/');
	const char *last = slash ? slash + 1 : path;

	size_t n = strlen(last);

	if (n > 5 && strcmp(last + n - 5, ".json") == 0)
		return add_list(x, path);
	return strpbrk(path, "*?[") ? add_wildcard(x, path, last) : add_shard(x, path);
}

/* ---- patterns ---- */

/* A folder as it is in a configuration. A client tells the pattern. */
static bool shard_names_is_folder(const struct dataset_source *source, const char *path)
{
	struct stat st;

	return !source->n_fds && source->access->trusted && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Splits a path that no client has split. A plain one names a shard in its folder. Returns the length of the root. */
static size_t split_pattern(const struct dataset_source *source, const char *path, const char **rest)
{
	size_t n = source_pattern_root(path);

	if (shard_names_is_folder(source, path)) {
		*rest = source_shards_of_folder(source->part->kind, path);
		return strlen(path);
	}
	while (n && path[n - 1] != '/')
		n--;
	*rest = path + n;
	return n;
}

static int open_pattern(const struct dataset_source *source, const struct SourcePart *p, struct shard_names *names,
			struct dataset_error *err)
{
	struct expansion x = { .source = source, .names = names, .root = names->n_roots, .err = err };
	char *root = names->root_path[x.root], why[400], whole[PATH_MAX];
	const char *path = p->path, *rest = p->pattern;
	size_t n;
	int fd, r;

	/* Two slashes part a folder from its shards' names; a configuration's path may have them anywhere. */
	if (*rest && snprintf(whole, sizeof(whole), "%s/%s", p->path, rest) < (int)sizeof(whole) &&
	    shard_names_is_folder(source, whole)) {
		path = whole;
		rest = "";
	}
	n = *rest ? strlen(path) : split_pattern(source, path, &rest);

	if (x.root == SHARDS_MAX_ROOTS)
		return dataset_fail(err, DATASET_E_LIMIT, -EFBIG,
				    "%.300s: at most %d patterns; use braces or a wildcard", p->path, SHARDS_MAX_ROOTS);
	while (n > 1 && path[n - 1] == '/')
		n--;
	if (n >= sizeof(names->root_path[0]))
		return dataset_fail(err, DATASET_E_INVALID, -ENAMETOOLONG, "%.300s: the path is too long", path);
	snprintf(root, sizeof(names->root_path[0]), "%.*s", n ? (int)n : 1, n ? path : ".");
	rest += strspn(rest, "/");
	if (!*rest)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				    "%.300s: expected the shards' names after the folder", p->path);
	fd = tree_open_root(source, x.root, root, err);
	if (fd < 0)
		return fd;
	names->roots[names->n_roots++] = fd;
	r = braces_expand(rest, add_path, &x, why, sizeof(why));
	return r < 0 && *why ? dataset_fail(err, DATASET_E_INVALID, r, "%s", why) : r;
}

int shard_names_open(const struct dataset_source *source, struct shard_names *out, struct dataset_error *err)
{
	const struct Source *s = source->part;
	int r = 0;

	*out = (struct shard_names){ .meter = source->meter };
	for (size_t i = 0; !r && i < s->n_part && s->part[i]->role == SOURCE_ROLE__FOLDER; i++)
		r = open_pattern(source, s->part[i], out, err);
	return r;
}

void shard_names_finish(struct shard_names *names)
{
	for (unsigned i = 0; i < names->n_roots; i++)
		close(names->roots[i]);
	meter_give(names->meter, names->capacity * sizeof(*names->list) + names->text.capacity);
	free(names->list);
	free(names->text.bytes);
	*names = (struct shard_names){ 0 };
}
