/* Computes an epoch's length as the daemon does (DistributedSampler's arithmetic). */
#include "loader/position.h"

#include <assert.h>

#include "loader/pending.h"
#include "loader/slices.h"

uint64_t position_length(const struct batchd_loader *l, const struct batchd_info *info)
{
	uint64_t all;

	if (__builtin_mul_overflow(info->n_samples, l->repeats, &all) || all > INT64_MAX)
		all = INT64_MAX;
	return l->epoch_rows && l->epoch_rows < all ? l->epoch_rows : all;
}

uint64_t position_n_rows(const struct batchd_loader *l, const struct batchd_info *info, uint64_t base)
{
	uint64_t length = position_length(l, info), left = base < length ? length - base : 0;
	uint64_t w = l->share ? 1 : info->world_size;

	return left / w + (!l->drop_last && left % w ? 1 : 0);
}

uint64_t position_n_batches(const struct batchd_loader *l, const struct batchd_info *info, uint64_t base)
{
	uint64_t rows = position_n_rows(l, info, base), b = info->batch_size;

	return rows / b + (!l->drop_last && rows % b ? 1 : 0);
}

void position_move(struct batchd_loader *l, enum epoch_state to)
{
	/* A loader that joins an epoch rests until it knows which. */
	assert(to != EPOCH_JOINED || !position_is_running(l));
	l->epoch_state = to;
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
	int r = position_is_running(l) ? position_seek(l) : 0;

	return r == 0 ? pending_send_all(l) : r;
}
