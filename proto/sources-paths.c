/* The paths of a data set's sources, as files of this machine. See sources.h. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "braces.h"
#include "sources.h"

int sources_each_path(const struct Sources *all, int (*fn)(void *arg, const char *path), void *arg)
{
	int r = 0;

	for (size_t i = 0; i < all->n_source; i++)
		for (size_t k = 0; r == 0 && k < all->source[i]->n_part; k++)
			if (source_part_is_path(all->source[i]->part[k]))
				r = fn(arg, all->source[i]->part[k]->path);
	return r;
}

int sources_make_absolute(struct Sources *all)
{
	char *dir = getcwd(NULL, 0), *path;
	int r = dir ? 0 : -errno;

	for (size_t i = 0; r == 0 && i < all->n_source; i++) {
		for (size_t k = 0; r == 0 && k < all->source[i]->n_part; k++) {
			struct SourcePart *p = all->source[i]->part[k];

			if (!source_part_is_path(p) || *p->path == '/')
				continue;
			r = asprintf(&path, "%s/%s", dir, p->path) < 0 ? -ENOMEM : source_set(&p->path, path);
			if (r == 0)
				free(path);
		}
	}
	free(dir);
	return r;
}

/* ---- files ---- */

/* The index that Megatron keeps beside a .bin: in out, if `path` names such a pair, by its .bin or without an
 * ending. A .bin of Megatron's does not say what its tokens are, and read as raw uint16 it would be nonsense without
 * an error. So an index of a format that is not known counts as well, and is refused when it is read, unless the
 * tokens' type is said. */
static bool find_index(const char *path, bool says_type, char out[PATH_MAX])
{
	char magic[9] = "";
	size_t n = strlen(path);
	bool is_index = n > 4 && strcmp(path + n - 4, ".bin") == 0;
	int fd;

	if (n + 5 > PATH_MAX)
		return false;
	snprintf(out, PATH_MAX, "%.*s.idx", (int)(is_index ? n - 4 : n), path);
	fd = open(out, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return false;
	is_index = read(fd, magic, sizeof magic) == (ssize_t)sizeof magic && memcmp(magic, "MMIDIDX\0\0", 9) == 0;
	is_index = is_index || (!says_type && memcmp(magic, "v1.", 3) != 0); /* of shards, as DALI writes it */
	close(fd);
	return is_index;
}

struct expansion {
	struct Source *to; /* gets the files */
	size_t most;
	bool has_pairs, says_type;
	char *why;
	size_t size;
};

static int put_file(struct expansion *e, const char *path)
{
	char index[PATH_MAX];

	if (e->to->n_part == e->most)
		return -EFBIG;
	path = e->has_pairs && find_index(path, e->says_type, index) ? index : path;
	return source_add_part(e->to, SOURCE_ROLE__FILE, path) ? 0 : -ENOMEM;
}

/* A path, or wildcards: their matches in the order of their names. */
static int put_matches(void *arg, const char *pattern)
{
	struct expansion *e = arg;
	glob_t found;
	int r = 0;

	if (!strpbrk(pattern, "*?[") || access(pattern, F_OK) == 0)
		return put_file(e, pattern);
	if (glob(pattern, GLOB_ERR | GLOB_TILDE, NULL, &found) != 0) {
		snprintf(e->why, e->size, "%s: no file has such a name", pattern);
		return -ENOENT;
	}
	for (size_t i = 0; r == 0 && i < found.gl_pathc; i++)
		r = put_file(e, found.gl_pathv[i]);
	globfree(&found);
	return r;
}

/* Braces first, then wildcards. */
static int put_pattern(struct expansion *e, const char *pattern)
{
	char why[400];
	int r;

	if (strlen(pattern) >= PATH_MAX) {
		snprintf(e->why, e->size, "%.100s...: the path is too long", pattern);
		return -ENAMETOOLONG;
	}
	if (!strpbrk(pattern, "{}") || access(pattern, F_OK) == 0)
		return put_matches(e, pattern);
	r = braces_expand(pattern, put_matches, e, why, sizeof why);
	if (*why)
		snprintf(e->why, e->size, "%s", why);
	return r;
}

int source_expand_files(struct Source *s, size_t most, char *why, size_t size)
{
	Source *to = malloc(sizeof *to);
	struct expansion e = { .to = to,
			       .most = most,
			       .has_pairs = s->kind == SOURCE_KIND__TOKENS,
			       .says_type = source_option(s, "dtype") != NULL,
			       .why = why,
			       .size = size };
	SourcePart **parts;
	size_t n;
	int r = 0;

	*why = '\0';
	if (!to)
		return -ENOMEM;
	source__init(to);
	if (s->kind == SOURCE_KIND__TOKENS || s->kind == SOURCE_KIND__CIFAR) {
		for (size_t i = 0; r == 0 && i < s->n_part; i++)
			r = put_pattern(&e, s->part[i]->path);
		if (r == 0) {
			parts = s->part, n = s->n_part;
			s->part = to->part, s->n_part = to->n_part;
			to->part = parts, to->n_part = n;
		}
	}
	source__free_unpacked(to, NULL);
	return r;
}

/* ---- shards ---- */

size_t source_pattern_root(const char *path)
{
	size_t n = strcspn(path, "*?[{");

	while (n && path[n] && path[n - 1] != '/')
		n--;
	return n;
}

static bool folder_has(const char *folder, const char *name, off_t most_bytes)
{
	char path[PATH_MAX];
	struct stat st;

	return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && access(path, R_OK) == 0 &&
	       stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= most_bytes;
}

const char *source_shards_of_folder(SourceKind kind, const char *folder)
{
	if (kind == SOURCE_KIND__ARROW)
		return folder_has(folder, "state.json", INT64_MAX) ? "data-*.arrow" : "*.arrow";
	if (kind == SOURCE_KIND__MDS)
		return folder_has(folder, "index.json", SOURCE_LIST_MAX_BYTES) ? "index.json" : "*.mds";
	return kind == SOURCE_KIND__ZIP ? "*.zip" : "*.tar";
}
