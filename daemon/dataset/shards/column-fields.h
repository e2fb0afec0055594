/* Columns of values in memory as fields of a data set. */
#ifndef BATCHD_COLUMN_FIELDS_H
#define BATCHD_COLUMN_FIELDS_H

#include "dataset/columns.h"
#include "dataset/impl.h"

/* Adds a field for each column, with the bounds from which batches get their room. 0 or negative errno with err. */
int column_fields_add(struct dataset *ds, const struct columns *columns, struct dataset_error *err);

#endif
