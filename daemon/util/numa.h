/* Which of the machine's memories (NUMA nodes) hold the pages of a mapping. */
#ifndef BATCHD_NUMA_H
#define BATCHD_NUMA_H

#include <stddef.h>

/* Makes whole pages of a mapping prefer that node: pages still to be made are allocated there, and present pages that
 * no other process has mapped are moved. Pages for which there is no room, or that cannot be moved (pinned), stay
 * elsewhere without an error. 0 or negative errno: -EINVAL: the machine has no such node; -EPERM: a container or a
 * service's system call filter forbids it. Any thread; moving a GiB takes about a second. */
int numa_prefer(void *base, size_t n_bytes, unsigned node);

#endif
