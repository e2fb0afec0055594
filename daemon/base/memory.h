/* How much memory this process may use. */
#ifndef BATCHD_MEMORY_H
#define BATCHD_MEMORY_H

#include <stdint.h>

/* The least of the machine's memory and the limits of this process's control groups, in bytes. root: NULL, or a
 * directory that replaces / (tests). */
uint64_t memory_available(const char *root);

/* How much of that is free, or used only by caches, right now. */
uint64_t memory_left(const char *root);

#endif
