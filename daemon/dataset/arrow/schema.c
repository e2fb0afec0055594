/* See schema.h. */
#include "dataset/arrow/schema.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/name.h"

enum { KEY_VALUE_KEY, KEY_VALUE_VALUE };
enum { FIELD_NAME, FIELD_NULLABLE, FIELD_TYPE, FIELD_TYPE_TABLE, FIELD_DICTIONARY, FIELD_CHILDREN, FIELD_METADATA };
enum { SCHEMA_ENDIANNESS, SCHEMA_FIELDS, SCHEMA_METADATA };

/* Tables may share what they refer to, so a small file can have many keys: in every column those of one list. */
enum { MOST_KEYS = 1 << 20 };

struct parse {
	struct arrow_schema *schema;
	struct shard_reader *reader;
	uint64_t at;
	uint64_t n_keys; /* that were looked at */
};

const char *arrow_type_name(const struct arrow_field *f)
{
	static const char *const names[] = { [ARROW_NULL] = "null",
					     [ARROW_BINARY] = "binary",
					     [ARROW_UTF8] = "string",
					     [ARROW_BOOL] = "bool",
					     [ARROW_DECIMAL] = "decimal",
					     [ARROW_DATE] = "date",
					     [ARROW_TIME] = "time",
					     [ARROW_TIMESTAMP] = "timestamp",
					     [ARROW_INTERVAL] = "interval",
					     [ARROW_LIST] = "list",
					     [ARROW_STRUCT] = "struct",
					     [ARROW_UNION] = "union",
					     [ARROW_FIXED_BINARY] = "fixed_size_binary",
					     [ARROW_FIXED_LIST] = "fixed_size_list",
					     [ARROW_MAP] = "map",
					     [ARROW_DURATION] = "duration",
					     [ARROW_LARGE_BINARY] = "large_binary",
					     [ARROW_LARGE_UTF8] = "large_string",
					     [ARROW_LARGE_LIST] = "large_list" };
	static const char *const ints[2][4] = { { "uint8", "uint16", "uint32", "uint64" },
						{ "int8", "int16", "int32", "int64" } };

	if (f->is_encoded)
		return "dictionary";
	if (f->type == ARROW_INT)
		return ints[f->is_signed][f->width == 8 ? 0 : f->width == 16 ? 1 : f->width == 32 ? 2 : 3];
	if (f->type == ARROW_FLOAT)
		return f->width == 16 ? "float16" : f->width == 32 ? "float32" : "float64";
	return names[f->type];
}

static bool arrow_is_text(const struct flat_vector *v, const char *text)
{
	return v->n == strlen(text) && !memcmp(v->items, text, v->n);
}

/* The value of a key in a field's or the schema's metadata. With too many keys, none is found. */
static struct flat_vector find_metadata(struct parse *p, const struct flat_table *t, unsigned slot, const char *key)
{
	struct flat_vector all = flat_vector(t, slot, 4);

	p->n_keys += all.n;
	for (uint32_t i = 0; i < all.n && p->n_keys <= MOST_KEYS; i++) {
		struct flat_table pair = flat_item(t, &all, i);
		struct flat_vector k = flat_string(&pair, KEY_VALUE_KEY);

		if (k.n && arrow_is_text(&k, key))
			return flat_string(&pair, KEY_VALUE_VALUE);
	}
	return (struct flat_vector){ 0 };
}

/* HuggingFace's ArrayND: its storage is lists in lists, and its metadata "[[28, 28], \"uint8\"]". */
static void take_shape(struct parse *p, const struct flat_table *t, struct arrow_field *f)
{
	struct flat_vector name = find_metadata(p, t, FIELD_METADATA, "ARROW:extension:name");
	struct flat_vector text = find_metadata(p, t, FIELD_METADATA, "ARROW:extension:metadata");
	json_t *all, *shape;

	if (!text.n || text.n > 256 || name.n < 9 || !memmem(name.items, name.n, "ExtensionType", 13) ||
	    !memmem(name.items, name.n, "Array", 5))
		return;
	all = json_loadb((const char *)text.items, text.n, JSON_REJECT_DUPLICATES, NULL);
	shape = json_array_get(all, 0);
	if (json_array_size(shape) <= ARROW_MAX_SHAPE)
		f->n_shape = (unsigned)json_array_size(shape);
	for (unsigned i = 0; i < f->n_shape; i++) {
		json_int_t n = json_integer_value(json_array_get(shape, i));

		f->shape[i] = n > 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
	}
	json_decref(all);
}

/* How many buffers stand before the children's; -1: not known, so that all after would be wrong. */
static int buffers_of(enum arrow_type type)
{
	switch (type) {
	case ARROW_NULL:
		return 0;
	case ARROW_STRUCT:
	case ARROW_FIXED_LIST:
		return 1;
	case ARROW_BINARY:
	case ARROW_UTF8:
	case ARROW_LARGE_BINARY:
	case ARROW_LARGE_UTF8:
		return 3;
	case ARROW_UNION:
		return -1;
	default:
		return type <= ARROW_LARGE_LIST ? 2 : -1;
	}
}

static bool take_type(struct arrow_field *f, const struct flat_table *type)
{
	static const uint32_t float_bits[] = { 16, 32, 64 };
	int64_t number;

	switch (f->type) {
	case ARROW_INT:
		number = flat_int(type, 0, 4, 0);
		f->is_signed = flat_int(type, 1, 1, 0) != 0;
		f->width = (uint32_t)number;
		return number == 8 || number == 16 || number == 32 || number == 64;
	case ARROW_FLOAT:
		number = flat_int(type, 0, 2, 0);
		f->width = number >= 0 && number < 3 ? float_bits[number] : 0;
		return f->width != 0;
	case ARROW_FIXED_BINARY:
	case ARROW_FIXED_LIST:
		number = flat_int(type, 0, 4, 0);
		f->width = (uint32_t)number;
		return number >= 0;
	default:
		return true;
	}
}

static unsigned n_children_of(const struct arrow_field *f, unsigned n)
{
	switch (f->type) {
	case ARROW_LIST:
	case ARROW_LARGE_LIST:
	case ARROW_FIXED_LIST:
	case ARROW_MAP:
		return 1;
	case ARROW_STRUCT:
		return n;
	default:
		return 0;
	}
}

/* Names stand in messages, whatever their bytes are. */
static void take_name(struct arrow_field *f, const struct flat_vector *name)
{
	size_t n = name->n < sizeof(f->name) ? name->n : sizeof(f->name) - 1;
	bool utf8;

	if (n)
		memcpy(f->name, name->items, n);
	f->name[n] = '\0';
	if (n < name->n) { /* no shorter column's name is the same */
		memcpy(f->name + n - 3, "...", 3);
	}
	utf8 = name_is_utf8(f->name, n);
	for (size_t i = 0; i < n; i++) {
		uint8_t c = (uint8_t)f->name[i];

		f->name[i] = (char)(c < 0x20 || c == 0x7f || (c > 0x7f && !utf8) ? '?' : c);
	}
}

/* Room for one more. */
static int arrow_schema_grow(struct arrow_schema *s)
{
	struct arrow_field *more = s->fields;

	if ((s->n & (s->n - 1)) == 0) { /* a power of two, or none */
		more = reallocarray(s->fields, s->n ? 2 * (size_t)s->n : 1, sizeof(*more));
	}
	if (!more)
		return -ENOMEM;
	s->fields = more;
	memset(&more[s->n], 0, sizeof(*more));
	return 0;
}

static int add_field(struct parse *p, const struct flat_table *t, unsigned depth)
{
	struct arrow_schema *s = p->schema;
	struct flat_table type = flat_child(t, FIELD_TYPE_TABLE);
	struct flat_vector name = flat_string(t, FIELD_NAME), children = flat_vector(t, FIELD_CHILDREN, 4);
	unsigned number = s->n;
	struct arrow_field *f;
	int n_buffers, r = 0;

	if (number == ARROW_MAX_FIELDS || depth > ARROW_MAX_DEPTH)
		return shard_reader_refuse(p->reader, p->at, "a schema of more than %d columns, or more than %d deep",
					   ARROW_MAX_FIELDS, ARROW_MAX_DEPTH);
	if (arrow_schema_grow(s) < 0)
		return dataset_fail_errno(p->reader->err, ENOMEM, p->reader->name);
	f = &s->fields[s->n++];
	take_name(f, &name);
	f->type = (enum arrow_type)flat_int(t, FIELD_TYPE, 1, 0);
	f->is_encoded = flat_has(t, FIELD_DICTIONARY);
	n_buffers = f->is_encoded ? 2 : buffers_of(f->type);
	if (f->type < ARROW_NULL || n_buffers < 0 || !take_type(f, &type))
		return shard_reader_refuse(p->reader, p->at, "column %s has a type that is not read (number %d)",
					   f->name, (int)f->type);
	if (f->is_encoded)
		children.n = 0;
	else if (children.n != n_children_of(f, children.n))
		return shard_reader_refuse(p->reader, p->at, "column %s has %u children", f->name, children.n);
	f->first_buffer = s->n_buffers;
	s->n_buffers += (unsigned)n_buffers;
	take_shape(p, t, f);
	for (uint32_t i = 0; !r && i < children.n; i++) {
		struct flat_table child = flat_item(t, &children, i);

		r = t->in->broken ? 0 : add_field(p, &child, depth + 1);
	}
	s->fields[number].next = s->n;
	return r;
}

static int take_features(struct parse *p, const struct flat_table *t)
{
	struct flat_vector v = find_metadata(p, t, SCHEMA_METADATA, "huggingface");

	if (v.n)
		p->schema->features = strndup((const char *)v.items, v.n);
	return v.n && !p->schema->features ? -ENOMEM : 0;
}

int arrow_schema_parse(const struct flat_table *table, struct arrow_schema *out, struct shard_reader *r, uint64_t at)
{
	struct parse p = { .schema = out, .reader = r, .at = at };
	struct flat_vector fields = flat_vector(table, SCHEMA_FIELDS, 4);
	int result;

	if (flat_int(table, SCHEMA_ENDIANNESS, 2, 0))
		return shard_reader_refuse(r, at, "its numbers are big-endian, which are not read");
	result = take_features(&p, table);
	if (result < 0)
		return dataset_fail_errno(r->err, -result, r->name);
	for (uint32_t i = 0; i < fields.n && !result && !table->in->broken; i++) {
		struct flat_table field = flat_item(table, &fields, i);

		result = add_field(&p, &field, 0);
	}
	if (table->in && table->in->broken)
		return shard_reader_refuse(r, at, "its schema has a place outside of itself: damaged?");
	if (p.n_keys > MOST_KEYS)
		return shard_reader_refuse(r, at, "its schema has more than %d keys of metadata", MOST_KEYS);
	return result;
}

void arrow_schema_finish(struct arrow_schema *s)
{
	free(s->fields);
	free(s->features);
	*s = (struct arrow_schema){ 0 };
}
