/* A table that a client keeps in memory: an Arrow IPC stream or file in a memfd, which the client hands over.
 *
 * The memfd must be sealed against shrinking, growing and writing, so that what was checked once stays true. Its memory
 * stays as long as it is mapped, so it is charged to the peer. */
#ifndef BATCHD_ARROW_TABLE_H
#define BATCHD_ARROW_TABLE_H

#include "dataset/mapped.h"
#include "dataset/shards/shards.h"

struct arrow_table {
	struct mapped memory; /* fd -1: none */
	uint64_t hash;        /* of its bytes */
};

#define ARROW_TABLE_NONE ((struct arrow_table){ .memory = { .fd = -1 } })

/* Maps the peer's descriptor `which`. Reads all of it once, for the hash. 0, -ECANCELED, or negative errno with
 * err; the caller finishes *t in either case. */
int arrow_table_open(struct arrow_table *t, const struct dataset_source *source, unsigned which,
		     struct dataset_error *err);
/* Makes the table the one shard of *s, which borrows its bytes. 0 or -ENOMEM or the meter's error; the caller finishes
 * *s in either case. */
int arrow_table_lend(const struct arrow_table *t, struct shards *s, const struct dataset_source *source);
/* What a sample of the table has in place of a file's identity: the same for the same bytes, in whichever memfd. */
struct shard_stamp arrow_table_stamp(const struct arrow_table *t);
/* Gives the memory back while the shard that was lent is read no more. */
void arrow_table_drop(struct arrow_table *t, struct meter *meter);
void arrow_table_finish(struct arrow_table *t);

#endif
