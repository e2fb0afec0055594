/* Large batches: those of a producer that do not fit their slot.
 *
 * A large batch lies in a memfd, which the producer has made, filled and sealed: no process can change it any more, nor
 * make it shorter. The slot keeps the descriptor in place of its own memory, each trainer gets it with the batch, and it
 * is closed when the slot becomes FREE. The daemon never maps it. Loop thread only. */
#ifndef BATCHD_LARGE_BATCH_H
#define BATCHD_LARGE_BATCH_H

#include <stdint.h>

#include "base/account.h"

struct large_batch {
	int fd;
	uint64_t n_bytes;
	uint64_t held_bytes; /* of memory, at least n_bytes */
	uid_t payer;         /* whose time it is to free it */
	struct charge bytes, fds;
};

/* Takes the descriptor, unless it fails. NULL: memory is short, or *why (static) says what is wrong with what the
 * producer sent. */
struct large_batch *large_batch_create(int fd, uint64_t n_bytes, uid_t payer, const char **why);
/* Closes the descriptor, and refunds what is charged. NULL: does nothing. */
void large_batch_destroy(struct large_batch *b);
/* Charges its memory and its descriptor to the user. 0, ACCOUNT_E_ or -ENOMEM; then nothing is charged, and *kind says
 * what is short. */
int large_batch_charge(struct large_batch *b, struct accounts *a, uid_t uid, enum account_kind *kind);

#endif
