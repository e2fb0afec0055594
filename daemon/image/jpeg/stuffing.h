/* Removes the byte stuffing and the restart markers from a scan's entropy-coded data, so that the decoder sees only
 * bits. */
#ifndef BATCHD_STUFFING_H
#define BATCHD_STUFFING_H

#include <stddef.h>
#include <stdint.h>

/* Copies the entropy-coded data at data[0..n) to `out` (room for n + 64 bytes) without stuffing, up to its end: a
 * marker EOI. The data of the restart interval i starts at out + starts[i]; there must be exactly n_starts of them (1
 * without restart markers), numbered correctly. starts[n_starts] is set to the end of the last one: room for n_starts +
 * 1. Returns 0, or -EINVAL for any irregularity, such as a missing EOI. Reads nothing outside data[0..n). */
int unstuff(const uint8_t *data, size_t n, uint8_t *out, uint32_t *starts, uint32_t n_starts);
/* The same for one scan of several: up to any marker, which is returned; *n_used is the size of all that, with it. */
int unstuff_scan(const uint8_t *data, size_t n, uint8_t *out, uint32_t *starts, uint32_t n_starts, size_t *n_used);

#endif
