/* Opens the files that a data set's name refers to, with this process's own rights. The daemon reads through these
 * descriptors, so no user reads through it a file that the user could not read directly. A path that does not exist is
 * found here, by its own name, before the daemon is asked. */
#include "link/source.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batchd.h"
#include "braces.h"
#include "sources.h"
#include "words.h"

/* The deepest folder of an absolute path that can be looked at, in place. Returns whether only the last name is below
 * it. */
static bool cut_to_existing(char *path)
{
	struct stat st;
	size_t n = strlen(path);
	bool is_parent = true;

	while (n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	for (;;) {
		char *slash = strrchr(path, '/');

		slash[slash == path] = '\0'; /* the root keeps its slash */
		if (slash == path || stat(path, &st) == 0)
			return is_parent;
		is_parent = false;
	}
}

/* The entry of a folder whose name is nearest to what path ends in, of those one with as many letters; "": none is near. */
static void find_near(const char *folder, const char *path, char out[NAME_MAX + 1])
{
	enum { MOST_ENTRIES = 10000 };
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t best = 2 * word_most_wrong(name) + 2;
	DIR *d = opendir(folder);
	const struct dirent *e;

	*out = '\0';
	for (int i = 0; d && i < MOST_ENTRIES && (e = readdir(d)); i++) {
		size_t distance = e->d_name[0] == '.' ? SIZE_MAX : word_distance(name, e->d_name);
		size_t weight = distance == SIZE_MAX ? best : 2 * distance + (strlen(name) != strlen(e->d_name));

		if (weight < best) {
			best = weight;
			snprintf(out, NAME_MAX + 1, "%s", e->d_name);
		}
	}
	if (d)
		closedir(d);
}

static int refuse_missing(const char *path, const char *folder, int code, struct fault *f)
{
	char near[NAME_MAX + 1];

	find_near(folder, path, near);
	if (*near)
		return fault_set(f, code, "%s: %s; did you mean %s%s%s?", path, strerror(ENOENT), folder,
				 folder[1] ? "/" : "", near);
	return fault_set(f, code, "%s: %s; %s has no such entry", path, strerror(ENOENT), folder);
}

/* A typing error, or a file system that is not mounted, is often further up than the last name. */
static int refuse_absolute(const char *path, int code, int error, struct fault *f)
{
	char above[PATH_MAX];
	bool is_parent;

	if (snprintf(above, sizeof above, "%s", path) >= (int)sizeof above)
		return fault_set(f, code, "%s: %s", path, strerror(error));
	is_parent = cut_to_existing(above);
	if (error == ENOENT && is_parent)
		return refuse_missing(path, above, code, f);
	if (error == EACCES)
		return fault_set(f, code, "%s: %s; this user may not enter %s", path, strerror(error), above);
	if (error != ENOENT)
		return fault_set(f, code, "%s: %s", path, strerror(error));
	return fault_set(f, code, "%s: %s; of this path only %s exists here", path, strerror(error), above);
}

static int refuse_relative(const char *path, int code, int error, struct fault *f)
{
	char dir[PATH_MAX], above[PATH_MAX], near[NAME_MAX + 1] = "";

	if (!getcwd(dir, sizeof dir))
		return fault_set(f, code, "%s: %s", path, strerror(error));
	if (error == ENOENT && snprintf(above, sizeof above, "%s/%s", dir, path) < (int)sizeof above &&
	    cut_to_existing(above))
		find_near(above, path, near);
	return fault_set(f, code, "%s: %s (looked for it in %s)%s%s%s", path, strerror(error), dir,
			 *near ? "; did you mean " : "", near, *near ? "?" : "");
}

/* "s3://bucket/train" */
static bool is_address(const char *path)
{
	size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789+.-");

	return n && strncmp(path + n, "://", 3) == 0;
}

static int refuse_address(const char *path, struct fault *f)
{
	if (strncmp(path, "file://", 7) == 0)
		return fault_set(f, BATCHD_E_INVALID, "%s: a path is written without file://: %s", path, path + 7);
	return fault_set(
		f, BATCHD_E_INVALID,
		"%s: nothing is read from a network or an object storage: copy it to this machine, or mount it, "
		"and name its path",
		path);
}

/* Absolute and without symbolic links, so that all ranks send the same. "~/" is expanded, as no shell does it after a
 * colon. */
static bool has_variable(const char *path)
{
	return *path == '$' || strstr(path, "/$");
}

static int refuse_variable(const char *path, struct fault *f)
{
	return fault_set(f, BATCHD_E_NOT_FOUND,
			 "%s: variables are not expanded here: let the shell do it, or os.path.expandvars", path);
}

static int source_resolve(const char *path, char out[PATH_MAX], struct fault *f)
{
	char home_path[PATH_MAX];
	const char *home = getenv("HOME");
	int code;

	if (is_address(path))
		return refuse_address(path, f);
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
	if (path[0] == '\0')
		return fault_set(f, code, "an empty path: %s", strerror(errno));
	if (code == BATCHD_E_NOT_FOUND && has_variable(path))
		return refuse_variable(path, f);
	if (path[0] == '/')
		return refuse_absolute(path, code, errno, f);
	return refuse_relative(path, code, errno, f);
}

static int add_fd(struct source *s, const char *path, bool directory, struct fault *f)
{
	/* O_NONBLOCK: opening a FIFO must not wait for its writer. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (directory ? O_DIRECTORY : O_NONBLOCK));
	struct stat st;

	if (fd < 0 && errno == ENOTDIR)
		return fault_set(f, BATCHD_E_INVALID, "%s: not a directory", path);
	if (fd < 0 && errno == EACCES)
		return fault_set(
			f, BATCHD_E_ACCESS,
			"%s: %s; this user may not read it. Change its mode, or let the daemon's configuration "
			"name the data set (datasets:)",
			path, strerror(EACCES));
	if (fd < 0)
		return fault_set(f, BATCHD_E_NOT_FOUND, "%s: %s", path, strerror(errno));
	s->fds[s->n_fds++] = fd;
	if (directory)
		return 0;
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		return fault_set(
			f, BATCHD_E_INVALID,
			"%s: a folder, and a file is read here: name a file in it, or the folder with its kind, "
			"imagefolder:%s or tar:%s",
			path, path, path);
	if (!S_ISREG(st.st_mode))
		return fault_set(f, BATCHD_E_INVALID, "%s: not a regular file", path);
	return 0;
}

static int set_dataset(struct source *s, struct fault *f, const char *kind, const char *rest)
{
	if (asprintf(&s->dataset, "%s:%s", kind, rest) < 0) {
		s->dataset = NULL;
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	}
	return 0;
}

/* The kind that a file of this name has, by its ending; NULL: it may be any. */
static const char *kind_by_ending(const char *path)
{
	static const char *const kinds[][2] = { { ".npy", "npy" },   { ".npz", "npz" },   { ".tar", "tar" },
						{ ".zip", "zip" },   { ".mds", "mds" },   { ".arrow", "arrow" },
						{ ".txt", "files" }, { ".csv", "files" }, { ".tsv", "files" },
						{ ".lst", "files" } };
	const char *dot = strrchr(path, '.');

	for (size_t i = 0; dot && i < sizeof kinds / sizeof *kinds; i++) {
		if (strcmp(dot, kinds[i][0]) == 0)
			return kinds[i][1];
	}
	return NULL;
}

static int source_open_folder(struct source *s, const char *path, struct fault *f)
{
	char dir[PATH_MAX];
	struct stat st;
	int r = source_resolve(path, dir, f);

	if (r == 0 && stat(dir, &st) == 0 && !S_ISDIR(st.st_mode)) {
		const char *kind = kind_by_ending(dir);

		return fault_set(
			f, BATCHD_E_INVALID,
			"%s: not a directory; imagefolder: reads a folder with a folder for each class%s%s%s%s", dir,
			kind ? ", write " : "", kind ? kind : "", kind ? ":" : "", kind ? dir : "");
	}
	if (r == 0)
		r = add_fd(s, dir, true, f);
	return r < 0 ? r : set_dataset(s, f, "imagefolder", dir);
}

/* "PLACE#NAME=PART,...": which parts of a sample become which fields. NULL: there is no such list. */
static const char *field_list(const char *place)
{
	const char *mark = strrchr(place, '#');

	return mark && strchr(mark, '=') && !strchr(mark, '/') ? mark : NULL;
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

static int source_open_list(struct source *s, const char *given, struct fault *f)
{
	char list[PATH_MAX], dir[PATH_MAX], path[PATH_MAX];
	const char *fields = field_list(given);
	int r;

	if (snprintf(path, sizeof path, "%.*s", fields ? (int)(fields - given) : -1, given) >= (int)sizeof path)
		return fault_set(f, BATCHD_E_INVALID, "files: the path is too long");
	r = source_resolve(path, list, f);

	if (r == 0)
		r = add_fd(s, list, false, f);
	if (r < 0)
		return r;
	memcpy(dir, list, sizeof dir);
	strrchr(dir, '/')[strrchr(dir, '/') == dir] = '\0'; /* the root keeps its slash */
	r = add_fd(s, dir, true, f);
	r = r < 0 ? r : set_dataset(s, f, "files", list);
	return r < 0 || !fields ? r : add_text(s, fields, f);
}

/* ---- lists of files and options ---- */

/* A data set's text on its way to the daemon: parts between commas. */
struct list {
	char text[WIRE_MAX_DATASET + 1];
	size_t n_bytes;
};

static int source_list_add(struct list *l, struct fault *f, const char *part)
{
	int n = snprintf(l->text + l->n_bytes, sizeof l->text - l->n_bytes, "%s%s", l->n_bytes ? "," : "", part);

	if (n < 0 || (size_t)n >= sizeof l->text - l->n_bytes)
		return fault_set(f, BATCHD_E_INVALID, "dataset: the names of the files take more than %d bytes",
				 WIRE_MAX_DATASET);
	l->n_bytes += (size_t)n;
	return 0;
}

static int source_add_file(struct source *s, const char *path, struct fault *f)
{
	if (s->n_fds == WIRE_MAX_FDS)
		return fault_set(f, BATCHD_E_INVALID,
				 "dataset: more than %d files; name the data set in the daemon's configuration",
				 WIRE_MAX_FDS);
	return add_fd(s, path, false, f);
}

/* A raw file, one with a header, or Megatron's pair, of which any name is taken: prefix, .bin or .idx. */
static int add_tokens(struct source *s, struct list *l, const char *given, struct fault *f)
{
	char path[PATH_MAX], index[PATH_MAX];
	size_t n = strlen(given);
	bool is_index = n > 4 && strcmp(given + n - 4, ".idx") == 0;
	bool is_pair = !is_index && source_token_index(given, s->says_token_type, index);
	int r = source_resolve(is_pair ? index : given, path, f);

	if (r == 0)
		r = source_list_add(l, f, path);
	if (r == 0)
		r = source_add_file(s, path, f);
	if (r < 0 || (!is_index && !is_pair))
		return r;
	memcpy(path + strlen(path) - 4, ".bin", 4);
	return source_add_file(s, path, f);
}

typedef int add_part_fn(struct source *s, struct list *l, const char *part, struct fault *f);

/* A path, or wildcards: their matches in the order of their names. */
static int add_wildcard(struct source *s, struct list *l, const char *part, add_part_fn *add, struct fault *f)
{
	struct stat st;
	glob_t found;
	int r = 0;

	if (!strpbrk(part, "*?[") || stat(part, &st) == 0)
		return add(s, l, part, f);
	if (glob(part, GLOB_ERR | GLOB_TILDE, NULL, &found) != 0)
		return fault_set(f, BATCHD_E_NOT_FOUND, "%s: no file has such a name", part);
	for (size_t i = 0; r == 0 && i < found.gl_pathc; i++)
		r = add(s, l, found.gl_pathv[i], f);
	globfree(&found);
	return r;
}

struct matches {
	struct source *s;
	struct list *l;
	add_part_fn *add;
	struct fault *f;
};

static int add_expanded(void *arg, const char *path)
{
	struct matches *m = arg;

	return add_wildcard(m->s, m->l, path, m->add, m->f);
}

/* A path, or a pattern of the shell's: braces first, then wildcards. */
static int source_add_matches(struct source *s, struct list *l, const char *part, add_part_fn *add, struct fault *f)
{
	struct matches m = { s, l, add, f };
	struct stat st;
	char why[400];
	int r;

	if (!strpbrk(part, "{}") || stat(part, &st) == 0)
		return add_wildcard(s, l, part, add, f);
	r = braces_expand(part, add_expanded, &m, why, sizeof why);
	return *why ? fault_set(f, BATCHD_E_INVALID, "%s", why) : r;
}

static int add_token_files(struct source *s, struct list *l, const char *part, struct fault *f)
{
	return source_add_matches(s, l, part, add_tokens, f);
}

static bool is_option(const char *part, const char *const *options)
{
	size_t n = strcspn(part, "=");

	while (*options && (strlen(*options) != n || strncmp(part, *options, n) != 0))
		options++;
	return *options && part[n] == '=';
}

/* options: names of parts that are not files, or NULL. */
static int open_list_of(struct source *s, const char *kind, const char *text, const char *const *options,
			add_part_fn *add, struct fault *f)
{
	char *copy = strdup(text), *at = copy, why[256];
	struct list *l = calloc(1, sizeof *l);
	int r = copy && l ? 0 : fault_set(f, BATCHD_E_NOMEM, "out of memory");

	while (r == 0 && at) {
		char *part = at, *comma = (char *)source_comma(at, at + strlen(at));

		at = comma ? comma + 1 : NULL;
		if (comma)
			*comma = '\0';
		if (options && is_option(part, options))
			r = source_list_add(l, f, part);
		else if (source_is_misspelt(kind, part, strlen(part), why, sizeof why))
			r = fault_set(f, BATCHD_E_INVALID, "%s", why);
		else
			r = add(s, l, part, f);
	}
	if (r == 0)
		r = set_dataset(s, f, kind, l->text);
	free(copy);
	free(l);
	return r;
}

static int open_tokens(struct source *s, const char *text, struct fault *f)
{
	static const char *const options[] = {
		"length", "stride", "samples", "seed", "windows", "form", "dtype", NULL
	};

	s->says_token_type = source_says_token_type(text);
	return open_list_of(s, "tokens", text, options, add_token_files, f);
}

/* "NAME=" in front of a path; a file of this very name comes first. */
static const char *find_name(const char *part)
{
	const char *equals = strchr(part, '=');
	struct stat st;

	return equals && !memchr(part, '/', (size_t)(equals - part)) && stat(part, &st) < 0 ? equals : NULL;
}

static int add_array(struct source *s, struct list *l, const char *part, struct fault *f)
{
	char text[PATH_MAX + 256], path[PATH_MAX];
	const char *equals = find_name(part);
	int r = source_resolve(equals ? equals + 1 : part, path, f);

	if (r < 0)
		return r;
	if (snprintf(text, sizeof text, "%.*s%s", equals ? (int)(equals + 1 - part) : 0, part, path) >=
	    (int)sizeof text)
		return fault_set(f, BATCHD_E_INVALID, "npy: %.64s...: the name is too long", part);
	r = source_list_add(l, f, text);
	return r < 0 ? r : source_add_file(s, path, f);
}

static int open_arrays(struct source *s, const char *text, struct fault *f)
{
	return open_list_of(s, "npy", text, NULL, add_array, f);
}

/* Files alone, in order, or patterns of the shell's for them. */
static int source_add_plain(struct source *s, struct list *l, const char *part, struct fault *f)
{
	char path[PATH_MAX];
	int r = source_resolve(part, path, f);

	if (r == 0)
		r = source_list_add(l, f, path);
	return r < 0 ? r : source_add_file(s, path, f);
}

static int add_records(struct source *s, struct list *l, const char *part, struct fault *f)
{
	return source_add_matches(s, l, part, source_add_plain, f);
}

static int open_idx(struct source *s, const char *text, struct fault *f)
{
	return open_list_of(s, "idx", text, NULL, source_add_plain, f);
}

static int open_npz(struct source *s, const char *given, struct fault *f)
{
	const char *fields = field_list(given);
	char path[PATH_MAX], file[PATH_MAX];
	int r;

	if (snprintf(path, sizeof path, "%.*s", fields ? (int)(fields - given) : -1, given) >= (int)sizeof path)
		return fault_set(f, BATCHD_E_INVALID, "%.200s...: the path is too long", given);
	r = source_resolve(path, file, f);
	if (r == 0)
		r = add_fd(s, file, false, f);
	if (r == 0)
		r = set_dataset(s, f, "npz", file);
	return r < 0 || !fields ? r : add_text(s, fields, f);
}

static int open_cifar(struct source *s, const char *text, struct fault *f)
{
	static const char *const options[] = { "version", NULL };

	return open_list_of(s, "cifar", text, options, add_records, f);
}

/* "NAME=FD": a memfd of this process, whose number no other process needs to know. */
static int add_memory(struct source *s, struct list *l, const char *part, struct fault *f)
{
	char name[WIRE_MAX_FIELD + 1];
	const char *equals = strchr(part, '=');
	char *end = NULL;
	long number = equals ? strtol(equals + 1, &end, 10) : -1;
	int fd;

	if (!equals || end == equals + 1 || *end || number < 0 || number > INT_MAX ||
	    (size_t)(equals - part) >= sizeof name)
		return fault_set(f, BATCHD_E_INVALID, "memory: '%.64s': expected NAME=DESCRIPTOR", part);
	if (s->n_fds == WIRE_MAX_FDS)
		return fault_set(f, BATCHD_E_INVALID, "memory: more than %d arrays", WIRE_MAX_FDS);
	fd = fcntl((int)number, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return fault_set(f, BATCHD_E_INVALID, "memory: %.64s: %s", part, strerror(errno));
	s->fds[s->n_fds++] = fd;
	snprintf(name, sizeof name, "%.*s", (int)(equals - part), part);
	return source_list_add(l, f, name);
}

static int open_memory(struct source *s, const char *text, struct fault *f)
{
	static const char *const options[] = { "id", NULL };

	if (asprintf(&s->reopen, "memory:%s", text) < 0) {
		s->reopen = NULL;
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	}
	int r = open_list_of(s, "memory", text, options, add_memory, f);

	s->n_own = r == 0 && strncmp(text, "id=", 3) == 0 ? s->n_fds : 0;
	return r;
}

enum { INDEX_MAX_BYTES = 16 << 20 }; /* the daemon reads no longer list of shards */

static bool folder_has(const char *folder, const char *name, off_t most_bytes)
{
	char path[PATH_MAX];
	struct stat st;

	return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && access(path, R_OK) == 0 &&
	       stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= most_bytes;
}

/* All shards of a folder; NULL: those with the kind's ending. Where HuggingFace's save_to_disk has made it, Arrow files
 * that datasets caches lie beside the data. streaming's index tells a shard that is missing. */
static const char *shards_of_folder(const char *kind, const char *folder)
{
	if (strcmp(kind, "arrow") == 0 && folder_has(folder, "state.json", INT64_MAX))
		return "data-*.arrow";
	return strcmp(kind, "mds") == 0 && folder_has(folder, "index.json", INDEX_MAX_BYTES) ? "index.json" : NULL;
}

/* Shards are named by patterns, and the daemon expands them below a folder that is opened here: the part of the pattern
 * before any wildcard or brace, the folder of a single shard, or a folder of shards. Two slashes mark where it ends. */
static int add_pattern(struct source *s, const char *pattern, const char *kind, struct fault *f)
{
	char given[PATH_MAX], root[PATH_MAX], *rest, *before = s->dataset;
	const char *text, *all;
	size_t n = strcspn(pattern, "*?[{");
	struct stat st;
	int r;

	if (s->n_fds == WIRE_MAX_FDS)
		return fault_set(f, BATCHD_E_INVALID, "%s: at most %d patterns; use braces or a wildcard", pattern,
				 WIRE_MAX_FDS);
	if (strncmp(pattern, "pipe:", 5) == 0)
		return fault_set(f, BATCHD_E_INVALID, "%s: no command is run: name files", pattern);
	if (is_address(pattern))
		return refuse_address(pattern, f);
	if (has_variable(pattern) && access(pattern, F_OK) < 0)
		return refuse_variable(pattern, f);
	if (pattern[n]) {
		while (n && pattern[n - 1] != '/')
			n--;
		if (snprintf(given, sizeof given, "%.*s", (int)n, n ? pattern : ".") >= (int)sizeof given)
			return fault_set(f, BATCHD_E_INVALID, "%s: the path is too long", pattern);
		r = source_resolve(n ? given : ".", root, f);
		text = pattern + n;
	} else {
		r = source_resolve(pattern, root, f);
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
	all = *text ? text : shards_of_folder(kind, root);
	if (asprintf(&s->dataset, "%s%s%s//%s%s", before ? before : kind, before ? "::" : ":",
		     strcmp(root, "/") == 0 ? "" : root, all ? all : "*.", all ? "" : kind) < 0) {
		s->dataset = before;
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	}
	free(before);
	return 0;
}

static int open_shards(struct source *s, const char *patterns, const char *kind, struct fault *f)
{
	const char *next, *fields = field_list(patterns), *folder;
	char pattern[PATH_MAX], *all = fields ? strndup(patterns, (size_t)(fields - patterns)) : strdup(patterns);
	int r = 0;

	if (!all)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	/* "ARCHIVE.zip!/FOLDER" */
	folder = strcmp(kind, "zip") == 0 ? strstr(all, "!/") : NULL;
	if (folder) {
		all[folder - all] = '\0';
		folder = patterns + (folder - all);
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
	if (r == 0 && (folder || fields)) /* `folder` has the fields at its end */
		r = add_text(s, folder ? folder : fields, f);
	return r;
}

/* Takes "NAME=VALUE," off the front: *value begins there, *n bytes of it, which do not end with a zero byte. */
static bool take_front(const char **text, const char *name, const char **value, size_t *n)
{
	const char *comma = strncmp(*text, name, strlen(name)) == 0 ? strchr(*text, ',') : NULL;

	if (!comma)
		return false;
	*value = *text + strlen(name);
	*n = (size_t)(comma - *value);
	*text = comma + 1;
	return true;
}

/* "HASH:FD": a memfd of this process, with the numbers of the rows that are the samples, or with the table. */
static int add_own(struct source *s, const char *what, const char *value, size_t n, struct fault *f)
{
	const char *colon = memchr(value, ':', n);
	char *end = NULL;
	long number = colon ? strtol(colon + 1, &end, 10) : -1;
	int fd = number < 0 || number > INT_MAX || end != value + n || s->n_fds == WIRE_MAX_FDS
			 ? -1
			 : fcntl((int)number, F_DUPFD_CLOEXEC, 3);

	if (fd < 0)
		return fault_set(f, BATCHD_E_INVALID, "arrow: %s%.*s: expected HASH:DESCRIPTOR", what,
				 (int)(n < 64 ? n : 64), value);
	s->fds[s->n_fds++] = fd;
	s->n_own++;
	return 0;
}

static int add_images(struct source *s, const char *value, size_t n, char out[PATH_MAX], struct fault *f)
{
	char given[PATH_MAX];
	int r = n < sizeof given ? 0 : fault_set(f, BATCHD_E_INVALID, "arrow: images=: the path is too long");

	if (r < 0)
		return r;
	if (s->n_fds == WIRE_MAX_FDS)
		return fault_set(f, BATCHD_E_INVALID, "arrow: more than %d descriptors", WIRE_MAX_FDS);
	memcpy(given, value, n);
	given[n] = '\0';
	r = source_resolve(given, out, f);
	return r < 0 ? r : add_fd(s, out, true, f);
}

/* What stands in front of an arrow data set's patterns. */
struct arrow_front {
	struct front {
		const char *value;
		size_t n;
	} table, rows, images; /* value NULL: not there */
	char folder[PATH_MAX]; /* of images, as the daemon knows it */
};

/* "NAME=HASH," without the descriptor, where it is there. */
static int print_own(char *to, size_t size, const char *name, const struct front *own)
{
	const char *colon = own->value ? memchr(own->value, ':', own->n) : NULL;

	return snprintf(to, size, "%s%.*s%s", colon ? name : "", colon ? (int)(colon - own->value) : 0,
			colon ? own->value : "", colon ? "," : "");
}

/* The text for the daemon, and the one that another connection begins with: memory exists in this process alone. */
static int set_arrow(struct source *s, const char *whole, const struct arrow_front *front, struct fault *f)
{
	const char *patterns = s->dataset ? s->dataset + strlen("arrow:") : strrchr(whole, '#');
	char table[128], rows[128], *old = s->dataset;
	bool has_images = front->images.value != NULL;

	if (print_own(table, sizeof table, "table=", &front->table) >= (int)sizeof table ||
	    print_own(rows, sizeof rows, "rows=", &front->rows) >= (int)sizeof rows)
		return fault_set(f, BATCHD_E_INVALID, "arrow: a hash of more than 100 characters");
	if ((*table || *rows) && asprintf(&s->reopen, "arrow:%s", whole) < 0)
		s->reopen = NULL;
	if (asprintf(&s->dataset, "arrow:%s%s%s%s%s%s", table, rows, has_images ? "images=" : "",
		     has_images ? front->folder : "", has_images ? "," : "", patterns ? patterns : "") < 0)
		s->dataset = NULL;
	free(old);
	return s->dataset && (s->reopen || !(*table || *rows)) ? 0 : fault_set(f, BATCHD_E_NOMEM, "out of memory");
}

/* "[table=HASH:FD,][rows=HASH:FD,][images=DIR,]PATTERN...", as daemon/dataset/arrow/arrow.c describes it. */
static int open_arrow(struct source *s, const char *text, struct fault *f)
{
	struct arrow_front a = { 0 };
	const char *whole = text;
	bool has_table = take_front(&text, "table=", &a.table.value, &a.table.n);
	bool has_rows = take_front(&text, "rows=", &a.rows.value, &a.rows.n);
	bool has_images = take_front(&text, "images=", &a.images.value, &a.images.n);
	int r = has_table ? 0 : open_shards(s, text, "arrow", f);

	if (r == 0 && has_images)
		r = add_images(s, a.images.value, a.images.n, a.folder, f);
	if (r == 0 && has_rows)
		r = add_own(s, "rows=", a.rows.value, a.rows.n, f);
	if (r == 0 && has_table)
		r = add_own(s, "table=", a.table.value, a.table.n, f);
	return r < 0 || whole == text ? r : set_arrow(s, whole, &a, f);
}

#define OTHER_FORMATS \
	"batches of any other format are made in Python: batchd.serve(dataset, name=\"NAME\"), and \"serve:NAME\" here"

static int refuse_parquet(const char *path, struct fault *f)
{
	return fault_set(
		f, BATCHD_E_INVALID,
		"dataset '%s': Parquet is not read: in Python hand over datasets.Dataset.from_parquet(...), which makes "
		"Arrow files of it",
		path);
}

/* Explains a path without its kind, as far as the kind can be guessed. */
static int refuse_path(const char *path, struct fault *f)
{
	const char *kind = kind_by_ending(path), *dot = strrchr(path, '.');
	char resolved[PATH_MAX];
	struct stat st;
	int r = source_resolve(path, resolved, f);

	if (r < 0)
		return r;
	if (dot && strcmp(dot, ".parquet") == 0)
		return refuse_parquet(path, f);
	if (stat(resolved, &st) < 0)
		return fault_set(f, BATCHD_E_NOT_FOUND, "%s: %s", path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		kind = "imagefolder";
	if (kind)
		return fault_set(f, BATCHD_E_INVALID, "dataset '%s' is a path without its kind: write %s:%s", path,
				 kind, path);
	return fault_set(
		f, BATCHD_E_INVALID,
		"dataset '%s' is a file without its kind: files:%s if it lists images, npy:%s if it is an array, "
		"tokens:%s,length=T if it is one of tokens; " OTHER_FORMATS,
		path, path, path, path);
}

/* The known kind that n bytes before a colon are meant to be: "ImageFolder", "folder", "file", "image-folder". NULL: not
 * one that a reader would recognise. */
static const char *kind_meant(const char *name, size_t n)
{
	char letters[32];
	size_t n_letters = 0;

	for (size_t i = 0; i < n && n_letters < sizeof letters - 1; i++) {
		if (isalpha((unsigned char)name[i]))
			letters[n_letters++] = (char)tolower((unsigned char)name[i]);
	}
	letters[n_letters] = '\0';
	if (strcmp(letters, "wds") == 0 || strcmp(letters, "webdataset") == 0)
		return source_kind_name(SOURCE_TAR);
	for (unsigned k = 0; k < SOURCE_N_KINDS && n_letters > 2; k++) {
		const char *kind = source_kind_name((enum source_kind)k);

		if (strstr(kind, letters) || strstr(letters, kind))
			return kind;
	}
	for (unsigned k = 0; k < SOURCE_N_KINDS && n_letters > 5; k++) {
		const char *kind = source_kind_name((enum source_kind)k);

		if (word_distance(letters, kind) <= 2)
			return kind;
	}
	return NULL;
}

static int refuse_kind(const char *name, size_t n, struct fault *f)
{
	const char *meant = kind_meant(name, n);
	int shown = n < 64 ? (int)n : 64;

	if (n == 7 && strncmp(name, "parquet", n) == 0)
		return refuse_parquet(name + n + 1, f);
	if (meant)
		return fault_set(f, BATCHD_E_INVALID, "dataset '%.128s': batchd reads no '%.*s:'; did you mean '%s:'?",
				 name, shown, name, meant);
	return fault_set(f, BATCHD_E_INVALID,
			 "dataset '%.128s': batchd reads no '%.*s:'; it reads " SOURCE_KINDS_TEXT "; " OTHER_FORMATS,
			 name, shown, name);
}

/* A name from the configuration, which has no colon, "random:..." or "serve:...". */
static int keep_name(struct source *s, const char *name, struct fault *f)
{
	const char *colon = strchr(name, ':');
	struct stat st;

	if (is_address(name))
		return refuse_address(name, f);
	if (!colon && (strchr(name, '/') || stat(name, &st) == 0))
		return refuse_path(name, f);
	if (colon && strncmp(name, "random:", 7) != 0 && strncmp(name, "serve:", 6) != 0)
		return refuse_kind(name, (size_t)(colon - name), f);
	s->dataset = strdup(name);
	return s->dataset ? 0 : fault_set(f, BATCHD_E_NOMEM, "out of memory");
}

typedef int open_kind_fn(struct source *s, const char *rest, struct fault *f);

static int open_tar(struct source *s, const char *patterns, struct fault *f)
{
	return open_shards(s, patterns, "tar", f);
}

static int open_mds(struct source *s, const char *patterns, struct fault *f)
{
	return open_shards(s, patterns, "mds", f);
}

static int open_zip(struct source *s, const char *patterns, struct fault *f)
{
	return open_shards(s, patterns, "zip", f);
}

/* Of the kinds that this process opens something for. */
static open_kind_fn *opener_of(enum source_kind kind)
{
	static open_kind_fn *const openers[SOURCE_N_KINDS + 1] = {
		[SOURCE_IMAGEFOLDER] = source_open_folder,
		[SOURCE_FILES] = source_open_list,
		[SOURCE_TAR] = open_tar,
		[SOURCE_MDS] = open_mds,
		[SOURCE_ZIP] = open_zip,
		[SOURCE_ARROW] = open_arrow,
		[SOURCE_NPY] = open_arrays,
		[SOURCE_NPZ] = open_npz,
		[SOURCE_IDX] = open_idx,
		[SOURCE_CIFAR] = open_cifar,
		[SOURCE_TOKENS] = open_tokens,
	};

	return openers[kind];
}

int source_open(struct source *s, const char *dataset, struct fault *f)
{
	open_kind_fn *open;
	int r;

	*s = (struct source){ 0 };
	if (!dataset || !*dataset)
		return fault_set(f, BATCHD_E_INVALID,
				 "no dataset is named: " SOURCE_KINDS_TEXT ", or a configured name");
	open = opener_of(source_kind_of(dataset));
	if (strncmp(dataset, "memory:", 7) == 0)
		open = open_memory;
	r = open ? open(s, strchr(dataset, ':') + 1, f) : keep_name(s, dataset, f);
	if (r == 0 && !wire_text_ok(s->dataset, strlen(s->dataset), WIRE_MAX_DATASET))
		r = fault_set(f, BATCHD_E_INVALID,
			      "dataset: the name has more than %d bytes, or is not printable UTF-8", WIRE_MAX_DATASET);
	return r;
}

void source_finish(struct source *s)
{
	wire_close_fds(s->fds, s->n_fds);
	free(s->dataset);
	free(s->reopen);
	*s = (struct source){ 0 };
}
