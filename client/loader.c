/* A loader: its messages, the batches that it has on loan, its end, and what it says about itself.
 *
 * Closing is the awkward part: tensors made from batches may outlive the loader, and the daemon must not wait for them.
 * So batchd_close puts copies of this process's own in the place of the batches still on loan, at the same addresses,
 * tells the daemon that all leases are over, and leaves the struct alive until the last batch is released. */
#include "loader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "cuda/delivery.h"
#include "process.h"

bool loader_is_foreign(const struct batchd_loader *l)
{
	return l->generation != process_generation();
}

int loader_check(const struct batchd_loader *l)
{
	return loader_is_foreign(l) ? BATCHD_E_FORKED : l->fault.code;
}

int loader_misuse(struct batchd_loader *l, int code, const char *text)
{
	fault_set(&l->fault, code, "%s", text);
	l->fault.code = 0;
	return code;
}

/* ---- messages ---- */

int loader_send(struct batchd_loader *l, Batchd__Wire__ClientMessage *m)
{
	int r;

	pthread_mutex_lock(&l->lock);
	r = connection_send(&l->connection, m, NULL, 0);
	pthread_mutex_unlock(&l->lock);
	return r < 0 ? connection_lost(&l->connection, &l->fault) : 0;
}

static bool is_about_others(const Batchd__Wire__ServerMessage *m)
{
	return m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_NOTICE &&
	       m->notice->kind != BATCHD__WIRE__NOTICE_KIND__DIFFERENCE;
}

/* What others of the job do is told in passing. 0, or BATCHD_E_STALLED if that was asked for. */
static int take_notice(struct batchd_loader *l, const Batchd__Wire__Notice *n)
{
	if (n->kind == BATCHD__WIRE__NOTICE_KIND__RANK_GOES_ON)
		loader_event(l, BATCHD_EVENT_GOES_ON, n->text);
	if (n->kind != BATCHD__WIRE__NOTICE_KIND__RANK_STALLED)
		return 0;
	loader_event(l, BATCHD_EVENT_STALLED, n->text);
	if (!l->options.stall_error)
		return 0;
	fault_set(&l->fault, 0, "%s", n->text);
	return BATCHD_E_STALLED;
}

int loader_recv(struct batchd_loader *l, int flags, const Batchd__Wire__ServerMessage **m)
{
	int r;

	for (;;) {
		r = connection_recv(&l->connection, flags, m, NULL, &l->fault);
		if (r != 0 || !is_about_others(*m))
			return r;
		r = take_notice(l, (*m)->notice);
		if (r < 0)
			return r;
	}
}

void loader_send_close(struct batchd_loader *l)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Close body = BATCHD__WIRE__CLOSE__INIT;

	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLOSE;
	m.close = &body;
	if (l->connection.socket >= 0)
		connection_send(&l->connection, &m, NULL, 0);
}

/* ---- loans and the end ---- */

void loader_destroy(struct batchd_loader *l)
{
	bool on_gpu = l->delivery != NULL, unmapped = delivery_destroy(l->delivery, l->n_slots);

	if (on_gpu && unmapped)
		loader_send_close(l); /* a former connection, whose daemon may be waiting for this */
	connection_close(&l->connection);
	job_finish(&l->job);
	slab_destroy(l->slab);
	ring_unmap(&l->ring);
	classes_free(l);
	push_drop_all(l);
	free((char *)l->options.socket);
	free((char *)l->options.dataset);
	free((char *)l->options.transform);
	free((char *)l->options.program);
	free((char *)l->options.device);
	free(l->early);
	free(l->lease);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static bool is_over(const struct batchd_loader *l)
{
	return atomic_load(&l->n_leased) == 0 && !l->former;
}

void batchd_close(struct batchd_loader *l)
{
	bool last;

	if (!l)
		return;
	if (l->delivery && !loader_is_foreign(l)) {
		delivery_close(l);
		return;
	}
	if (loader_is_foreign(l)) {
		connection_close(&l->connection); /* this process's copy only; the rest may be in use by the parent's
		                                   * objects here */
		return;
	}
	pthread_mutex_lock(&l->lock);
	slices_stop(l);
	/* When memory is too short for copies the leases last until the process exits, which the daemon sees by itself.
	 */
	if (slab_detach(l->slab) && !l->absence.lost)
		loader_send_close(l);
	connection_close(&l->connection);
	l->closed = l->detached = true;
	last = is_over(l);
	pthread_mutex_unlock(&l->lock);
	if (last)
		loader_destroy(l);
}

static bool holds(const struct batchd_loader *l, uint32_t slot, uint64_t generation)
{
	return slot < l->n_slots && l->lease[slot].held && l->lease[slot].generation == generation;
}

/* Of an earlier connection: the slot is a copy of ours, which goes. */
static int release_former(struct batchd_loader *l, uint64_t era, uint32_t slot, uint64_t generation)
{
	struct batchd_loader **at = &l->former, *f;

	while (*at && (*at)->era != era)
		at = &(*at)->former;
	f = *at;
	if (!f || !holds(f, slot, generation) || !f->lease[slot].n_out ||
	    (f->delivery && !delivery_may_release(f->delivery, slot)))
		return BATCHD_E_INVALID;
	if (lease_ends(&f->lease[slot]))
		loader_let_go(f, slot);
	if (atomic_load(&f->n_leased) == 0) {
		*at = f->former;
		f->former = NULL;
		loader_destroy(f);
	}
	return 0;
}

void loader_finish(struct batchd_loader *l)
{
	bool unmapped = delivery_destroy(l->delivery, l->n_slots); /* before the daemon hears that it may use its
	                                                            * memory again */

	l->delivery = NULL;
	if (slab_detach(l->slab) && unmapped)
		loader_send_close(l); /* unless it is lost */
	loader_destroy(l);
}

/* The other end of a closed loader's life, and the ordinary end of a loan. */
void loader_end_lease(struct batchd_loader *l, uint32_t slot)
{
	/* All of our own book-keeping first: once the daemon knows, the slot may be lent again at once, to the thread
	 * in batchd_next. */
	l->lease[slot].held = false;
	if (l->detached)
		slab_drop(l->slab, slot);
	else
		slab_take_back(l->slab, slot);
	atomic_fetch_sub(&l->n_leased, 1);
	/* A connection that is cut has ended all loans; whoever waits for a batch next notices, and makes another. */
	if (!l->detached)
		(void)handover_release(l, slot, l->lease[slot].generation, l->lease[slot].wait_ns);
}

void loader_let_go(struct batchd_loader *l, uint32_t slot)
{
	if (l->delivery)
		delivery_let_go(l, slot);
	else
		loader_end_lease(l, slot);
}

static int release_current(struct batchd_loader *l, uint32_t slot, uint64_t generation)
{
	if (!holds(l, slot, generation) || !l->lease[slot].n_out ||
	    (l->delivery && !delivery_may_release(l->delivery, slot)))
		return BATCHD_E_INVALID;
	if (lease_ends(&l->lease[slot]))
		loader_let_go(l, slot);
	return 0;
}

int batchd_release(struct batchd_loader *l, uint32_t slot, uint64_t generation)
{
	uint64_t era = generation >> ERA_SHIFT;
	bool last, on_gpu;
	int r;

	if (loader_is_foreign(l))
		return BATCHD_E_FORKED;
	generation &= ((uint64_t)1 << ERA_SHIFT) - 1;
	pthread_mutex_lock(&l->lock);
	r = era == l->era ? release_current(l, slot, generation) : release_former(l, era, slot, generation);
	on_gpu = l->delivery != NULL;
	last = r == 0 && l->closed && !on_gpu && is_over(l);
	pthread_mutex_unlock(&l->lock);
	if (last)
		loader_destroy(l);
	if (on_gpu)
		delivery_reap();
	return r;
}

/* ---- what it is ---- */

const char *batchd_error(const struct batchd_loader *l)
{
	return loader_is_foreign(l) ? "this loader belongs to the parent process: open one after the fork"
				    : l->fault.text;
}

void batchd_get_info(const struct batchd_loader *l, struct batchd_info *info)
{
	size_t n = info->size_bytes;

	memcpy(info, &l->info, n < sizeof *info ? n : sizeof *info);
	info->size_bytes = n;
}

uint32_t batchd_n_leased(const struct batchd_loader *l)
{
	if (loader_is_foreign(l))
		return 0;
	return l->delivery ? delivery_n_held((struct batchd_loader *)l) : atomic_load(&l->n_leased);
}

int batchd_fd(const struct batchd_loader *l)
{
	return l->absence.lost ? -1 : l->connection.socket;
}

int batchd_arrays(struct batchd_loader *l, const struct batchd_batch *b, struct batchd_array *arrays, uint32_t max,
		  const char **text, size_t *n_text)
{
	struct fault f = { 0 };
	int r = BATCHD_E_FORKED;

	if (loader_is_foreign(l))
		return r;
	r = l->served ? arrays_read(b->data, (size_t)l->row_bytes, arrays, max, text, n_text, &f) :
			fault_set(&f, BATCHD_E_INVALID, "batchd_arrays is for batches of producers (serve:NAME)");
	if (r < 0) {
		l->fault = f;
		l->fault.code = 0; /* the next batch may be a better one */
	}
	return r;
}
