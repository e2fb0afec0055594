/* A share group's batches in slices of the trainer's own size. The loader's thread. */
#ifndef BATCHD_CLIENT_SLICES_H
#define BATCHD_CLIENT_SLICES_H

#include "loader/loader.h"

/* The next piece to give out: these rows of a batch. */
struct slice {
	struct ready batch;
	uint32_t row, n_rows;
};

uint32_t slices_per_batch(const struct batchd_loader *l);
/* Gives out this batch, just lent, from the loader's next_step on. */
void slices_begin(struct batchd_loader *l, const struct ready *batch);
/* The next slice; false: there is none. */
bool slices_next(struct batchd_loader *l, struct slice *out);
/* Drops the slices that have not been given out. Under the lock. */
void slices_stop(struct batchd_loader *l);

#endif
