/* A trainer of a share group that takes the group's batches in slices of its own size.
 *
 * Steps, sizes and the epoch's end are the trainer's own, as if its loader made batches of that size for it alone; only
 * messages on the wire count the group's batches. Sizes have to divide the group's batch: then a slice never lies
 * across two batches, so nothing is copied and only an epoch's last batch is short. drop_last is the trainer's own too:
 * the daemon always sends the last, short batch of a share group, and a trainer that drops it gives it back.
 *
 * A slot goes back when its last slice has been given out and every slice that was given out is released. */
#include "loader/slices.h"

uint32_t slices_per_batch(const struct batchd_loader *l)
{
	return l->served ? 1 : l->group_rows / l->link->info.batch_size;
}

/* Under the lock. */
static bool cut_next(struct batchd_loader *l, struct slice *out)
{
	struct slice_cursor *c = &l->slice_cursor;
	struct lease *lease = &l->link->lease[c->batch.slot];
	uint32_t rows = l->link->info.batch_size, left;

	if (c->row >= c->batch.n_rows)
		return false;
	left = c->batch.n_rows - c->row;
	*out = (struct slice){ .batch = c->batch, .row = c->row, .n_rows = left < rows ? left : rows };
	out->batch.n_replaced = c->first ? c->batch.n_replaced : 0; /* reported once: which rows they are is not
	                                                             * known */
	c->first = false;
	c->row += rows;
	lease->n_out++;
	lease->more = c->row < c->batch.n_rows && !(l->drop_last && c->batch.n_rows - c->row < rows);
	if (!lease->more)
		c->row = c->batch.n_rows;
	return true;
}

bool slices_next(struct batchd_loader *l, struct slice *out)
{
	bool more;

	pthread_mutex_lock(&l->lock);
	more = !loader_is_closed(l) && cut_next(l, out);
	pthread_mutex_unlock(&l->lock);
	return more;
}

void slices_begin(struct batchd_loader *l, const struct ready *batch)
{
	/* given out before a checkpoint, or before the daemon went away */
	uint64_t skipped = l->next_step - batch->step * slices_per_batch(l);

	pthread_mutex_lock(&l->lock);
	l->slice_cursor = (struct slice_cursor){ .batch = *batch,
						 .row = (uint32_t)skipped * l->link->info.batch_size,
						 .first = true };
	l->link->lease[batch->slot].n_out = 0;
	l->link->lease[batch->slot].more = true;
	pthread_mutex_unlock(&l->lock);
}

void slices_stop(struct batchd_loader *l)
{
	struct slice_cursor *c = &l->slice_cursor;
	struct lease *lease = c->row < c->batch.n_rows ? &l->link->lease[c->batch.slot] : NULL;

	c->row = c->batch.n_rows;
	if (!lease || !lease->held)
		return;
	lease->more = false;
	if (!lease->n_out)
		link_let_go(l->link, c->batch.slot);
}
