/* Reads the YAML file, in two passes over the same bytes and by the same schema.
 *
 * libcyaml turns a document into structs. But for a mistake it reports only the unexpected value and a trail of
 * mappings, and it reports no duplicate key. So a strict reader (config-strict.c) runs first, event by event. It knows
 * the line of every key, suggests the intended key, and stops at the schema's depth, whatever the file nests. It
 * refuses all that a configuration does not need: anchors, aliases (and so alias bombs), tags, further documents.
 * libcyaml loads what the strict reader accepts. The difficult key is `transform`, which is text to the schema but may
 * be a list in the file: the strict reader turns lists into JSON and keeps them, and libcyaml skips them. */
#include "config-file.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config-strict.h"

/* ---- the schema ---- */

#define TEXT(key, structure, member) \
	CYAML_FIELD_STRING_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, structure, member, 0, MAX_VALUE_BYTES)
#define TEXT_REQUIRED(key, structure, member) \
	CYAML_FIELD_STRING_PTR(key, CYAML_FLAG_POINTER, structure, member, 0, MAX_VALUE_BYTES)
#define LIST(key, structure, member, count, entry, max) \
	CYAML_FIELD_SEQUENCE_COUNT(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, structure, member, count, entry, 0, \
				   max)

static const cyaml_schema_value_t name_value = { CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 0, MAX_VALUE_BYTES) };

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
	TEXT("disk", struct config_text, cache.disk),
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
	TEXT("image_time", struct config_text, limits.image_time),
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
	TEXT("gpu_idle_exit", struct config_text, gpu_idle_exit),
	TEXT("bad_data", struct config_text, bad_data),
	TEXT("log_level", struct config_text, log_level),
	TEXT("index_cache", struct config_text, index_cache),
	TEXT("gpu_memory", struct config_text, gpu_memory),
	TEXT("pin_memory", struct config_text, pin_memory),
	TEXT("pin_limit", struct config_text, pin_limit),
	/* Offset 0: the members above already count from the whole struct. */
	{ .key = "cache", .value = { CYAML_VALUE_MAPPING(CYAML_FLAG_OPTIONAL, struct config_text, cache_fields) } },
	{ .key = "limits", .value = { CYAML_VALUE_MAPPING(CYAML_FLAG_OPTIONAL, struct config_text, limits_fields) } },
	LIST("pipelines", struct config_text, pipelines, n_pipelines, &pipeline_value, CONFIG_MAX_PIPELINES),
	LIST("datasets", struct config_text, datasets, n_datasets, &dataset_value, CONFIG_MAX_DATASETS),
	CYAML_FIELD_END,
};
static const cyaml_schema_value_t root_value = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct config_text, root_fields),
};

/* ---- places ---- */

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

/* ---- libcyaml ---- */

struct cyaml_failure {
	char first[200]; /* libcyaml's first message; the later ones only trace its way back */
};

static void on_cyaml_log(cyaml_log_t level, void *ctx, const char *fmt, va_list args)
	__attribute__((format(printf, 3, 0)));
static void on_cyaml_log(cyaml_log_t level, void *ctx, const char *fmt, va_list args)
{
	struct cyaml_failure *failure = ctx;

	if (level < CYAML_LOG_ERROR || failure->first[0])
		return;
	vsnprintf(failure->first, sizeof failure->first, fmt, args);
	failure->first[strcspn(failure->first, "\n")] = '\0';
}

static const cyaml_config_t cyaml_quiet = { .mem_fn = cyaml_mem,
					    .log_level = CYAML_LOG_ERROR,
					    .flags = CYAML_CFG_NO_ALIAS };

static int load_text(struct config_file *f, const char *bytes, size_t n_bytes, struct config_error *err)
{
	struct cyaml_failure failure = { .first = "" };
	cyaml_config_t config = cyaml_quiet;
	cyaml_data_t *text = NULL;

	if (err->n_mistakes)
		config.flags |= CYAML_CFG_IGNORE_UNKNOWN_KEYS; /* the strict reader has reported them */
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
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* O_NONBLOCK: a FIFO must not block the
	                                                                    * start */
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

int config_file_parse(const char *path, const char *bytes, size_t n_bytes, struct config_file *f,
		      struct config_error *err)
{
	bool empty = false;

	*f = (struct config_file){ .path = path };

	int e = config_read_strictly(f, root_fields, bytes, n_bytes, err, &empty);

	return e < 0 || empty ? e : load_text(f, bytes, n_bytes, err);
}

void config_file_finish(struct config_file *f)
{
	if (f->text)
		cyaml_free(&cyaml_quiet, &root_value, f->text, 0);
	for (size_t i = 0; i < f->n_places; i++)
		free(f->places[i].transform);
	free(f->places);
	*f = (struct config_file){ .path = NULL };
}
