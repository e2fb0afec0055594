/* The strict reader of a configuration file: see config-file.c. */
#include "config-strict.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "config-key.h"
#include "util/parse.h"

enum {
	MAX_JSON_DEPTH = 16,
	MAX_KEYS = 64, /* of one mapping of the schema: the number of bits in `seen` */
};

struct reader {
	struct config_file *file;
	struct config_error *err;
	const char *bytes; /* the whole file */
	yaml_parser_t parser;
	yaml_event_t event; /* the present one; owned */
};

static int place_add(struct config_file *f, const char *where, unsigned line)
{
	if (f->n_places == f->places_capacity) {
		size_t capacity = f->places_capacity ? f->places_capacity * 2 : 64;
		struct config_place *more = reallocarray(f->places, capacity, sizeof *more);

		if (!more)
			return -ENOMEM;
		f->places = more;
		f->places_capacity = capacity;
	}

	struct config_place *p = &f->places[f->n_places++];

	*p = (struct config_place){ .line = line };
	snprintf(p->where, sizeof p->where, "%s", where);
	return 0;
}

static int fail_at(struct reader *r, size_t line0, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail_at(struct reader *r, size_t line0, const char *fmt, ...)
{
	char what[480];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof what, fmt, args);
	va_end(args);
	snprintf(r->err->text, sizeof r->err->text, "%.120s:%zu: %s", r->file->path, line0 + 1, what);
	return -EINVAL;
}
#define fail(r, ...) fail_at(r, (r)->event.start_mark.line, __VA_ARGS__)

static bool has_anchor(const yaml_event_t *e)
{
	return e->type == YAML_ALIAS_EVENT || (e->type == YAML_SCALAR_EVENT && e->data.scalar.anchor) ||
	       (e->type == YAML_SEQUENCE_START_EVENT && e->data.sequence_start.anchor) ||
	       (e->type == YAML_MAPPING_START_EVENT && e->data.mapping_start.anchor);
}

static bool has_tag(const yaml_event_t *e)
{
	return (e->type == YAML_SCALAR_EVENT && e->data.scalar.tag) ||
	       (e->type == YAML_SEQUENCE_START_EVENT && e->data.sequence_start.tag) ||
	       (e->type == YAML_MAPPING_START_EVENT && e->data.mapping_start.tag);
}

static bool has_nul(const yaml_event_t *e)
{
	return e->type == YAML_SCALAR_EVENT && memchr(e->data.scalar.value, '\0', e->data.scalar.length);
}

/* libyaml knows every line, except for bytes that are not text. */
static size_t problem_line0(const struct reader *r)
{
	size_t line0 = 0;

	if (r->parser.error != YAML_READER_ERROR)
		return r->parser.problem_mark.line;
	for (size_t i = 0; i < r->parser.problem_offset; i++)
		line0 += r->bytes[i] == '\n';
	return line0;
}

static int fail_yaml(struct reader *r)
{
	memset(&r->event, 0, sizeof r->event);
	if (r->parser.error == YAML_MEMORY_ERROR)
		return -ENOMEM;
	return fail_at(r, problem_line0(r), "not valid YAML: %s%s%s",
		       r->parser.problem ? r->parser.problem : "cannot be read", r->parser.context ? ", " : "",
		       r->parser.context ? r->parser.context : "");
}

/* Replaces r->event by the next one. */
static int next(struct reader *r)
{
	yaml_event_delete(&r->event);
	if (!yaml_parser_parse(&r->parser, &r->event))
		return fail_yaml(r);
	if (has_anchor(&r->event))
		return fail(r, "anchors (&) and aliases (*) are not supported; write the value out, or in quotes");
	if (has_tag(&r->event))
		return fail(r, "tags (!) are not supported; write the value without, or in quotes");
	if (has_nul(&r->event))
		return fail(r, "a text contains a NUL character");
	if (r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.length > MAX_VALUE_BYTES)
		return fail(r, "a text is longer than %d bytes", MAX_VALUE_BYTES);
	return 0;
}

static const char *scalar(const struct reader *r)
{
	return (const char *)r->event.data.scalar.value;
}

/* `key:` without a value. */
static bool is_nothing(const yaml_event_t *e)
{
	return e->type == YAML_SCALAR_EVENT && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       e->data.scalar.length == 0;
}

static const char *event_kind(const yaml_event_t *e)
{
	if (is_nothing(e))
		return "nothing";
	switch (e->type) {
	case YAML_SCALAR_EVENT:
		return "a single value";
	case YAML_SEQUENCE_START_EVENT:
		return "a list";
	case YAML_MAPPING_START_EVENT:
		return "keys and values";
	default:
		return "nothing";
	}
}

static int read_value(struct reader *r, const cyaml_schema_value_t *schema, const char *where);

/* Skips the value of an unknown key, however deep it is. */
static int skip_value(struct reader *r)
{
	unsigned depth = 0;
	int e;

	do {
		if ((e = next(r)) < 0)
			return e;
		depth += r->event.type == YAML_MAPPING_START_EVENT || r->event.type == YAML_SEQUENCE_START_EVENT;
		depth -= r->event.type == YAML_MAPPING_END_EVENT || r->event.type == YAML_SEQUENCE_END_EVENT;
	} while (depth);
	return 0;
}

/* "; did you mean 'workers'?" or "; known are a, b and c". */
static void hint_keys(const cyaml_schema_field_t *fields, const char *word, char *hint, size_t size)
{
	const char *keys[MAX_KEYS + 1] = { NULL };
	size_t n = 0, used = 0;

	for (; fields[n].key && n < MAX_KEYS; n++)
		keys[n] = fields[n].key;

	const char *nearest = word_nearest(word, keys);

	if (nearest) {
		snprintf(hint, size, "; did you mean '%s'?", nearest);
		return;
	}
	used = (size_t)snprintf(hint, size, "; known here are");
	for (size_t i = 0; i < n && used < size; i++)
		used += (size_t)snprintf(hint + used, size - used, "%s %s", i ? "," : "", keys[i]);
}

static int read_key(struct reader *r, const cyaml_schema_field_t *fields, const char *where, uint64_t *seen)
{
	unsigned i = 0;
	char hint[256], below[WHERE_BYTES];

	if (r->event.type != YAML_SCALAR_EVENT)
		return fail(r, "%s%sexpected a key, found %s", where, *where ? ": " : "", event_kind(&r->event));
	while (fields[i].key && strcmp(fields[i].key, scalar(r)) != 0)
		i++;
	if (!fields[i].key) {
		hint_keys(fields, scalar(r), hint, sizeof hint);
		fail(r, "unknown key '%s%s%.60s'%s", where, *where ? "." : "", scalar(r), hint);

		int unknown = config_go_on(-EINVAL, r->err);

		return unknown < 0 ? unknown : skip_value(r);
	}
	snprintf(below, sizeof below, "%s%s%s", where, *where ? "." : "", fields[i].key);
	if (*seen & UINT64_C(1) << i)
		return fail(r, "%s: given twice; it was already in line %u", below, config_file_line(r->file, below));
	*seen |= UINT64_C(1) << i;

	int e = place_add(r->file, below, (unsigned)r->event.start_mark.line + 1);

	if (e == 0)
		e = next(r);
	return e < 0 ? e : read_value(r, &fields[i].value, below);
}

static int read_mapping(struct reader *r, const cyaml_schema_field_t *fields, const char *where)
{
	size_t first_line = r->event.start_mark.line;
	uint64_t seen = 0;
	int e;

	while ((e = next(r)) == 0 && r->event.type != YAML_MAPPING_END_EVENT)
		if ((e = read_key(r, fields, where, &seen)) < 0)
			return e;
	for (unsigned i = 0; e == 0 && fields[i].key; i++)
		if (!(fields[i].value.flags & CYAML_FLAG_OPTIONAL) && !(seen & UINT64_C(1) << i))
			return fail_at(r, first_line, "%s: '%s' is missing", where, fields[i].key);
	return e;
}

static int read_sequence(struct reader *r, const cyaml_schema_value_t *schema, const char *where)
{
	char below[WHERE_BYTES];
	int e;

	for (unsigned i = 0; (e = next(r)) == 0 && r->event.type != YAML_SEQUENCE_END_EVENT; i++) {
		if (i >= schema->sequence.max)
			return fail(r, "%s: more than %u entries", where, schema->sequence.max);
		snprintf(below, sizeof below, "%s[%u]", where, i);
		if ((e = place_add(r->file, below, (unsigned)r->event.start_mark.line + 1)) < 0 ||
		    (e = read_value(r, schema->sequence.entry, below)) < 0)
			return e;
	}
	return e;
}

/* ---- transforms: YAML into JSON text ---- */

/* YAML's meaning of a plain word: numbers, booleans and null keep their type, everything else is text. */
static json_t *json_of_scalar(const yaml_event_t *e)
{
	const char *text = (const char *)e->data.scalar.value;
	json_t *value = NULL;

	if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
		if (strcmp(text, "True") == 0 || strcmp(text, "False") == 0)
			return json_boolean(text[0] == 'T');
		value = json_loads(text, JSON_DECODE_ANY, NULL);
	}
	return value ? value : json_string(text);
}

static int read_json(struct reader *r, const char *where, unsigned depth, json_t **out);

static int read_json_list(struct reader *r, const char *where, unsigned depth, json_t *list)
{
	json_t *item;
	int e;

	while ((e = next(r)) == 0 && r->event.type != YAML_SEQUENCE_END_EVENT) {
		if ((e = read_json(r, where, depth + 1, &item)) < 0)
			return e;
		if (json_array_append_new(list, item) < 0)
			return -ENOMEM;
	}
	return e;
}

static int read_json_object(struct reader *r, const char *where, unsigned depth, json_t *object)
{
	json_t *item;
	int e;

	while ((e = next(r)) == 0 && r->event.type != YAML_MAPPING_END_EVENT) {
		if (r->event.type != YAML_SCALAR_EVENT)
			return fail(r, "%s: expected a key, found %s", where, event_kind(&r->event));
		if (json_object_get(object, scalar(r)))
			return fail(r, "%s: '%.60s' is given twice", where, scalar(r));

		char *key = strdup(scalar(r));

		if (!key)
			return -ENOMEM;
		if ((e = next(r)) == 0 && (e = read_json(r, where, depth + 1, &item)) == 0 &&
		    json_object_set_new(object, key, item) < 0)
			e = -ENOMEM;
		free(key);
		if (e < 0)
			return e;
	}
	return e;
}

static int read_json(struct reader *r, const char *where, unsigned depth, json_t **out)
{
	json_t *value = NULL;
	int e = 0;

	if (depth > MAX_JSON_DEPTH)
		return fail(r, "%s: nested more than %d deep", where, MAX_JSON_DEPTH);
	if (is_nothing(&r->event))
		return fail(r, "%s: a value is missing", where);
	if (r->event.type == YAML_SCALAR_EVENT) {
		value = json_of_scalar(&r->event);
	} else if (r->event.type == YAML_SEQUENCE_START_EVENT) {
		value = json_array();
		e = value ? read_json_list(r, where, depth, value) : 0;
	} else {
		value = json_object();
		e = value ? read_json_object(r, where, depth, value) : 0;
	}
	if (e == 0 && !value)
		e = -ENOMEM;
	if (e < 0)
		json_decref(value);
	else
		*out = value;
	return e;
}

/* The place of `transform` is the last one that was added. */
static int read_transform(struct reader *r, const char *where)
{
	struct config_place *place = &r->file->places[r->file->n_places - 1];
	json_t *value;

	if (is_nothing(&r->event))
		return fail(r, "%s: found nothing; expected a pipeline's name or a list of operations", where);
	if (r->event.type == YAML_SCALAR_EVENT) {
		place->transform = strdup(scalar(r));
		return place->transform ? 0 : -ENOMEM;
	}

	int e = read_json(r, where, 0, &value);

	if (e < 0)
		return e;
	place->transform = json_dumps(value, JSON_COMPACT);
	json_decref(value);
	return place->transform ? 0 : -ENOMEM;
}

/* ---- values ---- */

static int fail_scalar(struct reader *r, const char *where)
{
	const struct key *k = key_find(where);
	char expected[128] = "a single value";

	if (k)
		key_expected(k, expected, sizeof expected);
	return fail(r, "%s: found %s; expected %s", where, event_kind(&r->event), expected);
}

/* r->event is the value's first event and, on success, its last. */
static int read_value(struct reader *r, const cyaml_schema_value_t *schema, const char *where)
{
	switch (schema->type) {
	case CYAML_MAPPING:
		if (r->event.type != YAML_MAPPING_START_EVENT)
			return fail(r, "%s: found %s; expected keys and values", where, event_kind(&r->event));
		return read_mapping(r, schema->mapping.fields, where);
	case CYAML_SEQUENCE:
		if (r->event.type != YAML_SEQUENCE_START_EVENT)
			return fail(r, "%s: found %s; expected a list", where, event_kind(&r->event));
		return read_sequence(r, schema, where);
	case CYAML_IGNORE:
		return read_transform(r, where);
	default:
		if (r->event.type != YAML_SCALAR_EVENT || is_nothing(&r->event))
			return fail_scalar(r, where);
		return 0;
	}
}

/* Sets *empty when the file has no document at all, only comments. */
static int read_document(struct reader *r, const cyaml_schema_field_t *fields, bool *empty)
{
	int e;

	if ((e = next(r)) < 0 || (e = next(r)) < 0) /* stream start; document start or stream end */
		return e;
	*empty = r->event.type == YAML_STREAM_END_EVENT;
	if (*empty)
		return 0;
	if ((e = next(r)) < 0)
		return e;
	if (is_nothing(&r->event)) { /* only "---" */
		*empty = true;
		return 0;
	}
	if (r->event.type != YAML_MAPPING_START_EVENT)
		return fail(r, "found %s; expected keys and values, such as 'workers: 4'", event_kind(&r->event));
	if ((e = read_mapping(r, fields, "")) < 0 || (e = next(r)) < 0 || (e = next(r)) < 0)
		return e;
	if (r->event.type != YAML_STREAM_END_EVENT)
		return fail(r, "a second document begins here; a configuration is one");
	return 0;
}

int config_read_strictly(struct config_file *f, const cyaml_schema_field_t *fields, const char *bytes, size_t n_bytes,
			 struct config_error *err, bool *empty)
{
	struct reader r = { .file = f, .err = err, .bytes = bytes };

	if (!yaml_parser_initialize(&r.parser))
		return -ENOMEM;
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)bytes, n_bytes);

	int e = read_document(&r, fields, empty);

	yaml_event_delete(&r.event);
	yaml_parser_delete(&r.parser);
	return e;
}
