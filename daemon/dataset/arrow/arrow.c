/* arrow: samples in the rows of Arrow files (IPC streams, as HuggingFace's datasets keeps them, or IPC files).
 *
 *     arrow:[rows=HASH,][images=DIR,]PATTERN[::PATTERN...][#NAME=COLUMN,...]
 *     arrow:table=HASH,[rows=HASH,][images=DIR,][#NAME=COLUMN,...]
 *
 * Files are named as shards are, each pattern's folder by a descriptor. With images=, the next descriptor is the
 * folder of the pictures that rows name instead of having them. With rows=, the last one is a file of uint64
 * numbers: the rows that are the samples, in this order, which HASH identifies. With table=, there are no files, and the
 * very last descriptor is a memfd with the table (table.h).
 *
 * A picture is read in place, from an open file as in packed data sets. All other columns are in memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/arrow/index.h"
#include "dataset/arrow/table.h"
#include "dataset/impl.h"
#include "dataset/file.h"
#include "dataset/name.h"
#include "dataset/servers.h"
#include "dataset/shards/shards.h"
#include "dataset/folder/tree.h"
#include "base/clock.h"
#include "base/closing.h"
#include "base/io-full.h"
#include "base/log.h"

#define MOST_ROWS (1ull << 36)

enum { PROGRESS_EVERY_NS = 100000000, UNSET = -1 };

struct arrow_file {
	struct shard_stamp stamp;
	uint64_t first; /* its first row */
};

struct arrow {
	struct dataset base;
	struct arrow_table table; /* in place of files; the one shard is lent by it */
	struct shards shards;
	struct arrow_file *files; /* of each shard */
	struct arrow_index index;
	uint64_t *rows; /* of each sample; NULL: sample i is row i */
	int images;     /* the folder of pictures in files of their own; UNSET: none */
	unsigned images_traits;
	char images_path[ARROW_PATH_BYTES];
};

static uint64_t row_of(const struct arrow *a, uint64_t index)
{
	return a->rows ? a->rows[index] : index;
}

/* The file that has a row: the last that begins at it or before. Files without rows are never it. */
static uint32_t file_of(const struct arrow *a, uint64_t row)
{
	size_t from = 0, to = a->shards.names.n;

	while (to - from > 1) {
		size_t middle = from + (to - from) / 2;

		if (a->files[middle].first <= row)
			from = middle;
		else
			to = middle;
	}
	return (uint32_t)from;
}

/* ---- pictures in files of their own ---- */

static bool goes_up(const char *path)
{
	for (const char *at = path; (at = strstr(at, "..")) != NULL; at += 2) {
		if ((at == path || at[-1] == '/') && (!at[2] || at[2] == '/'))
			return true;
	}
	return false;
}

/* The path below the folder of pictures; NULL: it leads elsewhere. A file's writer does not choose what the daemon reads,
 * also where the operator has named that file: the operator names the folder. */
static const char *path_below(const struct arrow *a, const char *path)
{
	size_t n = strlen(a->images_path);

	if (path[0] == '/') {
		if (strncmp(path, a->images_path, n) || (n > 1 && path[n] != '/'))
			return NULL;
		path += n;
	}
	path += strspn(path, "/");
	return *path && !goes_up(path) ? path : NULL;
}

static int picture_fail(const char *path, int error, struct dataset_error *err)
{
	return error == -EINVAL  ? dataset_fail(err, DATASET_E_BAD_DATA, error, "%s: not a regular file", path)
	       : error == -EFBIG ? dataset_fail(err, DATASET_E_BAD_DATA, error, "%s: more than 256 MiB", path)
				 : dataset_fail_errno(err, -error, path);
}

/* The picture's folder and its name there. The folder is the one of all pictures where each step below needs no
 * check. */
static int open_picture_folder(const struct arrow *a, const char *path, enum read_how how, const char **name,
			       int *folder)
{
	const struct data_access *access = &a->shards.access;
	const char *slash = strrchr(path, '/');
	char text[ARROW_PATH_BYTES * 4];

	*folder = UNSET;
	*name = path;
	if (access->trusted || !slash)
		return 0;
	if (how == READ_NOWAIT && !(a->images_traits & DIR_LOCAL))
		return -EAGAIN;
	snprintf(text, sizeof(text), "%.*s", (int)(slash - path), path);
	*folder = how == READ_NOWAIT ? dir_open_nowait(a->images, text, access)
				     : dir_open(a->images, text, access, !(a->images_traits & DIR_LOCAL));
	*name = slash + 1;
	return *folder < 0 ? *folder : 0;
}

static int read_picture_file(const struct arrow *a, const char *path, enum read_how how, struct file_bytes *out,
			     struct dataset_error *err)
{
	const char *below = path_below(a, path), *name;
	int folder, r;

	if (!below)
		return dataset_fail(err, DATASET_E_ACCESS, -EACCES, "%s: not below %s, where the images are", path,
				    a->images_path);
	r = open_picture_folder(a, below, how, &name, &folder);
	if (r == 0)
		r = file_read(folder < 0 ? a->images : folder, a->images_traits, name, &a->shards.access, how, out);
	if (folder >= 0)
		close(folder);
	return r == 0 || r == -EAGAIN || r == -ENOMEM ? r : picture_fail(path, r, err);
}

static int picture_file_is_current(const struct arrow *a, const char *path, enum read_how how,
				   const struct file_bytes *b)
{
	const char *below = path_below(a, path), *name;
	int folder, r = below ? open_picture_folder(a, below, how, &name, &folder) : UNSET;

	if (r < 0)
		return r == -EAGAIN ? r : 0;
	r = file_is_current(folder < 0 ? a->images : folder, a->images_traits, name, &a->shards.access, how, b);
	if (folder >= 0)
		close(folder);
	return r;
}

/* ---- the data set ---- */

static int arrow_read(struct dataset *ds, uint64_t index, enum read_how how, struct file_bytes *out,
		      struct dataset_error *err)
{
	struct arrow *a = (struct arrow *)ds;
	uint64_t row = row_of(a, index);
	uint32_t file = file_of(a, row);

	return a->index.n_bytes[row] == ARROW_IN_FILE
		       ? read_picture_file(a, a->index.paths.bytes + a->index.at[row], how, out, err)
		       : shards_read(&a->shards, file, &a->files[file].stamp, how, a->index.at[row],
				     a->index.n_bytes[row], out, err);
}

static int arrow_is_current(struct dataset *ds, uint64_t index, enum read_how how, const struct file_bytes *b)
{
	struct arrow *a = (struct arrow *)ds;
	uint64_t row = row_of(a, index);
	uint32_t file = file_of(a, row);

	if (a->index.n_bytes[row] == ARROW_IN_FILE)
		return picture_file_is_current(a, a->index.paths.bytes + a->index.at[row], how, b);
	return b->n_bytes == a->index.n_bytes[row] &&
	       shards_is_current(&a->shards, file, &a->files[file].stamp, how, b);
}

/* Field 0 of pictures is the image; the others are the choices in their order. */
static unsigned column_of(const struct arrow *a, unsigned field)
{
	int image = a->index.choices.image;

	return image < 0 ? field : (int)field <= image ? field - 1 : field;
}

static void arrow_value(const struct dataset *ds, uint64_t index, unsigned field, struct field_value *out)
{
	const struct arrow *a = (const struct arrow *)ds;

	arrow_column_value(&a->index.columns[column_of(a, field)], row_of(a, index), out);
}

static int arrow_gather(struct dataset *ds, const uint64_t *indices, size_t n, void *const rows[],
			struct dataset_error *err)
{
	(void)err;
	for (unsigned k = 0; k < ds->n_fields; k++) {
		for (size_t i = 0; rows[k] && i < n; i++) {
			struct field_value v;

			arrow_value(ds, indices[i], k, &v);
			memcpy((char *)rows[k] + i * v.n_bytes, v.bytes, v.n_bytes);
		}
	}
	return 0;
}

static void arrow_name(const struct dataset *ds, uint64_t index, char *buf, size_t size)
{
	const struct arrow *a = (const struct arrow *)ds;
	uint64_t row = row_of(a, index);
	uint32_t file = file_of(a, row);

	if (a->index.choices.image >= 0 && a->index.n_bytes[row] == ARROW_IN_FILE) {
		snprintf(buf, size, "%s", a->index.paths.bytes + a->index.at[row]);
		return;
	}
	snprintf(buf, size, "%s: row %llu", shard_names_path(&a->shards.names, file),
		 (unsigned long long)(row - a->files[file].first));
}

static const char *arrow_class_name(const struct dataset *ds, uint32_t i)
{
	const struct arrow *a = (const struct arrow *)ds;

	return a->index.class_text.bytes + a->index.classes[i];
}

static void arrow_destroy(struct dataset *ds)
{
	struct arrow *a = (struct arrow *)ds;

	if (a->images >= 0 && a->images_traits & DIR_LOCAL)
		close(a->images);
	else if (a->images >= 0)
		closing_add(a->shards.access.uid, &a->images, 1);
	shards_finish(&a->shards);
	arrow_table_finish(&a->table);
	arrow_index_finish(&a->index);
	free(a->files);
	free(a->rows);
	free(a);
}

static const struct dataset_ops image_ops = { .destroy = arrow_destroy,
					      .read = arrow_read,
					      .is_current = arrow_is_current,
					      .value = arrow_value,
					      .name = arrow_name,
					      .class_name = arrow_class_name };
static const struct dataset_ops value_ops = { .destroy = arrow_destroy,
					      .gather = arrow_gather,
					      .value = arrow_value,
					      .name = arrow_name,
					      .class_name = arrow_class_name };

/* ---- which rows are the samples ---- */

struct opening {
	const struct dataset_source *source;
	const struct SourcePart *images, *rows, *table; /* of the source; NULL: it has none */
	char shown[400];                                /* its patterns */
	struct arrow *arrow;
	struct dataset_error *err;
	uint64_t n_rows, last_row; /* of `rows`; the greatest in it */
	uint8_t *used;
	struct arrow_rows wanted;
	uint64_t n_total, n_done, reported_ns; /* bytes of files, for progress */
};

static int arrow_no_memory(const struct opening *o, int error)
{
	return dataset_fail(o->err, DATASET_E_LIMIT, error, "arrow:%.200s: %s", o->shown,
			    error == -EDQUOT ? "more samples than there is memory for" : "out of memory");
}

/* Copied, so that no later change of the file counts. */
static int read_rows(struct opening *o, int fd)
{
	struct arrow *a = o->arrow;
	struct stat st;
	ssize_t n;
	int r = access_check_file_fd(fd, "arrow: rows", &st, o->err);

	if (r < 0)
		return r;
	o->n_rows = (uint64_t)st.st_size / 8;
	if (!o->n_rows || st.st_size % 8)
		return dataset_fail(o->err, DATASET_E_INVALID, -EINVAL, "arrow: rows: %s",
				    st.st_size % 8 ? "expected numbers of 8 bytes" : "no sample is chosen");
	r = meter_take(o->source->meter, (uint64_t)st.st_size);
	a->rows = r ? NULL : malloc((size_t)st.st_size);
	if (!a->rows)
		return arrow_no_memory(o, r ? r : -ENOMEM);
	n = io_full_read(fd, a->rows, (size_t)st.st_size, 0);
	if (n != st.st_size)
		return dataset_fail(o->err, DATASET_E_INVALID, -EINVAL, "arrow: rows: cannot be read whole");
	for (uint64_t i = 0; i < o->n_rows; i++)
		o->last_row = a->rows[i] > o->last_row ? a->rows[i] : o->last_row;
	return 0;
}

static int mark_used(struct opening *o)
{
	uint64_t n_bytes = o->last_row / 8 + 1;
	int r = o->last_row < MOST_ROWS ? meter_take(o->source->meter, n_bytes) : -EDQUOT;

	o->used = r ? NULL : calloc(n_bytes, 1);
	if (!o->used)
		return dataset_fail(o->err, DATASET_E_LIMIT, -ENOMEM,
				    "arrow: rows: row %llu is more than there is memory for",
				    (unsigned long long)o->last_row);
	for (uint64_t i = 0; i < o->n_rows; i++) {
		uint64_t row = o->arrow->rows[i];

		o->used[row / 8] |= (uint8_t)(1u << row % 8);
	}
	o->wanted = (struct arrow_rows){ o->used, o->last_row + 1 };
	return 0;
}

/* Descriptors come in this order: folders of patterns, the folder of pictures, rows, the table. */
static int arrow_take_descriptors(struct opening *o)
{
	const struct dataset_source *source = o->source;
	unsigned n = source->n_fds, own = (o->rows != NULL) + (o->table != NULL);
	struct arrow *a = o->arrow;
	int r = 0;

	if (!n && own)
		return dataset_fail(o->err, DATASET_E_INVALID, -EINVAL,
				    "arrow: 0 descriptors: rows= and table= are memory, which a client sends along");
	if (o->images && strlen(o->images->path) >= sizeof(a->images_path))
		return dataset_fail(o->err, DATASET_E_INVALID, -EINVAL, "arrow: images=%.200s: the path is too long",
				    o->images->path);
	if (o->images) {
		snprintf(a->images_path, sizeof(a->images_path), "%s", o->images->path);
		a->images = tree_open_root(source, n ? n - own - 1 : 0, a->images_path, o->err);
		if (a->images < 0)
			return a->images;
		a->images_traits = dir_traits(a->images, source->access);
	}
	if (o->rows) {
		r = read_rows(o, source->fds[n - own]);
		r = r ? r : mark_used(o);
	}
	if (!r && o->table)
		r = arrow_table_open(&a->table, source, n - 1, o->err);
	return r;
}

/* ---- the files ---- */

static int arrow_report(void *arg, uint64_t at)
{
	struct opening *o = arg;
	uint64_t now = clock_now_ns();

	if (o->source->on_progress && now - o->reported_ns >= PROGRESS_EVERY_NS) {
		o->reported_ns = now;
		o->source->on_progress(o->source->progress_arg, "index", o->n_done + at, o->n_total);
	}
	return dataset_is_stopped(o->source) ? -ECANCELED : 0;
}

static int add_file(struct opening *o, uint32_t i)
{
	struct arrow *a = o->arrow;
	char path[400];
	struct shard_reader reader = { .name = path, .err = o->err, .on_progress = arrow_report, .progress_arg = o };
	struct stat st;
	bool is_kept;
	int fd = shards_open(&a->shards, i, &st, &is_kept, o->err), r;

	if (fd < 0)
		return fd;
	shards_note(&a->shards, fd, &st);
	shards_path(&a->shards, i, path, sizeof(path));
	a->files[i] = (struct arrow_file){ shard_stamp_of(&st), a->index.n_rows };
	reader.fd = fd;
	reader.n_bytes = a->files[i].stamp.n_bytes;
	r = arrow_index_add(&a->index, &reader, o->source->part, &o->wanted);
	shard_reader_finish(&reader);
	o->n_done += reader.n_bytes;
	if (!is_kept)
		close(fd);
	return r;
}

static int add_table(struct opening *o)
{
	struct arrow *a = o->arrow;
	const struct shard_content *content = shards_content(&a->shards, 0);
	struct shard_reader reader = { .fd = -1,
				       .bytes = content->bytes,
				       .n_bytes = content->n_bytes,
				       .name = shard_names_path(&a->shards.names, 0),
				       .err = o->err,
				       .on_progress = arrow_report,
				       .progress_arg = o };
	int r;

	o->n_total = content->n_bytes;
	a->files[0] = (struct arrow_file){ .stamp = arrow_table_stamp(&a->table) };
	r = arrow_index_add(&a->index, &reader, o->source->part, &o->wanted);
	shard_reader_finish(&reader);
	return r;
}

static int add_files(struct opening *o)
{
	struct arrow *a = o->arrow;
	uint32_t n = (uint32_t)a->shards.names.n;
	uint64_t bytes = n * (uint64_t)sizeof(*a->files);
	int r = meter_take(o->source->meter, bytes);

	a->files = r ? NULL : calloc(n ? n : 1, sizeof(*a->files));
	if (!a->files)
		return arrow_no_memory(o, r ? r : -ENOMEM);
	a->index.meter = o->source->meter;
	if (o->table)
		return add_table(o);
	for (uint32_t i = 0; o->source->on_progress && i < n; i++)
		o->n_total += shards_size(&a->shards, i);
	for (uint32_t i = 0; !r && i < n; i++)
		r = dataset_is_stopped(o->source) ? -ECANCELED : add_file(o, i);
	return r;
}

static int arrow_check(const struct opening *o)
{
	const struct arrow *a = o->arrow;

	if (!a->index.n_rows)
		return dataset_fail(o->err, DATASET_E_INVALID, -EINVAL, "arrow:%.300s: the files have no rows",
				    o->shown);
	if (a->rows && o->last_row >= a->index.n_rows)
		return dataset_fail(o->err, DATASET_E_INVALID, -EINVAL,
				    "arrow: rows: row %llu, and the files have %llu rows",
				    (unsigned long long)o->last_row, (unsigned long long)a->index.n_rows);
	if (a->index.paths.n && a->images < 0)
		return dataset_fail(o->err, DATASET_E_ACCESS, -EACCES,
				    "arrow: images lie in files, the first %.200s: name their folder: "
				    "arrow:images=DIR,PATTERN",
				    a->index.paths.bytes);
	return 0;
}

/* ---- opening ---- */

static int arrow_add_fields(struct arrow *a, struct dataset_error *err)
{
	const struct arrow_choices *choices = &a->index.choices;

	if (choices->image >= 0 && !dataset_add_field(&a->base, choices->list[choices->image].name, DTYPE_UINT8, err))
		return -EINVAL;
	for (unsigned k = 0; k < choices->n; k++) {
		const struct arrow_column *c = &a->index.columns[k];
		struct field *f = (int)k == choices->image
					  ? NULL
					  : dataset_add_field(&a->base, choices->list[k].name, DTYPE_UINT8, err);

		if ((int)k == choices->image)
			continue;
		if (!f)
			return -EINVAL;
		f->kind = c->layout.field.kind;
		f->dtype = c->layout.field.dtype;
		f->text = c->layout.field.text;
		f->bytes = c->layout.field.bytes;
		f->n_dims = c->layout.field.n_dims;
		memcpy(f->shape, c->layout.field.shape, sizeof(f->shape));
		arrow_column_measure(c, f);
	}
	return 0;
}

static uint64_t arrow_cache_id(const struct arrow *a)
{
	struct {
		uint64_t id, roots[SHARDS_MAX_ROOTS + 1][2], user;
	} key = { .id = a->base.id, .user = a->shards.access.trusted ? UINT64_MAX : a->shards.access.uid };

	for (unsigned i = 0; i < a->shards.names.n_roots; i++)
		tree_identify(a->shards.names.roots[i], key.roots[i]);
	if (a->images >= 0)
		tree_identify(a->images, key.roots[SHARDS_MAX_ROOTS]);
	return XXH3_64bits(&key, sizeof(key));
}

static void arrow_describe(struct arrow *a, const struct opening *o, const char *rest)
{
	struct dataset *ds = &a->base;
	uint64_t n_rows_bytes = a->rows ? o->n_rows * sizeof(*a->rows) : 0;
	struct stat st;

	ds->n = a->rows ? o->n_rows : a->index.n_rows;
	ds->is_image = a->index.choices.image >= 0;
	ds->turns = ds->is_image; /* datasets.Image.decode_example calls exif_transpose */
	ds->ops = ds->is_image ? &image_ops : &value_ops;
	ds->n_classes = (uint32_t)a->index.n_classes;
	ds->server = a->shards.server;
	if (a->images >= 0 && a->index.paths.n && !(a->images_traits & DIR_LOCAL) && fstat(a->images, &st) == 0)
		ds->server = servers_both(ds->server, servers_number(&st));
	ds->memory_bytes = sizeof(*a) + arrow_index_bytes(&a->index) + shards_memory_bytes(&a->shards) +
			   a->shards.names.n * sizeof(*a->files) + n_rows_bytes + a->table.memory.held_bytes;
	ds->content_id = XXH3_64bits_withSeed(a->rows, n_rows_bytes, arrow_index_hash(&a->index) ^ a->table.hash);
	ds->id = XXH3_64bits_withSeed(rest, strlen(rest), ds->content_id);
	a->shards.names.meter = NULL; /* of the opening */
	a->index.meter = NULL;
	if (ds->is_image)
		ds->cache_id = arrow_cache_id(a);
}

static int open_shards(struct opening *o)
{
	struct arrow *a = o->arrow;
	struct shard_names names;
	int r;

	if (o->table) {
		r = arrow_table_lend(&a->table, &a->shards, o->source);
		return r < 0 ? arrow_no_memory(o, r) : 0;
	}
	r = shard_names_open(o->source, &names, o->err);
	if (r < 0) {
		shard_names_finish(&names);
		return r;
	}
	r = shards_init(&a->shards, &names, o->source->access);
	return r < 0 ? arrow_no_memory(o, r) : 0;
}

static int arrow_open_all(struct opening *o)
{
	int r = arrow_take_descriptors(o);

	r = r < 0 ? r : open_shards(o);
	if (r < 0)
		return r;
	r = add_files(o);
	r = r ? r : arrow_check(o);
	r = r ? r : arrow_add_fields(o->arrow, o->err);
	if (r == 0 && o->arrow->index.choices.image < 0) { /* all values are in the index now */
		arrow_table_drop(&o->arrow->table, o->source->meter);
	}
	return r;
}

static void arrow_take_source(struct opening *o)
{
	const struct Source *s = o->source->part;
	char *shown = source_print_rest(s, SOURCE_SHOWN_PARTS);

	for (size_t i = 0; i < s->n_part; i++) {
		const struct SourcePart *p = s->part[i];

		o->images = p->role == SOURCE_ROLE__IMAGES ? p : o->images;
		o->rows = p->role == SOURCE_ROLE__ROWS ? p : o->rows;
		o->table = p->role == SOURCE_ROLE__TABLE ? p : o->table;
	}
	snprintf(o->shown, sizeof(o->shown), "%s", shown ? shown : "");
	free(shown);
}

int arrow_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	struct opening *o = calloc(1, sizeof(*o));
	struct arrow *a = meter_take(source->meter, sizeof(*a)) ? NULL : calloc(1, sizeof(*a));
	int r;

	if (!o || !a) {
		free(o);
		free(a);
		return dataset_fail_errno(err, ENOMEM, rest);
	}
	a->base.ops = &value_ops;
	a->images = UNSET;
	a->table = ARROW_TABLE_NONE;
	a->shards.access = *source->access;
	atomic_init(&a->base.refs, 1);
	o->source = source;
	o->arrow = a;
	o->err = err;
	o->reported_ns = clock_now_ns();
	arrow_take_source(o);
	r = arrow_open_all(o);
	if (r == 0) {
		arrow_describe(a, o, rest);
		log_record(LOG_LEVEL_INFO, "index-made", "arrow:%s: %zu files, %llu rows, %llu samples", o->shown,
			   a->shards.names.n, (unsigned long long)a->index.n_rows, (unsigned long long)a->base.n);
		*out = &a->base;
	} else {
		dataset_destroy(&a->base);
	}
	if (o->used)
		meter_give(source->meter, o->last_row / 8 + 1);
	free(o->used);
	free(o);
	return r;
}
