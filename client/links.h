/* A loader's links: the present one, and those of earlier connections whose batches are still on loan. */
#ifndef BATCHD_CLIENT_LINKS_H
#define BATCHD_CLIENT_LINKS_H

#include "loader.h"

/* The link that lent a batch, by the generation that the trainer sees; NULL: it is no longer remembered. Under the
 * lock. */
struct link *links_find(const struct batchd_loader *l, uint64_t generation);
/* Detaches a link that the loader no longer has, and keeps it until its last batch is back. Returns it if it has none
 * on loan, to be destroyed without the lock. Under the lock. */
struct link *links_retire(struct batchd_loader *l, struct link *old);
/* The trainer gives back a slice, or a whole batch; a retired link goes with its last. False: it has none. Under the
 * lock. */
bool links_release(struct batchd_loader *l, uint32_t slot, uint64_t generation);
/* Where there is a GPU: gives back what its work no longer reads, and destroys retired links that are over. more and
 * the result as of link_gpu_ops.collect, for the present link. The loader's thread. */
int links_collect(struct batchd_loader *l, bool *more, struct fault *f);
/* The two parts of that: takes retired links that are over off the list, under the lock; destroys them, without it. */
struct link *links_take_idle(struct batchd_loader *l);
void links_destroy(struct link *first);

#endif
