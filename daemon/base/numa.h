/* Which of the machine's memories (NUMA nodes) hold the pages of a mapping. */
#ifndef BATCHD_NUMA_H
#define BATCHD_NUMA_H

#include <stdbool.h>
#include <stddef.h>

/* Makes whole pages of a mapping prefer that node: pages still to be made are allocated there, and present pages that
 * no other process has mapped are moved. Pages for which there is no room, or that cannot be moved (pinned), stay
 * elsewhere without an error. 0 or negative errno: -EINVAL: the machine has no such node; -EPERM: a container or a
 * service's system call filter forbids it. Any thread; moving a GiB takes about a second. */
int numa_prefer(void *base, size_t n_bytes, unsigned node);
/* The same for pages still to be made only, which costs next to nothing. */
int numa_place(void *base, size_t n_bytes, unsigned node);
/* The node that a PCI device is near to; -1: not known, or there is only one. root: NULL, or a directory that replaces
 * / (tests). */
int numa_of_pci(const char *root, int domain, int bus, int device);
/* Whether this process was started with a memory policy of its own (numactl, NUMAPolicy= in a unit). */
bool numa_has_policy(void);

#endif
