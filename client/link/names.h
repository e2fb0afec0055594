/* The names of a producer's arrays. Language bindings write down how the arrays of a batch belong together in a line of
 * JSON (client/python/batchd/_tree.py); a batch that is a dictionary of arrays has names in it. */
#ifndef BATCHD_CLIENT_NAMES_H
#define BATCHD_CLIENT_NAMES_H

#include <stddef.h>

/* The number of the array that the text calls `name`. -1: none, or the batch is no dictionary. Names with a quote, a
 * backslash or anything but ASCII are not found. */
int names_find(const char *text, size_t n_text, const char *name);

#endif
