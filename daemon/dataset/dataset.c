/* The entry to all data sets: calls the functions of its kind.
 *
 * Data sets are immutable and reference counted, so any thread may use one without a lock. The few parts that change
 * (descriptors of folders opened on first use) are atomic. */
#include "dataset/impl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/file.h"
#include "wire.h"

enum { MAX_FILES = 4096 }; /* of one kind that has many */

static const struct {
	int (*open)(const struct dataset_source *source, const char *rest, struct dataset **out,
		    struct dataset_error *err);
	bool is_list; /* of many paths, which may be longer than one path */
} kinds[SOURCE_N_KINDS] = {
	[SOURCE_KIND__IMAGEFOLDER] = { imagefolder_open, false },
	[SOURCE_KIND__FILES] = { filelist_open, false },
	[SOURCE_KIND__NPY] = { npy_open, true },
	[SOURCE_KIND__NPZ] = { npz_open, false },
	[SOURCE_KIND__MEMORY] = { memory_open, true },
	[SOURCE_KIND__IDX] = { idx_open, true },
	[SOURCE_KIND__CIFAR] = { cifar_open, true },
	[SOURCE_KIND__TOKENS] = { tokens_open, true },
	[SOURCE_KIND__TAR] = { tar_open, true },
	[SOURCE_KIND__MDS] = { mds_open, true },
	[SOURCE_KIND__ZIP] = { zip_open, true },
	[SOURCE_KIND__ARROW] = { arrow_open, true },
	[SOURCE_KIND__RANDOM] = { random_open, false },
};

/* `rest`, the text behind the colon, is what ids are made of. */
static int open_named(const struct dataset_source *source, const char *rest, struct dataset **out,
		      struct dataset_error *err)
{
	const struct Source *s = source->part;
	size_t n = strlen(rest), most = kinds[s->kind].is_list ? WIRE_MAX_DATASET : PATH_MAX;

	if (!kinds[s->kind].open)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "data set '%s:%.64s': expected " SOURCE_KINDS_TEXT,
				    source_kind_name(s->kind), rest);
	if (!n || (n >= most && (source->n_fds || !kinds[s->kind].is_list)))
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				    n ? "data set '%s:%.64s': more than %zu bytes follow the colon"
				      : "data set '%s:%.64s': nothing follows the colon",
				    source_kind_name(s->kind), rest, most - 1);
	return kinds[s->kind].open(source, rest, out, err);
}

/* What no client has expanded is in a configuration. */
static int expand(struct Source *s, struct dataset_error *err)
{
	char why[PATH_MAX + 100];
	int r = source_expand_files(s, MAX_FILES, why, sizeof(why));

	if (r == -EFBIG)
		return dataset_fail(err, DATASET_E_LIMIT, r, "%s:%.300s...: a pattern of more than %d files",
				    source_kind_name(s->kind), s->part[0]->path, MAX_FILES);
	return r == -ENOMEM ? dataset_fail_errno(err, ENOMEM, source_kind_name(s->kind))
	       : r < 0      ? dataset_fail(err, r == -ENOENT ? DATASET_E_NOT_FOUND : DATASET_E_INVALID, r, "%s", why)
			    : 0;
}

static void strip_slashes(struct Source *s)
{
	struct SourcePart *last = s->n_part ? s->part[s->n_part - 1] : NULL;

	if (!last || !source_part_is_path(last))
		return;
	for (size_t n = strlen(last->path); n > 1 && last->path[n - 1] == '/'; n--)
		last->path[n - 1] = '\0';
}

static int open_part(const struct dataset_source *source, struct Source *part, struct dataset **out,
		     struct dataset_error *err)
{
	struct dataset_source one = *source;
	int r = !source->n_fds && source->access->trusted ? expand(part, err) : 0;
	char *rest;

	strip_slashes(part);
	rest = r ? NULL : source_print_rest(part, SOURCE_EXACT);
	one.part = part;
	if (!r && !rest)
		r = dataset_fail_errno(err, ENOMEM, source_kind_name(part->kind));
	r = r ? r : open_named(&one, rest, out, err);
	free(rest);
	return r;
}

/* A copy, whose patterns may be expanded. */
static int take_sources(const struct dataset_source *source, struct Sources **out, struct dataset_error *err)
{
	char why[400];
	int r;

	if (source->sources) {
		*out = sources_copy(source->sources);
		return *out ? 0 : dataset_fail_errno(err, ENOMEM, "data set");
	}
	r = sources_parse(source->spec, out, why, sizeof(why));
	return r == -EINVAL   ? dataset_fail(err, DATASET_E_INVALID, r, "%s", why)
	       : r == -ENOENT ? dataset_fail(err, DATASET_E_INVALID, -EINVAL,
					     "data set '%.128s': expected " SOURCE_KINDS_TEXT, why)
	       : r < 0        ? dataset_fail_errno(err, ENOMEM, "data set")
			      : 0;
}

int dataset_open(const struct dataset_source *source, struct dataset **out, struct dataset_error *err)
{
	struct dataset_error unused;
	struct Sources *own;
	unsigned n;
	int r;

	err = err ? err : &unused;
	err->text[0] = '\0';
	err->code = DATASET_E_INVALID;
	r = take_sources(source, &own, err);
	if (r < 0)
		return r;
	n = sources_n_fds(own);
	if (source->n_fds && source->n_fds != n)
		r = dataset_fail(err, DATASET_E_INVALID, -EINVAL, "%u descriptors for %u files and folders",
				 source->n_fds, n);
	else if (own->blend)
		r = blend_open(source, own, open_part, out, err);
	else
		r = open_part(source, own->source[0], out, err);
	sources_free(own);
	return r;
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
