/* The entry to all data sets: finds the kind by the spec's first word and calls its functions.
 *
 * Data sets are immutable and reference counted, so any thread may use one without a lock. The few parts that change
 * (descriptors of folders opened on first use) are atomic. */
#include "dataset/impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/folder/file-patterns.h"
#include "dataset/file.h"
#include "sources.h"

enum { MAX_SPEC_BYTES = 8256 };

static int open_blend(const struct dataset_source *source, const char *rest, struct dataset **out,
		      struct dataset_error *err)
{
	return blend_open(source, rest, dataset_open, out, err);
}

static const struct {
	const char *prefix;
	int (*open)(const struct dataset_source *source, const char *rest, struct dataset **out,
		    struct dataset_error *err);
	bool is_list; /* of many paths, which may be longer than one path */
} kinds[] = {
	{ "imagefolder:", imagefolder_open, false },
	{ "files:", filelist_open, false },
	{ "npy:", npy_open, true },
	{ "npz:", npz_open, false },
	{ "memory:", memory_open, true },
	{ "idx:", idx_open, true },
	{ "cifar:", cifar_open, true },
	{ "tokens:", tokens_open, true },
	{ "tar:", tar_open, true },
	{ "mds:", mds_open, true },
	{ "zip:", zip_open, true },
	{ "arrow:", arrow_open, true },
	{ "blend:", open_blend, true },
	{ "random:", random_open, false },
};

typedef int open_fn(const struct dataset_source *source, const char *rest, struct dataset **out,
		    struct dataset_error *err);

/* What no client has expanded stands in a configuration. */
static int open_expanded(open_fn *open, const struct dataset_source *source, const char *rest, struct dataset **out,
			 struct dataset_error *err)
{
	char *longer = NULL;
	int r = !source->n_fds && source->access->trusted ? file_patterns_expand(source->spec, &longer, err) : 0;

	r = r < 0 ? r : open(source, longer ? longer : rest, out, err);
	free(longer);
	return r;
}

static int open_kind(const struct dataset_source *source, struct dataset **out, struct dataset_error *err)
{
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		size_t n_prefix = strlen(kinds[k].prefix);
		size_t n, most = kinds[k].is_list ? MAX_SPEC_BYTES : 4096;
		char rest[MAX_SPEC_BYTES];

		if (strncmp(source->spec, kinds[k].prefix, n_prefix))
			continue;
		n = strlen(source->spec + n_prefix);
		if (!n || n >= most)
			return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
					    n ? "data set '%.64s': more than %zu bytes follow the colon"
					      : "data set '%.64s': nothing follows the colon",
					    source->spec, most - 1);
		memcpy(rest, source->spec + n_prefix, n + 1);
		while (n > 1 && rest[n - 1] == '/')
			rest[--n] = '\0';
		return open_expanded(kinds[k].open, source, rest, out, err);
	}
	return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "data set '%.128s': expected " SOURCE_KINDS_TEXT,
			    source->spec);
}

int dataset_open(const struct dataset_source *source, struct dataset **out, struct dataset_error *err)
{
	struct dataset_error unused;

	err = err ? err : &unused;
	err->text[0] = '\0';
	err->code = DATASET_E_INVALID;
	return open_kind(source, out, err);
}

struct dataset *dataset_ref(struct dataset *ds)
{
	atomic_fetch_add_explicit(&ds->refs, 1, memory_order_relaxed);
	return ds;
}

void dataset_unref(struct dataset *ds)
{
	if (ds && atomic_fetch_sub_explicit(&ds->refs, 1, memory_order_acq_rel) == 1)
		dataset_destroy(ds);
}

uint64_t dataset_id(const struct dataset *ds)
{
	return ds->id;
}

uint64_t dataset_cache_id(const struct dataset *ds)
{
	return ds->cache_id;
}

uint64_t dataset_content_id(const struct dataset *ds)
{
	return ds->content_id;
}

uint64_t dataset_n_left_out(const struct dataset *ds)
{
	return ds->n_left_out;
}

const char *dataset_left_out(const struct dataset *ds)
{
	return ds->left_out;
}

const char *dataset_no_label(const struct dataset *ds)
{
	return ds->no_label;
}

int dataset_turns(const struct dataset *ds)
{
	return ds->turns_some ? 2 : ds->turns;
}

uint64_t dataset_server(const struct dataset *ds)
{
	return ds->server;
}

uint32_t dataset_n_shards(const struct dataset *ds)
{
	return ds->n_shards ? ds->n_shards : 1;
}

void dataset_shard(const struct dataset *ds, uint32_t i, uint64_t *first, uint64_t *end)
{
	*first = i ? ds->ops->shard_end(ds, i - 1) : 0;
	*end = ds->n_shards ? ds->ops->shard_end(ds, i) : ds->n;
}

const struct dataset_blend *dataset_blend(const struct dataset *ds)
{
	return ds->blend;
}

uint64_t dataset_n(const struct dataset *ds)
{
	return ds->n;
}

uint64_t dataset_memory_bytes(const struct dataset *ds)
{
	return ds->memory_bytes;
}

bool dataset_is_image(const struct dataset *ds)
{
	return ds->is_image;
}

uint32_t dataset_n_classes(const struct dataset *ds)
{
	return ds->n_classes;
}

const char *dataset_class(const struct dataset *ds, uint32_t i)
{
	return i < ds->n_classes ? ds->ops->class_name(ds, i) : NULL;
}

/* ---- fields ---- */

unsigned dataset_n_fields(const struct dataset *ds)
{
	return ds->n_fields;
}

const struct field *dataset_field(const struct dataset *ds, unsigned i)
{
	return &ds->fields[i];
}

void dataset_value(const struct dataset *ds, uint64_t index, unsigned field, struct field_value *out)
{
	ds->ops->value(ds, index, field, out);
}

int64_t dataset_label(const struct dataset *ds, uint64_t index)
{
	struct field_value v;

	if (!ds->label || !ds->ops->value || index >= ds->n || !ds->is_image ||
	    ds->fields[ds->label].dtype != DTYPE_INT64 || ds->fields[ds->label].n_dims)
		return -1;
	ds->ops->value(ds, index, (unsigned)ds->label, &v);
	return *(const int64_t *)v.bytes;
}

/* ---- samples ---- */

static int check_indices(const struct dataset *ds, const uint64_t *indices, size_t n, struct dataset_error *err)
{
	uint64_t largest = 0;

	for (size_t i = 0; i < n; i++)
		largest = indices[i] > largest ? indices[i] : largest;
	if (n && largest >= ds->n)
		return dataset_fail(err, DATASET_E_INVALID, -ERANGE, "sample %llu: the data set has %llu samples",
				    (unsigned long long)largest, (unsigned long long)ds->n);
	return 0;
}

/* Fields of images that are in memory. */
static void dataset_copy_values(const struct dataset *ds, const uint64_t *indices, size_t n, void *const rows[])
{
	for (unsigned k = 1; k < ds->n_fields; k++) {
		for (size_t i = 0; rows[k] && i < n; i++) {
			struct field_value v;

			ds->ops->value(ds, indices[i], k, &v);
			memcpy((char *)rows[k] + i * v.n_bytes, v.bytes, v.n_bytes);
		}
	}
}

int dataset_gather(struct dataset *ds, const uint64_t *indices, size_t n, void *const rows[], struct dataset_error *err)
{
	int r = check_indices(ds, indices, n, err);

	if (r < 0)
		return r;
	if (!ds->is_image)
		return ds->ops->gather(ds, indices, n, rows, err);
	if (rows[0])
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "images have to be decoded, not gathered");
	dataset_copy_values(ds, indices, n, rows);
	return 0;
}

void dataset_name(const struct dataset *ds, uint64_t index, char *buf, size_t size)
{
	if (index < ds->n)
		ds->ops->name(ds, index, buf, size);
	else if (size)
		snprintf(buf, size, "sample %llu", (unsigned long long)index);
}

int dataset_read(struct dataset *ds, uint64_t index, enum read_how how, struct file_bytes *out,
		 struct dataset_error *err)
{
	int r = check_indices(ds, &index, 1, err);

	if (r < 0)
		return r;
	return !ds->is_image ? dataset_fail(err, DATASET_E_INVALID, -EINVAL, "arrays have no files to read")
			     : ds->ops->read(ds, index, how, out, err);
}

int dataset_check_first(struct dataset *ds, struct dataset_error *err)
{
	enum { FIRST = 8 };
	struct file_bytes b = { 0 };
	char name[300];
	int r = ds->list_folder[0] ? -ENOENT : 0;

	for (uint64_t i = 0; r == -ENOENT && i < ds->n && i < FIRST; i++)
		r = dataset_read(ds, i, READ_WAIT, &b, err);
	file_bytes_finish(&b);
	if (r != -ENOENT)
		return 0; /* what is wrong with single files is told with their batch */
	dataset_name(ds, 0, name, sizeof(name));
	if (strstr(name, ":/"))
		return dataset_fail(err, DATASET_E_NOT_FOUND, r,
				    "%.280s: a list names files, and nothing is read from a network", name);
	if (*name == '/')
		return dataset_fail(err, DATASET_E_NOT_FOUND, r, "%.280s: no such file", name);
	return dataset_fail(err, DATASET_E_NOT_FOUND, r,
			    "%.280s: no such file in %.200s, the folder of the list, where its relative paths begin",
			    name, ds->list_folder);
}

int dataset_is_current(struct dataset *ds, uint64_t index, enum read_how how, const struct file_bytes *b)
{
	return ds->is_image && index < ds->n ? ds->ops->is_current(ds, index, how, b) : 0;
}
