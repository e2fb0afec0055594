/* Opens the shards, has the index made (packed-index.c), and describes the result. From then on a sample is one read at
 * its place in an open shard (packed-set.c). */
#include "dataset/shards/packed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/shards/class-column.h"
#include "dataset/folder/class-folders.h"
#include "dataset/shards/column-fields.h"
#include "dataset/shards/packed-index.h"
#include "dataset/name.h"
#include "dataset/shards/packed-set.h"
#include "dataset/folder/tree.h"
#include "base/clock.h"
#include "base/log.h"

/* ---- checks ---- */

enum { WANTED_BYTES = 160 };

/* What a sample has to have: "image (jpg;png), text (txt), width (json:width)", cut where it is long. */
static void name_wanted(const struct member_fields *f, char out[WANTED_BYTES])
{
	size_t n = 0;

	out[0] = '\0';
	if (f->image[0])
		n = (size_t)snprintf(out, WANTED_BYTES, "%s (%s)", f->image_name, f->image);
	for (unsigned k = 0; k < f->n_values && n < WANTED_BYTES; k++) {
		const struct member_value *v = &f->values[k];

		if (!v->optional)
			n += (size_t)snprintf(out + n, WANTED_BYTES - n, "%s%s (%s%s%s)", n ? ", " : "", v->name,
					      v->extensions, v->key[0] ? ":" : "", v->key);
	}
}

/* The first shard that has left a group out. NULL: none. */
static const struct extents_shard *first_left_out(const struct extents *ix)
{
	for (uint32_t i = 0; i < ix->n_shards; i++) {
		if (ix->shards[i].n_left_out)
			return &ix->shards[i];
	}
	return NULL;
}

static void count_left_out(const struct packed_opening *o)
{
	const struct extents *ix = &o->packed->index;
	const struct extents_shard *first = first_left_out(ix);
	struct dataset *ds = &o->packed->base;

	for (uint32_t i = 0; i < ix->n_shards; i++)
		ds->n_left_out += ix->shards[i].n_left_out;
	if (!first)
		return;
	snprintf(ds->left_out, sizeof(ds->left_out),
		 "%llu of %llu samples are left out; the first, %.80s: %.80s, %.180s",
		 (unsigned long long)ds->n_left_out, (unsigned long long)(ds->n_left_out + ix->n),
		 ix->text + first->name, ix->text + first->first_left_out, ix->text + first->reason);
	log_record(LOG_LEVEL_WARNING, "samples-left-out", "%s: %s", o->shown, ds->left_out);
}

enum { MOST_NAMED = 8 }; /* shards, in records of their own */

/* Also of shards whose index was kept: the log of the first opening may be long gone. */
static void warn_of_ends(const struct packed_opening *o)
{
	const struct extents *ix = &o->packed->index;
	uint32_t n = 0;

	for (uint32_t i = 0; i < ix->n_shards; i++) {
		char path[400];

		if (!ix->shards[i].lacks_end || n++ >= MOST_NAMED)
			continue;
		shards_path(&o->packed->shards, i, path, sizeof(path));
		log_record(LOG_LEVEL_WARNING, "shard-without-end",
			   "%s has no end mark; it may have been cut: compare its length with the original's", path);
	}
	if (n > MOST_NAMED)
		log_record(LOG_LEVEL_WARNING, "shard-without-end", "%s: %u more shards have no end mark", o->shown,
			   n - MOST_NAMED);
}

static int packed_check(const struct packed_opening *o)
{
	const struct extents *ix = &o->packed->index;
	const struct extents_shard *first = first_left_out(ix);
	char wanted[WANTED_BYTES];

	if (ix->n)
		return 0;
	name_wanted(&o->fields, wanted);
	if (first) {
		return dataset_fail(
			o->err, DATASET_E_INVALID, -EINVAL,
			"%.120s: no sample: every %s lacks one of %s, or has it in a form that it cannot have; the "
			"first, %.80s: %.60s, %.120s%s%s",
			o->shown, o->format->group, wanted, ix->text + first->name, ix->text + first->first_left_out,
			ix->text + first->reason, o->fields.is_listed ? "" : "; name other fields after #, NAME=",
			o->fields.is_listed ? "" : o->format->part);
	}
	return o->fields.folder[0]
		       ? dataset_fail(o->err, DATASET_E_INVALID, -EINVAL, "%.300s: no sample lies below %.200s",
				      o->shown, o->fields.folder)
		       : dataset_fail(o->err, DATASET_E_INVALID, -EINVAL, "%.300s: the shards are empty", o->shown);
}

static uint64_t cache_id_of(const struct packed *p, const struct data_access *access)
{
	struct {
		uint64_t id, roots[SHARDS_MAX_ROOTS][2], user;
	} key = { .id = p->base.id, .user = access->trusted ? UINT64_MAX : access->uid };

	for (unsigned i = 0; i < p->shards.names.n_roots; i++)
		tree_identify(p->shards.names.roots[i], key.roots[i]);
	return XXH3_64bits(&key, sizeof(key));
}

/* The image, one field a column, and the class of the folder, where the classes are no column's. */
static int add_fields(struct packed *p, const struct packed_opening *o)
{
	int r = 0;

	p->base.is_image = o->fields.image[0] != '\0';
	p->first = p->base.is_image;
	if (p->base.is_image && !dataset_add_field(&p->base, o->fields.image_name, DTYPE_UINT8, o->err))
		r = -EINVAL;
	r = r ? r : column_fields_add(&p->base, &p->index.columns, o->err);
	if (!r && p->classes.labels && p->label < 0)
		r = dataset_add_field(&p->base, "label", DTYPE_INT64, o->err) ? 0 : -EINVAL;
	return r;
}

/* "jpg, json", of all shards. */
static void name_extensions(const struct extents *ix, char *out, size_t size)
{
	out[0] = '\0';
	for (uint32_t i = 0; i < ix->n_shards; i++) {
		const char *at = ix->shards[i].extensions ? ix->text + ix->shards[i].extensions : "";

		for (; *at; at += strcspn(at, ";"), at += *at == ';') {
			size_t used = strlen(out), n = strcspn(at, ";");
			char item[80];

			snprintf(item, sizeof(item), "%.*s", (int)n, at);
			if (!strstr(out, item) && used + n + 3 < size)
				snprintf(out + used, size - used, "%s%s", used ? ", " : "", item);
		}
	}
}

/* Pictures without a label, which the caller has not said of them. */
static void tell_no_label(const struct packed_opening *o)
{
	struct dataset *ds = &o->packed->base;
	bool is_mds = !strcmp(o->format->kind, "mds");
	char found[160];

	if (o->source->part->n_field || ds->label || !ds->is_image)
		return;
	name_extensions(&o->packed->index, found, sizeof(found));
	snprintf(ds->no_label, sizeof(ds->no_label),
		 "%.120s: no label: %s%s%s. %s; for images alone give fields=(\"image\",), or #image=%s after the name",
		 o->shown, found[0] ? "each sample has " : "the images lie in no class folders", found,
		 !found[0] ? ""
		 : is_mds  ? ", none of which is one"
			   : ", none of which is cls",
		 o->format->is_archive
			 ? "If a sample is several files, name them, as fields={\"image\": \"jpg\", \"label\": \"cls\"}"
			 : "Name what is one, as fields={\"image\": ..., \"label\": ...}",
		 is_mds ? "COLUMN" : "jpg;png");
}

static void packed_describe(struct packed *p, const struct packed_opening *o)
{
	p->shards.names.meter = NULL; /* of the opening */
	p->base.n = p->index.n;
	p->base.n_shards = p->index.n_shards;
	p->base.memory_bytes =
		sizeof(*p) + p->index.block_bytes + shards_memory_bytes(&p->shards) + classes_memory_bytes(&p->classes);
	p->base.n_classes = p->classes.labels ? (uint32_t)p->classes.n : 0;
	p->classes.text.meter = NULL;
	p->base.server = p->shards.server;
	p->base.id = extents_hash(&p->index, XXH3_64bits(o->rest, strlen(o->rest)));
	p->base.content_id = extents_hash(&p->index, 0);
	p->base.cache_id = cache_id_of(p, o->source->access);
}

/* Below the folder that the data set names. */
static const char *sample_path(const void *arg, uint64_t i)
{
	const struct packed_opening *o = arg;
	const struct extents *ix = &o->packed->index;

	return ix->text + ix->name[i] + strlen(o->fields.folder);
}

/* A column of classes is called label. */
static bool is_class_column(const struct packed *p)
{
	return p->label >= 0 && p->index.columns.list[p->label].kind == COLUMN_CLASS;
}

static int find_classes(struct packed_opening *o)
{
	struct packed *p = o->packed;
	struct extents *ix = &p->index;
	uint64_t odd;
	int r;

	p->label = columns_find(&ix->columns, "label");
	if (is_class_column(p)) {
		r = class_column_make(&ix->columns, (unsigned)p->label, o->source->meter, &p->classes);
		return r ? packed_no_room(o, r) : 0;
	}
	if (!o->format->is_archive || o->source->part->n_field)
		return 0;
	r = class_folders_make(sample_path, o, ix->n, o->source->meter, &p->classes, &odd);
	if (r == -EINVAL) {
		char name[300];

		extents_name(ix, odd, name, sizeof(name));
		return dataset_fail(o->err, DATASET_E_INVALID, r,
				    "%s lies in no class folder, and images of other archives do: name their common "
				    "folder (ARCHIVE.zip!/FOLDER), or list fields",
				    name);
	}
	return r ? packed_no_room(o, r) : 0;
}

/* Only what lies below a folder of the archives. */
static int take_folder(struct packed_opening *o, const char *within)
{
	size_t n = strlen(within);

	while (n && within[n - 1] == '/')
		n--;
	if (n + 2 > sizeof(o->fields.folder))
		return dataset_fail(o->err, DATASET_E_INVALID, -ENAMETOOLONG,
				    "%.200s: a folder of more than %d bytes in the archive", o->shown,
				    FOLDER_BYTES - 2);
	if (n)
		snprintf(o->fields.folder, sizeof(o->fields.folder), "%.*s/", (int)n, within);
	return 0;
}

/* ---- opening ---- */

static int packed_open_all(struct packed_opening *o)
{
	struct shard_names names;
	int r = shard_names_open(o->source, &names, o->err);

	if (r < 0) {
		shard_names_finish(&names);
		return r;
	}
	r = shards_init(&o->packed->shards, &names, o->source->access);
	if (r < 0)
		return packed_no_room(o, r);
	r = packed_make_index(o);
	r = r ? r : packed_check(o);
	return r ? r : find_classes(o);
}

/* The patterns alone, for ids and for messages. */
static int name_patterns(struct packed_opening *o)
{
	char *shown = source_print_rest(o->source->part, SOURCE_SHOWN_PARTS);

	o->rest = source_print_rest(o->source->part, SOURCE_PARTS);
	snprintf(o->shown, sizeof(o->shown), "%s", shown ? shown : "");
	free(shown);
	return shown && o->rest ? 0 : dataset_fail_errno(o->err, ENOMEM, o->format->kind);
}

static int open_named(struct packed_opening *o, struct dataset **out)
{
	const struct dataset_source *source = o->source;
	int r = name_patterns(o);

	r = r < 0 ? r : member_spec_take(source->part, &o->fields, o->err);
	r = r < 0 ? r : take_folder(o, source->part->within);
	if (r < 0)
		return r;
	if (meter_take(source->meter, sizeof(*o->packed)))
		return packed_no_room(o, -EDQUOT);
	o->packed = calloc(1, sizeof(*o->packed));
	if (!o->packed)
		return dataset_fail_errno(o->err, ENOMEM, o->shown);
	o->packed->base.ops = &packed_ops;
	atomic_init(&o->packed->base.refs, 1);
	r = packed_open_all(o);
	r = r ? r : add_fields(o->packed, o);
	if (r < 0) {
		dataset_destroy(&o->packed->base);
		return r;
	}
	packed_describe(o->packed, o);
	count_left_out(o);
	tell_no_label(o);
	warn_of_ends(o);
	*out = &o->packed->base;
	return 0;
}

int packed_open(const struct packed_format *format, const struct dataset_source *source, const char *rest,
		struct dataset **out, struct dataset_error *err)
{
	struct packed_opening o = {
		.format = format,
		.source = source,
		.err = err,
		.reported_ns = clock_now_ns(),
	};
	int r;

	if (strlen(rest) >= 4096)
		return dataset_fail(err, DATASET_E_INVALID, -ENAMETOOLONG,
				    "%.200s: more than 4095 bytes; use braces or a wildcard",
				    source->part->part[0]->path);
	r = open_named(&o, out);
	free(o.rest);
	return r;
}
