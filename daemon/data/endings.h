/* What the names of a data set's files promise, before any of them is opened. */
#ifndef BATCHD_ENDINGS_H
#define BATCHD_ENDINGS_H

#include <stddef.h>

#include "data/dataset.h"

enum endings { ENDINGS_READ, ENDINGS_SOME_UNREAD, ENDINGS_ALL_UNREAD };

/* Looks at the names of an image data set. text: of the last two, which and how many, in one line; else "". */
enum endings endings_look(const struct dataset *ds, char *text, size_t size);

#endif
