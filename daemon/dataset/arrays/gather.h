/* Copies chosen rows of an array into a dense block, at the speed of memory. */
#ifndef BATCHD_GATHER_H
#define BATCHD_GATHER_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

/* to[i] = from[indices[i]] for n rows of row_bytes. No alignment is needed; the blocks must not overlap. */
void gather_rows(void *to, const void *from, size_t row_bytes, const uint64_t *indices, size_t n);
/* The same for one integer per row (any type but uint64), widened to int64. */
void gather_int64(int64_t *to, const void *from, enum dtype dtype, const uint64_t *indices, size_t n);
/* to[i] = from[i] for n integers that lie one after the other (any type but uint64), widened to int64. */
void widen_int64(int64_t *to, const void *from, enum dtype dtype, size_t n);

#endif
