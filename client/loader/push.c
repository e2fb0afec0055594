/* A trainer's own batches: pushed to the daemon, and kept until they come back. */
#include "loader/loader.h"
#include "loader/pending.h"
#include "loader/position.h"
#include "loader/reconnect.h"

static int send_last(struct batchd_loader *l, void *arg, int left_ms)
{
	(void)arg;
	(void)left_ms;
	return pending_send_last(l);
}

static int push(struct batchd_loader *l, const uint64_t *indices, uint32_t n)
{
	int r = loader_check(l);

	if (r < 0)
		return r;
	if (!l->own_batches || !position_is_running(l) || l->pushed_all)
		return loader_misuse(
			l, BATCHD_E_INVALID,
			"batchd_push needs option own_batches, and goes between batchd_start and batchd_push_end");
	if (n < 1 || n > l->link->info.batch_size)
		return loader_misuse(l, BATCHD_E_INVALID, "batchd_push: a batch has 1 to batch_size indices");
	for (uint32_t i = 0; i < n; i++)
		if (indices[i] >= l->link->info.n_samples)
			return loader_misuse(l, BATCHD_E_INVALID,
					     "batchd_push: an index is not below the number of samples");
	if (l->n_pushed - l->next_step >= (uint64_t)l->link->info.window + 2)
		return BATCHD_AGAIN;
	if (!pending_keep(l, indices, n))
		return loader_misuse(l, BATCHD_E_NOMEM, "out of memory");
	l->n_pushed++;
	return with_link_now(l, send_last, NULL);
}

int batchd_push(struct batchd_loader *l, const uint64_t *indices, uint32_t n)
{
	int r = loader_enter(l);

	return r < 0 ? r : loader_leave(l, push(l, indices, n));
}

static int push_end(struct batchd_loader *l)
{
	int r = loader_check(l);

	if (r < 0)
		return r;
	if (!l->own_batches)
		return loader_misuse(l, BATCHD_E_INVALID, "batchd_push_end needs option own_batches");
	l->pushed_all = true;
	return 0;
}

int batchd_push_end(struct batchd_loader *l)
{
	int r = loader_enter(l);

	return r < 0 ? r : loader_leave(l, push_end(l));
}

void batchd_sampling(struct batchd_loader *l, int begins)
{
	if (loader_enter(l) < 0)
		return;
	if (l->link)
		ring_set_state(&l->link->ring, begins ? RING_ORDERS : RING_BUSY);
	(void)loader_leave(l, 0);
}
