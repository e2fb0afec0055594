/* Numbers in the cells of a list. */
#ifndef BATCHD_LIST_NUMBER_H
#define BATCHD_LIST_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a field's values are to be: "COLUMN:float". */
enum list_kind { LIST_ANY, LIST_CLASS, LIST_INT, LIST_FLOAT, LIST_TEXT };
/* False: there is no kind of this name. */
bool list_kind_find(const char *name, size_t n, enum list_kind *kind);

/* With blanks around it or without. */
bool list_whole(const char *text, int64_t *value);
/* A whole number that int64 does not hold, such as a hash as uint64. */
bool list_exceeds_int64(const char *text);
/* Numbers with blanks between them, as many as there are; in [ ] also with commas, as Python prints lists. SIZE_MAX:
 * something else, or more than `most`. `out` may be NULL. */
size_t list_floats(const char *text, float *out, size_t most);
/* Whether one of such numbers is finite, and infinite as a float32. */
bool list_exceeds_float32(const char *text);

#endif
