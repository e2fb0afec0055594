/* A loader: its messages, the batches that it has on loan, its end, and what it says about itself.
 *
 * Closing is the awkward part: tensors made from batches may outlive the loader, and the daemon must not wait for them.
 * So batchd_close puts copies of this process's own in the place of the batches still on loan, at the same addresses,
 * tells the daemon that all leases are over, and leaves the struct alive until the last batch is released.
 *
 * Another thread may be in a call meanwhile, asleep on the socket. batchd_close shuts the socket down, which wakes it,
 * and does not wait for it: a callback or an interpreter's lock may make the call wait for the thread that closes. The
 * last call in progress frees the loader on its way out. */
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

/* ---- calls ---- */

static bool is_over(const struct batchd_loader *l)
{
	return !l->n_calls && atomic_load(&l->n_leased) == 0 && !l->former;
}

/* Whether the caller is to destroy the loader: true once. Under the lock. Loaders with a GPU end in delivery.c. */
static bool ends_now(struct batchd_loader *l)
{
	if (!l->closed || l->ended || l->delivery || !is_over(l))
		return false;
	l->ended = true;
	return true;
}

static int begin_call(struct batchd_loader *l, bool even_closed)
{
	bool refused;

	if (loader_is_foreign(l))
		return BATCHD_E_FORKED;
	pthread_mutex_lock(&l->lock);
	refused = l->closed && !even_closed;
	l->n_calls += !refused;
	pthread_mutex_unlock(&l->lock);
	return refused ? BATCHD_E_CLOSED : 0;
}

/* Returns whether the loader is closed. */
static bool end_call(struct batchd_loader *l)
{
	bool closed, last, on_gpu, ends_on_gpu;

	pthread_mutex_lock(&l->lock);
	l->n_calls--;
	closed = l->closed;
	last = ends_now(l);
	on_gpu = l->delivery != NULL;
	ends_on_gpu = closed && !l->n_calls && on_gpu && !l->ended;
	l->ended |= ends_on_gpu;
	if (closed && !l->n_calls && !on_gpu)
		connection_close(&l->connection); /* batchd_close has shut it down */
	pthread_mutex_unlock(&l->lock);
	if (last)
		loader_destroy(l);
	if (ends_on_gpu)
		delivery_close(l);
	else if (closed && on_gpu)
		delivery_reap();
	return closed;
}

int loader_enter(struct batchd_loader *l)
{
	int r = begin_call(l, false);

	if (r < 0)
		return r;
	pthread_mutex_lock(&l->turn);
	return l->closed ? loader_leave(l, BATCHD_E_CLOSED) : 0;
}

int loader_leave(struct batchd_loader *l, int r)
{
	pthread_mutex_unlock(&l->turn);
	return end_call(l) && (r < 0 || r == BATCHD_AGAIN) ? BATCHD_E_CLOSED : r;
}

int loader_enter_with_batch(struct batchd_loader *l)
{
	return begin_call(l, true);
}

void loader_leave_with_batch(struct batchd_loader *l)
{
	end_call(l);
}

void loader_tell(struct batchd_loader *l, const struct fault *f)
{
	if (f->code && pthread_equal(l->taker, pthread_self()) && !l->fault.code)
		memcpy(l->fault.text, f->text, sizeof f->text);
}

void batchd_ref(struct batchd_loader *l)
{
	if (loader_is_foreign(l))
		return;
	pthread_mutex_lock(&l->lock);
	l->n_refs++;
	pthread_mutex_unlock(&l->lock);
}

static void free_struct(struct batchd_loader *l)
{
	pthread_mutex_destroy(&l->lock);
	pthread_mutex_destroy(&l->turn);
	free(l);
}

void batchd_unref(struct batchd_loader *l)
{
	bool last;

	if (!l || loader_is_foreign(l))
		return;
	pthread_mutex_lock(&l->lock);
	l->n_refs--;
	last = l->husk && !l->n_refs;
	pthread_mutex_unlock(&l->lock);
	if (last)
		free_struct(l);
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
		if (r == BATCHD_AGAIN && l->closed)
			return BATCHD_E_CLOSED;
		if (r != 0 || !is_about_others(*m))
			return r;
		r = take_notice(l, (*m)->notice);
		if (r < 0)
			return r;
		if (!(flags & MSG_DONTWAIT))
			return BATCHD_AGAIN; /* what the caller waits for may have come another way */
	}
}

/* What may come before an answer. BATCHD_AGAIN: it was such a message, and is dealt with; 0: it was none; or a code. */
static int take_aside(struct batchd_loader *l, const Batchd__Wire__ServerMessage *m)
{
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH)
		return stream_keep_early(l, m->batch) < 0 ? l->fault.code : BATCHD_AGAIN;
	return m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE ? handover_heard_wake(l) : 0;
}

int loader_call(struct batchd_loader *l, Batchd__Wire__ClientMessage *request, const char *what,
		Batchd__Wire__ServerMessage__BodyCase expected, const Batchd__Wire__ServerMessage **answer)
{
	int r = loader_send(l, request);

	if (r < 0)
		return r;
	do {
		r = loader_recv(l, 0, answer);
		if (r == 0)
			r = take_aside(l, *answer);
	} while (r == BATCHD_AGAIN);
	if (r == 0 && (*answer)->body_case != expected)
		return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s answers %s with %s", l->connection.address,
				 what, wire_server_name(*answer));
	return r;
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

static struct delivery *take_delivery(struct batchd_loader *l)
{
	struct delivery *d;

	pthread_mutex_lock(&l->lock);
	d = l->delivery;
	l->delivery = NULL;
	pthread_mutex_unlock(&l->lock);
	return d;
}

static void free_contents(struct batchd_loader *l)
{
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
	l->slab = NULL;
	l->early = NULL;
	l->lease = NULL;
	l->n_slots = 0;
	l->options = (struct batchd_options){ 0 };
	l->info = (struct batchd_info){ .size_bytes = sizeof l->info };
}

void loader_destroy(struct batchd_loader *l)
{
	struct delivery *delivery = take_delivery(l);
	bool on_gpu = delivery != NULL, unmapped = delivery_destroy(delivery, l->n_slots), referenced;

	if (on_gpu && unmapped)
		loader_send_close(l); /* a former connection, whose daemon may be waiting for this */
	pthread_mutex_lock(&l->lock);
	free_contents(l);
	l->closed = true;
	l->husk = referenced = l->n_refs;
	pthread_mutex_unlock(&l->lock);
	if (!referenced)
		free_struct(l);
}

/* Wakes a call in progress, which asleep in a receive sees no descriptor go. Under the lock. */
static void cut_connection(struct batchd_loader *l)
{
	if (!l->n_calls)
		connection_close(&l->connection);
	else if (l->connection.socket >= 0)
		shutdown(l->connection.socket, SHUT_RDWR);
}

void batchd_close(struct batchd_loader *l)
{
	bool first, last, ends_on_gpu;

	if (!l)
		return;
	if (loader_is_foreign(l)) {
		connection_close(&l->connection); /* this process's copy only; the rest may be in use by the parent's
		                                   * objects here */
		return;
	}
	pthread_mutex_lock(&l->lock);
	first = !l->closed;
	l->closed = true;
	if (first && !l->delivery) {
		slices_stop(l);
		/* When memory is too short for copies the leases last until the process exits, which the daemon sees by
		 * itself. */
		if (!l->detached && slab_detach(l->slab))
			loader_send_close(l); /* unless it is lost */
		cut_connection(l);
		l->detached = true;
	}
	last = ends_now(l);
	ends_on_gpu = l->delivery && !l->n_calls && !l->ended;
	l->ended |= ends_on_gpu;
	pthread_mutex_unlock(&l->lock);
	if (last)
		loader_destroy(l);
	if (ends_on_gpu)
		delivery_close(l);
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
	bool unmapped = delivery_destroy(take_delivery(l), l->n_slots); /* before the daemon hears that it may use its
	                                                                 * memory again */

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
	last = r == 0 && ends_now(l);
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
	pthread_mutex_t *lock = (pthread_mutex_t *)&l->lock;

	if (!loader_is_foreign(l))
		pthread_mutex_lock(lock);
	memcpy(info, &l->info, n < sizeof *info ? n : sizeof *info);
	if (!loader_is_foreign(l))
		pthread_mutex_unlock(lock);
	info->size_bytes = n;
}

uint32_t batchd_n_leased(const struct batchd_loader *l)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)&l->lock;
	uint32_t n;

	if (loader_is_foreign(l))
		return 0;
	pthread_mutex_lock(lock);
	n = l->delivery ? delivery_n_held(l) : atomic_load(&l->n_leased);
	pthread_mutex_unlock(lock);
	return n;
}

int batchd_fd(const struct batchd_loader *l)
{
	return l->absence.lost || l->closed ? -1 : l->connection.socket;
}

int batchd_arrays(struct batchd_loader *l, const struct batchd_batch *b, struct batchd_array *arrays, uint32_t max,
		  const char **text, size_t *n_text)
{
	struct fault f = { 0 };
	int r = loader_enter_with_batch(l);

	if (r < 0)
		return r;
	r = l->served ? arrays_read(b->data, (size_t)l->row_bytes, arrays, max, text, n_text, &f) :
			fault_set(&f, BATCHD_E_INVALID, "batchd_arrays is for batches of producers (serve:NAME)");
	if (r < 0) { /* the next batch may be a better one */
		pthread_mutex_lock(&l->lock);
		loader_tell(l, &f);
		pthread_mutex_unlock(&l->lock);
	}
	loader_leave_with_batch(l);
	return r;
}
