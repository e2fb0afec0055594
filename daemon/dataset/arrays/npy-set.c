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

static int npy_set_name(const struct SourcePart *from, unsigned i, struct part *p, struct dataset_error *err)
{
	static const char *const unnamed[] = { "data", "label" };

	if (!*from->name && i >= 2)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				    "npy: %.200s: more than two arrays need names: npy:NAME=FILE,NAME=FILE,...",
				    from->path);
	snprintf(p->name, sizeof(p->name), "%s", *from->name ? from->name : unnamed[i]);
	p->path = from->role == SOURCE_ROLE__ARRAY ? from->name : from->path;
	p->may_widen = from->role != SOURCE_ROLE__ARRAY && !strcmp(p->name, "label");
	return 0;
}

static int open_all(const struct dataset_source *source, const char *rest, const char *kind, struct dataset **out,
		    struct dataset_error *err)
{
	const struct Source *s = source->part;
	struct part parts[DATASET_MAX_FIELDS];
	int r = 0;

	if (s->n_part > DATASET_MAX_FIELDS)
		return dataset_fail(err, DATASET_E_LIMIT, -EFBIG, "%s: a sample has at most %d fields", kind,
				    DATASET_MAX_FIELDS);
	for (unsigned i = 0; r == 0 && i < s->n_part; i++)
		r = strlen(s->part[i]->name) < sizeof(parts[i].name)
			    ? npy_set_name(s->part[i], i, &parts[i], err)
			    : dataset_fail(err, DATASET_E_INVALID, -EINVAL,
					   "%s: the name of a field has at most %d bytes", kind, FIELD_NAME_BYTES - 1);
	return r < 0 ? r
		     : open_parts(source, rest, parts, (unsigned)s->n_part, s->kind == SOURCE_KIND__MEMORY, out, err);
}

int npy_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	return open_all(source, rest, "npy", out, err);
}

int memory_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	if (!source->n_fds)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "memory:%.300s: no descriptors of its arrays came",
				    rest);
	return open_all(source, rest, "memory", out, err);
}
