/* Which of the machine's memories (NUMA nodes) pages lie in. */
#ifndef BATCHD_NUMA_H
#define BATCHD_NUMA_H

#include <stddef.h>

/* Whole pages of a mapping are to lie on that node: those still to be made, and those that are there and that no other
 * process has mapped are moved. What has no room there, or cannot be moved (pinned), stays elsewhere without a word. 0
 * or negative errno: -EINVAL: the machine has no such node; -EPERM: a container or a service's system call filter
 * forbids it. Any thread; moving a GiB takes about a second. */
int numa_prefer(void *base, size_t n_bytes, unsigned node);

#endif
