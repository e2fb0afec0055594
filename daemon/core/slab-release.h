/* Giving slabs back: an I/O thread frees their pages, because that takes the kernel a millisecond for a few MiB, and the
 * loop serves all users. The memory is charged until then. Loop thread. */
#ifndef BATCHD_SLAB_RELEASE_H
#define BATCHD_SLAB_RELEASE_H

#include "core/slab.h"
#include "util/account.h"

struct pool;

struct slab_releases {
	struct pool *pool; /* NULL: slabs are given back at once */
	unsigned n;        /* under way */
	void (*done)(void *arg);
	void *arg;
};

/* Takes the slab and its charges over, each of which may be empty. r may be NULL. */
void slab_release(struct slab_releases *r, struct slab *s, struct charge *bytes, struct charge *fd);

#endif
