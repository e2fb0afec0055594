/* Reading the YAML file, in two passes over the same bytes and by the same schema.
 *
 * libcyaml turns a document into structs, but says of a mistake only what it met and a trail of mappings, and of a
 * key given twice nothing. So a strict reader goes first, event by event: it knows the line of everything, says which
 * key was meant, refuses what a configuration has no use for (anchors, aliases and with them alias bombs, tags,
 * further documents), and stops at the schema's depth, whatever the file nests. What it lets through, libcyaml loads.
 * The awkward corner is `transform`, which is text to the schema of one file and a list to the author of another: the
 * strict reader turns lists into JSON and keeps them, libcyaml skips them. */
#include "config-file.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include "config-key.h"
#include "util/parse.h"

enum {
	MAX_VALUE_BYTES = 65536,
	MAX_JSON_DEPTH = 16,
	MAX_KEYS = 64, /* of one mapping of the schema: the bits of `seen` */
	WHERE_BYTES = 64,
};

/* ---- the schema ---- */

#define TEXT(key, structure, member) \
	CYAML_FIELD_STRING_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, structure, member, 0, MAX_VALUE_BYTES)
#define TEXT_REQUIRED(key, structure, member) \
	CYAML_FIELD_STRING_PTR(key, CYAML_FLAG_POINTER, structure, member, 0, MAX_VALUE_BYTES)
#define LIST(key, structure, member, count, entry, max) \
	CYAML_FIELD_SEQUENCE_COUNT(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, structure, member, count, entry, 0, max)

static const cyaml_schema_value_t name_value = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 0, MAX_VALUE_BYTES)};

static const cyaml_schema_field_t pipeline_fields[] = {
	TEXT_REQUIRED("name", struct pipeline_text, name),
	CYAML_FIELD_IGNORE("transform", CYAML_FLAG_DEFAULT),
	CYAML_FIELD_END,
};
static const cyaml_schema_value_t pipeline_value = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct pipeline_text, pipeline_fields),
};

static const cyaml_schema_field_t dataset_fields[] = {
	TEXT_REQUIRED("name", struct dataset_text, name),
	TEXT_REQUIRED("source", struct dataset_text, source),
	CYAML_FIELD_IGNORE("transform", CYAML_FLAG_OPTIONAL),
	LIST("users", struct dataset_text, users, n_users, &name_value, CONFIG_MAX_NAMES),
	LIST("groups", struct dataset_text, groups, n_groups, &name_value, CONFIG_MAX_NAMES),
	CYAML_FIELD_END,
};
static const cyaml_schema_value_t dataset_value = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct dataset_text, dataset_fields),
};

static const cyaml_schema_field_t cache_fields[] = {
	TEXT("jpeg", struct config_text, cache.jpeg),
	TEXT("decoded", struct config_text, cache.decoded),
	TEXT("directory", struct config_text, cache.directory),
	CYAML_FIELD_END,
};

static const cyaml_schema_field_t limits_fields[] = {
	TEXT("sessions", struct config_text, limits.sessions),
	TEXT("sessions_per_user", struct config_text, limits.sessions_per_user),
	TEXT("pending", struct config_text, limits.pending),
	TEXT("hello_timeout", struct config_text, limits.hello_timeout),
	TEXT("loaders", struct config_text, limits.loaders),
	TEXT("loaders_per_user", struct config_text, limits.loaders_per_user),
	TEXT("memory_per_user", struct config_text, limits.memory_per_user),
	TEXT("unread_per_user", struct config_text, limits.unread_per_user),
	TEXT("fds_per_user", struct config_text, limits.fds_per_user),
	TEXT("producers", struct config_text, limits.producers),
	TEXT("batch_size", struct config_text, limits.batch_size),
	TEXT("batch_bytes", struct config_text, limits.batch_bytes),
	TEXT("image_pixels", struct config_text, limits.image_pixels),
	TEXT("image_scans", struct config_text, limits.image_scans),
	TEXT("file_bytes", struct config_text, limits.file_bytes),
	CYAML_FIELD_END,
};

static const cyaml_schema_field_t root_fields[] = {
	TEXT("socket", struct config_text, socket),
	TEXT("socket_mode", struct config_text, socket_mode),
	TEXT("socket_group", struct config_text, socket_group),
	TEXT("workers", struct config_text, workers),
	TEXT("io_threads", struct config_text, io_threads),
	TEXT("memory", struct config_text, memory),
	TEXT("slots", struct config_text, slots),
	TEXT("linger", struct config_text, linger),
	TEXT("stall_after", struct config_text, stall_after),
	TEXT("idle_exit", struct config_text, idle_exit),
	TEXT("bad_data", struct config_text, bad_data),
	TEXT("log_level", struct config_text, log_level),
	TEXT("index_cache", struct config_text, index_cache),
	TEXT("gpu_memory", struct config_text, gpu_memory),
	TEXT("pin_memory", struct config_text, pin_memory),
	TEXT("pin_limit", struct config_text, pin_limit),
	/* Offset 0: the members above already count from the whole struct. */
	{.key = "cache", .value = {CYAML_VALUE_MAPPING(CYAML_FLAG_OPTIONAL, struct config_text, cache_fields)}},
	{.key = "limits", .value = {CYAML_VALUE_MAPPING(CYAML_FLAG_OPTIONAL, struct config_text, limits_fields)}},
	LIST("pipelines", struct config_text, pipelines, n_pipelines, &pipeline_value, CONFIG_MAX_PIPELINES),
	LIST("datasets", struct config_text, datasets, n_datasets, &dataset_value, CONFIG_MAX_DATASETS),
	CYAML_FIELD_END,
};
static const cyaml_schema_value_t root_value = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct config_text, root_fields),
};

/* ---- places ---- */

struct config_place {
	char where[WHERE_BYTES]; /* "datasets[2].users[0]" */
	unsigned line;           /* from 1 */
	char *transform;         /* ours; NULL for everything else */
};

static const struct config_place *place_find(const struct config_file *f, const char *where)
{
	for (size_t i = 0; i < f->n_places; i++)
		if (strcmp(f->places[i].where, where) == 0)
			return &f->places[i];
	return NULL;
}

unsigned config_file_line(const struct config_file *f, const char *where)
{
	const struct config_place *p = place_find(f, where);

	return p ? p->line : 0;
}

const char *config_file_transform(const struct config_file *f, const char *where)
{
	const struct config_place *p = place_find(f, where);

	return p ? p->transform : NULL;
}

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

	*p = (struct config_place){.line = line};
	snprintf(p->where, sizeof p->where, "%s", where);
	return 0;
}

/* ---- the strict reader ---- */

struct reader {
	struct config_file *file;
	struct config_error *err;
	const char *bytes;  /* the whole file */
	yaml_parser_t parser;
	yaml_event_t event; /* the one being looked at; ours */
};

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

/* libyaml knows the line of everything but of bytes that are no text. */
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
	return fail_at(r, problem_line0(r), "not valid YAML: %s%s%s", r->parser.problem ? r->parser.problem : "cannot be read",
		       r->parser.context ? ", " : "", r->parser.context ? r->parser.context : "");
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

/* `key:` with nothing behind it. */
static bool is_nothing(const yaml_event_t *e)
{
	return e->type == YAML_SCALAR_EVENT && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && e->data.scalar.length == 0;
}

static const char *event_kind(const yaml_event_t *e)
{
	if (is_nothing(e))
		return "nothing";
	switch (e->type) {
	case YAML_SCALAR_EVENT: return "a single value";
	case YAML_SEQUENCE_START_EVENT: return "a list";
	case YAML_MAPPING_START_EVENT: return "keys and values";
	default: return "nothing";
	}
}

static int read_value(struct reader *r, const cyaml_schema_value_t *schema, const char *where);

/* "; did you mean 'workers'?" or "; known are a, b and c". */
static void hint_keys(const cyaml_schema_field_t *fields, const char *word, char *hint, size_t size)
{
	const char *keys[MAX_KEYS + 1] = {NULL};
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
		return fail(r, "unknown key '%s%s%.60s'%s", where, *where ? "." : "", scalar(r), hint);
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

/* What YAML takes a plain word for: numbers, truth and nothing are themselves, the rest is text. */
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

/* The place of `transform` was the last one added. */
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
static int read_document(struct reader *r, bool *empty)
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
	if ((e = read_mapping(r, root_fields, "")) < 0 || (e = next(r)) < 0 || (e = next(r)) < 0)
		return e;
	if (r->event.type != YAML_STREAM_END_EVENT)
		return fail(r, "a second document begins here; a configuration is one");
	return 0;
}

static int read_strictly(struct config_file *f, const char *bytes, size_t n_bytes, struct config_error *err, bool *empty)
{
	struct reader r = {.file = f, .err = err, .bytes = bytes};

	if (!yaml_parser_initialize(&r.parser))
		return -ENOMEM;
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)bytes, n_bytes);

	int e = read_document(&r, empty);

	yaml_event_delete(&r.event);
	yaml_parser_delete(&r.parser);
	return e;
}

/* ---- libcyaml ---- */

struct cyaml_failure {
	char first[200]; /* libcyaml's first message; what follows is its way back */
};

static void on_cyaml_log(cyaml_log_t level, void *ctx, const char *fmt, va_list args) __attribute__((format(printf, 3, 0)));
static void on_cyaml_log(cyaml_log_t level, void *ctx, const char *fmt, va_list args)
{
	struct cyaml_failure *failure = ctx;

	if (level < CYAML_LOG_ERROR || failure->first[0])
		return;
	vsnprintf(failure->first, sizeof failure->first, fmt, args);
	failure->first[strcspn(failure->first, "\n")] = '\0';
}

static const cyaml_config_t cyaml_quiet = {.mem_fn = cyaml_mem, .log_level = CYAML_LOG_ERROR, .flags = CYAML_CFG_NO_ALIAS};

static int load_text(struct config_file *f, const char *bytes, size_t n_bytes, struct config_error *err)
{
	struct cyaml_failure failure = {.first = ""};
	cyaml_config_t config = cyaml_quiet;
	cyaml_data_t *text = NULL;

	config.log_fn = on_cyaml_log;
	config.log_ctx = &failure;

	cyaml_err_t e = cyaml_load_data((const uint8_t *)bytes, n_bytes, &config, &root_value, &text, NULL);

	if (e == CYAML_ERR_OOM)
		return -ENOMEM;
	if (e != CYAML_OK) {
		snprintf(err->text, sizeof err->text, "%.120s: %s: %s", f->path, cyaml_strerror(e), failure.first);
		return -EINVAL;
	}
	f->text = text;
	return 0;
}

/* ---- the file ---- */

static int fail_file(const char *path, int error, struct config_error *err)
{
	snprintf(err->text, sizeof err->text, "%.400s: cannot be read: %s", path, strerror(error));
	return -error;
}

int config_file_bytes(const char *path, char **bytes, size_t *n_bytes, struct config_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not hold the start up */
	struct stat st;
	size_t n = 0;
	ssize_t k = 0;

	if (fd < 0)
		return fail_file(path, errno, err);

	char *buf = malloc(CONFIG_MAX_BYTES + 1);
	int error = !buf ? ENOMEM : fstat(fd, &st) < 0 ? errno : 0;

	if (!error && !S_ISREG(st.st_mode)) {
		snprintf(err->text, sizeof err->text, "%.400s: is not a regular file", path);
		close(fd);
		free(buf);
		return -EINVAL;
	}
	while (!error && n <= CONFIG_MAX_BYTES && (k = read(fd, buf + n, CONFIG_MAX_BYTES + 1 - n)) != 0)
		if (k > 0)
			n += (size_t)k;
		else if (errno != EINTR)
			error = errno;
	close(fd);
	if (error) {
		free(buf);
		return fail_file(path, error, err);
	}
	if (n > CONFIG_MAX_BYTES) {
		snprintf(err->text, sizeof err->text, "%.400s: is larger than 1 MiB; that is no configuration", path);
		free(buf);
		return -EINVAL;
	}
	*bytes = buf;
	*n_bytes = n;
	return 0;
}

int config_file_parse(const char *path, const char *bytes, size_t n_bytes, struct config_file *f, struct config_error *err)
{
	bool empty = false;

	*f = (struct config_file){.path = path};

	int e = read_strictly(f, bytes, n_bytes, err, &empty);

	return e < 0 || empty ? e : load_text(f, bytes, n_bytes, err);
}

void config_file_finish(struct config_file *f)
{
	if (f->text)
		cyaml_free(&cyaml_quiet, &root_value, f->text, 0);
	for (size_t i = 0; i < f->n_places; i++)
		free(f->places[i].transform);
	free(f->places);
	*f = (struct config_file){.path = NULL};
}
