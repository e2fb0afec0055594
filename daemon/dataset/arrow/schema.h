/* The schema of an Arrow stream or file, out of its flatbuffer. */
#ifndef BATCHD_ARROW_SCHEMA_H
#define BATCHD_ARROW_SCHEMA_H

#include "dataset/arrow/ipc.h"
#include "dataset/arrow/flat.h"

/* `at`: of the message, for errors. 0 or negative errno with the reader's err; the caller finishes *out in either
 * case. */
int arrow_schema_parse(const struct flat_table *table, struct arrow_schema *out, struct shard_reader *r, uint64_t at);
void arrow_schema_finish(struct arrow_schema *s);

#endif
