/* idx: MNIST's files, as they are or compressed by gzip.
 *
 *     idx:IMAGES[,LABELS]
 *
 * Plain files are mapped. Compressed ones are inflated into memory, which is charged before it is taken: the header
 * comes first and says how much it will be, and what inflates to more is refused. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/arrays/arrays.h"
#include "dataset/arrays/idx.h"
#include "dataset/shards/unzip.h"
#include "base/io-full.h"

static int idx_set_fail(const struct mapped *m, const char *why, struct dataset_error *err)
{
	return dataset_fail(err, DATASET_E_BAD_DATA, -EINVAL, "%s: %s", m->name, why);
}

/* The elements after the header. One byte more is asked for, to see that there is none. */
static int inflate_data(struct unzip *s, const struct mapped *m, const uint8_t *head, size_t n_head,
			const struct npy *npy, const struct dataset_source *source, uint8_t **out,
			struct dataset_error *err)
{
	size_t n = npy->data_bytes, n_had = n_head - npy->data_offset_bytes, got;
	int r;

	if (n_had > n)
		return idx_set_fail(m, "it inflates to more than its header promises", err);
	r = meter_take(source->meter, n + 1);
	if (r < 0)
		return dataset_fail_errno(err, -r, m->name);
	*out = malloc(n + 1);
	if (!*out)
		return dataset_fail_errno(err, ENOMEM, m->name);
	memcpy(*out, head + npy->data_offset_bytes, n_had);
	r = unzip_read(s, *out + n_had, n + 1 - n_had, &got, err);
	if (r == 0 && n_had + got != n)
		r = idx_set_fail(m,
				 n_had + got < n ? "it inflates to less than its header promises: cut short?"
						 : "it inflates to more than its header promises",
				 err);
	return r;
}

static int inflate_array(struct unzip *s, const struct mapped *m, const struct dataset_source *source, struct npy *npy,
			 uint8_t **out, struct dataset_error *err)
{
	uint8_t head[IDX_MAX_HEADER_BYTES];
	struct npy_error why;
	size_t n_head;
	int r = unzip_read(s, head, sizeof(head), &n_head, err);

	if (r == 0 && idx_parse(head, n_head, npy, &why) < 0)
		r = idx_set_fail(m, why.text, err);
	return r < 0 ? r : inflate_data(s, m, head, n_head, npy, source, out, err);
}

static int add_compressed(struct arrays *a, const char *name, const struct mapped *m,
			  const struct dataset_source *source, struct npy *npy, struct dataset_error *err)
{
	struct unzip *s;
	uint8_t *data = NULL;
	int r = unzip_begin(m->fd, m->name, 0, UINT64_MAX, UNZIP_GZIP, source->stop, &s, err);

	if (r < 0)
		return r;
	r = inflate_array(s, m, source, npy, &data, err);
	unzip_end(s);
	if (r < 0) {
		free(data);
		return r;
	}
	a->base.memory_bytes += npy->data_bytes + 1;
	return arrays_add(a, name, npy->dtype, npy->n_dims, npy->shape, (const char *)data, data, true, err);
}

static int idx_set_add_plain(struct arrays *a, const char *name, struct mapped *m, const struct dataset_source *source,
			     const uint8_t *head, size_t n_head, const struct stat *st, struct npy *npy,
			     struct dataset_error *err)
{
	struct npy_error why;
	int r;

	if (idx_parse(head, n_head, npy, &why) < 0)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "%s: %s", m->name, why.text);
	if ((uint64_t)st->st_size < npy->data_offset_bytes + npy->data_bytes)
		return dataset_fail(err, DATASET_E_BAD_DATA, -EINVAL,
				    "%s: %llu bytes long, but its header promises %llu: cut short?", m->name,
				    (unsigned long long)st->st_size,
				    (unsigned long long)(npy->data_offset_bytes + npy->data_bytes));
	r = mapped_map(m, source, st, npy->data_offset_bytes + npy->data_bytes, 0, err);
	return r < 0 ? r : arrays_add_npy(a, name, npy, m->map, NULL, true, err);
}

static int idx_set_add_file(struct arrays *a, const struct dataset_source *source, unsigned which, const char *path,
			    uint64_t *content, struct dataset_error *err)
{
	static const char *const names[] = { "image", "label" };
	struct mapped *m = arrays_add_file(a);
	uint8_t head[IDX_MAX_HEADER_BYTES];
	struct stat st;
	struct npy npy;
	ssize_t n;
	int r = mapped_open(m, source, which, path, &st, err);

	if (r < 0)
		return r;
	n = io_full_read(m->fd, head, sizeof(head), 0);
	if (n < 0)
		return dataset_fail_errno(err, (int)-n, m->name);
	*content = mapped_probe(m, 0, (uint64_t)st.st_size, *content + (uint64_t)st.st_size);
	if (n >= 2 && head[0] == 0x1f && head[1] == 0x8b)
		return add_compressed(a, names[which], m, source, &npy, err);
	return idx_set_add_plain(a, names[which], m, source, head, (size_t)n, &st, &npy, err);
}

int idx_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	const struct Source *s = source->part;
	struct arrays *a = arrays_create(source, 2, rest, err);
	uint64_t content = 0;
	int r = a ? 0 : -ENOMEM;

	if (r == 0 && s->n_part > 2)
		r = dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				 "idx:%.300s: expected one file, or two: images and, after a comma, labels", rest);
	for (unsigned i = 0; r == 0 && i < s->n_part; i++)
		r = idx_set_add_file(a, source, i, s->part[i]->path, &content, err);
	if (r < 0 && a)
		dataset_destroy(&a->base);
	if (r < 0)
		return r;
	arrays_end(a, rest, content, out);
	return 0;
}
