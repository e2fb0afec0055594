/* The configuration file as texts, each with its line. config.c knows their meaning. */
#ifndef BATCHD_CONFIG_FILE_H
#define BATCHD_CONFIG_FILE_H

#include <stdint.h>

#include "config/config.h"

/* A value of the file. NULL and line 0 where the file says nothing. */
struct text {
	char *text;
	unsigned line; /* of the key, or of the entry in a list; from 1 */
};

struct text_list {
	void *entries; /* n of struct text, struct pipeline_text or struct dataset_text; zeroed up to the capacity */
	uint32_t n, capacity;
};

/* A transform is a name or JSON as the file has it, or lists and mappings of YAML turned into JSON. */
struct pipeline_text {
	struct text name, transform;
};

struct dataset_text {
	struct text name, source, transform;
	struct text_list users, groups; /* of struct text */
};

struct config_file {
	const char *path;                        /* borrowed; begins every message */
	struct text scalars[CONFIG_MAX_CHANGES]; /* in the order of config_keys */
	struct text_list pipelines, datasets;
};

/* Reads the whole file, at most CONFIG_MAX_BYTES, into memory that the caller frees. 0; -EINVAL, -ENOENT or another
 * negative errno with err->text. */
int config_file_bytes(const char *path, char **bytes, size_t *n_bytes, struct config_error *err);

/* Frees what config_read_strictly (strict.h) filled in. */
void config_file_finish(struct config_file *f);

#endif
