/* The layout of a producer's batch in a slot: a head, a table of arrays, a text that says how they belong together
 * (only the language binding reads it), the arrays.
 *
 *     head | n_arrays entries | n_text bytes | array 0 | array 1 | ...
 *
 * Each array begins at a multiple of 64 bytes from the start of the slot, and they lie one after the other in their
 * order. In front of the values of a ragged array lie its n_rows + 1 offsets, int64, which rise from 0. Numbers are in the machine's own byte order,
 * as both sides run on it. A consumer checks all of it before use. */
#ifndef BATCHD_CLIENT_ARRAYS_H
#define BATCHD_CLIENT_ARRAYS_H

#include "batchd.h"
#include "link/error.h"

/* Bytes that a batch takes in a slot, given each array's dtype, n_dims and shape, and n_rows of one with offsets. 0: more than a size_t holds, or an
 * array is invalid. */
size_t arrays_size(const struct batchd_array *a, uint32_t n, size_t n_text);
/* Writes head, table, text and offsets; sets each array's n_bytes, and its data to where the array must be written. 0, or a code
 * with f. */
int arrays_lay(void *slot, size_t room_bytes, struct batchd_array *a, uint32_t n, const char *text, size_t n_text,
	       struct fault *f);
/* Reads them back. Returns how many there are (the first `max` of them are filled in), or a code with f. text: in the
 * slot, not terminated. */
int arrays_read(const void *slot, size_t room_bytes, struct batchd_array *a, uint32_t max, const char **text,
		size_t *n_text, struct fault *f);
/* How many of a slot's bytes its batch takes; room_bytes where the head does not tell. */
size_t arrays_extent(const void *slot, size_t room_bytes);

#endif
