/* Inflates a part of a file, read piece by piece. */
#ifndef BATCHD_UNZIP_H
#define BATCHD_UNZIP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataset/error.h"

enum unzip_kind { UNZIP_GZIP, UNZIP_RAW };

struct unzip; /* a stream */

/* The bytes from..to - 1 of fd, which is borrowed until unzip_end, as is stop: once it is set, unzip_read ends with
 * -ECANCELED (NULL: never). name is for messages. 0 or negative errno. */
int unzip_begin(int fd, const char *name, uint64_t from, uint64_t to, enum unzip_kind kind, const atomic_bool *stop,
		struct unzip **out, struct dataset_error *err);
/* Inflates n bytes; *got: fewer if the stream ends. 0 or negative errno with err. */
int unzip_read(struct unzip *s, void *to, size_t n, size_t *got, struct dataset_error *err);
void unzip_end(struct unzip *s);

#endif
