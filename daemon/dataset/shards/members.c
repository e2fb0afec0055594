/* See members.h. The rule for keys is webdataset's base_plus_ext: "^((?:.*[/]|)[^.]+)[.]([^/]*)$". */
#include "dataset/shards/members.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

#include "dataset/shards/class-column.h"
#include "dataset/file.h"
#include "dataset/shards/json-field.h"
#include "dataset/name.h"

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
static bool parse_real(const char *text, double *value)
{
	char *end;

	*value = strtod(text, &end);
	return end > text && !*end;
}

/* ---- a complete sample ---- */

static int drop_missing(struct members *m)
{
	struct member_fields *f = m->fields;
	unsigned n = 0;

	for (unsigned k = 0; k < f->n_values; k++) {
		if (f->values[k].optional && !m->value_rank[k]) {
			f->dropped = f->values[k];
			continue;
		}
		f->values[n] = f->values[k];
		f->values[n].optional = false;
		m->value_rank[n] = m->value_rank[k];
		m->value_at[n] = m->value_at[k];
		m->n_value[n] = m->n_value[k];
		m->value_kind[n] = m->value_kind[k];
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

static bool is_name(enum column_kind kind)
{
	return kind == COLUMN_TEXT || kind == COLUMN_CLASS;
}

/* A key's value of another kind than the others; NULL: it is of the same. JSON says what is text, so "5" is no number. */
static const char *wrong_kind(const struct member_value *v, enum column_kind kind)
{
	if (!v->key[0] || is_name(v->kind) == is_name(kind))
		return NULL;
	return is_name(kind) ? v->is_told ? "text, and a number is asked for" : "text, and the first is a number"
	       : v->is_told  ? "a number, and text is asked for"
			     : "a number, and the first is text";
}

/* Whether real numbers may make a key's whole ones real. */
static bool may_turn_real(const struct member_value *v)
{
	return v->key[0] && !v->is_told;
}

/* What is wrong with a value; NULL: nothing. kind: of a key's value by itself. */
static const char *wrong_with(const struct member_value *v, enum column_kind kind, const char *value, size_t n)
{
	const char *wrong = wrong_kind(v, kind);
	bool may_be_class = !strcmp(v->name, "label") && !v->key[0] && !v->is_told;
	int64_t whole;
	double real;

	if (wrong)
		return wrong;
	switch (v->kind) {
	case COLUMN_INT64:
		/* A key's whole numbers become real ones with the first real one. */
		return parse_int(value, n, &whole)                  ? NULL
		       : may_turn_real(v) && kind == COLUMN_FLOAT32 ? NULL
		       : value[strspn(value, "+-0123456789")] || !n
			       ? may_be_class ? "no whole number (cls:class reads names of classes)" : "no whole number"
			       : "too large for int64";
	case COLUMN_FLOAT32:
	case COLUMN_FLOAT64:
		return !parse_real(value, &real)                                               ? "no number"
		       : v->kind == COLUMN_FLOAT32 && isfinite(real) && !isfinite((float)real) ? "too large for float32"
											       : NULL;
	case COLUMN_TEXT:
		return name_is_utf8(value, n) ? NULL : "not UTF-8";
	case COLUMN_CLASS:
		return class_column_wrong(value, n);
	default:
		return NULL;
	}
}

/* Whether the group is a sample; otherwise `why` says what is wrong with it: "has no label (cls)". */
static bool members_is_complete(const struct members *m, char *why, size_t size)
{
	for (unsigned k = 0; k < m->fields->n_values; k++) {
		const struct member_value *v = &m->fields->values[k];
		const char *value, *wrong;
		bool is_bad = m->bad[0] && m->bad_value == k;

		if (!m->value_rank[k]) {
			snprintf(why, size, is_bad ? "its %.40s %s" : "has no %.40s (%.60s)",
				 is_bad ? v->extensions : v->name, is_bad ? m->bad : v->extensions);
			return false;
		}
		value = m->values.bytes + m->value_at[k]; /* has bytes now: a value has one at least */
		wrong = wrong_with(v, m->value_kind[k], value, m->n_value[k]);
		if (wrong) {
			bool shows = v->key[0] || !is_name(v->kind);
			int n = 0;

			while (shows && n < 40 && (size_t)n < m->n_value[k] && (unsigned char)value[n] >= ' ')
				n++;
			snprintf(why, size, "%.40s (%.40s%s%.40s) is %s%.*s%s%s", v->name, v->extensions,
				 v->key[0] ? ":" : "", v->key, shows ? "'" : "", n, value, shows ? "', " : "", wrong);
			return false;
		}
	}
	if (m->image_rank || !m->fields->image[0])
		return true;
	snprintf(why, size, "has no %.40s (%.100s)", m->fields->image_name, m->fields->image);
	return false;
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

/* A key whose first values were whole numbers. */
static void make_real(struct members *m, unsigned k)
{
	columns_make_real(&m->builder->columns, k);
	m->fields->values[k].kind = COLUMN_FLOAT32;
	m->builder->has_turned_real = true;
}

static int put_value(struct members *m, unsigned k)
{
	struct member_value *v = &m->fields->values[k];
	const char *value = m->values.bytes + m->value_at[k];
	int64_t whole = 0;
	double real = 0;
	uint64_t natural;

	if (may_turn_real(v) && v->kind == COLUMN_INT64 && m->value_kind[k] == COLUMN_FLOAT32)
		make_real(m, k);
	m->builder->has_turned_real |=
		may_turn_real(v) && v->kind == COLUMN_FLOAT32 && m->value_kind[k] == COLUMN_INT64;
	switch (v->kind) {
	case COLUMN_FLOAT32:
		(void)parse_real(value, &real);
		return columns_put(&m->builder->columns, k, &(float){ (float)real }, sizeof(float));
	case COLUMN_FLOAT64:
		(void)parse_real(value, &real);
		return columns_put(&m->builder->columns, k, &real, sizeof(real));
	case COLUMN_UINT64:
		natural = strtoull(value, NULL, 10);
		return columns_put(&m->builder->columns, k, &natural, sizeof(natural));
	case COLUMN_INT64:
		(void)parse_int(value, m->n_value[k], &whole);
		return columns_put_int(&m->builder->columns, k, whole);
	default:
		return columns_put(&m->builder->columns, k, value, m->n_value[k]);
	}
}

static int put_values(struct members *m)
{
	int r = 0;

	for (unsigned k = 0; !r && k < m->fields->n_values; k++)
		r = put_value(m, k);
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

static int members_leave_out(struct members *m, const char *why)
{
	uint64_t at;
	int r = extents_leave_out(m->builder, m->key.bytes, m->key.n - 1, why);

	m->gone.meter = m->builder->meter;
	return r ? r : text_add(&m->gone, m->key.bytes, m->key.n - 1, &at);
}

static int members_end_sample(struct members *m)
{
	struct extents_builder *b = m->builder;
	char why[240];
	int r = 0;

	if (!m->key.n)
		return 0;
	if (!b->n && !b->columns.n && decides_columns(m))
		r = drop_missing(m);
	if (!r && !members_is_complete(m, why, sizeof(why))) {
		r = members_leave_out(m, why);
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
	m->bad[0] = '\0';
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

static void note_bad(struct members *m, unsigned k, const char *why)
{
	if (m->bad[0])
		return;
	m->bad_value = k;
	snprintf(m->bad, sizeof(m->bad), "%s", why);
}

/* Objects that are no JSON, or lack the key, have no value. */
static int keep_key(struct members *m, unsigned k, unsigned rank, struct json_document *d)
{
	struct member_value *v = &m->fields->values[k];
	struct json_value value;
	char why[sizeof(m->bad)];
	int r = json_field_add(&m->values, d, v->key, &value, why, sizeof(why));

	if (r < 0)
		return members_no_room(m, r);
	if (r == 0) {
		note_bad(m, k, why);
		return 0;
	}
	m->value_rank[k] = rank;
	m->value_at[k] = value.at;
	m->n_value[k] = value.n;
	m->value_kind[k] = value.kind;
	v->kind = v->has_kind ? v->kind : value.kind;
	v->has_kind = true;
	return 0;
}

/* Takes the blanks off both ends, as the newline after a name. */
static size_t trim_value(const char **text, size_t n)
{
	while (n && members_is_blank((*text)[n - 1]))
		n--;
	while (n && members_is_blank(**text)) {
		++*text;
		n--;
	}
	return n;
}

static int keep_value(struct members *m, unsigned k, unsigned rank, const struct member *member,
		      struct json_document *d)
{
	const uint8_t *bytes = (const uint8_t *)member->value;
	int r = 0;

	if (member->n_bytes > MEMBER_VALUE_BYTES) {
		char why[80];

		snprintf(why, sizeof(why), "has %llu bytes; a value may have 1 MiB",
			 (unsigned long long)member->n_bytes);
		note_bad(m, k, why);
		return 0;
	}
	if (!bytes && m->fetch)
		r = m->fetch(m->fetch_arg, member, &bytes);
	else if (!bytes)
		r = shard_reader_get(m->reader, member->at, (size_t)member->n_bytes, &bytes);
	if (r < 0)
		return r;
	if (m->fields->values[k].key[0]) {
		d->bytes = (const char *)bytes; /* only the first is looked at */
		d->n = (size_t)member->n_bytes;
		return keep_key(m, k, rank, d);
	}
	m->value_rank[k] = rank;
	m->n_value[k] = (size_t)member->n_bytes;
	if (m->fields->values[k].is_told && m->fields->values[k].kind != COLUMN_TEXT)
		m->n_value[k] = trim_value((const char **)&bytes, m->n_value[k]);
	r = text_add(&m->values, (const char *)bytes, m->n_value[k], &m->value_at[k]);
	return r ? members_no_room(m, r) : 0;
}

static int members_take(struct members *m, const struct member *member, const char *extension, size_t n)
{
	unsigned rank = rank_of(m->fields->image, extension, n);
	struct json_document document = { .n = 0 };
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
			r = keep_value(m, k, rank, member, &document);
	}
	json_document_finish(&document, &m->values);
	return r;
}

/* For the message about samples without a label. */
static void note_extension(struct members *m, const char *extension, size_t n)
{
	size_t used = strlen(m->extensions);

	if (n && n < 24 && used + n + 2 < sizeof(m->extensions) && !rank_of(m->extensions, extension, n))
		snprintf(m->extensions + used, sizeof(m->extensions) - used, "%s%.*s", used ? ";" : "", (int)n,
			 extension);
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
	if (!m->fields->is_listed && !m->is_told)
		note_extension(m, extension, n);
	m->fields->saw_dropped |= rank_of(m->fields->dropped.extensions, extension, n) > 0;
	return r < 0 ? r : members_take(m, member, extension, n);
}

/* ---- the shard's end ---- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int refuse_order(const struct members *m, const char *key)
{
	return dataset_fail(
		m->reader->err, DATASET_E_BAD_DATA, -EINVAL,
		"%.250s is not sorted: the files of %.150s do not follow each other, so they are no sample; make "
		"it with sorted names (tar --sort=name, or zip -@ of a sorted list)",
		m->reader->name, key);
}

/* A group that is no sample, of a key that another group of the shard has, too. */
static int find_split(const struct members *m, const char *const *gone, size_t n)
{
	const struct extents_builder *b = m->builder;
	struct text key = { .meter = b->meter };
	const char *split = NULL;
	uint64_t at;
	int r = 0;

	for (size_t i = 1; !split && i < n; i++)
		split = strcmp(gone[i - 1], gone[i]) ? NULL : gone[i];
	for (uint64_t i = b->shards[b->n_shards - 1].first; !r && !split && i < b->n; i++) {
		const char *name = b->text.bytes + b->name[i], **found;
		size_t n_key = strlen(name);

		if (m->fields->image[0])
			(void)member_split(name, n_key, &n_key);
		key.n = 0;
		r = text_add(&key, name, n_key, &at);
		found = r ? NULL : bsearch(&(const char *){ key.bytes }, gone, n, sizeof(*gone), by_text);
		split = found ? *found : NULL;
	}
	meter_give(b->meter, key.capacity);
	free(key.bytes);
	return r ? members_no_room(m, r) : split ? refuse_order(m, split) : 0;
}

static int check_order(const struct members *m)
{
	const char **gone = NULL;
	size_t n = 0, capacity = 0;
	int r = 0;

	for (size_t at = 0; !r && at < m->gone.n; at += strlen(m->gone.bytes + at) + 1) {
		r = block_grow(m->builder->meter, &gone, &capacity, n + 1, sizeof(*gone));
		if (!r)
			gone[n++] = m->gone.bytes + at;
	}
	if (n)
		qsort(gone, n, sizeof(*gone), by_text);
	r = r ? members_no_room(m, r) : n ? find_split(m, gone, n) : 0;
	meter_give(m->builder->meter, capacity * sizeof(*gone));
	free(gone);
	return r;
}

int members_end(struct members *m)
{
	struct extents_builder *b = m->builder;
	int r = members_end_sample(m);

	if (r < 0)
		return r;
	if (m->extensions[0])
		r = text_add(&b->text, m->extensions, strlen(m->extensions), &b->shards[b->n_shards - 1].extensions);
	return r ? members_no_room(m, r) : check_order(m);
}

void members_finish(struct members *m)
{
	meter_give(m->builder->meter, m->key.capacity + m->values.capacity + m->gone.capacity);
	free(m->key.bytes);
	free(m->values.bytes);
	free(m->gone.bytes);
	m->key = m->values = m->gone = (struct text){ 0 };
}
