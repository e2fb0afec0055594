/* own_batches: index batches that were pushed and have not come yet, kept for a reconnect. The loader's thread. */
#ifndef BATCHD_CLIENT_PENDING_H
#define BATCHD_CLIENT_PENDING_H

#include "loader/loader.h"

struct pending {
	struct pending *next;
	uint32_t n;
	uint64_t index[];
};

/* Appends a copy. False: out of memory. */
bool pending_keep(struct batchd_loader *l, const uint64_t *indices, uint32_t n);
/* The first has come back: frees it. Does nothing if there is none. */
void pending_forget_first(struct batchd_loader *l);
void pending_drop_all(struct batchd_loader *l);
/* Sends the batch that was kept last; or all, after a reconnect. 0 or a code with l->fault. */
int pending_send_last(struct batchd_loader *l);
int pending_send_all(struct batchd_loader *l);

#endif
