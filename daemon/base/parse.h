/* Small values as people write them; for sizes and durations see size.h. Strict: the whole text, no sign, no blanks. */
#ifndef BATCHD_PARSE_H
#define BATCHD_PARSE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Decimal digits. 0, -EINVAL, -ERANGE. */
int number_parse(const char *text, uint64_t *out);
/* A fraction: "1%", "0.5%", "0.01", "0"; the result lies in 0..1. 0, -EINVAL, -ERANGE. */
int share_parse(const char *text, double *out);
/* Permission bits in octal, "0660" or "660". 0, -EINVAL, -ERANGE. */
int mode_parse(const char *text, mode_t *out);

#endif
