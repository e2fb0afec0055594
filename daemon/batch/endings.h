/* Checks, by the names of a data set's files, for formats that are not decoded, before any file is opened. */
#ifndef BATCHD_ENDINGS_H
#define BATCHD_ENDINGS_H

#include <stddef.h>

#include "dataset/dataset.h"

enum endings { ENDINGS_READ, ENDINGS_SOME_UNREAD, ENDINGS_ALL_UNREAD };

/* Looks at the names of an image data set. text: for the last two results, one line that says which and how many; else
 * "". */
enum endings endings_look(const struct dataset *ds, char *text, size_t size);

#endif
