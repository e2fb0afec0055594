/* Represents a data set whose samples only a producer can make. It cannot be read, but it has an identity and a size
 * like every data set. */
#ifndef BATCHD_SERVED_H
#define BATCHD_SERVED_H

#include "dataset/dataset.h"

enum { SERVED_PAGE_BYTES = 4096 };

/* A "sample" is a whole batch: slot_bytes (rounded up to SERVED_PAGE_BYTES) in the producer's own format. id: identity
 * of the samples, chosen by the producer; n: their number, 0 if unknown. 0 or -ENOMEM, -EOVERFLOW. */
int served_create(const char *name, uint64_t id, uint64_t n, uint64_t slot_bytes, struct dataset **out);

#endif
