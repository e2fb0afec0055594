/* Lists of files as they stand in a configuration, where no client has expanded them. */
#ifndef BATCHD_FILE_PATTERNS_H
#define BATCHD_FILE_PATTERNS_H

#include "dataset/error.h"

/* *out: `rest`, what follows "KIND:", with every pattern of the shell's replaced by the files that it names, in the
 * order of their names, and each pair of Megatron's by its index. malloc'ed. For kinds with files between commas; NULL for
 * all others. 0 or negative errno with err: a pattern names no file, or
 * an option is misspelt. */
int file_patterns_expand(const char *spec, char **out, struct dataset_error *err);

#endif
