/* Classes of samples that have the names of their classes in a column, COLUMN_CLASS. */
#ifndef BATCHD_CLASS_COLUMN_H
#define BATCHD_CLASS_COLUMN_H

#include "dataset/classes.h"
#include "dataset/columns.h"

/* As of folders: a client takes no longer name of a class. */
enum { CLASS_NAME_BYTES = 255 };

/* What is wrong with a value as the name of a class; NULL: nothing. A zero byte follows the n. */
const char *class_column_wrong(const char *value, size_t n);
/* Classes of column k, whose values are sound. 0, -ENOMEM, -EFBIG or the meter's error. The caller finishes *out in either
 * case; it stays charged to the meter. */
int class_column_make(const struct columns *columns, unsigned k, struct meter *meter, struct classes *out);

#endif
