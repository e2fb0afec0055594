/* The bytes of a member of a zip archive. */
#ifndef BATCHD_ZIP_CONTENT_H
#define BATCHD_ZIP_CONTENT_H

#include "dataset/dataset.h"
#include "dataset/shards/extents.h"

enum {
	ZIP_MOST_PER_BYTE = 1032, /* deflate makes no more of a byte */
};

/* Room in `b` for the n_stored bytes and for what they become, so that reading and unpacking allocate nothing. 0 or
 * -ENOMEM. */
int zip_content_reserve(struct file_bytes *b, size_t n_stored, const struct extent_content *c);
/* Replaces the n_stored bytes in `b`, for which it has room, by the content. NULL, or why they are not that content. */
const char *zip_content_unpack(struct file_bytes *b, size_t n_stored, const struct extent_content *c);

#endif
