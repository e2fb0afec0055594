/* See file-patterns.h. A client expands patterns with its own rights (client/link/source.c); here the daemon has been
 * given the text by its operator, or batchctl by its user. */
#include "dataset/folder/file-patterns.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "braces.h"
#include "sources.h"

enum { MAX_FILES = 4096 }; /* of one pattern, as many as the kind with most files takes */

struct expansion {
	const char *kind;
	const char *done; /* how far the original is copied */
	bool has_pairs;   /* of Megatron's */
	bool says_type;   /* of the tokens */
	FILE *text;
	unsigned n; /* files of the pattern */
	struct dataset_error *err;
};

static int put_path(struct expansion *e, const char *path)
{
	char index[PATH_MAX];

	if (e->n == MAX_FILES)
		return dataset_fail(e->err, DATASET_E_LIMIT, -EFBIG, "%.300s...: a pattern of more than %d files", path,
				    MAX_FILES);
	fprintf(e->text, "%s%s", e->n++ == 0 ? "" : ",",
		e->has_pairs && source_token_index(path, e->says_type, index) ? index : path);
	return 0;
}

static int put_matches(void *arg, const char *pattern)
{
	struct expansion *e = arg;
	glob_t found;
	int r = 0;

	if (!strpbrk(pattern, "*?[") || access(pattern, F_OK) == 0)
		return put_path(e, pattern);
	if (glob(pattern, GLOB_ERR, NULL, &found))
		return dataset_fail(e->err, DATASET_E_NOT_FOUND, -ENOENT, "%s: no file has such a name", pattern);
	for (size_t i = 0; r == 0 && i < found.gl_pathc; i++)
		r = put_path(e, found.gl_pathv[i]);
	globfree(&found);
	return r;
}

static int expand_path(void *arg, const char *path, size_t n_bytes)
{
	struct expansion *e = arg;
	char pattern[PATH_MAX], why[400];
	int r;

	if (source_is_misspelt(e->kind, path, n_bytes, why, sizeof(why)))
		return dataset_fail(e->err, DATASET_E_INVALID, -EINVAL, "%s", why);
	fwrite(e->done, 1, (size_t)(path - e->done), e->text);
	e->done = path + n_bytes;
	if (n_bytes >= sizeof(pattern))
		return dataset_fail(e->err, DATASET_E_INVALID, -ENAMETOOLONG, "%.100s...: the path is too long", path);
	memcpy(pattern, path, n_bytes);
	pattern[n_bytes] = '\0';
	e->n = 0;
	if (!strpbrk(pattern, "{}") || access(pattern, F_OK) == 0)
		return put_matches(e, pattern);
	r = braces_expand(pattern, put_matches, e, why, sizeof(why));
	return r < 0 && *why ? dataset_fail(e->err, DATASET_E_INVALID, r, "%s", why) : r;
}

int file_patterns_expand(const char *spec, char **out, struct dataset_error *err)
{
	enum source_kind kind = source_kind_of(spec);
	struct expansion e = { .has_pairs = kind == SOURCE_TOKENS,
			       .says_type = source_says_token_type(spec),
			       .err = err };
	size_t n;
	int r;

	*out = NULL;
	if (kind != SOURCE_TOKENS && kind != SOURCE_CIFAR)
		return 0;
	e.kind = source_kind_name(kind);
	e.done = strchr(spec, ':') + 1;
	e.text = open_memstream(out, &n);
	if (!e.text)
		return dataset_fail_errno(err, ENOMEM, spec);
	r = source_each_path(spec, expand_path, &e);
	fputs(e.done, e.text);
	if (fclose(e.text) && !r)
		r = dataset_fail_errno(err, ENOMEM, spec);
	if (r) {
		free(*out);
		*out = NULL;
	}
	return r;
}
