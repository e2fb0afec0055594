/* See numa.h. mbind(2) directly, without libnuma: one call with a mask of one bit. */
#include "util/numa.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_NODES = 1024, WORD_BITS = 8 * sizeof(unsigned long) };

int numa_prefer(void *base, size_t n_bytes, unsigned node)
{
	unsigned long mask[MOST_NODES / WORD_BITS] = { 0 };
	if (node >= MOST_NODES)
		return -EINVAL;
	mask[node / WORD_BITS] = 1UL << node % WORD_BITS;
	/* PREFERRED, not BIND: memory on another node is slower, but no memory is worse. The kernel subtracts one from
	 * the number of nodes that it is given. */
	return syscall(SYS_mbind, base, n_bytes, MPOL_PREFERRED, mask, MOST_NODES + 1UL, MPOL_MF_MOVE) ? -errno : 0;
}
