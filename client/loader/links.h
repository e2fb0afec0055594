/* A loader's links: the present one, and those of earlier connections whose batches are still on loan. */
#ifndef BATCHD_CLIENT_LINKS_H
#define BATCHD_CLIENT_LINKS_H

#include "loader/loader.h"

/* The link that lent a batch, by the generation that the trainer sees; NULL: the loader no longer has that link. Under
 * the lock. */
struct link *links_find(const struct batchd_loader *l, uint64_t generation);
/* Detaches a link that is no longer the loader's present one, and keeps it until its last batch is back. Returns the
 * link if it has none on loan; the caller destroys it without the lock. Under the lock. */
struct link *links_retire(struct batchd_loader *l, struct link *old);
/* The trainer gives back a slice, or a whole batch; a retired link ends with its last batch. False: the trainer does
 * not have it. Under the lock. */
bool links_release(struct batchd_loader *l, uint32_t slot, uint64_t generation);
/* Destroys the link if it is retired and has no batch on loan any more. Under the lock. */
void links_end(struct batchd_loader *l, struct link *k);
/* With a GPU: gives back slots that its work no longer reads, and destroys retired links that are idle. more and the
 * result as of link_gpu_ops.collect, for the present link. The loader's thread. */
int links_collect(struct batchd_loader *l, bool *more, struct fault *f);
/* The two parts of that: take retired links that are idle off the list, under the lock; destroy them, without it. */
struct link *links_take_idle(struct batchd_loader *l);
void links_destroy(struct link *first);

#endif
