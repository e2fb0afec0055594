/* files:LIST: turns the bytes of a list into an index. */
#ifndef BATCHD_FILELIST_H
#define BATCHD_FILELIST_H

#include <stdbool.h>
#include <stddef.h>

#include "dataset/dataset.h"
#include "dataset/folder/manifest.h"

/* One sample a line: path, a tab or spaces, label (int64). With a tab the path may end in spaces, or have spaces before
 * a number. Empty lines and lines that begin with '#' are skipped; CRLF is accepted. beneath: refuse absolute paths and
 * "..", and add the folders above each folder too, so that the caller can check them. Folder 0 is the list's own (".").
 * name: for messages, which have line numbers. 0, -EINVAL, -EACCES, -ENOMEM, -EFBIG with err filled in. The bytes need
 * no terminator. */
int filelist_parse(const char *bytes, size_t n_bytes, const char *name, bool beneath, struct manifest *out,
		   struct dataset_error *err);

#endif
