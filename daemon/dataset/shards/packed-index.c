/* See packed-index.h. */
#include "dataset/shards/packed-index.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dataset/shards/compressed.h"
#include "dataset/shards/packed-kept.h"
#include "dataset/shards/sidecar.h"
#include "base/clock.h"
#include "base/log.h"

#define NS_PER_S 1000000000ull

enum { PROGRESS_EVERY_NS = 100000000 };

static void packed_report(struct packed_opening *o, uint64_t done, bool always)
{
	uint64_t now = clock_now_ns();

	if (o->source->on_progress && (always || now - o->reported_ns >= PROGRESS_EVERY_NS)) {
		o->reported_ns = now;
		o->source->on_progress(o->source->progress_arg, "index", done, o->n_bytes);
	}
}

static int on_progress(void *arg, uint64_t at)
{
	struct packed_opening *o = arg;

	packed_report(o, o->n_done + at, false);
	return dataset_is_stopped(o->source) ? -ECANCELED : 0;
}

static bool same_stamp(const struct shard_stamp *a, const struct shard_stamp *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->n_bytes == b->n_bytes && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
}

/* The index of a list whose image only its shards tell has a column for every value but the image. */
static void adopt_image(struct member_fields *fields, const struct columns *old)
{
	for (unsigned k = 0; fields->is_listed && !fields->image[0] && k < fields->n_values; k++) {
		if (columns_find(old, fields->values[k].name) < 0)
			member_fields_make_image(fields, k);
	}
}

/* A kept shard that comes first decides, as its first sample did, which optional values there are, and of which kinds.
 * False: the kept index has other values than are asked for. */
static bool adopt_columns(struct packed_opening *o, struct extents_builder *b)
{
	struct columns_builder columns = { .meter = b->columns.meter };
	struct member_fields fields = o->fields;
	unsigned n = 0;

	adopt_image(&fields, &o->old.columns);
	for (unsigned k = 0; k < fields.n_values; k++) {
		int column = columns_find(&o->old.columns, fields.values[k].name);

		if (column < 0 && !fields.values[k].optional)
			return false;
		if (column < 0) {
			fields.dropped = fields.values[k];
			continue;
		}
		fields.values[n] = fields.values[k];
		fields.values[n].optional = false;
		fields.values[n].has_kind = true;
		fields.values[n++].kind = o->old.columns.list[column].kind;
	}
	fields.n_values = n;
	if (member_fields_columns(&fields, &columns) || !columns_are_alike(&columns, &o->old.columns))
		return false;
	o->fields = fields;
	b->columns = columns;
	return true;
}

/* The shard of the kept index that this one is; UINT32_MAX: there is none. Shards mostly keep their places. */
static uint32_t find_old(struct packed_opening *o, struct extents_builder *b, uint32_t i, const char *name,
			 const struct shard_stamp *stamp)
{
	const struct extents *old = &o->old;

	if (!old->block || i >= old->n_shards || strcmp(extents_shard_name(old, i), name) ||
	    !same_stamp(&old->shards[i].stamp, stamp))
		return UINT32_MAX;
	if (!b->n && !b->columns.n && old->shards[i].n)
		return adopt_columns(o, b) ? i : UINT32_MAX;
	/* A shard without a complete sample may have begun the columns, too. */
	return !old->shards[i].n || columns_are_alike(&b->columns, &old->columns) ? i : UINT32_MAX;
}

int packed_no_room(const struct packed_opening *o, int error)
{
	return dataset_fail(o->err, DATASET_E_LIMIT, error, "%.300s: %s", o->shown,
			    error == -EDQUOT   ? "more samples than there is memory for"
			    : error == -ENOMEM ? "out of memory"
					       : "more samples than one data set may have");
}

static int copy_old(struct packed_opening *o, struct extents_builder *b, uint32_t old)
{
	int r = extents_copy_shard(b, &o->old, old);

	return r ? packed_no_room(o, r) : 0;
}

/* Reads the index beside the shard, if there is one that fits. */
static int find_sidecar(struct packed_opening *o, struct shard_reader *reader, uint32_t i,
			const struct shard_stamp *stamp, struct sidecar *out)
{
	char why[200];
	int r = sidecar_read(out, &o->packed->shards, i, o->format->index_ending, stamp, o->source->meter, why,
			     sizeof(why));

	if (!r && out->text && !o->format->index_fits(reader, out->text, out->n, why)) {
		sidecar_finish(out);
		r = 1;
	}
	if (r == 1 && !o->n_unfit++)
		snprintf(o->unfit, sizeof(o->unfit), "%.200s: %s", reader->name, why);
	return r < 0 ? packed_no_room(o, r) : 0;
}

static int scan_shard(struct packed_opening *o, struct members *m, uint32_t i, const struct shard_stamp *stamp)
{
	struct sidecar index = { .text = NULL };
	int r = o->format->index_ending ? find_sidecar(o, m->reader, i, stamp, &index) : 0;

	if (r < 0)
		return r;
	if (!index.text) {
		o->n_scanned++;
		return o->format->scan(m);
	}
	o->n_sidecars++;
	r = o->format->index_scan(m, index.text, index.n);
	sidecar_finish(&index);
	return r;
}

static int packed_scan(struct packed_opening *o, struct extents_builder *b, int fd, const char *name, uint32_t i,
		       const struct shard_stamp *stamp)
{
	const struct shard_content *content = shards_content(&o->packed->shards, i);
	struct shard_reader reader = { .fd = content ? -1 : fd,
				       .bytes = content ? content->bytes : NULL,
				       .n_bytes = stamp->n_bytes,
				       .name = name,
				       .err = o->err,
				       .on_progress = on_progress,
				       .progress_arg = o };
	struct members m = { .fields = &o->fields, .reader = &reader, .builder = b };
	int r = scan_shard(o, &m, i, stamp);

	b->shards[b->n_shards - 1].lacks_end = reader.lacks_end;
	members_finish(&m);
	shard_reader_finish(&reader);
	return r;
}

/* As a folder that was just listed (imagefolder.c): a shard that is written again may keep its times, if they are at
 * most a step of the clock old; a server's clock may be some seconds behind. */
static bool packed_is_racy(const struct packed_opening *o, const struct shard_stamp *stamp)
{
	struct timespec t;
	uint64_t now, step = o->packed->shards.server ? 5 * NS_PER_S : NS_PER_S / 50;

	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	now = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
	if (stamp->mtime_ns % NS_PER_S == 0 || stamp->ctime_ns % NS_PER_S == 0)
		step = step > 2 * NS_PER_S ? step : 2 * NS_PER_S;
	return stamp->ctime_ns + step > now;
}

static int add_shard(struct packed_opening *o, struct extents_builder *b, uint32_t i, int fd,
		     const struct shard_stamp *stamp)
{
	const char *name = shard_names_path(&o->packed->shards.names, i);
	uint32_t old = find_old(o, b, i, name, stamp);
	int r = extents_add_shard(b, name, stamp);
	char path[400];

	shards_path(&o->packed->shards, i, path, sizeof(path));
	if (r)
		return packed_no_room(o, r);
	return old != UINT32_MAX ? copy_old(o, b, old) : packed_scan(o, b, fd, path, i, stamp);
}

static int index_shard(struct packed_opening *o, struct extents_builder *b, uint32_t i)
{
	struct shards *s = &o->packed->shards;
	const struct unzstd_watch watch = { on_progress, o };
	struct shard_stamp stamp;
	struct stat st;
	uint64_t n_bytes;
	bool is_kept;
	int fd = shards_open(s, i, &st, &is_kept, o->err), r;

	if (fd < 0)
		return fd;
	shards_note(s, fd, &st);
	stamp = shard_stamp_of(&st);
	o->racy = o->racy || packed_is_racy(o, &stamp);
	n_bytes = stamp.n_bytes;
	r = o->format->may_be_compressed ? compressed_load(s, i, fd, &stamp, &watch, o->err) : 0;
	r = r ? r : add_shard(o, b, i, fd, &stamp);
	o->n_done += n_bytes;
	packed_report(o, o->n_done, false);
	if (!is_kept)
		close(fd);
	return r;
}

/* For progress alone: shards may change until they are read. */
static void sum_bytes(struct packed_opening *o)
{
	struct shards *s = &o->packed->shards;

	for (uint32_t i = 0; o->source->on_progress && i < s->names.n; i++)
		o->n_bytes += shards_size(s, i);
}

static int packed_build(struct packed_opening *o, struct extents *out)
{
	struct extents_builder b = { .meter = o->source->meter,
				     .columns = { .meter = o->source->meter },
				     .has_content = o->format->is_archive };
	uint32_t n = (uint32_t)o->packed->shards.names.n;
	int r = 0;

	for (uint32_t i = 0; !r && i < n; i++)
		r = dataset_is_stopped(o->source) ? -ECANCELED : index_shard(o, &b, i);
	if (!r) {
		packed_report(o, o->n_bytes, true);
		r = extents_build(&b, out);
		r = r ? packed_no_room(o, r) : 0;
	}
	extents_builder_finish(&b);
	return r;
}

/* What the first samples have may not be what they all have: whole numbers that only shards that have gone since made
 * real ones, or no label. Then all shards are read again. */
static bool must_begin_again(struct packed_opening *o, bool had_turned_real)
{
	bool differs = o->n_scanned || o->n_sidecars || o->old.n_shards != o->packed->index.n_shards;

	return o->fields.saw_dropped || (had_turned_real && differs);
}

static int packed_build_anew(struct packed_opening *o, const struct member_fields *asked)
{
	bool is_labelled = o->fields.saw_dropped;

	meter_give(o->source->meter, o->packed->index.block_bytes);
	extents_finish(&o->packed->index);
	packed_drop_kept(o);
	o->fields = *asked;
	for (unsigned k = 0; is_labelled && k < o->fields.n_values; k++)
		o->fields.values[k].optional = false;
	o->n_done = o->n_scanned = o->n_sidecars = o->n_unfit = 0;
	return packed_build(o, &o->packed->index);
}

int packed_make_index(struct packed_opening *o)
{
	const struct member_fields asked = o->fields;
	char path[4096];
	bool keeps = packed_kept_path(o, path, sizeof(path));
	int r;

	if (keeps)
		packed_load_kept(o, path);
	sum_bytes(o);
	r = packed_build(o, &o->packed->index);
	if (!r && must_begin_again(o, o->old.has_turned_real))
		r = packed_build_anew(o, &asked);
	if (!r)
		log_record(LOG_LEVEL_INFO, "index-made",
			   "%s: read the headers of %u of %u shards, indexes beside %u, %llu samples", o->shown,
			   o->n_scanned, o->packed->index.n_shards, o->n_sidecars,
			   (unsigned long long)o->packed->index.n);
	if (!r && o->n_unfit) {
		log_record(
			LOG_LEVEL_WARNING, "index-not-used",
			"%s: the indexes beside %u shards are not used, and their headers are read instead; the first "
			"is that of %s. Write them again (batchctl index), or remove them",
			o->shown, o->n_unfit, o->unfit);
	}
	if (!r && keeps && !o->racy && (o->n_scanned || o->n_sidecars || o->old.n_shards != o->packed->index.n_shards))
		packed_keep(o, path);
	packed_drop_kept(o);
	return r;
}
