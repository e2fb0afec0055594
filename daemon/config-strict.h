/* The strict reader of a configuration file, which runs before libcyaml: it knows the line of every key and names every
 * mistake. */
#ifndef BATCHD_CONFIG_STRICT_H
#define BATCHD_CONFIG_STRICT_H

#include <cyaml/cyaml.h>
#include <stdbool.h>
#include <stddef.h>

#include "config-file.h"

enum { WHERE_BYTES = 64, MAX_VALUE_BYTES = 65536 };

struct config_place {
	char where[WHERE_BYTES]; /* "datasets[2].users[0]" */
	unsigned line;           /* from 1 */
	char *transform;         /* owned; NULL for everything else */
};

/* Notes every key and list entry in f->places. fields: of the root mapping. *empty: the file has no document at all,
 * only comments. 0; -EINVAL with err->text; -ENOMEM. */
int config_read_strictly(struct config_file *f, const cyaml_schema_field_t *fields, const char *bytes, size_t n_bytes,
			 struct config_error *err, bool *empty);

#endif
