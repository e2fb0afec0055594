/* See sources.h. */
#include "sources.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct kind {
	const char *name;
	enum source_paths paths;
	const char *options; /* each with a blank after it */
} kinds[] = {
#define SOURCE_KIND_ROW(id, name, rest, paths, options) [SOURCE_##id] = { name, paths, options },
	SOURCE_KINDS(SOURCE_KIND_ROW)
#undef SOURCE_KIND_ROW
};

const char *source_kind_name(enum source_kind kind)
{
	return kinds[kind].name;
}

/* The kind of n bytes before a colon. */
static enum source_kind kind_named(const char *name, size_t n)
{
	unsigned k = 0;

	while (k < SOURCE_N_KINDS && (strncmp(kinds[k].name, name, n) != 0 || kinds[k].name[n]))
		k++;
	return (enum source_kind)k;
}

enum source_kind source_kind_of(const char *source)
{
	const char *colon = strchr(source, ':');

	return colon ? kind_named(source, (size_t)(colon - source)) : SOURCE_N_KINDS;
}

/* ---- paths ---- */

/* A part between separators: [at, end). `next` is behind the separator; NULL: it is the last one. */
struct part {
	const char *at, *end, *next;
};

static struct part sources_split(const char *at, const char *end, const char *separator)
{
	const char *found = separator ? memmem(at, (size_t)(end - at), separator, strlen(separator)) : NULL;

	return found ? (struct part){ at, found, found + strlen(separator) } : (struct part){ at, end, NULL };
}

const char *source_comma(const char *at, const char *end)
{
	for (; at < end && *at != ','; at++) {
		const char *close = *at == '{' ? memchr(at, '}', (size_t)(end - at)) : NULL;

		at = close ? close : at;
	}
	return at < end ? at : NULL;
}

static struct part split_files(const char *at, const char *end)
{
	const char *comma = source_comma(at, end);

	return comma ? (struct part){ at, comma, comma + 1 } : (struct part){ at, end, NULL };
}

/* "length=1024": one of the kind's options. */
static bool sources_is_option(const struct kind *k, struct part p)
{
	const char *equals = memchr(p.at, '=', (size_t)(p.end - p.at));
	size_t n = equals ? (size_t)(equals - p.at) : 0;

	for (const char *name = k->options; n && *name; name = strchr(name, ' ') + 1)
		if (strncmp(name, p.at, n) == 0 && name[n] == ' ')
			return true;
	return false;
}

bool source_is_misspelt(const char *kind, const char *part, size_t n_bytes, char *why, size_t size)
{
	enum source_kind found = kind_named(kind, strlen(kind));
	const char *options = found == SOURCE_N_KINDS ? "" : kinds[found].options;
	char path[PATH_MAX];
	size_t n = 0, n_why;

	while (n < n_bytes && isalpha((unsigned char)part[n]))
		n++;
	if (!*options || !n || n == n_bytes || part[n] != '=' ||
	    sources_is_option(&kinds[found], (struct part){ part, part + n_bytes, NULL }) ||
	    (snprintf(path, sizeof path, "%.*s", (int)n_bytes, part) < (int)sizeof path && access(path, F_OK) == 0))
		return false;
	snprintf(why, size, "%s: no option '%.*s'; the options are: %s", kind, (int)(n < 64 ? n : 64), part, options);
	n_why = strlen(why);
	why[n_why - (why[n_why - 1] == ' ')] = '\0';
	return true;
}

/* Behind "NAME=" in front of a path. */
static const char *behind_name(struct part p)
{
	const char *equals = memchr(p.at, '=', (size_t)(p.end - p.at));

	return equals && !memchr(p.at, '/', (size_t)(equals - p.at)) ? equals + 1 : p.at;
}

static bool begins(struct part p, const char *prefix)
{
	return (size_t)(p.end - p.at) >= strlen(prefix) && memcmp(p.at, prefix, strlen(prefix)) == 0;
}

/* Calls fn for each path of the source [at, end) until it returns true, and says whether it has. */
typedef bool path_fn(void *arg, struct part path);
static bool walk_source(const char *at, const char *end, path_fn *fn, void *arg);

/* "rows=HASH," and "images=DIR," in front of the patterns. Moves *at after them. */
static bool walk_arrow_front(const char **at, const char *end, path_fn *fn, void *arg)
{
	for (struct part p = sources_split(*at, end, ","); p.next; p = sources_split(*at, end, ",")) {
		bool is_folder = begins(p, "images=");

		if (!is_folder && !begins(p, "rows="))
			return false;
		*at = p.next;
		p.at += strlen("images=");
		if (is_folder && fn(arg, p))
			return true;
	}
	return false;
}

/* "[WEIGHT*][N@]SOURCE" */
static bool walk_part(struct part p, path_fn *fn, void *arg)
{
	const char *at = p.at;

	while (at < p.end && strchr("0123456789.*@", *at))
		at++;
	return !begins(p, "seed=") && walk_source(at, p.end, fn, arg);
}

static bool walk_list(const struct kind *k, const char *at, const char *end, path_fn *fn, void *arg)
{
	static const char *const separators[] = { [PATHS_NAMED] = ",", [PATHS_PATTERNS] = "::", [PATHS_PARTS] = ";;" };
	const char *separator = k->paths == PATHS_ONE ? NULL : separators[k->paths];
	bool stop = false;

	for (struct part p; at && !stop; at = p.next) {
		p = k->paths == PATHS_FILES ? split_files(at, end) : sources_split(at, end, separator);
		if (k->paths == PATHS_PARTS)
			stop = walk_part(p, fn, arg);
		else if (!sources_is_option(k, p))
			stop = fn(arg, (struct part){ k->paths == PATHS_NAMED ? behind_name(p) : p.at, p.end, NULL });
	}
	return stop;
}

static bool walk_source(const char *at, const char *end, path_fn *fn, void *arg)
{
	const char *colon = memchr(at, ':', (size_t)(end - at));
	enum source_kind kind = colon ? kind_named(at, (size_t)(colon - at)) : SOURCE_N_KINDS;

	if (kind == SOURCE_N_KINDS || kinds[kind].paths == PATHS_NONE)
		return false;
	at = colon + 1;
	return (kind == SOURCE_ARROW && walk_arrow_front(&at, end, fn, arg)) ||
	       walk_list(&kinds[kind], at, end, fn, arg);
}

/* ---- for others ---- */

struct visit {
	int (*fn)(void *arg, const char *path, size_t n_bytes);
	void *arg;
	int result;
};

static bool visit_path(void *arg, struct part p)
{
	struct visit *v = arg;

	v->result = v->fn(v->arg, p.at, (size_t)(p.end - p.at));
	return v->result != 0;
}

int source_each_path(const char *source, int (*fn)(void *arg, const char *path, size_t n_bytes), void *arg)
{
	struct visit v = { .fn = fn, .arg = arg };

	walk_source(source, source + strlen(source), visit_path, &v);
	return v.result;
}

/* A copy of a text with something inserted now and then. */
struct copy {
	const char *done; /* how far the original is copied */
	const char *dir;
	char *text;
};

static int sources_append(struct copy *c, const char *end, const char *more)
{
	char *longer = NULL;

	if (asprintf(&longer, "%s%.*s%s", c->text ? c->text : "", (int)(end - c->done), c->done, more) < 0)
		return -1;
	free(c->text);
	c->text = longer;
	c->done = end;
	return 0;
}

static int insert_dir(void *arg, const char *path, size_t n_bytes)
{
	struct copy *c = arg;

	if (n_bytes && *path == '/')
		return 0;
	return sources_append(c, path, c->dir) < 0 ? -1 : sources_append(c, path, "/");
}

char *source_absolute(const char *source)
{
	char *dir = getcwd(NULL, 0);
	struct copy c = { .done = source, .dir = dir };

	if (!dir || source_each_path(source, insert_dir, &c) < 0 ||
	    sources_append(&c, c.done + strlen(c.done), "") < 0) {
		free(c.text);
		c.text = NULL;
	}
	free(dir);
	return c.text;
}

bool source_says_token_type(const char *source)
{
	const char *at = strstr(source, "dtype=");

	return at && (at == source || at[-1] == ',' || at[-1] == ':');
}

bool source_token_index(const char *path, bool says_type, char out[PATH_MAX])
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
