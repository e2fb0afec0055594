/* See members.h. The rule for keys is webdataset's base_plus_ext: "^((?:.*[/]|)[^.]+)[.]([^/]*)$". */
#include "data/members.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

#include "data/file.h"
#include "data/json-field.h"
#include "data/name.h"

bool member_split(const char *name, size_t n_name, size_t *n_key)
{
	const char *slash = memrchr(name, '/', n_name), *base = slash ? slash + 1 : name;
	const char *dot = memchr(base, '.', (size_t)(name + n_name - base));

	if (!dot)
		return false;
	*n_key = (size_t)(dot - name);
	if (dot > base)
		return true;
	/* A name that begins with a dot: the expression then takes the folder's name, if that has no dot, as the key. */
	if (!slash)
		return false;
	base = memrchr(name, '/', (size_t)(slash - name));
	base = base ? base + 1 : name;
	return !memchr(base, '.', (size_t)(slash - base));
}

/* The place of an extension in a list, from 1; 0: it is not there. */
static unsigned rank_of(const char *list, const char *extension, size_t n)
{
	for (unsigned rank = 1; *list; rank++) {
		size_t n_item = strcspn(list, ";");

		if (n_item == n && !strncasecmp(list, extension, n))
			return rank;
		list += n_item + (list[n_item] == ';');
	}
	return 0;
}

static int members_no_room(const struct members *m, int error)
{
	return dataset_fail(m->reader->err, DATASET_E_LIMIT, error, "%.300s: %s", m->reader->name,
			    error == -EDQUOT ? "more samples than there is memory for" : "out of memory");
}

static bool members_is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/* As Python's int(), of a decimal number that fits. */
static bool parse_int(const char *text, size_t n, int64_t *value)
{
	bool negative;
	uint64_t sum = 0, most;

	while (n && members_is_blank(text[n - 1]))
		n--;
	while (n && members_is_blank(*text)) {
		text++;
		n--;
	}
	negative = n && *text == '-';
	most = (uint64_t)INT64_MAX + negative;
	if (n && (negative || *text == '+')) {
		text++;
		n--;
	}
	for (size_t i = 0; i < n; i++) {
		unsigned digit = (unsigned)(text[i] - '0');

		if (digit > 9 || sum > (most - digit) / 10)
			return false;
		sum = sum * 10 + digit;
	}
	*value = negative ? (int64_t)(0 - sum) : (int64_t)sum;
	return n > 0;
}

/* A number as JSON has it. */
static bool parse_float(const char *text, float *value)
{
	char *end;

	*value = strtof(text, &end);
	return end > text && !*end;
}

/* ---- a complete sample ---- */

static int drop_missing(struct members *m)
{
	struct member_fields *f = m->fields;
	unsigned n = 0;

	for (unsigned k = 0; k < f->n_values; k++) {
		if (f->values[k].optional && !m->value_rank[k])
			continue;
		f->values[n] = f->values[k];
		f->values[n].optional = false;
		m->value_rank[n] = m->value_rank[k];
		m->value_at[n] = m->value_at[k];
		m->n_value[n] = m->n_value[k];
		n++;
	}
	f->n_values = n;
	return member_fields_columns(f, &m->builder->columns);
}

void member_fields_make_image(struct member_fields *fields, unsigned k)
{
	struct member_value *v = &fields->values[k];

	memcpy(fields->image_name, v->name, sizeof(fields->image_name));
	memcpy(fields->image, v->extensions, sizeof(fields->image));
	memmove(v, v + 1, (fields->n_values - k - 1) * sizeof(*v));
	fields->n_values--;
}

int member_fields_columns(struct member_fields *fields, struct columns_builder *columns)
{
	int r = 0;

	for (unsigned k = 0; !r && k < fields->n_values; k++)
		r = columns_add(columns, fields->values[k].name, fields->values[k].kind, 1);
	return r;
}

static bool members_is_complete(const struct members *m)
{
	for (unsigned k = 0; k < m->fields->n_values; k++) {
		enum column_kind kind = m->fields->values[k].kind;
		const char *value;
		int64_t number;

		if (!m->value_rank[k])
			return false;
		value = m->values.bytes + m->value_at[k];
		if ((kind == COLUMN_FLOAT32 && !parse_float(value, &(float){ 0 })) ||
		    (kind == COLUMN_INT64 && !parse_int(value, m->n_value[k], &number)) ||
		    (kind == COLUMN_TEXT && !name_is_utf8(value, m->n_value[k])))
			return false;
	}
	return m->image_rank > 0 || !m->fields->image[0];
}

/* Whether the columns can be made: a sample without an image, or without the value of a key, tells too little. */
static bool decides_columns(const struct members *m)
{
	for (unsigned k = 0; k < m->fields->n_values; k++) {
		if (m->fields->values[k].key[0] && !m->fields->values[k].has_kind)
			return false;
	}
	return m->image_rank > 0 || !m->fields->image[0];
}

static int put_values(struct members *m)
{
	int r = 0;

	for (unsigned k = 0; !r && k < m->fields->n_values; k++) {
		const char *value = m->values.bytes + m->value_at[k];
		int64_t number = 0;

		if (m->fields->values[k].kind == COLUMN_FLOAT32) {
			float real = 0;

			(void)parse_float(value, &real);
			r = columns_put(&m->builder->columns, k, &real, sizeof(real));
			continue;
		}
		if (m->fields->values[k].kind != COLUMN_INT64) {
			r = columns_put(&m->builder->columns, k, value, m->n_value[k]);
			continue;
		}
		(void)parse_int(value, m->n_value[k], &number);
		r = columns_put_int(&m->builder->columns, k, number);
	}
	return r;
}

/* The key and the extension of the image, if there is one. */
static int name_sample(struct members *m)
{
	uint64_t unused;

	if (!m->image_rank)
		return 0;

	m->key.n--; /* over the zero byte */
	m->key.bytes[m->key.n++] = '.';
	return text_add(&m->key, m->image_extension, strlen(m->image_extension), &unused);
}

static uint32_t image_stored_bytes(const struct members *m)
{
	return (uint32_t)(m->builder->has_content ? m->image.n_stored : m->image.n_bytes);
}

static int members_end_sample(struct members *m)
{
	struct extents_builder *b = m->builder;
	int r = 0;

	if (!m->key.n)
		return 0;
	if (!b->n && !b->columns.n && decides_columns(m))
		r = drop_missing(m);
	if (!r && !members_is_complete(m)) {
		r = extents_leave_out(b, m->key.bytes, m->key.n - 1);
	} else if (!r) {
		r = name_sample(m);
		r = r ? r
		      : extents_add(b, m->image.at, image_stored_bytes(m), &m->image.content, m->key.bytes,
				    m->key.n - 1);
		r = r ? r : put_values(m);
	}
	m->key.n = m->values.n = 0;
	m->image = (struct member){ 0 };
	m->image_rank = m->n_seen = 0;
	memset(m->value_rank, 0, sizeof(m->value_rank));
	return r ? members_no_room(m, r) : 0;
}

/* ---- a member ---- */

static int see_extension(struct members *m, const struct member *member, const char *extension, size_t n)
{
	char lower[COLUMN_NAME_BYTES];
	uint64_t hash = XXH3_64bits(extension, n);

	for (size_t i = 0; n < sizeof(lower) && i < n; i++)
		lower[i] = extension[i] >= 'A' && extension[i] <= 'Z' ? (char)(extension[i] + 32) : extension[i];
	hash = n < sizeof(lower) ? XXH3_64bits(lower, n) : hash;
	for (unsigned i = 0; i < m->n_seen; i++) {
		if (m->seen[i] == hash)
			return shard_reader_refuse(m->reader, member->at, "%.*s comes twice in one sample",
						   (int)(member->n_name < 200 ? member->n_name : 200), member->name);
	}
	if (m->n_seen == MEMBERS_MAX)
		return shard_reader_refuse(
			m->reader, member->at,
			"more than %d members of one key (%.100s): a key ends at the first dot of a name", MEMBERS_MAX,
			m->key.bytes);
	m->seen[m->n_seen++] = hash;
	return 0;
}

/* Objects that are no JSON, or lack the key, have no value. */
static int keep_key(struct members *m, unsigned k, unsigned rank, const char *bytes, size_t n)
{
	struct member_value *v = &m->fields->values[k];
	enum column_kind kind;
	int r = json_field_add(&m->values, bytes, n, v->key, &kind, &m->value_at[k], &m->n_value[k]);

	if (r <= 0)
		return r ? members_no_room(m, r) : 0;
	m->value_rank[k] = rank;
	v->kind = v->has_kind ? v->kind : kind;
	v->has_kind = true;
	return 0;
}

static int keep_value(struct members *m, unsigned k, unsigned rank, const struct member *member)
{
	const uint8_t *bytes = (const uint8_t *)member->value;
	int r = 0;

	if (member->n_bytes > MEMBER_VALUE_BYTES) {
		return shard_reader_refuse(m->reader, member->at, "%.*s has %llu bytes; a value may have 1 MiB",
					   (int)(member->n_name < 200 ? member->n_name : 200), member->name,
					   (unsigned long long)member->n_bytes);
	}
	if (!bytes && m->fetch)
		r = m->fetch(m->fetch_arg, member, &bytes);
	else if (!bytes)
		r = shard_reader_get(m->reader, member->at, (size_t)member->n_bytes, &bytes);
	if (r < 0)
		return r;
	if (m->fields->values[k].key[0])
		return keep_key(m, k, rank, (const char *)bytes, (size_t)member->n_bytes);
	m->value_rank[k] = rank;
	m->n_value[k] = (size_t)member->n_bytes;
	r = text_add(&m->values, (const char *)bytes, m->n_value[k], &m->value_at[k]);
	return r ? members_no_room(m, r) : 0;
}

static int members_take(struct members *m, const struct member *member, const char *extension, size_t n)
{
	unsigned rank = rank_of(m->fields->image, extension, n);
	int r = 0;

	if (rank && (!m->image_rank || rank < m->image_rank)) {
		m->image_rank = rank;
		m->image = *member;
		snprintf(m->image_extension, sizeof(m->image_extension), "%.*s", (int)n, extension);
		if (m->builder->has_content && (member->n_bytes > FILE_MAX_BYTES || member->n_stored > FILE_MAX_BYTES))
			return shard_reader_refuse(m->reader, member->at, "an image of more than 256 MiB");
		if (member->n_bytes > UINT32_MAX)
			return shard_reader_refuse(m->reader, member->at, "an image of 4 GiB or more");
	}
	for (unsigned k = 0; !r && k < m->fields->n_values; k++) {
		rank = rank_of(m->fields->values[k].extensions, extension, n);
		if (rank && (!m->value_rank[k] || rank < m->value_rank[k]))
			r = keep_value(m, k, rank, member);
	}
	return r;
}

static bool is_new_key(const struct members *m, const char *name, size_t n_key)
{
	return m->key.n != n_key + 1 || memcmp(m->key.bytes, name, n_key) != 0;
}

int members_add(struct members *m, const struct member *member)
{
	const char *extension;
	size_t n_key, n;
	uint64_t at;
	int r;

	if (!member_split(member->name, member->n_name, &n_key))
		return 0;
	extension = member->name + n_key + 1;
	n = member->n_name - n_key - 1;
	if (is_new_key(m, member->name, n_key)) {
		r = members_end_sample(m);
		if (r < 0)
			return r;
		m->key.meter = m->values.meter = m->builder->meter;
		r = text_add(&m->key, member->name, n_key, &at);
		if (r < 0)
			return members_no_room(m, r);
	}
	r = see_extension(m, member, extension, n);
	return r < 0 ? r : members_take(m, member, extension, n);
}

int members_end(struct members *m)
{
	return members_end_sample(m);
}

void members_finish(struct members *m)
{
	meter_give(m->builder->meter, m->key.capacity + m->values.capacity);
	free(m->key.bytes);
	free(m->values.bytes);
	m->key = m->values = (struct text){ 0 };
}
