/* See numa.h. mbind(2) directly, without libnuma: one call with a mask of one bit. */
#include "base/numa.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_NODES = 1024, WORD_BITS = 8 * sizeof(unsigned long) };

static int bind_pages(void *base, size_t n_bytes, unsigned node, unsigned flags)
{
	unsigned long mask[MOST_NODES / WORD_BITS] = { 0 };
	if (node >= MOST_NODES)
		return -EINVAL;
	mask[node / WORD_BITS] = 1UL << node % WORD_BITS;
	/* PREFERRED, not BIND: memory on another node is slower, but no memory is worse. The kernel subtracts one from
	 * the number of nodes that it is given. */
	return syscall(SYS_mbind, base, n_bytes, MPOL_PREFERRED, mask, MOST_NODES + 1UL, flags) ? -errno : 0;
}

int numa_prefer(void *base, size_t n_bytes, unsigned node)
{
	return bind_pages(base, n_bytes, node, MPOL_MF_MOVE);
}

int numa_place(void *base, size_t n_bytes, unsigned node)
{
	return bind_pages(base, n_bytes, node, 0);
}

int numa_of_pci(const char *root, int domain, int bus, int device)
{
	char path[512];
	int node = -1;
	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%04x:%02x:%02x.0/numa_node", root ? root : "",
		 (unsigned)domain, (unsigned)bus, (unsigned)device);
	FILE *f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%9d", &node) != 1 || node >= MOST_NODES)
		node = -1;
	fclose(f);
	return node < 0 ? -1 : node;
}

bool numa_has_policy(void)
{
	int mode = MPOL_DEFAULT;
	return syscall(SYS_get_mempolicy, &mode, NULL, 0UL, NULL, 0UL) == 0 && mode != MPOL_DEFAULT &&
	       mode != MPOL_LOCAL;
}
