/* See mds.h. A shard describes itself, so the folder's index.json, which says the same of all shards, is not needed: it
 * only says which shards there are (list.c). Without it they are those of the folder in the order of their names,
 * which is the order of the index. */
#include "dataset/shards/mds.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
	MAX_COLUMNS = 256,
	MAX_CONFIG_BYTES = SHARD_READER_MAX_BYTES,
	JSON_DEPTH_FLAGS = JSON_REJECT_DUPLICATES,
	PARSED_PER_BYTE = 96, /* memory that a byte of JSON takes when it is parsed, at most: "{},{},..." */
};

struct mds_column {
	char name[COLUMN_NAME_BYTES];
	char encoding[COLUMN_NAME_BYTES];
	uint32_t n_bytes; /* 0: of variable size */
	const char *as;   /* its extension as a member, if that is not its name */
};

struct mds {
	struct members *m;
	uint32_t n, n_columns, n_variable;
	uint64_t first_at; /* of the samples */
	struct mds_column columns[MAX_COLUMNS];
};

static uint32_t take_u32(const uint8_t *bytes)
{
	return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* ---- the description ---- */

static bool mds_copy_text(char to[COLUMN_NAME_BYTES], const json_t *text)
{
	size_t n = json_string_length(text);

	if (!json_is_string(text) || !n || n >= COLUMN_NAME_BYTES)
		return false;
	memcpy(to, json_string_value(text), n + 1);
	return true;
}

static int mds_take_columns(struct mds *s, const json_t *config)
{
	const json_t *names = json_object_get(config, "column_names"), *sizes = json_object_get(config, "column_sizes"),
		     *encodings = json_object_get(config, "column_encodings");
	size_t n = json_array_size(names);

	if (!n || n > MAX_COLUMNS || json_array_size(encodings) != n || json_array_size(sizes) != n)
		return shard_reader_refuse(s->m->reader, 4, "no columns, more than %d, or lists of them that differ",
					   MAX_COLUMNS);
	for (size_t i = 0; i < n; i++) {
		struct mds_column *c = &s->columns[i];
		json_int_t size = json_integer_value(json_array_get(sizes, i));

		if (!mds_copy_text(c->name, json_array_get(names, i)) ||
		    !mds_copy_text(c->encoding, json_array_get(encodings, i)) || size < 0 || size > UINT32_MAX)
			return shard_reader_refuse(s->m->reader, 4,
						   "a column whose name, encoding or size is not valid");
		c->n_bytes = (uint32_t)size;
		s->n_variable += !size;
	}
	s->n_columns = (uint32_t)n;
	return 0;
}

static int read_config(struct mds *s)
{
	struct shard_reader *r = s->m->reader;
	uint64_t at = 4 + 4 * ((uint64_t)s->n + 1), parsed_bytes;
	const uint8_t *text;
	json_error_t error;
	json_t *config;
	int result;

	if (s->first_at < at || s->first_at - at > MAX_CONFIG_BYTES)
		return shard_reader_refuse(r, 4,
					   "not an MDS shard: its samples begin where its description does not end");
	result = shard_reader_get(r, at, (size_t)(s->first_at - at), &text);
	if (result < 0)
		return result;
	parsed_bytes = (s->first_at - at) * PARSED_PER_BYTE;
	result = meter_take(s->m->builder->meter, parsed_bytes);
	if (result < 0)
		return dataset_fail(r->err, DATASET_E_LIMIT, result, "%.180s: no memory for its description", r->name);
	config = json_loadb((const char *)text, (size_t)(s->first_at - at), JSON_DEPTH_FLAGS, &error);
	result = config ? mds_take_columns(s, config)
			: shard_reader_refuse(r, at, "not an MDS shard: its description is no JSON (%.100s)",
					      error.text);
	json_decref(config);
	meter_give(s->m->builder->meter, parsed_bytes);
	return result;
}

/* ---- fields ---- */

static bool is_one_of(const char *text, const char *list)
{
	size_t n = strlen(text);

	for (; *list; list += strcspn(list, ";"), list += *list == ';') {
		if (strcspn(list, ";") == n && !memcmp(list, text, n))
			return true;
	}
	return false;
}

static bool mds_is_whole(const char *encoding)
{
	return is_one_of(encoding, "int;int8;int16;int32;int64;uint8;uint16;uint32;uint64;str_int");
}

static bool mds_is_real(const char *encoding)
{
	return is_one_of(encoding, "float16;float32;float64;str_float");
}

static bool is_picture(const char *encoding)
{
	return is_one_of(encoding, "jpeg;png");
}

/* Pictures in a form of streaming's own. */
static bool is_unread(const char *encoding)
{
	return is_one_of(encoding, "pil;jpeg_array") || !strncmp(encoding, "list[", 5);
}

static int refuse_unread(struct mds *s, const struct mds_column *c)
{
	return shard_reader_refuse(s->m->reader, 4,
				   "column %s is encoded as %s, which is not read: write it as jpeg or png", c->name,
				   c->encoding);
}

static struct mds_column *find_column(struct mds *s, const char *extensions)
{
	for (uint32_t i = 0; i < s->n_columns; i++) {
		if (is_one_of(s->columns[i].name, extensions))
			return &s->columns[i];
	}
	return NULL;
}

static bool is_number(const struct mds_column *c)
{
	return mds_is_whole(c->encoding) || mds_is_real(c->encoding);
}

static bool is_text(const struct mds_column *c)
{
	return is_one_of(c->encoding, "str");
}

/* By the names that tables have for it first. */
static const struct mds_column *find_label_that(struct mds *s, bool (*fits)(const struct mds_column *c))
{
	static const char *const names[] = { "label", "class", "target", "cls", "y" };

	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		const struct mds_column *c = find_column(s, names[k]);

		if (c && fits(c))
			return c;
	}
	return NULL;
}

/* A number, else the name of a class. */
static const struct mds_column *find_label(struct mds *s)
{
	const struct mds_column *number = find_label_that(s, is_number);

	return number ? number : find_label_that(s, is_text);
}

/* For the message about samples without a label. */
static void tell_columns(struct mds *s)
{
	char *out = s->m->extensions;
	size_t size = sizeof(s->m->extensions), used = 0;

	s->m->is_told = true;
	for (uint32_t i = 0; i < s->n_columns; i++) {
		const struct mds_column *c = &s->columns[i];
		int n = snprintf(out + used, size - used, "%s%s (%s)", used ? ";" : "", c->name, c->encoding);

		if ((size_t)n >= size - used) {
			out[used] = '\0';
			return;
		}
		used += (size_t)n;
	}
}

static enum column_kind mds_kind_of(const struct mds_column *c)
{
	if (!c)
		return COLUMN_BYTES;
	if (mds_is_whole(c->encoding))
		return strcmp(c->encoding, "uint64") ? COLUMN_INT64 : COLUMN_UINT64;
	if (mds_is_real(c->encoding))
		return is_one_of(c->encoding, "float64;str_float") ? COLUMN_FLOAT64 : COLUMN_FLOAT32;
	return is_one_of(c->encoding, "str;json;str_decimal") ? COLUMN_TEXT : COLUMN_BYTES;
}

/* As in tables, a label may be a real number, or the name of a class. */
static enum column_kind label_kind_of(const struct mds_column *c)
{
	return c && is_text(c) ? COLUMN_CLASS : mds_kind_of(c);
}

static int set_label_kind(struct mds *s, const struct mds_column *label)
{
	struct member_fields *f = s->m->fields;
	enum column_kind kind = label && !mds_is_whole(label->encoding) ? label_kind_of(label) : COLUMN_INT64;

	if (!label || !f->n_values)
		return 0;
	if (s->m->builder->columns.n && s->m->builder->columns.list[0].kind != kind)
		return shard_reader_refuse(s->m->reader, 4, "column %s has another encoding than in other shards",
					   label->name);
	f->values[0].kind = kind;
	return 0;
}

/* Without a list of fields, columns go by the extensions that images and labels have in tar. */
static int mds_choose(struct mds *s)
{
	const struct mds_column *label = find_label(s);
	bool has_image = false;

	for (uint32_t i = 0; i < s->n_columns; i++) {
		struct mds_column *c = &s->columns[i];

		if (!has_image && is_picture(c->encoding)) {
			has_image = true;
			c->as = "jpg";
		} else if (c == label) {
			c->as = "cls";
		}
	}
	for (uint32_t i = 0; !has_image && i < s->n_columns; i++) {
		if (is_unread(s->columns[i].encoding))
			return refuse_unread(s, &s->columns[i]);
	}
	return set_label_kind(s, label);
}

/* In a list without an "image", and without a column that is called as pictures are in tar, the first column of pictures
 * is the image. */
static void find_image(struct mds *s)
{
	struct member_fields *f = s->m->fields;

	for (unsigned k = 0; f->is_listed && !f->image[0] && !s->m->builder->columns.n && k < f->n_values; k++) {
		const struct mds_column *c = find_column(s, f->values[k].extensions);

		if (c && is_picture(c->encoding) && !f->values[k].key[0])
			member_fields_make_image(f, k);
	}
}

/* Kinds follow the columns' encodings. */
static int set_kinds(struct mds *s)
{
	struct member_fields *f = s->m->fields;
	const struct mds_column *image;

	find_image(s);
	image = f->is_listed ? find_column(s, f->image) : NULL;
	if (image && is_unread(image->encoding))
		return refuse_unread(s, image);
	for (unsigned k = 0; f->is_listed && k < f->n_values; k++) {
		const struct mds_column *c = find_column(s, f->values[k].extensions);
		enum column_kind kind = strcmp(f->values[k].name, "label") ? mds_kind_of(c) : label_kind_of(c);

		if (f->values[k].key[0])
			continue; /* the JSON's values decide */
		if (c && is_unread(c->encoding))
			return refuse_unread(s, c);
		if (c && is_one_of(c->encoding, "pkl"))
			return shard_reader_refuse(
				s->m->reader, 4, "column %s is pickled, which is never read: write it as bytes or json",
				c->name);
		if (f->values[k].is_told)
			continue;
		if (s->m->builder->columns.n && s->m->builder->columns.list[k].kind != kind)
			return shard_reader_refuse(s->m->reader, 4,
						   "column %s has another encoding than in other shards",
						   f->values[k].name);
		f->values[k].kind = kind;
	}
	return 0;
}

/* ---- samples ---- */

/* A whole number as decimal text, which is how members have numbers. */
static int to_decimal(struct mds *s, const struct mds_column *c, uint64_t at, uint32_t n, char *text, size_t size)
{
	bool is_signed = c->encoding[0] != 'u';
	const uint8_t *bytes;
	uint64_t value = 0;
	int r;

	if (n > 8 || !n)
		return shard_reader_refuse(s->m->reader, at, "column %s: a whole number of %u bytes", c->name, n);
	r = shard_reader_get(s->m->reader, at, n, &bytes);
	if (r < 0)
		return r;
	for (uint32_t i = n; i-- > 0;)
		value = value << 8 | bytes[i];
	if (is_signed && n < 8 && bytes[n - 1] & 0x80)
		value |= UINT64_MAX << (8 * n);
	snprintf(text, size, is_signed ? "%" PRId64 : "%" PRIu64, value);
	return 0;
}

static double half_value(uint16_t half)
{
	int exponent = half >> 10 & 31, fraction = half & 1023;
	double value = exponent == 31 ? fraction ? NAN : INFINITY
		       : exponent     ? ldexp(1024 + fraction, exponent - 25)
				      : ldexp(fraction, -24);

	return half & 0x8000 ? -value : value;
}

/* A real number as text that has the same value. */
static int real_to_text(struct mds *s, const struct mds_column *c, uint64_t at, uint32_t n, char *text, size_t size)
{
	union {
		float single;
		double full;
		uint16_t half;
		uint8_t bytes[8];
	} value;
	const uint8_t *bytes;
	int r;

	if (n != 2 && n != 4 && n != 8)
		return shard_reader_refuse(s->m->reader, at, "column %s: a real number of %u bytes", c->name, n);
	r = shard_reader_get(s->m->reader, at, n, &bytes);
	if (r < 0)
		return r;
	memcpy(value.bytes, bytes, n);
	snprintf(text, size, "%.17g", n == 2 ? half_value(value.half) : n == 4 ? (double)value.single : value.full);
	return 0;
}

/* Numbers that are stored as such; others are text already. */
static int number_to_text(struct mds *s, const struct mds_column *c, uint64_t at, uint32_t n, char *text, size_t size)
{
	return mds_is_real(c->encoding) ? real_to_text(s, c, at, n, text, size) : to_decimal(s, c, at, n, text, size);
}

static int add_column(struct mds *s, uint32_t sample, const struct mds_column *c, uint64_t at, uint32_t n)
{
	char name[32 + COLUMN_NAME_BYTES], decimal[32];
	struct member member = { .name = name, .at = at, .n_bytes = n };
	int r;

	member.n_name = (size_t)snprintf(name, sizeof(name), "%08u.%s", sample, c->as ? c->as : c->name);
	if ((mds_is_whole(c->encoding) || mds_is_real(c->encoding)) && c->encoding[0] != 's') {
		r = number_to_text(s, c, at, n, decimal, sizeof(decimal));
		if (r < 0)
			return r;
		member.value = decimal;
		member.n_bytes = strlen(decimal);
	}
	return members_add(s->m, &member);
}

static int take_sample(struct mds *s, uint32_t i, uint64_t at, uint64_t end)
{
	struct shard_reader *r = s->m->reader;
	uint32_t n_bytes[MAX_COLUMNS];
	const uint8_t *sizes;
	int result;

	if (end < at || end > r->n_bytes || end - at < 4 * (uint64_t)s->n_variable)
		return shard_reader_refuse(r, 4 + 4 * (uint64_t)i,
					   "sample %u does not lie inside the shard: cut short?", i);
	result = shard_reader_get(r, at, 4 * (size_t)s->n_variable, &sizes);
	if (result < 0)
		return result;
	for (uint32_t c = 0, v = 0; c < s->n_columns; c++)
		n_bytes[c] = s->columns[c].n_bytes ? s->columns[c].n_bytes : take_u32(sizes + 4 * (size_t)v++);
	at += 4 * (uint64_t)s->n_variable;
	for (uint32_t c = 0; !result && c < s->n_columns; c++) {
		if (n_bytes[c] > end - at)
			return shard_reader_refuse(r, at, "sample %u: column %s is larger than the sample", i,
						   s->columns[c].name);
		result = add_column(s, i, &s->columns[c], at, n_bytes[c]);
		at += n_bytes[c];
	}
	return result;
}

/* Offsets are read in pieces of their own, so that the reader moves on through the samples. */
static int take_samples(struct mds *s)
{
	enum { PIECE = 4096 };
	struct shard_reader offsets = *s->m->reader;
	uint64_t at = s->first_at;
	int r = 0;

	offsets.buffer = NULL;
	offsets.n = 0;
	offsets.on_progress = NULL;
	for (uint32_t i = 0; !r && i < s->n; i += PIECE) {
		uint32_t n = s->n - i < PIECE ? s->n - i : PIECE;
		const uint8_t *ends;

		r = shard_reader_get(&offsets, 8 + 4 * (uint64_t)i, 4 * (size_t)n, &ends);
		for (uint32_t k = 0; !r && k < n; k++) {
			uint64_t end = take_u32(ends + 4 * (size_t)k);

			r = take_sample(s, i + k, at, end);
			at = end;
		}
	}
	shard_reader_finish(&offsets);
	return r;
}

int mds_scan(struct members *m)
{
	struct mds s = { .m = m };
	const uint8_t *head;
	int r = shard_reader_get(m->reader, 0, 8, &head);

	if (r < 0)
		return r;
	if (take_u32(head) == 0xfd2fb528)
		return shard_reader_refuse(m->reader, 0, "compressed by zstd twice: unpack it once (unzstd)");
	s.n = take_u32(head);
	s.first_at = take_u32(head + 4);
	r = read_config(&s);
	r = r ? r : set_kinds(&s);
	if (r < 0)
		return r;
	if (!m->fields->is_listed) {
		tell_columns(&s);
		r = mds_choose(&s);
	}
	r = r ? r : take_samples(&s);
	return r ? r : members_end(m);
}
