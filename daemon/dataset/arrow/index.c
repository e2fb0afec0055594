/* See index.h. */
#include "dataset/arrow/index.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { MOST_CLASSES = 1 << 20, CLASS_NAME_BYTES = 255 };
/* Of memory for a byte of JSON at most, which an empty object in a list takes with its comma. */
enum { JSON_BYTES = 80 };

/* A file that is being added. */
struct adding {
	struct arrow_index *index;
	struct shard_reader *reader;
	const struct Source *source;
	const struct arrow_rows *rows;
	struct arrow_layout layouts[DATASET_MAX_FIELDS];
	unsigned image, bytes, path; /* fields of the schema; image is bytes where they are a plain column */
	bool is_struct;
};

static int arrow_index_no_room(const struct adding *a, int error)
{
	return dataset_fail(a->reader->err, DATASET_E_LIMIT, error, "%.200s: %s", a->reader->name,
			    error == -EDQUOT ? "more samples than there is memory for" : "out of memory");
}

/* ---- columns ---- */

/* Names are sent to clients, which take as many bytes as a folder's name may have. A longer one is cut between
 * characters. */
static size_t class_length(const char *name)
{
	size_t n = strnlen(name, CLASS_NAME_BYTES + 1);

	if (n <= CLASS_NAME_BYTES)
		return n;
	for (n = CLASS_NAME_BYTES; n && ((uint8_t)name[n] & 0xc0) == 0x80;)
		n--;
	return n;
}

static int add_class(void *arg, const char *name)
{
	struct arrow_index *ix = arg;
	int r = ix->n_classes == MOST_CLASSES ? -EFBIG
					      : block_grow(ix->meter, &ix->classes, &ix->classes_capacity,
							   ix->n_classes + 1, sizeof(*ix->classes));

	ix->class_text.meter = ix->meter;
	r = r ? r : text_add(&ix->class_text, name, class_length(name), &ix->classes[ix->n_classes]);
	ix->n_classes += !r;
	return r;
}

static int choose_columns(struct adding *a, const struct arrow_schema *s)
{
	struct arrow_index *ix = a->index;
	int r = arrow_choose(s, a->source, a->reader->name, &ix->choices, a->reader->err);

	for (unsigned k = 0; !r && k < ix->choices.n; k++) {
		if (!strcmp(ix->choices.list[k].name, "label")) {
			r = arrow_classes(s, ix->choices.list[k].column, add_class, ix);
			r = r ? arrow_index_no_room(a, r) : 0;
		}
	}
	return r;
}

static int take_choices(struct adding *a, const struct arrow_schema *s)
{
	uint64_t bytes = s->features ? JSON_BYTES * (uint64_t)strlen(s->features) : 0;
	int r = meter_take(a->index->meter, bytes);

	if (r)
		return arrow_index_no_room(a, r);
	r = choose_columns(a, s);
	meter_give(a->index->meter, bytes);
	return r;
}

static int find_image(struct adding *a, const struct arrow_schema *s, unsigned number)
{
	a->image = a->bytes = number;
	a->is_struct = arrow_is_picture(s, number, &a->bytes, &a->path);
	if (!a->is_struct && s->fields[number].type != ARROW_BINARY && s->fields[number].type != ARROW_LARGE_BINARY)
		return shard_reader_refuse(a->reader, 0, "column %.64s is no image, as it is in the first file",
					   s->fields[number].name);
	return 0;
}

static int find_column(struct adding *a, const struct arrow_schema *s, unsigned k, unsigned number)
{
	struct arrow_column *c = &a->index->columns[k];
	char why[100];

	if (!arrow_layout_make(s, number, &a->layouts[k], why, sizeof(why)))
		return shard_reader_refuse(a->reader, 0,
					   "column %.64s has %s, which cannot be a field: leave it out of fields",
					   s->fields[number].name, why);
	if (a->index->is_chosen && !arrow_layouts_are_alike(&a->layouts[k], &c->layout))
		return shard_reader_refuse(a->reader, 0, "column %.64s has another type than in the first file",
					   s->fields[number].name);
	c->meter = a->index->meter;
	c->layout = a->layouts[k];
	return 0;
}

static int on_schema(void *arg, const struct arrow_schema *s)
{
	struct adding *a = arg;
	struct arrow_choices *choices = &a->index->choices;
	int r = a->index->is_chosen ? 0 : take_choices(a, s);

	for (unsigned k = 0; !r && k < choices->n; k++) {
		int number = arrow_find(s, choices->list[k].column);

		if (number < 0)
			return shard_reader_refuse(a->reader, 0, "no column %.64s, which the first file has",
						   choices->list[k].column);
		r = (int)k == choices->image ? find_image(a, s, (unsigned)number)
					     : find_column(a, s, k, (unsigned)number);
	}
	a->index->is_chosen = a->index->is_chosen || !r;
	return r;
}

/* ---- pictures ---- */

/* What is known of some rows' pictures. */
struct pictures {
	uint8_t has_row[ARROW_PIECE / 8 + 1], has_bytes[ARROW_PIECE / 8 + 1], has_path[ARROW_PIECE / 8 + 1];
	uint64_t bytes[ARROW_PIECE + 1], paths[ARROW_PIECE + 1];
};

static bool has_bit(const uint8_t *bits, size_t i)
{
	return bits[i / 8] >> i % 8 & 1;
}

static int read_places(struct adding *a, const struct arrow_cursor *at, unsigned node, uint64_t first, size_t n,
		       uint8_t *valid, uint64_t *offsets)
{
	const struct arrow_field *f = &at->schema->fields[node];
	bool large = f->type == ARROW_LARGE_BINARY || f->type == ARROW_LARGE_UTF8;
	int r = arrow_validity(at, node, first, n, valid);

	if (at->batch->nodes[node].n != at->batch->n_rows)
		return shard_reader_refuse(a->reader, 0, "column %.64s has another number of values than its batch",
					   f->name);
	/* A column of nulls alone may have no offsets. */
	if (!r && at->batch->nodes[node].n_null == at->batch->n_rows) {
		memset(offsets, 0, (n + 1) * sizeof(*offsets));
		return 0;
	}
	return r ? r
		 : arrow_offsets(at, node, large, first, n, at->batch->buffers[f->first_buffer + 2].n_bytes, offsets);
}

static int read_pictures(struct adding *a, const struct arrow_cursor *at, uint64_t first, size_t n, struct pictures *p)
{
	int r = read_places(a, at, a->bytes, first, n, p->has_bytes, p->bytes);

	memset(p->has_row, 0xff, sizeof(p->has_row));
	memset(p->has_path, 0, sizeof(p->has_path));
	if (!r && a->is_struct) {
		r = arrow_validity(at, a->image, first, n, p->has_row);
		r = r ? r : read_places(a, at, a->path, first, n, p->has_path, p->paths);
	}
	return r;
}

static int add_picture(struct adding *a, uint64_t at, uint32_t n_bytes)
{
	struct arrow_index *ix = a->index;
	int r = block_grow(ix->meter, &ix->at, &ix->at_capacity, ix->n_rows + 1, sizeof(*ix->at));

	r = r ? r : block_grow(ix->meter, &ix->n_bytes, &ix->n_bytes_capacity, ix->n_rows + 1, sizeof(*ix->n_bytes));
	if (r)
		return arrow_index_no_room(a, r);
	ix->at[ix->n_rows] = at;
	ix->n_bytes[ix->n_rows++] = n_bytes;
	return 0;
}

static int add_path(struct adding *a, const struct arrow_cursor *at, uint64_t from, uint64_t n)
{
	uint64_t place = at->batch->buffers[at->schema->fields[a->path].first_buffer + 2].at + from, offset;
	char path[ARROW_PATH_BYTES * 4];
	int r;

	if (n >= sizeof(path))
		return shard_reader_refuse(a->reader, place, "a path of %" PRIu64 " bytes", n);
	r = arrow_copy(at, place, n, path);
	if (r)
		return r;
	path[n] = '\0';
	if (strlen(path) < n || strstr(path, "://"))
		return shard_reader_refuse(a->reader, place,
					   "row %" PRIu64 ": its image is not a file but '%.100s': load it first",
					   a->index->n_rows, path);
	a->index->paths.meter = a->index->meter;
	r = text_add(&a->index->paths, path, n, &offset);
	return r ? arrow_index_no_room(a, r) : add_picture(a, offset, ARROW_IN_FILE);
}

static int add_row(struct adding *a, const struct arrow_cursor *at, const struct pictures *p, size_t i)
{
	uint64_t place, n = p->bytes[i + 1] - p->bytes[i];

	if (!arrow_rows_has(a->rows, a->index->n_rows))
		return add_picture(a, 0, 0);
	if (has_bit(p->has_row, i) && has_bit(p->has_bytes, i)) {
		place = at->batch->buffers[at->schema->fields[a->bytes].first_buffer + 2].at;
		return n >= ARROW_IN_FILE ? shard_reader_refuse(a->reader, place, "row %" PRIu64 ": an image of 4 GiB",
								a->index->n_rows)
					  : add_picture(a, place + p->bytes[i], (uint32_t)n);
	}
	if (has_bit(p->has_row, i) && has_bit(p->has_path, i))
		return add_path(a, at, p->paths[i], p->paths[i + 1] - p->paths[i]);
	return shard_reader_refuse(a->reader, at->batch->buffers[0].at,
				   "column %.64s is null in row %" PRIu64 ": filter such rows out",
				   at->schema->fields[a->image].name, a->index->n_rows);
}

static int add_pictures(struct adding *a, const struct arrow_cursor *at, struct pictures *p)
{
	uint64_t n_rows = at->batch->n_rows;
	int r = 0;

	for (uint64_t i = 0; !r && i < n_rows; i += ARROW_PIECE) {
		size_t n = n_rows - i < ARROW_PIECE ? (size_t)(n_rows - i) : ARROW_PIECE;

		r = read_pictures(a, at, i, n, p);
		for (size_t k = 0; !r && k < n; k++)
			r = add_row(a, at, p, k);
	}
	return r;
}

static int on_batch(void *arg, const struct arrow_schema *s, const struct arrow_batch *batch)
{
	struct adding *a = arg;
	struct arrow_index *ix = a->index;
	struct arrow_cursor at = {
		.reader = a->reader, .schema = s, .batch = batch, .rows = a->rows, .first = ix->n_rows
	};
	struct pictures *p;
	int r = 0;

	for (unsigned k = 0; !r && k < ix->choices.n; k++)
		r = (int)k == ix->choices.image ? 0 : arrow_column_read(&ix->columns[k], &a->layouts[k], &at);
	if (r || ix->choices.image < 0) {
		ix->n_rows += r ? 0 : batch->n_rows;
		return r;
	}
	p = malloc(sizeof(*p));
	r = p ? add_pictures(a, &at, p) : arrow_index_no_room(a, -ENOMEM);
	free(p);
	return r;
}

int arrow_index_add(struct arrow_index *ix, struct shard_reader *r, const struct Source *source,
		    const struct arrow_rows *rows)
{
	struct adding *a = calloc(1, sizeof(*a));
	struct arrow_visitor visitor = { on_schema, on_batch, a };
	int result;

	if (!a)
		return dataset_fail_errno(r->err, ENOMEM, r->name);
	*a = (struct adding){ .index = ix, .reader = r, .source = source, .rows = rows };
	result = arrow_scan(r, &visitor);
	free(a);
	return result;
}

uint64_t arrow_index_bytes(const struct arrow_index *ix)
{
	uint64_t n = ix->at_capacity * sizeof(*ix->at) + ix->n_bytes_capacity * sizeof(*ix->n_bytes) +
		     ix->paths.capacity + ix->class_text.capacity + ix->classes_capacity * sizeof(*ix->classes);

	for (unsigned k = 0; k < ix->choices.n; k++) {
		const struct arrow_column *c = &ix->columns[k];

		n += c->values_capacity + c->ends_capacity * sizeof(*c->ends);
	}
	return n;
}

static uint64_t arrow_index_hash_of(const void *bytes, size_t n, uint64_t seed)
{
	return n ? XXH3_64bits_withSeed(bytes, n, seed) : seed;
}

uint64_t arrow_index_hash(const struct arrow_index *ix)
{
	uint64_t hash = ix->n_rows;

	if (ix->choices.image >= 0) {
		hash = arrow_index_hash_of(ix->at, ix->n_rows * sizeof(*ix->at), hash);
		hash = arrow_index_hash_of(ix->n_bytes, ix->n_rows * sizeof(*ix->n_bytes), hash);
		hash = arrow_index_hash_of(ix->paths.bytes, ix->paths.n, hash);
	}
	for (unsigned k = 0; k < ix->choices.n; k++) {
		const struct arrow_column *c = &ix->columns[k];

		hash = arrow_index_hash_of(ix->choices.list[k].name, strlen(ix->choices.list[k].name), hash + k);
		hash = arrow_index_hash_of(c->values, c->n_bytes, hash);
		hash = arrow_index_hash_of(c->ends, c->n_rows * sizeof(*c->ends), hash);
	}
	return arrow_index_hash_of(ix->class_text.bytes, ix->class_text.n, hash);
}

void arrow_index_finish(struct arrow_index *ix)
{
	for (unsigned k = 0; k < DATASET_MAX_FIELDS; k++)
		arrow_column_finish(&ix->columns[k]);
	free(ix->at);
	free(ix->n_bytes);
	free(ix->paths.bytes);
	free(ix->class_text.bytes);
	free(ix->classes);
	*ix = (struct arrow_index){ 0 };
}
