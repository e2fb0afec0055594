/* The configuration file as texts and their lines. config.c knows their meaning. */
#ifndef BATCHD_CONFIG_FILE_H
#define BATCHD_CONFIG_FILE_H

#include <stdint.h>

#include "config.h"

/* A text is NULL where the file says nothing. libcyaml fills this struct by the schema in config-file.c and owns its
 * memory. */
struct config_text {
	char *socket, *socket_mode, *socket_group;
	char *workers, *io_threads, *memory, *slots, *linger, *stall_after, *idle_exit, *gpu_idle_exit, *bad_data,
		*log_level, *index_cache;
	char *gpu_memory, *pin_memory, *pin_limit;
	struct {
		char *jpeg, *decoded, *directory, *disk;
	} cache;
	struct {
		char *sessions, *sessions_per_user, *pending, *hello_timeout, *loaders, *producers, *loaders_per_user,
			*memory_per_user, *unread_per_user, *fds_per_user, *batch_size, *batch_bytes, *image_pixels,
			*image_scans, *image_time, *file_bytes;
	} limits;
	struct pipeline_text {
		char *name; /* its transform: config_file_transform */
	} *pipelines;
	struct dataset_text {
		char *name, *source;
		char **users, **groups;
		uint32_t n_users, n_groups;
	} *datasets;
	uint32_t n_pipelines, n_datasets;
};

struct config_file {
	const char *path;            /* borrowed; begins every message */
	struct config_text *text;    /* NULL: the file says nothing at all */
	struct config_place *places; /* of every key and list entry, in the file's order */
	size_t n_places, places_capacity;
};

/* Reads the whole file, at most CONFIG_MAX_BYTES, into memory that the caller frees. 0; -EINVAL, -ENOENT or another
 * negative errno with err->text. */
int config_file_bytes(const char *path, char **bytes, size_t *n_bytes, struct config_error *err);

/* 0; -EINVAL with err->text; -ENOMEM. Fills *f in either case; finish it. The bytes may be freed afterwards. */
int config_file_parse(const char *path, const char *bytes, size_t n_bytes, struct config_file *f,
		      struct config_error *err);
void config_file_finish(struct config_file *f);

/* Line of "workers", "cache.jpeg", "datasets[2].users[0]"; 0 when the file does not have it. */
unsigned config_file_line(const struct config_file *f, const char *where);
/* The text of a "...transform": a name or JSON as the file has it, or lists and mappings of YAML turned into JSON. NULL
 * when the file has none. */
const char *config_file_transform(const struct config_file *f, const char *where);

#endif
