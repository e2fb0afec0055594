/* A loader's position: how long its epochs are, and what its daemon is asked for. The loader's thread. */
#ifndef BATCHD_CLIENT_POSITION_H
#define BATCHD_CLIENT_POSITION_H

#include "loader/loader.h"

/* Rows of a whole epoch, of all trainers together, without padding. */
uint64_t position_length(const struct batchd_loader *l, const struct batchd_info *info);
/* Rows of an epoch from base on, for one rank, and batches of it. */
uint64_t position_n_rows(const struct batchd_loader *l, const struct batchd_info *info, uint64_t base);
uint64_t position_n_batches(const struct batchd_loader *l, const struct batchd_info *info, uint64_t base);

/* The only way in which l->epoch_state changes. */
void position_move(struct batchd_loader *l, enum epoch_state to);
/* Whether batches of the epoch are still to come. */
static inline bool position_is_running(const struct batchd_loader *l)
{
	return l->epoch_state == EPOCH_RUNNING || l->epoch_state == EPOCH_JOINED;
}

/* Sends Seek, with a new number. 0 or a code with l->fault. */
int position_seek(struct batchd_loader *l);
/* Asks the daemon of a new connection for what the trainer is waiting for. 0 or a code with l->fault. */
int position_ask_again(struct batchd_loader *l);

#endif
