/* The reader of the YAML file: it takes libyaml's events one by one, knows the line of every value, suggests the
 * intended key for an unknown one, and stops at the depth of its tables, whatever the file nests. It refuses all that a
 * configuration does not need: anchors, aliases (and so alias bombs), tags, further documents.
 *
 * The scalar keys are those of config_keys; the tables here have the rest. The difficult key is `transform`, which is
 * text to the pipeline's parser but may be a list in the file: lists become JSON. */
#include "config/strict.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "config/key.h"
#include "base/parse.h"
#include "words.h"

enum {
	MAX_JSON_DEPTH = 16,
	MAX_FIELDS = 5, /* of one table */
	MAX_VALUE_BYTES = 65536,
	WHERE_BYTES = 64, /* of "datasets[2].users[0]" */
};

struct reader {
	struct config_file *file;
	struct config_error *err;
	const char *bytes; /* the whole file */
	yaml_parser_t parser;
	yaml_event_t event; /* the present one; owned */
};

/* Reads what begins with r->event, which is then its last event. `where` names it for messages; line: of its key, or of
 * the entry in a list. 0; -EINVAL with err->text; -ENOMEM. */
typedef int (*read_fn)(struct reader *r, void *value, const char *where, unsigned line);

/* A key that config_keys does not have. */
struct field {
	const char *key;
	bool required;
	size_t offset; /* of the value in the mapping's struct */
	read_fn read;
};

static int config_strict_fail_at(struct reader *r, size_t line0, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int config_strict_fail_at(struct reader *r, size_t line0, const char *fmt, ...)
{
	char what[480];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof what, fmt, args);
	va_end(args);
	snprintf(r->err->text, sizeof r->err->text, "%.120s:%zu: %s", r->file->path, line0 + 1, what);
	return -EINVAL;
}
#define fail(r, ...) config_strict_fail_at(r, (r)->event.start_mark.line, __VA_ARGS__)

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
	return config_strict_fail_at(r, problem_line0(r), "not valid YAML: %s%s%s",
				     r->parser.problem ? r->parser.problem : "cannot be read",
				     r->parser.context ? ", " : "", r->parser.context ? r->parser.context : "");
}

/* Replaces r->event by the next one. */
static int config_strict_next(struct reader *r)
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

static unsigned event_line(const struct reader *r)
{
	return (unsigned)r->event.start_mark.line + 1;
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

	while ((e = config_strict_next(r)) == 0 && r->event.type != YAML_SEQUENCE_END_EVENT) {
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

	while ((e = config_strict_next(r)) == 0 && r->event.type != YAML_MAPPING_END_EVENT) {
		if (r->event.type != YAML_SCALAR_EVENT)
			return fail(r, "%s: expected a key, found %s", where, event_kind(&r->event));
		if (json_object_get(object, scalar(r)))
			return fail(r, "%s: '%.60s' is given twice", where, scalar(r));

		char *key = strdup(scalar(r));

		if (!key)
			return -ENOMEM;
		if ((e = config_strict_next(r)) == 0 && (e = read_json(r, where, depth + 1, &item)) == 0 &&
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

/* ---- values ---- */

static int fail_scalar(struct reader *r, const char *where)
{
	const struct key *k = key_find(where);
	char expected[128] = "a single value";

	if (k)
		key_expected(k, expected, sizeof expected);
	return fail(r, "%s: found %s; expected %s", where, event_kind(&r->event), expected);
}

/* value: struct text. */
static int config_strict_read_text(struct reader *r, void *value, const char *where, unsigned line)
{
	struct text *t = value;

	if (r->event.type != YAML_SCALAR_EVENT || is_nothing(&r->event))
		return fail_scalar(r, where);
	*t = (struct text){ strdup(scalar(r)), line };
	return t->text ? 0 : -ENOMEM;
}

/* value: struct text. */
static int read_transform(struct reader *r, void *value, const char *where, unsigned line)
{
	struct text *t = value;
	json_t *json;
	int e;

	if (is_nothing(&r->event))
		return fail(r, "%s: found nothing; expected a pipeline's name or a list of operations", where);
	if (r->event.type == YAML_SCALAR_EVENT)
		return config_strict_read_text(r, value, where, line);
	if ((e = read_json(r, where, 0, &json)) < 0)
		return e;
	*t = (struct text){ json_dumps(json, JSON_COMPACT), line };
	json_decref(json);
	return t->text ? 0 : -ENOMEM;
}

/* ---- lists ---- */

/* A zeroed entry at the end, or NULL. It counts at once, so that config_file_finish frees it even if it stays
 * incomplete. */
static void *config_strict_list_add(struct text_list *list, size_t entry_bytes)
{
	if (list->n == list->capacity) {
		uint32_t capacity = list->capacity ? list->capacity * 2 : 8;
		char *more = reallocarray(list->entries, capacity, entry_bytes);

		if (!more)
			return NULL;
		memset(more + list->n * entry_bytes, 0, (capacity - list->n) * entry_bytes);
		list->entries = more;
		list->capacity = capacity;
	}
	return (char *)list->entries + list->n++ * entry_bytes;
}

static int config_strict_read_list(struct reader *r, struct text_list *list, size_t entry_bytes, unsigned max,
				   read_fn read_entry, const char *where)
{
	char below[WHERE_BYTES];
	int e;

	if (r->event.type != YAML_SEQUENCE_START_EVENT)
		return fail(r, "%s: found %s; expected a list", where, event_kind(&r->event));
	while ((e = config_strict_next(r)) == 0 && r->event.type != YAML_SEQUENCE_END_EVENT) {
		if (list->n >= max)
			return fail(r, "%s: more than %u entries", where, max);
		snprintf(below, sizeof below, "%s[%u]", where, list->n);

		void *entry = config_strict_list_add(list, entry_bytes);

		e = entry ? read_entry(r, entry, below, event_line(r)) : -ENOMEM;
		if (e < 0)
			return e;
	}
	return e;
}

/* ---- keys and values ---- */

/* The key's name in the mapping `where` ("" is the file's own), or NULL when it belongs to another. */
static const char *name_in(const struct key *k, const char *where)
{
	const char *name = k->name;
	size_t n = strlen(where);

	if (n && (strncmp(name, where, n) != 0 || name[n] != '.'))
		return NULL;
	name += n ? n + 1 : 0;
	return strchr(name, '.') ? NULL : name;
}

/* Where the text of this scalar key belongs, or NULL when it is not one. */
static struct text *find_scalar(const struct reader *r, const char *where, const char *word)
{
	for (const struct key *k = config_keys; k->name; k++) {
		const char *name = name_in(k, where);

		if (name && strcmp(name, word) == 0)
			return &r->file->scalars[k - config_keys];
	}
	return NULL;
}

static const struct field *find_field(const struct field *fields, const char *word)
{
	for (; fields->key; fields++)
		if (strcmp(fields->key, word) == 0)
			return fields;
	return NULL;
}

/* Skips the value of an unknown key, however deep it is. */
static int config_strict_skip_value(struct reader *r)
{
	unsigned depth = 0;
	int e;

	do {
		if ((e = config_strict_next(r)) < 0)
			return e;
		depth += r->event.type == YAML_MAPPING_START_EVENT || r->event.type == YAML_SEQUENCE_START_EVENT;
		depth -= r->event.type == YAML_MAPPING_END_EVENT || r->event.type == YAML_SEQUENCE_END_EVENT;
	} while (depth);
	return 0;
}

/* "; did you mean 'workers'?" or "; known here are a, b, c". */
static void hint_keys(const struct field *fields, const char *where, const char *word, char *hint, size_t size)
{
	const char *keys[CONFIG_MAX_CHANGES + MAX_FIELDS + 1];
	size_t n = 0, used = 0;

	for (const struct key *k = config_keys; k->name; k++)
		if (name_in(k, where))
			keys[n++] = name_in(k, where);
	for (; fields->key; fields++)
		keys[n++] = fields->key;
	keys[n] = NULL;

	const char *nearest = word_nearest(word, keys);

	if (nearest) {
		snprintf(hint, size, "; did you mean '%s'?", nearest);
		return;
	}
	used = (size_t)snprintf(hint, size, "; known here are");
	for (size_t i = 0; i < n && used < size; i++)
		used += (size_t)snprintf(hint + used, size - used, "%s %s", i ? "," : "", keys[i]);
}

/* Keys of earlier versions, and what to do without them. */
static const struct retired_key {
	const char *where, *key, *instead;
} retired_keys[] = {
	{ "cache", "files", "remove it: the kernel's page cache keeps files" },
};

static void explain_key(const struct field *fields, const char *where, const char *word, char *hint, size_t size)
{
	for (size_t i = 0; i < sizeof retired_keys / sizeof *retired_keys; i++) {
		const struct retired_key *k = &retired_keys[i];
		if (strcmp(k->where, where) == 0 && strcmp(k->key, word) == 0) {
			snprintf(hint, size, "; %s", k->instead);
			return;
		}
	}
	hint_keys(fields, where, word, hint, size);
}

static int refuse_key(struct reader *r, const struct field *fields, const char *where)
{
	char hint[256];
	int e;

	explain_key(fields, where, scalar(r), hint, sizeof hint);
	e = fail(r, "unknown key '%s%s%.60s'%s", where, *where ? "." : "", scalar(r), hint);
	e = config_go_on(e, r->err);
	return e < 0 ? e : config_strict_skip_value(r);
}

/* lines: where each of `fields` was given; 0: not yet. */
static int read_key(struct reader *r, const struct field *fields, void *mapping, const char *where, unsigned *lines)
{
	unsigned line = event_line(r), *given;
	const struct field *field;
	struct text *value = NULL;
	char below[WHERE_BYTES];
	int e;

	if (r->event.type != YAML_SCALAR_EVENT)
		return fail(r, "%s%sexpected a key, found %s", where, *where ? ": " : "", event_kind(&r->event));
	field = find_field(fields, scalar(r));
	if (!field)
		value = find_scalar(r, where, scalar(r));
	if (!field && !value)
		return refuse_key(r, fields, where);
	snprintf(below, sizeof below, "%s%s%s", where, *where ? "." : "", scalar(r));
	given = field ? &lines[field - fields] : &value->line;
	if (*given)
		return fail(r, "%s: given twice; it was already in line %u", below, *given);
	*given = line;
	if ((e = config_strict_next(r)) < 0)
		return e;
	return field ? field->read(r, (char *)mapping + field->offset, below, line)
		     : config_strict_read_text(r, value, below, line);
}

static int read_mapping(struct reader *r, const struct field *fields, void *mapping, const char *where)
{
	size_t first_line0 = r->event.start_mark.line;
	unsigned lines[MAX_FIELDS] = { 0 };
	int e;

	if (r->event.type != YAML_MAPPING_START_EVENT)
		return fail(r, "%s: found %s; expected keys and values", where, event_kind(&r->event));
	while ((e = config_strict_next(r)) == 0 && r->event.type != YAML_MAPPING_END_EVENT)
		if ((e = read_key(r, fields, mapping, where, lines)) < 0)
			return e;
	for (unsigned i = 0; e == 0 && fields[i].key; i++)
		if (fields[i].required && !lines[i])
			return config_strict_fail_at(r, first_line0, "%s: '%s' is missing", where, fields[i].key);
	return e;
}

/* ---- the tables ---- */

static int read_users(struct reader *r, void *list, const char *where, unsigned line)
{
	(void)line;
	return config_strict_read_list(r, list, sizeof(struct text), CONFIG_MAX_NAMES, config_strict_read_text, where);
}

static const struct field pipeline_fields[] = {
	{ "name", true, offsetof(struct pipeline_text, name), config_strict_read_text },
	{ "transform", true, offsetof(struct pipeline_text, transform), read_transform },
	{ .key = NULL },
};

static int read_pipeline(struct reader *r, void *pipeline, const char *where, unsigned line)
{
	(void)line;
	return read_mapping(r, pipeline_fields, pipeline, where);
}

static int read_pipelines(struct reader *r, void *list, const char *where, unsigned line)
{
	(void)line;
	return config_strict_read_list(r, list, sizeof(struct pipeline_text), CONFIG_MAX_PIPELINES, read_pipeline,
				       where);
}

static const struct field dataset_fields[MAX_FIELDS + 1] = {
	{ "name", true, offsetof(struct dataset_text, name), config_strict_read_text },
	{ "source", true, offsetof(struct dataset_text, source), config_strict_read_text },
	{ "transform", false, offsetof(struct dataset_text, transform), read_transform },
	{ "users", false, offsetof(struct dataset_text, users), read_users },
	{ "groups", false, offsetof(struct dataset_text, groups), read_users },
};

static int read_dataset(struct reader *r, void *dataset, const char *where, unsigned line)
{
	(void)line;
	return read_mapping(r, dataset_fields, dataset, where);
}

static int read_datasets(struct reader *r, void *list, const char *where, unsigned line)
{
	(void)line;
	return config_strict_read_list(r, list, sizeof(struct dataset_text), CONFIG_MAX_DATASETS, read_dataset, where);
}

/* Keys of config_keys, as "cache.jpeg" is. */
static int read_group(struct reader *r, void *unused, const char *where, unsigned line)
{
	static const struct field none = { .key = NULL };

	(void)line;
	return read_mapping(r, &none, unused, where);
}

static const struct field root_fields[] = {
	{ "cache", false, 0, read_group },
	{ "limits", false, 0, read_group },
	{ "pipelines", false, offsetof(struct config_file, pipelines), read_pipelines },
	{ "datasets", false, offsetof(struct config_file, datasets), read_datasets },
	{ .key = NULL },
};
_Static_assert(sizeof root_fields / sizeof *root_fields <= MAX_FIELDS + 1, "read_mapping has a line for each");

/* ---- the document ---- */

static int read_document(struct reader *r)
{
	int e;

	if ((e = config_strict_next(r)) < 0 ||
	    (e = config_strict_next(r)) < 0) /* stream start; document start or stream end */
		return e;
	if (r->event.type == YAML_STREAM_END_EVENT) /* only comments */
		return 0;
	if ((e = config_strict_next(r)) < 0)
		return e;
	if (is_nothing(&r->event)) /* only "---" */
		return 0;
	if (r->event.type != YAML_MAPPING_START_EVENT)
		return fail(r, "found %s; expected keys and values, such as 'workers: 4'", event_kind(&r->event));
	if ((e = read_mapping(r, root_fields, r->file, "")) < 0 || (e = config_strict_next(r)) < 0 ||
	    (e = config_strict_next(r)) < 0)
		return e;
	if (r->event.type != YAML_STREAM_END_EVENT)
		return fail(r, "a second document begins here; a configuration is one");
	return 0;
}

int config_read_strictly(const char *path, const char *bytes, size_t n_bytes, struct config_file *f,
			 struct config_error *err)
{
	struct reader r = { .file = f, .err = err, .bytes = bytes };

	*f = (struct config_file){ .path = path };
	if (!yaml_parser_initialize(&r.parser))
		return -ENOMEM;
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)bytes, n_bytes);

	int e = read_document(&r);

	yaml_event_delete(&r.event);
	yaml_parser_delete(&r.parser);
	return e;
}
