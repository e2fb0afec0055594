/* The strict reader of a configuration file: it knows the line of every value and names every mistake. */
#ifndef BATCHD_CONFIG_STRICT_H
#define BATCHD_CONFIG_STRICT_H

#include <stddef.h>

#include "config/file.h"

/* Fills *f in any case; finish it. path, which is borrowed, begins every message. The bytes may be freed afterwards. 0;
 * -EINVAL with err->text; -ENOMEM. */
int config_read_strictly(const char *path, const char *bytes, size_t n_bytes, struct config_file *f,
			 struct config_error *err);

#endif
