/* How much memory this process may use. */
#ifndef BATCHD_MEMORY_H
#define BATCHD_MEMORY_H

#include <stdint.h>

/* The least of the machine's memory and of the limits of the control groups we are in, in bytes. root: NULL, or a
 * directory that stands for / (tests). */
uint64_t memory_available(const char *root);

/* How much of that nobody uses, or only caches do, right now. */
uint64_t memory_left(const char *root);

#endif
