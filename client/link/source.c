/* Opens the files that a data set's name refers to, with this process's own rights. The daemon reads through these
 * descriptors, so no user reads through it a file that the user could not read directly. A path that does not exist is
 * found here, by its own name, before the daemon is asked. */
#include "link/source.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batchd.h"
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

/* ---- parts: their names as the daemon expects them ---- */

static int no_memory(struct fault *f)
{
	return fault_set(f, BATCHD_E_NOMEM, "out of memory");
}

static int resolve_path(struct SourcePart *p, struct fault *f)
{
	char path[PATH_MAX];
	int r = source_resolve(p->path, path, f);

	return r < 0 ? r : source_set(&p->path, path) < 0 ? no_memory(f) : 0;
}

/* An index of tokens keeps its name, and so does the file beside it, wherever links lead: HuggingFace's cache has both as
 * links to files that are called by their hashes. */
static int resolve_index(struct SourcePart *p, struct fault *f)
{
	char path[PATH_MAX], folder[PATH_MAX];
	const char *slash = strrchr(p->path, '/'), *name = slash ? slash + 1 : p->path;
	size_t n = slash ? (size_t)(slash - p->path) : 1;
	int r = source_resolve(p->path, path, f); /* that it is there */

	if (r < 0)
		return r;
	if (n >= sizeof folder)
		return fault_set(f, BATCHD_E_INVALID, "%.300s: the path is too long", p->path);
	snprintf(folder, sizeof folder, "%.*s", n ? (int)n : 1, !slash ? "." : n ? p->path : "/");
	r = source_resolve(folder, path, f);
	if (r < 0)
		return r;
	if (snprintf(folder, sizeof folder, "%s/%s", strcmp(path, "/") == 0 ? "" : path, name) >= (int)sizeof folder)
		return fault_set(f, BATCHD_E_INVALID, "%.300s: the path is too long", p->path);
	return source_set(&p->path, folder) < 0 ? no_memory(f) : 0;
}

static int resolve_class_folders(struct SourcePart *p, struct fault *f)
{
	const char *kind;
	struct stat st;
	int r = resolve_path(p, f);

	if (r < 0 || stat(p->path, &st) < 0 || S_ISDIR(st.st_mode))
		return r;
	kind = kind_by_ending(p->path);
	return fault_set(f, BATCHD_E_INVALID,
			 "%s: not a directory; imagefolder: reads a folder with a folder for each class%s%s%s%s",
			 p->path, kind ? ", write " : "", kind ? kind : "", kind ? ":" : "", kind ? p->path : "");
}

/* Shards are named by patterns, and the daemon expands them below a folder that is opened here: the part of the pattern
 * before any wildcard or brace, the folder of a single shard, or a folder of shards. */
static int resolve_shards(SourceKind kind, struct SourcePart *p, struct fault *f)
{
	char given[PATH_MAX], root[PATH_MAX], *last = NULL;
	struct stat st;
	size_t n;
	int r;

	if (*p->pattern) { /* its user has written two slashes */
		if (snprintf(given, sizeof given, "%s//%s", p->path, p->pattern) >= (int)sizeof given)
			return fault_set(f, BATCHD_E_INVALID, "%s: the path is too long", p->path);
		if (source_set(&p->path, given) < 0)
			return no_memory(f);
	}
	n = source_pattern_root(p->path);
	if (strncmp(p->path, "pipe:", 5) == 0)
		return fault_set(f, BATCHD_E_INVALID, "%s: no command is run: name files", p->path);
	if (is_address(p->path))
		return refuse_address(p->path, f);
	if (has_variable(p->path) && access(p->path, F_OK) < 0)
		return refuse_variable(p->path, f);
	if (snprintf(given, sizeof given, "%.*s", (int)n, n || !*p->path ? p->path : ".") >= (int)sizeof given)
		return fault_set(f, BATCHD_E_INVALID, "%s: the path is too long", p->path);
	r = source_resolve(n || !*p->path ? given : ".", root, f);
	if (r < 0)
		return r;
	if (!p->path[n] && (stat(root, &st) < 0 || !S_ISDIR(st.st_mode))) {
		last = strrchr(root, '/');
		snprintf(given, sizeof given, "%s", last + 1);
		last[last == root] = '\0'; /* the root keeps its slash */
	}
	r = source_set(&p->pattern, last ? given : p->path[n] ? p->path + n : source_shards_of_folder(kind, root));
	return r < 0 || source_set(&p->path, root) < 0 ? no_memory(f) : 0;
}

/* "HASH:FD" or "FD": a memfd of this process, whose number no other process needs to know. */
static int take_memory(struct source *s, struct SourcePart *p, struct fault *f)
{
	bool is_array = p->role == SOURCE_ROLE__ARRAY;
	char *colon = is_array ? NULL : strchr(p->path, ':'), *end = NULL;
	const char *digits = colon ? colon + 1 : p->path;
	long number = colon || is_array ? strtol(digits, &end, 10) : -1;

	if (number < 0 || number > INT_MAX || end == digits || *end || strlen(p->name) > WIRE_MAX_FIELD)
		return is_array ? fault_set(f, BATCHD_E_INVALID, "memory: '%.64s%s%.64s': expected NAME=DESCRIPTOR",
					    p->name, *p->path ? "=" : "", p->path)
				: fault_set(f, BATCHD_E_INVALID, "arrow: %s%.64s: expected HASH:DESCRIPTOR",
					    p->role == SOURCE_ROLE__ROWS ? "rows=" : "table=", p->path);
	if (s->n_memory == WIRE_MAX_FDS)
		return fault_set(f, BATCHD_E_INVALID, "memory: more than %d arrays", WIRE_MAX_FDS);
	s->memory[s->n_memory++] = (int)number;
	if (colon)
		*colon = '\0';
	return !colon && source_set(&p->path, "") < 0 ? no_memory(f) : 0;
}

static int resolve_part(struct source *s, const struct Source *of, struct SourcePart *p, struct fault *f)
{
	switch (p->role) {
	case SOURCE_ROLE__NAME:
		return 0;
	case SOURCE_ROLE__ARRAY:
	case SOURCE_ROLE__ROWS:
	case SOURCE_ROLE__TABLE:
		return take_memory(s, p, f);
	case SOURCE_ROLE__FOLDER:
		return of->kind == SOURCE_KIND__IMAGEFOLDER ? resolve_class_folders(p, f)
							    : resolve_shards(of->kind, p, f);
	default:
		return source_part_fds(of, p) > 1 && p->role == SOURCE_ROLE__FILE ? resolve_index(p, f)
										  : resolve_path(p, f);
	}
}

static int resolve(struct source *s, struct Source *of, struct fault *f)
{
	char why[PATH_MAX + 100];
	int r = source_expand_files(of, WIRE_MAX_FDS, why, sizeof why);

	if (r == -EFBIG)
		return fault_set(f, BATCHD_E_INVALID,
				 "dataset: more than %d files; name the data set in the daemon's configuration",
				 WIRE_MAX_FDS);
	if (r < 0)
		return r == -ENOMEM ? no_memory(f)
				    : fault_set(f, r == -ENOENT ? BATCHD_E_NOT_FOUND : BATCHD_E_INVALID, "%s", why);
	for (size_t i = 0; r == 0 && i < of->n_part; i++)
		r = resolve_part(s, of, of->part[i], f);
	return r;
}

/* ---- descriptors ---- */

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

static int add_memory(struct source *s, int number, struct fault *f)
{
	int fd = fcntl(number, F_DUPFD_CLOEXEC, 3);

	if (fd < 0)
		return fault_set(f, BATCHD_E_INVALID, "memory: descriptor %d: %s", number, strerror(errno));
	s->fds[s->n_fds++] = fd;
	return 0;
}

/* A second descriptor goes with a list, of its folder, and with Megatron's index, of its tokens. */
static int add_files(struct source *s, const struct Source *of, const struct SourcePart *p, struct fault *f)
{
	char beside[PATH_MAX];
	int r = add_fd(s, p->path, false, f);

	if (r < 0 || source_part_fds(of, p) == 1)
		return r;
	snprintf(beside, sizeof beside, "%s", p->path);
	if (p->role == SOURCE_ROLE__LIST)
		strrchr(beside, '/')[strrchr(beside, '/') == beside] = '\0'; /* the root keeps its slash */
	else
		memcpy(beside + strlen(beside) - 4, ".bin", 4);
	return add_fd(s, beside, p->role == SOURCE_ROLE__LIST, f);
}

int source_open_fds(struct source *s, struct fault *f)
{
	unsigned n_memory = 0;
	int r = 0;

	if (sources_n_fds(s->sources) > WIRE_MAX_FDS)
		return fault_set(f, BATCHD_E_INVALID,
				 "dataset: more than %d files and folders; name the data set in the daemon's "
				 "configuration, or use braces or a wildcard where it has shards",
				 WIRE_MAX_FDS);
	for (size_t i = 0; i < s->sources->n_source; i++) {
		const struct Source *of = s->sources->source[i];

		for (size_t k = 0; r == 0 && k < of->n_part; k++) {
			const struct SourcePart *p = of->part[k];

			r = p->role >= SOURCE_ROLE__ARRAY    ? add_memory(s, s->memory[n_memory++], f)
			    : p->role >= SOURCE_ROLE__FOLDER ? add_fd(s, p->path, true, f)
			    : p->role >= SOURCE_ROLE__FILE   ? add_files(s, of, p, f)
							     : 0;
		}
	}
	return r;
}

void source_close_fds(struct source *s)
{
	wire_close_fds(s->fds, s->n_fds);
	s->n_fds = 0;
}

/* ---- texts without a kind ---- */

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
		return source_kind_name(SOURCE_KIND__TAR);
	for (unsigned k = 1; k < SOURCE_KIND__MEMORY && n_letters > 2; k++) {
		const char *kind = source_kind_name((SourceKind)k);

		if (strstr(kind, letters) || strstr(letters, kind))
			return kind;
	}
	for (unsigned k = 1; k < SOURCE_KIND__MEMORY && n_letters > 5; k++) {
		const char *kind = source_kind_name((SourceKind)k);

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

/* Why a text, or a part of a blend, is no data set that has a kind. 0: it may be a name in the configuration. */
static int refuse_unknown(const char *name, struct fault *f)
{
	const char *colon = strchr(name, ':');
	struct stat st;

	if (is_address(name))
		return refuse_address(name, f);
	if (!colon && (strchr(name, '/') || stat(name, &st) == 0))
		return refuse_path(name, f);
	return colon ? refuse_kind(name, (size_t)(colon - name), f) : 0;
}

static int parse(struct source *s, const char *dataset, struct fault *f)
{
	char why[PATH_MAX + 100];
	int r = sources_parse(dataset, &s->sources, why, sizeof why);

	if (r == -EINVAL)
		return fault_set(f, BATCHD_E_INVALID, "%s", why);
	if (r != -ENOENT)
		return r < 0 ? no_memory(f) : 0;
	r = refuse_unknown(why, f);
	if (r == 0 && strcmp(why, dataset) != 0)
		return fault_set(
			f, BATCHD_E_INVALID,
			"blend: '%.200s': expected a data set of files; a name in the configuration stands alone", why);
	s->sources = r < 0 ? NULL : sources_named(dataset);
	return r < 0 || s->sources ? r : no_memory(f);
}

int source_open(struct source *s, const char *dataset, struct fault *f)
{
	int r;

	*s = (struct source){ 0 };
	if (!dataset || !*dataset)
		return fault_set(f, BATCHD_E_INVALID,
				 "no data set is named: " SOURCE_KINDS_TEXT ", or a configured name");
	r = parse(s, dataset, f);
	for (size_t i = 0; r == 0 && i < s->sources->n_source; i++)
		if (source_lacks_parts(s->sources->source[i]))
			r = fault_set(f, BATCHD_E_INVALID, "%.200s: no file is named; expected " SOURCE_KINDS_TEXT,
				      dataset);
	for (size_t i = 0; r == 0 && i < s->sources->n_source; i++)
		r = resolve(s, s->sources->source[i], f);
	if (r < 0)
		return r;
	s->text = sources_print(s->sources, SOURCE_EXACT);
	if (!s->text)
		return no_memory(f);
	if (!wire_text_ok(s->text, strlen(s->text), WIRE_MAX_DATASET))
		return fault_set(f, BATCHD_E_INVALID,
				 "dataset: the name has more than %d bytes, or is not printable UTF-8",
				 WIRE_MAX_DATASET);
	return source_open_fds(s, f);
}

void source_finish(struct source *s)
{
	source_close_fds(s);
	sources_free(s->sources);
	free(s->text);
	*s = (struct source){ 0 };
}
