/* Numbers with units as people write them in configurations. Strict: the whole text must be a number with at most one
 * unit. */
#ifndef BATCHD_SIZE_H
#define BATCHD_SIZE_H

#include <stdint.h>

/* "65536", "64KiB", "2GiB", "1.5GiB", "10MB" (1000s). No sign, no spaces inside, no overflow. 0 or -EINVAL, -ERANGE. */
int size_parse(const char *text, uint64_t *bytes);
/* "30", "30s", "500ms", "5min", "2h" into nanoseconds. Same returns. */
int duration_parse(const char *text, uint64_t *ns);
/* Binary units with one decimal: "38.3 MiB". buf at least 16 bytes; returns buf. */
const char *size_format(uint64_t bytes, char *buf, unsigned long buf_size);

#endif
