/* npy: arrays in .npy files, memory-mapped.
 *
 *     npy:FILE[,FILE]              the samples, and their labels
 *     npy:NAME=FILE[,NAME=FILE...]
 *
 * memory: the same in sealed memfds, which a client hands over as descriptors.
 *
 *     memory:[id=HASH,]NAME[,NAME...]
 *
 * The memory stays as long as the data set is open, whatever becomes of the client, so it is charged to its user. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/arrays/arrays.h"
#include "base/io-full.h"

struct part {
	char name[FIELD_NAME_BYTES];
	const char *path;
	bool may_widen;
};

/* The header is read, not mapped: the mapping is not trusted until its size is checked. */
static int npy_set_read_header(const struct mapped *m, const struct stat *st, struct npy *npy,
			       struct dataset_error *err)
{
	char *bytes = malloc(NPY_MAX_HEADER_BYTES);
	struct npy_error why;
	ssize_t n;
	int r;

	if (!bytes)
		return dataset_fail_errno(err, ENOMEM, m->name);
	n = io_full_read(m->fd, bytes, NPY_MAX_HEADER_BYTES, 0);
	r = n < 0 ? dataset_fail_errno(err, (int)-n, m->name) : npy_parse(bytes, (size_t)n, npy, &why);
	free(bytes);
	if (n < 0)
		return r;
	if (r < 0)
		return dataset_fail(err, DATASET_E_INVALID, r, "%s: %s", m->name, why.text);
	if ((uint64_t)st->st_size < npy->data_offset_bytes + npy->data_bytes)
		return dataset_fail(err, DATASET_E_BAD_DATA, -EINVAL,
				    "%s: %llu bytes long, but its header promises %llu: cut short?", m->name,
				    (unsigned long long)st->st_size,
				    (unsigned long long)(npy->data_offset_bytes + npy->data_bytes));
	return 0;
}

static int add_part(struct arrays *a, const struct dataset_source *source, const struct part *p, unsigned which,
		    uint64_t *content, bool sealed, struct dataset_error *err)
{
	struct mapped *m = arrays_add_file(a);
	struct stat st;
	struct npy npy;
	int r = mapped_open(m, source, which, p->path, &st, err);

	r = r == 0 && sealed ? mapped_hold_sealed(m, source, &st, err) : r;
	r = r < 0 ? r : npy_set_read_header(m, &st, &npy, err);
	if (r < 0)
		return r;
	*content = mapped_probe(m, npy.data_offset_bytes, npy.data_bytes,
				XXH3_64bits_withSeed(&npy, sizeof(npy), *content));
	r = mapped_map(m, source, &st, npy.data_offset_bytes + npy.data_bytes,
		       npy.n_dims && npy.shape[0] ? npy.data_bytes / npy.shape[0] : 0, err);
	return r < 0 ? r : arrays_add_npy(a, p->name, &npy, m->map, NULL, p->may_widen, err);
}

static int open_parts(const struct dataset_source *source, const char *text, const struct part *parts, unsigned n,
		      bool sealed, struct dataset **out, struct dataset_error *err)
{
	struct arrays *a = arrays_create(source, n, n ? parts[0].path : "npy", err);
	uint64_t content = sealed ? XXH3_64bits(text, strlen(text)) : 0; /* in memory it has the hash of all values */
	int r = 0;

	if (!a)
		return -ENOMEM;
	for (unsigned i = 0; r == 0 && i < n; i++)
		r = add_part(a, source, &parts[i], i, &content, sealed, err);
	if (r < 0) {
		dataset_destroy(&a->base);
		return r;
	}
	arrays_end(a, text, content, out);
	return 0;
}

/* "NAME=" in front of a path, which is absolute; NULL: there is none. */
static const char *find_name(const char *part)
{
	const char *equals = strchr(part, '=');

	return equals && !memchr(part, '/', (size_t)(equals - part)) ? equals : NULL;
}

static int npy_set_read_part(char *text, unsigned i, struct part *p, struct dataset_error *err)
{
	static const char *const unnamed[] = { "data", "label" };
	const char *equals = find_name(text);
	size_t n = equals ? (size_t)(equals - text) : 0;

	if (!equals && i >= 2)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				    "npy: %.200s: more than two arrays need names: npy:NAME=FILE,NAME=FILE,...", text);
	if (n >= sizeof(p->name))
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "npy: the name of a field has at most %d bytes",
				    FIELD_NAME_BYTES - 1);
	memcpy(p->name, equals ? text : unnamed[i], equals ? n : strlen(unnamed[i]));
	p->name[equals ? n : strlen(unnamed[i])] = '\0';
	p->path = equals ? equals + 1 : text;
	p->may_widen = !strcmp(p->name, "label");
	return 0;
}

/* One descriptor means one file, even if its name has a comma. */
static int npy_set_split(char *text, bool is_one, struct part parts[DATASET_MAX_FIELDS], unsigned *n,
			 struct dataset_error *err)
{
	int r = 0;

	*n = 0;
	for (char *next; r == 0 && text; text = next) {
		next = is_one ? NULL : strchr(text, ',');
		if (next)
			*next++ = '\0';
		if (*n == DATASET_MAX_FIELDS)
			return dataset_fail(err, DATASET_E_LIMIT, -EFBIG, "npy: a sample has at most %d fields",
					    DATASET_MAX_FIELDS);
		r = npy_set_read_part(text, *n, &parts[*n], err);
		(*n)++;
	}
	return r;
}

static int refuse_count(const struct dataset_source *source, const char *rest, unsigned n, struct dataset_error *err)
{
	return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "%.300s: %u descriptors for %u arrays", rest,
			    source->n_fds, n);
}

int npy_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	struct part parts[DATASET_MAX_FIELDS];
	char *text = strdup(rest);
	unsigned n;
	int r;

	if (!text)
		return dataset_fail_errno(err, ENOMEM, rest);
	r = npy_set_split(text, source->n_fds == 1, parts, &n, err);
	if (r == 0 && source->n_fds && source->n_fds != n)
		r = refuse_count(source, rest, n, err);
	r = r < 0 ? r : open_parts(source, rest, parts, n, false, out, err);
	free(text);
	return r;
}

int memory_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	struct part parts[DATASET_MAX_FIELDS] = { 0 };
	char *text = strdup(rest), *at = text, *name;
	unsigned n = 0;
	int r = text ? 0 : dataset_fail_errno(err, ENOMEM, rest);

	while (r == 0 && (name = strsep(&at, ","))) {
		if (!strncmp(name, "id=", 3))
			continue;
		if (n == DATASET_MAX_FIELDS || strlen(name) >= sizeof(parts[n].name)) {
			r = dataset_fail(err, DATASET_E_LIMIT, -EFBIG,
					 "memory: more than %d fields, or a name of more than %d bytes",
					 DATASET_MAX_FIELDS, FIELD_NAME_BYTES - 1);
			break;
		}
		strcpy(parts[n].name, name);
		parts[n++].path = name;
	}
	if (r == 0 && (!n || source->n_fds != n))
		r = refuse_count(source, rest, n, err);
	r = r < 0 ? r : open_parts(source, rest, parts, n, true, out, err);
	free(text);
	return r;
}
