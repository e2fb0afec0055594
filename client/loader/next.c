/* batchd_next. With a GPU it collects, takes and delivers.
 *
 * Slots come back from the GPU only when a call checks them. So a trainer that waits for a batch while other slots of
 * its own are pending checks both in turn, and never waits for a slot that it has to give back itself. */
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "link/clock.h"
#include "loader/links.h"
#include "loader/position.h"
#include "loader/reconnect.h"
#include "loader/slices.h"
#include "loader/stream.h"

enum { LOOK_MS = 1, SIGNAL_MS = 100 };

/* How long to wait for a batch before the slots are checked again; 0 when the caller's timeout has passed. */
static int next_patience(bool more, int timeout_ms, uint64_t waited_ns)
{
	uint64_t ms = waited_ns / 1000000, most = timeout_ms == BATCHD_UNTIL_SIGNAL ? SIGNAL_MS : (uint64_t)timeout_ms;

	if (timeout_ms == BATCHD_FOREVER)
		return more ? LOOK_MS : BATCHD_FOREVER;
	if (timeout_ms == BATCHD_UNTIL_SIGNAL && !more)
		return BATCHD_UNTIL_SIGNAL;
	if (ms >= most)
		return 0;
	return more ? LOOK_MS : (int)(most - ms);
}

/* Gives back a batch that did not reach the trainer, which therefore cannot release it. */
static void take_back(struct batchd_loader *l, const struct ready *b)
{
	pthread_mutex_lock(&l->lock);
	slices_stop(l);
	link_release(l->link, b->slot, b->generation);
	pthread_mutex_unlock(&l->lock);
}

static int next_deliver(struct batchd_loader *l, struct batchd_batch *b)
{
	struct link *k = l->link;
	struct ready lent = { .slot = b->slot,
			      .generation = b->generation & LINK_GENERATIONS,
			      .n_rows = slices_per_batch(l) > 1 ? l->slice_cursor.batch.n_rows : b->n_rows,
			      .large_bytes = k->lease[b->slot].large ? k->lease[b->slot].large_bytes : 0 };
	const struct ready *next = k->gpu->looks_ahead && !b->last ? stream_peek(l) : NULL;
	void *device_slot = NULL;
	int r = k->gpu->ops->deliver(k->gpu, &lent, next, &device_slot, &l->fault);

	if (r < 0) {
		take_back(l, &lent);
		return r;
	}
	b->device_data = (char *)device_slot + b->row * k->row_bytes;
	b->device_labels = k->label_bytes ? (char *)device_slot + k->labels_offset + b->row * k->label_bytes : NULL;
	return BATCHD_OK;
}

/* Before a batch is taken: a failure costs none, and the next call tries again. 0, BATCHD_AGAIN or a code. */
static int make_room(struct batchd_loader *l)
{
	struct link_gpu *g = l->link->gpu;
	struct fault f = { 0 };
	int r;

	if (!g->looks_ahead || !position_is_running(l))
		return 0;
	r = g->ops->make_room(g, stream_peek(l), &f);
	return r < 0 ? loader_misuse(l, r, f.text) : r;
}

static int look_later(int wait_ms)
{
	if (wait_ms)
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_MS * 1000000 }, NULL);
	return BATCHD_AGAIN;
}

static int next_on_gpu(struct batchd_loader *l, struct batchd_batch *b, int timeout_ms)
{
	struct batchd_batch full = { .size_bytes = sizeof full };
	uint64_t began = clock_now_ns();
	int r, wait_ms;
	bool more;

	loader_reap();
	do {
		r = links_collect(l, &more, &l->fault);
		if (r < 0)
			return r;
		reconnect_part(l);
		wait_ms = next_patience(more, timeout_ms, clock_now_ns() - began);
		r = make_room(l);
		if (r == 0)
			r = stream_next(l, &full, wait_ms, began);
		else if (r == BATCHD_AGAIN)
			r = look_later(wait_ms);
	} while (r == BATCHD_AGAIN && wait_ms != 0 && wait_ms != BATCHD_UNTIL_SIGNAL);
	if (r == BATCHD_OK)
		r = next_deliver(l, &full);
	if (r == BATCHD_OK) {
		full.size_bytes = b->size_bytes;
		memcpy(b, &full, b->size_bytes < sizeof full ? b->size_bytes : sizeof full);
	}
	return r;
}

static void note_leased(const struct batchd_loader *l, struct batchd_batch *b)
{
	if (b->size_bytes >= offsetof(struct batchd_batch, n_leased) + sizeof b->n_leased)
		b->n_leased = batchd_n_leased(l);
}

int batchd_next(struct batchd_loader *l, struct batchd_batch *b, int timeout_ms)
{
	int r = loader_enter(l);

	if (r < 0)
		return r;
	r = l->link->gpu ? next_on_gpu(l, b, timeout_ms) : stream_next(l, b, timeout_ms, clock_now_ns());
	if (r == BATCHD_OK)
		note_leased(l, b);
	return loader_leave(l, r);
}

int batchd_try_next(struct batchd_loader *l, struct batchd_batch *b)
{
	return batchd_next(l, b, 0);
}
