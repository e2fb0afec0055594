/* Stands for a data set whose samples only a producer can make: nothing can be read from it, but it has an identity and
 * a size, as everybody expects of one. */
#ifndef BATCHD_SERVED_H
#define BATCHD_SERVED_H

#include "data/dataset.h"

enum { SERVED_PAGE_BYTES = 4096 };

/* A "sample" is a whole batch: slot_bytes (rounded up to SERVED_PAGE_BYTES) of whatever the producer puts there. id:
 * what the samples are, in the producer's own words; n: how many there are, 0 if nobody knows. 0 or -ENOMEM,
 * -EOVERFLOW. */
int served_create(const char *name, uint64_t id, uint64_t n, uint64_t slot_bytes, struct dataset **out);

#endif
