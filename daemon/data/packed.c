/* Opens the shards, takes the index of those that are unchanged from the kept index, reads the headers of the others, and
 * keeps the result. From then on a sample is one read at its place in an open shard.
 *
 * A shard is the one that was indexed as long as device, inode, length and times are the same. The kept index belongs to
 * the names, the folders behind them and the user, as a walked folder's does (imagefolder.c), and is not kept while a
 * further change might leave the times as they are. */
#include "data/packed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "data/cache-dir.h"
#include "data/class-folders.h"
#include "data/column-fields.h"
#include "data/compressed.h"
#include "data/fingerprint.h"
#include "data/member-spec.h"
#include "data/shards.h"
#include "data/sidecar.h"
#include "data/tree.h"
#include "data/zip-content.h"
#include "util/clock.h"
#include "util/log.h"

#define NS_PER_S 1000000000ull

enum { PROGRESS_EVERY_NS = 100000000 };

struct packed {
	struct dataset base;
	struct shards shards;
	struct extents index;
	int label;                    /* its column; -1: none */
	unsigned first;               /* the field that is column 0: 1 behind an image, else 0 */
	struct class_folders folders; /* of an archive without a list of fields */
	uint8_t fingerprint[FINGERPRINT_BYTES];
};

/* ---- the data set ---- */

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

	if (p->folders.labels) {
		return p->folders.labels[index];
	}
	if (p->label < 0 || p->index.columns.list[p->label].kind != COLUMN_INT64) {
		return (int64_t)index; /* as for arrays: a sample without label is labelled by its index */
	}
	memcpy(&label, columns_value(&p->index.columns, (unsigned)p->label, index, &n), sizeof(label));
	return label;
}

static void packed_value(const struct dataset *ds, uint64_t index, unsigned field, struct field_value *out)
{
	const struct packed *p = (const struct packed *)ds;

	if (field - p->first >= p->index.columns.n) {
		field_value_set_scalar(out, packed_label_of(p, index));
	} else {
		out->bytes = columns_value(&p->index.columns, field - p->first, index, &out->n_bytes);
	}
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

/* What a fingerprint sees: the shard's name, the sample's, the number of its bytes, its label. */
static struct fingerprint_sample sample_print(const void *arg, uint64_t i)
{
	const struct packed *p = arg;
	const char *shard = extents_shard_name(&p->index, p->index.shard[i]), *name = p->index.text + p->index.name[i];
	uint64_t hash = XXH3_64bits(shard, strlen(shard));
	int64_t label = packed_label_of(p, i);

	hash = XXH3_64bits_withSeed(name, strlen(name), hash + extents_content_bytes(&p->index, i));
	/* An index as label says nothing of the sample itself. */
	return (struct fingerprint_sample){ hash, p->label < 0 && !p->folders.labels
							  ? 0
							  : (uint32_t)XXH3_64bits(&label, sizeof(label)) };
}

static void sample_name(const void *arg, uint64_t i, char *buf, size_t size)
{
	extents_name(&((const struct packed *)arg)->index, i, buf, size);
}

static struct fingerprint_samples samples_of(const struct packed *p)
{
	return (struct fingerprint_samples){ p->index.n, p, sample_print, sample_name };
}

static void packed_compare(const struct dataset *ds, const uint8_t *fingerprint, size_t n_bytes, uint64_t old_n,
			   char *text, size_t size)
{
	struct fingerprint_samples s = samples_of((const struct packed *)ds);

	fingerprint_compare_samples(&s, fingerprint, n_bytes, old_n, text, size);
}

static void packed_destroy(struct dataset *ds)
{
	struct packed *p = (struct packed *)ds;

	shards_finish(&p->shards);
	extents_finish(&p->index);
	class_folders_finish(&p->folders);
	free(p);
}

static const char *packed_class_name(const struct dataset *ds, uint32_t i)
{
	return class_folders_name(&((const struct packed *)ds)->folders, i);
}

static uint64_t packed_shard_end(const struct dataset *ds, uint32_t i)
{
	const struct extents_shard *s = &((const struct packed *)ds)->index.shards[i];

	return s->first + s->n;
}

static const struct dataset_ops packed_ops = {
	.destroy = packed_destroy,
	.gather = packed_gather,
	.read = packed_read,
	.is_current = packed_is_current,
	.value = packed_value,
	.compare = packed_compare,
	.name = packed_name,
	.class_name = packed_class_name,
	.shard_end = packed_shard_end,
};

/* ---- opening ---- */

struct opening {
	const struct packed_format *format;
	const struct dataset_source *source;
	const char *rest;
	struct packed *packed;
	struct dataset_error *err;
	char *field_list; /* NULL: not asked for */
	struct member_fields fields;
	struct extents old;                    /* the kept index; no block: none */
	uint64_t n_bytes, n_done, reported_ns; /* of all shards, for progress */
	bool racy;                             /* a shard's times cannot yet show whether it has changed since */
	uint32_t n_scanned;                    /* shards of which the headers were read */
	uint32_t n_sidecars, n_unfit;          /* shards with an index beside them: used, not used */
	char unfit[512];                       /* the first that was not used, and why not */
};

static void packed_report(struct opening *o, uint64_t done, bool always)
{
	uint64_t now = clock_now_ns();

	if (o->source->on_progress && (always || now - o->reported_ns >= PROGRESS_EVERY_NS)) {
		o->reported_ns = now;
		o->source->on_progress(o->source->progress_arg, "index", done, o->n_bytes);
	}
}

static void on_shard_progress(void *arg, uint64_t at)
{
	struct opening *o = arg;

	packed_report(o, o->n_done + at, false);
}

static bool same_stamp(const struct shard_stamp *a, const struct shard_stamp *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->n_bytes == b->n_bytes && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
}

/* A kept shard that comes first decides, as its first sample did, which optional values there are, and of which kinds.
 * False: the kept index has other values than are asked for. */
static bool adopt_columns(struct opening *o, struct extents_builder *b)
{
	struct columns_builder columns = { .meter = b->columns.meter };
	struct member_fields fields = o->fields;
	unsigned n = 0;

	for (unsigned k = 0; k < fields.n_values; k++) {
		int column = columns_find(&o->old.columns, fields.values[k].name);

		if (column < 0 && !fields.values[k].optional) {
			return false;
		}
		if (column < 0) {
			continue;
		}
		fields.values[n] = fields.values[k];
		fields.values[n].optional = false;
		fields.values[n].has_kind = true;
		fields.values[n++].kind = o->old.columns.list[column].kind;
	}
	fields.n_values = n;
	if (member_fields_columns(&fields, &columns) || !columns_are_alike(&columns, &o->old.columns)) {
		return false;
	}
	o->fields = fields;
	b->columns = columns;
	return true;
}

/* The shard of the kept index that this one is; UINT32_MAX: there is none. Shards mostly keep their places. */
static uint32_t find_old(struct opening *o, struct extents_builder *b, uint32_t i, const char *name,
			 const struct shard_stamp *stamp)
{
	const struct extents *old = &o->old;

	if (!old->block || i >= old->n_shards || strcmp(extents_shard_name(old, i), name) ||
	    !same_stamp(&old->shards[i].stamp, stamp)) {
		return UINT32_MAX;
	}
	if (!b->n && !b->columns.n && old->shards[i].n) {
		return adopt_columns(o, b) ? i : UINT32_MAX;
	}
	/* A shard without a complete sample may have begun the columns, too. */
	return !old->shards[i].n || columns_are_alike(&b->columns, &old->columns) ? i : UINT32_MAX;
}

static int packed_no_room(const struct opening *o, int error)
{
	return dataset_fail(o->err, DATASET_E_LIMIT, error, "%.300s: %s", o->rest,
			    error == -EDQUOT   ? "more samples than there is memory for"
			    : error == -ENOMEM ? "out of memory"
					       : "more samples than one data set may have");
}

static int copy_old(struct opening *o, struct extents_builder *b, uint32_t old)
{
	int r = extents_copy_shard(b, &o->old, old);

	return r ? packed_no_room(o, r) : 0;
}

/* Reads the index beside the shard, if there is one that fits. */
static int find_sidecar(struct opening *o, struct shard_reader *reader, uint32_t i, const struct shard_stamp *stamp,
			struct sidecar *out)
{
	char why[200];
	int r = sidecar_read(out, &o->packed->shards, i, o->format->index_ending, stamp, o->source->meter, why,
			     sizeof(why));

	if (!r && out->text && !o->format->index_fits(reader, out->text, out->n, why)) {
		sidecar_finish(out);
		r = 1;
	}
	if (r == 1 && !o->n_unfit++) {
		snprintf(o->unfit, sizeof(o->unfit), "%.200s: %s", reader->name, why);
	}
	return r < 0 ? packed_no_room(o, r) : 0;
}

static int scan_shard(struct opening *o, struct members *m, uint32_t i, const struct shard_stamp *stamp)
{
	struct sidecar index = { .text = NULL };
	int r = o->format->index_ending ? find_sidecar(o, m->reader, i, stamp, &index) : 0;

	if (r < 0) {
		return r;
	}
	if (!index.text) {
		o->n_scanned++;
		return o->format->scan(m);
	}
	o->n_sidecars++;
	r = o->format->index_scan(m, index.text, index.n);
	sidecar_finish(&index);
	return r;
}

static int packed_scan(struct opening *o, struct extents_builder *b, int fd, const char *name, uint32_t i,
		       const struct shard_stamp *stamp)
{
	const struct shard_content *content = shards_content(&o->packed->shards, i);
	struct shard_reader reader = { .fd = content ? -1 : fd,
				       .bytes = content ? content->bytes : NULL,
				       .n_bytes = stamp->n_bytes,
				       .name = name,
				       .err = o->err,
				       .on_progress = on_shard_progress,
				       .progress_arg = o };
	struct members m = { .fields = &o->fields, .reader = &reader, .builder = b };
	int r = scan_shard(o, &m, i, stamp);

	members_finish(&m);
	shard_reader_finish(&reader);
	return r;
}

/* As a folder that was just listed (imagefolder.c): a shard that is written again may keep its times, if they are at most
 * a step of the clock old; a server's clock may be some seconds behind. */
static bool packed_is_racy(const struct opening *o, const struct shard_stamp *stamp)
{
	struct timespec t;
	uint64_t now, step = o->packed->shards.server ? 5 * NS_PER_S : NS_PER_S / 50;

	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	now = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
	if (stamp->mtime_ns % NS_PER_S == 0 || stamp->ctime_ns % NS_PER_S == 0) {
		step = step > 2 * NS_PER_S ? step : 2 * NS_PER_S;
	}
	return stamp->ctime_ns + step > now;
}

static int add_shard(struct opening *o, struct extents_builder *b, uint32_t i, int fd, const struct shard_stamp *stamp)
{
	const char *name = shard_names_path(&o->packed->shards.names, i);
	uint32_t old = find_old(o, b, i, name, stamp);
	int r = extents_add_shard(b, name, stamp);
	char path[400];

	shards_path(&o->packed->shards, i, path, sizeof(path));
	if (r) {
		return packed_no_room(o, r);
	}
	return old != UINT32_MAX ? copy_old(o, b, old) : packed_scan(o, b, fd, path, i, stamp);
}

static int index_shard(struct opening *o, struct extents_builder *b, uint32_t i)
{
	struct shards *s = &o->packed->shards;
	struct shard_stamp stamp;
	struct stat st;
	uint64_t n_bytes;
	bool is_kept;
	int fd = shards_open(s, i, &st, &is_kept, o->err), r;

	if (fd < 0) {
		return fd;
	}
	shards_note(s, fd, &st);
	stamp = shard_stamp_of(&st);
	o->racy = o->racy || packed_is_racy(o, &stamp);
	n_bytes = stamp.n_bytes;
	r = o->format->may_be_compressed ? compressed_load(s, i, fd, &stamp, o->err) : 0;
	r = r ? r : add_shard(o, b, i, fd, &stamp);
	o->n_done += n_bytes;
	packed_report(o, o->n_done, false);
	if (!is_kept) {
		close(fd);
	}
	return r;
}

/* For progress alone: shards may change until they are read. */
static void sum_bytes(struct opening *o)
{
	struct shards *s = &o->packed->shards;

	for (uint32_t i = 0; o->source->on_progress && i < s->names.n; i++) {
		o->n_bytes += shards_size(s, i);
	}
}

static bool packed_is_stopped(const struct opening *o)
{
	return o->source->stop && atomic_load_explicit(o->source->stop, memory_order_relaxed);
}

static int packed_build(struct opening *o, struct extents *out)
{
	struct extents_builder b = { .meter = o->source->meter,
				     .columns = { .meter = o->source->meter },
				     .has_content = o->format->is_archive };
	uint32_t n = (uint32_t)o->packed->shards.names.n;
	int r = 0;

	for (uint32_t i = 0; !r && i < n; i++) {
		r = packed_is_stopped(o) ? -ECANCELED : index_shard(o, &b, i);
	}
	if (!r) {
		packed_report(o, o->n_bytes, true);
		r = extents_build(&b, out);
		r = r ? packed_no_room(o, r) : 0;
	}
	extents_builder_finish(&b);
	return r;
}

/* ---- the kept index ---- */

static bool packed_kept_path(const struct opening *o, char *path, size_t size)
{
	struct {
		uint64_t roots[SHARDS_MAX_ROOTS][2], user, fields;
	} key = { .user = o->source->access->trusted ? UINT64_MAX : o->source->access->uid };
	const struct shard_names *names = &o->packed->shards.names;
	struct stat st;
	uint64_t hash;

	if (!o->source->cache_dir) {
		return false;
	}
	for (unsigned i = 0; i < names->n_roots; i++) {
		if (fstat(names->roots[i], &st) < 0) {
			return false;
		}
		key.roots[i][0] = st.st_dev;
		key.roots[i][1] = st.st_ino;
	}
	key.fields = XXH3_64bits_withSeed(o->format->kind, strlen(o->format->kind), 0);
	key.fields = XXH3_64bits_withSeed(o->fields.folder, strlen(o->fields.folder), key.fields + o->fields.is_listed);
	key.fields = XXH3_64bits_withSeed(o->fields.image, strlen(o->fields.image), key.fields);
	for (unsigned k = 0; k < o->fields.n_values; k++) {
		const struct member_value *v = &o->fields.values[k];

		key.fields = XXH3_64bits_withSeed(v->name, strlen(v->name), key.fields + v->kind);
		key.fields = XXH3_64bits_withSeed(v->extensions, strlen(v->extensions), key.fields);
		key.fields = XXH3_64bits_withSeed(v->key, strlen(v->key), key.fields);
	}
	hash = XXH3_64bits_withSeed(o->rest, strlen(o->rest), XXH3_64bits(&key, sizeof(key)));
	return snprintf(path, size, "%s/packed-%016llx.index", o->source->cache_dir, (unsigned long long)hash) <
	       (int)size;
}

static void packed_load_kept(struct opening *o, const char *path)
{
	int r = extents_load(path, &o->old);

	if (r == 0 && (o->old.content != NULL) != o->format->is_archive) {
		extents_finish(&o->old);
		r = -EINVAL;
	}
	if (r == 0 && meter_take(o->source->meter, o->old.block_bytes)) {
		extents_finish(&o->old); /* building a new one reports the error */
	} else if (r < 0 && r != -ENOENT) {
		log_record(LOG_LEVEL_INFO, "index-rebuilt", "%s: index %s is %s", o->rest, path,
			   r == -EINVAL ? "damaged" : "unreadable");
	}
}

static void drop_kept(struct opening *o)
{
	if (o->old.block) {
		meter_give(o->source->meter, o->old.block_bytes);
		extents_finish(&o->old);
	}
}

static void packed_keep(const struct opening *o, const char *path)
{
	int r = extents_save(path, &o->packed->index);

	if (r < 0) {
		log_record(LOG_LEVEL_WARNING, "index-not-kept",
			   "%s: cannot write %s: %s; the shards will be read again next time", o->rest, path,
			   strerror(-r));
	} else if (o->source->cache_limit_bytes) {
		cache_dir_trim(o->source->cache_dir, o->source->cache_limit_bytes);
	}
}

static int make_index(struct opening *o)
{
	char path[4096];
	bool keeps = packed_kept_path(o, path, sizeof(path));
	int r;

	if (keeps) {
		packed_load_kept(o, path);
	}
	sum_bytes(o);
	r = packed_build(o, &o->packed->index);
	if (!r) {
		log_record(LOG_LEVEL_INFO, "index-made",
			   "%s: read the headers of %u of %u shards, indexes beside %u, %llu samples", o->rest,
			   o->n_scanned, o->packed->index.n_shards, o->n_sidecars,
			   (unsigned long long)o->packed->index.n);
	}
	if (!r && o->n_unfit) {
		log_record(
			LOG_LEVEL_WARNING, "index-not-used",
			"%s: the indexes beside %u shards are not used, and their headers are read instead; the first "
			"is that of %s. Write them anew (batchctl index), or remove them",
			o->rest, o->n_unfit, o->unfit);
	}
	if (!r && keeps && !o->racy &&
	    (o->n_scanned || o->n_sidecars || o->old.n_shards != o->packed->index.n_shards)) {
		packed_keep(o, path);
	}
	drop_kept(o);
	return r;
}

/* ---- checks ---- */

static void tell_left_out(const struct opening *o)
{
	const struct extents *ix = &o->packed->index;
	const struct extents_shard *first = NULL;
	uint64_t n = 0;

	for (uint32_t i = 0; i < ix->n_shards; i++) {
		n += ix->shards[i].n_left_out;
		first = first || !ix->shards[i].n_left_out ? first : &ix->shards[i];
	}
	if (first) {
		log_record(
			LOG_LEVEL_WARNING, "samples-left-out",
			"%s: %llu groups of files are left out, as they lack an image (%s) or a value that the others "
			"have, the first %s: %s",
			o->rest, (unsigned long long)n, o->fields.image[0] ? o->fields.image : "none asked for",
			ix->text + first->name, ix->text + first->first_left_out);
	}
}

static int packed_check(const struct opening *o)
{
	const struct extents *ix = &o->packed->index;

	if (ix->n) {
		return 0;
	}
	for (uint32_t i = 0; i < ix->n_shards; i++) {
		if (ix->shards[i].n_left_out) {
			return dataset_fail(
				o->err, DATASET_E_INVALID, -EINVAL,
				"%.200s: no sample: every group of files lacks an image (%s) or a value, the "
				"first %.100s: %.100s",
				o->rest, o->fields.image[0] ? o->fields.image : "none asked for",
				extents_shard_name(ix, i), ix->text + ix->shards[i].first_left_out);
		}
	}
	return o->fields.folder[0]
		       ? dataset_fail(o->err, DATASET_E_INVALID, -EINVAL, "%.300s: no sample lies below %.200s",
				      o->rest, o->fields.folder)
		       : dataset_fail(o->err, DATASET_E_INVALID, -EINVAL, "%.300s: the shards are empty", o->rest);
}

static uint64_t cache_id_of(const struct packed *p, const struct data_access *access)
{
	struct {
		uint64_t id, roots[SHARDS_MAX_ROOTS][2], user;
	} key = { .id = p->base.id, .user = access->trusted ? UINT64_MAX : access->uid };

	for (unsigned i = 0; i < p->shards.names.n_roots; i++) {
		tree_identify(p->shards.names.roots[i], key.roots[i]);
	}
	return XXH3_64bits(&key, sizeof(key));
}

/* The image, one field a column, and the index as label where fields were not asked for. */
static int add_fields(struct packed *p, const struct opening *o)
{
	int r = 0;

	p->base.is_image = o->fields.image[0] != '\0';
	p->first = p->base.is_image;
	if (p->base.is_image && !dataset_add_field(&p->base, o->fields.image_name, DTYPE_UINT8, o->err)) {
		r = -EINVAL;
	}
	r = r ? r : column_fields_add(&p->base, &p->index.columns, o->err);
	if (!r && !o->field_list && p->label < 0) {
		r = dataset_add_field(&p->base, "label", DTYPE_INT64, o->err) ? 0 : -EINVAL;
	}
	return r;
}

static void packed_describe(struct packed *p, const struct opening *o)
{
	struct fingerprint_samples samples = samples_of(p);

	p->shards.names.meter = NULL; /* of the opening */
	p->base.n = p->index.n;
	p->base.n_shards = p->index.n_shards;
	p->base.memory_bytes = sizeof(*p) + p->index.block_bytes + shards_memory_bytes(&p->shards) +
			       class_folders_memory_bytes(&p->folders);
	p->base.n_classes = p->folders.labels ? (uint32_t)p->folders.n : 0;
	p->folders.text.meter = NULL;
	p->base.server = p->shards.server;
	p->base.id = extents_hash(&p->index, XXH3_64bits(o->rest, strlen(o->rest)));
	p->base.content_id = extents_hash(&p->index, 0);
	p->base.cache_id = cache_id_of(p, o->source->access);
	fingerprint_make_samples(&samples, p->fingerprint);
	p->base.fingerprint = p->fingerprint;
}

static const char *sample_path(const void *arg, uint64_t i)
{
	const struct extents *ix = arg;

	return ix->text + ix->name[i];
}

static int find_classes(struct opening *o)
{
	struct extents *ix = &o->packed->index;
	uint64_t odd;
	int r;

	if (!o->format->is_archive || o->field_list) {
		return 0;
	}
	r = class_folders_make(sample_path, ix, ix->n, o->source->meter, &o->packed->folders, &odd);
	if (r == -EINVAL) {
		char name[300];

		extents_name(ix, odd, name, sizeof(name));
		return dataset_fail(o->err, DATASET_E_INVALID, r,
				    "%s lies in no class folder, and pictures of other archives do: name their common "
				    "folder (ARCHIVE.zip!/FOLDER), or list fields",
				    name);
	}
	return r ? packed_no_room(o, r) : 0;
}

/* "PATTERN!/FOLDER": only what lies below the folder. */
static int split_folder(struct opening *o, char *pattern)
{
	char *mark = o->format->is_archive ? strstr(pattern, "!/") : NULL;
	size_t n = mark ? strlen(mark + 2) : 0;

	if (!mark) {
		return 0;
	}
	*mark = '\0';
	while (n && mark[1 + n] == '/') {
		n--;
	}
	if (n + 2 > sizeof(o->fields.folder)) {
		return dataset_fail(o->err, DATASET_E_INVALID, -ENAMETOOLONG,
				    "%.200s: a folder of more than %d bytes in the archive", o->rest, FOLDER_BYTES - 2);
	}
	if (n) {
		snprintf(o->fields.folder, sizeof(o->fields.folder), "%.*s/", (int)n, mark + 2);
	}
	return 0;
}

static int packed_open_all(struct opening *o)
{
	struct shard_names names;
	int r = shard_names_open(o->source, o->rest, o->format->ending, &names, o->err);

	if (r < 0) {
		shard_names_finish(&names);
		return r;
	}
	r = shards_init(&o->packed->shards, &names, o->source->access);
	if (r < 0) {
		return packed_no_room(o, r);
	}
	r = make_index(o);
	r = r ? r : packed_check(o);
	return r ? r : find_classes(o);
}

int packed_open(const struct packed_format *format, const struct dataset_source *source, const char *rest,
		struct dataset **out, struct dataset_error *err)
{
	struct opening o = {
		.format = format,
		.source = source,
		.rest = rest,
		.err = err,
		.reported_ns = clock_now_ns(),
	};
	char pattern[4096];
	int r;

	if (snprintf(pattern, sizeof(pattern), "%s", rest) >= (int)sizeof(pattern)) {
		return dataset_fail(err, DATASET_E_INVALID, -ENAMETOOLONG,
				    "%.200s: more than %zu bytes; use braces or a wildcard", rest, sizeof(pattern) - 1);
	}
	member_spec_split(pattern, &o.field_list);
	r = member_spec_parse(o.field_list, &o.fields, err);
	r = r < 0 ? r : split_folder(&o, pattern);
	if (r < 0) {
		return r;
	}
	o.rest = pattern;

	if (meter_take(source->meter, sizeof(*o.packed))) {
		return packed_no_room(&o, -EDQUOT);
	}
	o.packed = calloc(1, sizeof(*o.packed));
	if (!o.packed) {
		return dataset_fail_errno(err, ENOMEM, rest);
	}
	o.packed->base.ops = &packed_ops;
	atomic_init(&o.packed->base.refs, 1);
	r = packed_open_all(&o);
	if (!r) {
		o.packed->label = columns_find(&o.packed->index.columns, "label");
		r = add_fields(o.packed, &o);
	}
	if (r < 0) {
		dataset_destroy(&o.packed->base);
		return r;
	}
	packed_describe(o.packed, &o);
	tell_left_out(&o);
	*out = &o.packed->base;
	return 0;
}
