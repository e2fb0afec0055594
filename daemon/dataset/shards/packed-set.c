/* See packed-set.h. */
#include "dataset/shards/packed-set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/shards/zip-content.h"

static int packed_read(struct dataset *ds, uint64_t index, enum read_how how, struct file_bytes *out,
		       struct dataset_error *err)
{
	struct packed *p = (struct packed *)ds;
	uint32_t shard = p->index.shard[index], n = p->index.n_bytes[index];
	const struct extent_content *content = p->index.content ? &p->index.content[index] : NULL;
	int r = content ? zip_content_reserve(out, n, content) : 0;
	const char *why;
	char name[400];

	r = r < 0 ? r
		  : shards_read(&p->shards, shard, &p->index.shards[shard].stamp, how, p->index.at[index], n, out, err);
	why = r == 0 && content ? zip_content_unpack(out, n, content) : NULL;
	if (why) {
		extents_name(&p->index, index, name, sizeof(name));
		return dataset_fail(err, DATASET_E_BAD_DATA, -EINVAL, "%s: %s", name, why);
	}
	return r;
}

static int packed_is_current(struct dataset *ds, uint64_t index, enum read_how how, const struct file_bytes *b)
{
	struct packed *p = (struct packed *)ds;
	uint32_t shard = p->index.shard[index];

	return b->n_bytes != extents_content_bytes(&p->index, index)
		       ? 0
		       : shards_is_current(&p->shards, shard, &p->index.shards[shard].stamp, how, b);
}

static int64_t packed_label_of(const struct packed *p, uint64_t index)
{
	size_t n;
	int64_t label;

	if (p->classes.labels)
		return p->classes.labels[index];
	if (p->label < 0 || p->index.columns.list[p->label].kind != COLUMN_INT64)
		return 0;
	memcpy(&label, columns_value(&p->index.columns, (unsigned)p->label, index, &n), sizeof(label));
	return label;
}

static void packed_value(const struct dataset *ds, uint64_t index, unsigned field, struct field_value *out)
{
	const struct packed *p = (const struct packed *)ds;

	unsigned k = field - p->first;

	if (k >= p->index.columns.n || p->index.columns.list[k].kind == COLUMN_CLASS)
		field_value_set_scalar(out, packed_label_of(p, index));
	else
		out->bytes = columns_value(&p->index.columns, k, index, &out->n_bytes);
}

/* Samples without an image: all that they have is in memory. */
static int packed_gather(struct dataset *ds, const uint64_t *indices, size_t n, void *const rows[],
			 struct dataset_error *err)
{
	(void)err;
	for (unsigned k = 0; k < ds->n_fields; k++) {
		for (size_t i = 0; rows[k] && i < n; i++) {
			struct field_value v;

			packed_value(ds, indices[i], k, &v);
			memcpy((char *)rows[k] + i * v.n_bytes, v.bytes, v.n_bytes);
		}
	}
	return 0;
}

static void packed_name(const struct dataset *ds, uint64_t index, char *buf, size_t size)
{
	extents_name(&((const struct packed *)ds)->index, index, buf, size);
}

static void packed_destroy(struct dataset *ds)
{
	struct packed *p = (struct packed *)ds;

	shards_finish(&p->shards);
	extents_finish(&p->index);
	classes_finish(&p->classes);
	free(p);
}

static const char *packed_class_name(const struct dataset *ds, uint32_t i)
{
	return classes_name(&((const struct packed *)ds)->classes, i);
}

static uint64_t packed_shard_end(const struct dataset *ds, uint32_t i)
{
	const struct extents_shard *s = &((const struct packed *)ds)->index.shards[i];

	return s->first + s->n;
}

const struct dataset_ops packed_ops = {
	.destroy = packed_destroy,
	.gather = packed_gather,
	.read = packed_read,
	.is_current = packed_is_current,
	.value = packed_value,
	.name = packed_name,
	.class_name = packed_class_name,
	.shard_end = packed_shard_end,
};
