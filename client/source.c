/* Opens the files that a data set's name refers to, with this process's own rights. The daemon reads through these
 * descriptors, so no user reads through it a file that the user could not read directly. A path that does not exist is
 * found here, by its own name, before the daemon is asked. */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batchd.h"

/* Absolute and without symbolic links, so that all ranks send the same. "~/" is expanded, as no shell does it after a
 * colon. */
static int resolve(const char *path, char out[PATH_MAX], struct fault *f)
{
	char home_path[PATH_MAX];
	const char *home = getenv("HOME");
	int code;

	if (path[0] == '~' && path[1] == '/' && home) {
		if (snprintf(home_path, sizeof home_path, "%s%s", home, path + 1) >= (int)sizeof home_path)
			return fault_set(f, BATCHD_E_INVALID, "%s: the path is too long", path);
		path = home_path;
	}
	if (realpath(path, out))
		return 0;
	code = errno == ENOENT || errno == ENOTDIR ? BATCHD_E_NOT_FOUND
	       : errno == EACCES                   ? BATCHD_E_ACCESS
						   : BATCHD_E_INVALID;
	if (path[0] == '/' || path[0] == '\0')
		return fault_set(f, code, "%s: %s", path[0] ? path : "an empty path", strerror(errno));
	return fault_set(f, code, "%s: %s (looked for it in %s)", path, strerror(errno),
			 getcwd(out, PATH_MAX) ? out : "the current directory");
}

static int add_fd(struct source *s, const char *path, bool directory, struct fault *f)
{
	/* O_NONBLOCK: opening a FIFO must not wait for its writer. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (directory ? O_DIRECTORY : O_NONBLOCK));
	struct stat st;

	if (fd < 0 && errno == ENOTDIR)
		return fault_set(f, BATCHD_E_INVALID, "%s: not a directory", path);
	if (fd < 0)
		return fault_set(f, errno == EACCES ? BATCHD_E_ACCESS : BATCHD_E_NOT_FOUND, "%s: %s", path,
				 strerror(errno));
	s->fds[s->n_fds++] = fd;
	if (!directory && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
		return fault_set(f, BATCHD_E_INVALID, "%s: not a regular file", path);
	return 0;
}

static int set_dataset(struct source *s, struct fault *f, const char *kind, const char *first, const char *second)
{
	if (asprintf(&s->dataset, "%s:%s%s%s", kind, first, second ? "," : "", second ? second : "") < 0) {
		s->dataset = NULL;
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	}
	return 0;
}

static int open_folder(struct source *s, const char *path, struct fault *f)
{
	char dir[PATH_MAX];
	int r = resolve(path, dir, f);

	if (r == 0)
		r = add_fd(s, dir, true, f);
	return r < 0 ? r : set_dataset(s, f, "imagefolder", dir, NULL);
}

static int open_list(struct source *s, const char *path, struct fault *f)
{
	char list[PATH_MAX], dir[PATH_MAX];
	int r = resolve(path, list, f);

	if (r == 0)
		r = add_fd(s, list, false, f);
	if (r < 0)
		return r;
	memcpy(dir, list, sizeof dir);
	strrchr(dir, '/')[strrchr(dir, '/') == dir] = '\0'; /* the root keeps its slash */
	r = add_fd(s, dir, true, f);
	return r < 0 ? r : set_dataset(s, f, "files", list, NULL);
}

static int open_arrays(struct source *s, const char *paths, struct fault *f)
{
	char first[PATH_MAX], second[PATH_MAX], given[PATH_MAX];
	const char *comma = strchr(paths, ',');
	size_t n = comma ? (size_t)(comma - paths) : strlen(paths);
	int r;

	if (n >= sizeof given)
		return fault_set(f, BATCHD_E_INVALID, "npy: the path is too long");
	memcpy(given, paths, n);
	given[n] = '\0';
	r = resolve(given, first, f);
	if (r == 0)
		r = add_fd(s, first, false, f);
	if (r == 0 && comma)
		r = resolve(comma + 1, second, f);
	if (r == 0 && comma)
		r = add_fd(s, second, false, f);
	return r < 0 ? r : set_dataset(s, f, "npy", first, comma ? second : NULL);
}

/* Shards are named by patterns, and the daemon expands them below a folder that is opened here: the part of the pattern
 * before any wildcard or brace, the folder of a single shard, or a folder of shards. Two slashes mark where it ends. */
static int add_pattern(struct source *s, const char *pattern, const char *kind, struct fault *f)
{
	char given[PATH_MAX], root[PATH_MAX], *rest, *before = s->dataset;
	const char *text;
	size_t n = strcspn(pattern, "*?[{");
	struct stat st;
	int r;

	if (s->n_fds == WIRE_MAX_FDS)
		return fault_set(f, BATCHD_E_INVALID, "%s: at most %d patterns; use braces or a wildcard", pattern,
				 WIRE_MAX_FDS);
	if (pattern[n]) {
		while (n && pattern[n - 1] != '/')
			n--;
		if (snprintf(given, sizeof given, "%.*s", (int)n, n ? pattern : ".") >= (int)sizeof given)
			return fault_set(f, BATCHD_E_INVALID, "%s: the path is too long", pattern);
		r = resolve(n ? given : ".", root, f);
		text = pattern + n;
	} else {
		r = resolve(pattern, root, f);
		text = "";
		if (r == 0 && (stat(root, &st) < 0 || !S_ISDIR(st.st_mode))) {
			rest = strrchr(root, '/');
			memcpy(given, rest + 1, strlen(rest + 1) + 1);
			rest[rest == root] = '\0'; /* the root keeps its slash */
			text = given;
		}
	}
	if (r == 0)
		r = add_fd(s, root, true, f);
	if (r < 0)
		return r;
	if (asprintf(&s->dataset, "%s%s%s//%s%s", before ? before : kind, before ? "::" : ":",
		     strcmp(root, "/") == 0 ? "" : root, *text ? text : "*.", *text ? "" : kind) < 0) {
		s->dataset = before;
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	}
	free(before);
	return 0;
}

static int add_text(struct source *s, const char *text, struct fault *f)
{
	char *longer;

	if (asprintf(&longer, "%s%s", s->dataset, text) < 0)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	free(s->dataset);
	s->dataset = longer;
	return 0;
}

static int open_shards(struct source *s, const char *patterns, const char *kind, struct fault *f)
{
	char pattern[PATH_MAX], *all, *mark;
	const char *next, *fields = NULL;
	int r = 0;

	/* "PATTERNS#NAME=EXTENSION,...": which files of a sample become which fields */
	all = strdup(patterns);
	if (!all)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	mark = strrchr(all, '#');
	if (mark && strchr(mark, '=') && !strchr(mark, '/')) {
		fields = patterns + (mark - all);
		*mark = '\0';
	}
	for (patterns = all; r == 0 && patterns; patterns = next ? next + 2 : NULL) {
		size_t n;

		next = strstr(patterns, "::");
		n = next ? (size_t)(next - patterns) : strlen(patterns);
		if (n >= sizeof pattern) {
			r = fault_set(f, BATCHD_E_INVALID, "%s: the path is too long", kind);
			break;
		}
		memcpy(pattern, patterns, n);
		pattern[n] = '\0';
		r = add_pattern(s, pattern, kind, f);
	}
	free(all);
	return r < 0 || !fields ? r : add_text(s, fields, f);
}

#define OTHER_FORMATS \
	"batches of any other format are made in Python: batchd.serve(dataset, name=\"NAME\"), and \"serve:NAME\" here"

/* Explains a path without its kind, as far as the kind can be guessed. */
static int refuse_path(const char *path, struct fault *f)
{
	const char *dot = strrchr(path, '.'), *kind = NULL;
	struct stat st;

	if (stat(path, &st) < 0)
		return fault_set(
			f, errno == EACCES ? BATCHD_E_ACCESS : BATCHD_E_NOT_FOUND,
			"dataset '%s': %s; name a directory as imagefolder:DIR, a list as files:LIST, an array as npy:FILE",
			path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		kind = "imagefolder";
	else if (dot && strcmp(dot, ".npy") == 0)
		kind = "npy";
	else if (dot && strcmp(dot, ".tar") == 0)
		kind = "tar";
	else if (dot && (strcmp(dot, ".txt") == 0 || strcmp(dot, ".tsv") == 0 || strcmp(dot, ".lst") == 0))
		kind = "files";
	if (kind)
		return fault_set(f, BATCHD_E_INVALID, "dataset '%s' is a path without its kind: write %s:%s", path,
				 kind, path);
	return fault_set(
		f, BATCHD_E_INVALID,
		"dataset '%s' is a file without its kind: files:%s if it lists images, npy:%s if it is an array; " OTHER_FORMATS,
		path, path, path);
}

/* A name from the configuration, which has no colon, "random:..." or "serve:...". */
static int keep_name(struct source *s, const char *name, struct fault *f)
{
	const char *colon = strchr(name, ':');
	struct stat st;

	if (!colon && (strchr(name, '/') || stat(name, &st) == 0))
		return refuse_path(name, f);
	if (colon && strncmp(name, "random:", 7) != 0 && strncmp(name, "serve:", 6) != 0)
		return fault_set(
			f, BATCHD_E_INVALID,
			"dataset '%.128s': batchd reads no '%.*s:'; it reads imagefolder:DIR, files:LIST, tar:SHARDS, "
			"npy:FILE[,FILE] and random:...; " OTHER_FORMATS,
			name, colon - name < 64 ? (int)(colon - name) : 64, name);
	s->dataset = strdup(name);
	return s->dataset ? 0 : fault_set(f, BATCHD_E_NOMEM, "out of memory");
}

int source_open(struct source *s, const char *dataset, struct fault *f)
{
	int r;

	*s = (struct source){ 0 };
	if (!dataset || !*dataset)
		return fault_set(
			f, BATCHD_E_INVALID,
			"no dataset is named: imagefolder:DIR, files:LIST, tar:SHARDS, npy:FILE[,FILE], random:..., serve:NAME or a configured name");
	if (strncmp(dataset, "imagefolder:", 12) == 0)
		r = open_folder(s, dataset + 12, f);
	else if (strncmp(dataset, "files:", 6) == 0)
		r = open_list(s, dataset + 6, f);
	else if (strncmp(dataset, "npy:", 4) == 0)
		r = open_arrays(s, dataset + 4, f);
	else if (strncmp(dataset, "tar:", 4) == 0)
		r = open_shards(s, dataset + 4, "tar", f);
	else
		r = keep_name(s, dataset, f);
	if (r == 0 && !wire_text_ok(s->dataset, strlen(s->dataset), WIRE_MAX_DATASET))
		r = fault_set(f, BATCHD_E_INVALID,
			      "dataset: the name has more than %d bytes, or is not printable UTF-8", WIRE_MAX_DATASET);
	return r;
}

void source_finish(struct source *s)
{
	wire_close_fds(s->fds, s->n_fds);
	free(s->dataset);
	*s = (struct source){ 0 };
}
