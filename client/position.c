/* Computes an epoch's length as the daemon does (DistributedSampler's arithmetic). */
#include "position.h"

#include "pending.h"
#include "slices.h"

uint64_t position_n_rows(const struct batchd_loader *l, const struct batchd_info *info, uint64_t base)
{
	uint64_t left = base < info->n_samples ? info->n_samples - base : 0;
	uint64_t w = l->share ? 1 : info->world_size;

	return left / w + (!l->drop_last && left % w ? 1 : 0);
}

uint64_t position_n_batches(const struct batchd_loader *l, const struct batchd_info *info, uint64_t base)
{
	uint64_t rows = position_n_rows(l, info, base), b = info->batch_size;

	return rows / b + (!l->drop_last && rows % b ? 1 : 0);
}

int position_seek(struct batchd_loader *l)
{
	Batchd__Wire__Seek body = BATCHD__WIRE__SEEK__INIT;

	body.seek = ++l->seek;
	body.epoch = l->epoch;
	body.base_sample = l->base;
	body.step = l->next_step / slices_per_batch(l);
	body.no_device = link_no_device(l->link);
	return link_send(l->link, WIRE_CLIENT(SEEK, seek, &body), &l->fault);
}

int position_ask_again(struct batchd_loader *l)
{
	int r = l->streaming ? position_seek(l) : 0;

	return r == 0 ? pending_send_all(l) : r;
}
