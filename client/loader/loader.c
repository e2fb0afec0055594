/* A loader: its calls, its end, and what it reports about itself.
 *
 * Closing is the awkward part: tensors made from batches may outlive the loader, and the daemon must not wait for them.
 * So batchd_close replaces the batches still on loan by copies of this process's own, at the same addresses, tells the
 * daemon that all leases are over, and leaves the struct alive until the last batch is released.
 *
 * Another thread may be in a call meanwhile, asleep on the socket. batchd_close shuts the socket down, which wakes that
 * thread, and does not wait for it: a callback or an interpreter's lock may make the call wait for the closing thread.
 * The last call in progress frees the loader on its way out. */
#include "loader/loader.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/clock.h"
#include "loader/links.h"
#include "loader/mix-loader.h"
#include "loader/open.h"
#include "loader/pending.h"
#include "link/process.h"
#include "loader/slices.h"

enum { CLOSE_MS = 5000, CLOSE_LOOK_US = 200 };

bool loader_is_foreign(const struct batchd_loader *l)
{
	return l->generation != process_generation();
}

/* ---- the end ---- */

static void free_struct(struct batchd_loader *l)
{
	pthread_mutex_destroy(&l->lock);
	pthread_mutex_destroy(&l->turn);
	free(l);
}

void loader_free_classes(struct batchd_loader *l)
{
	for (uint32_t i = 0; l->classes && i < l->n_classes; i++)
		free(l->classes[i]);
	free(l->classes);
	l->classes = NULL;
}

static void free_options(struct batchd_options *o)
{
	free((char *)o->socket);
	free((char *)o->transform);
	free((char *)o->program);
	free((char *)o->device);
	free((char *)o->mix);
	*o = (struct batchd_options){ 0 };
}

/* Under the lock. */
static void loader_move(struct batchd_loader *l, enum loader_life to)
{
	assert(to > l->life);
	atomic_store(&l->life, to);
}

/* No batch is on loan any more, no call is in progress, and no link is retired. */
static void loader_destroy(struct batchd_loader *l)
{
	struct link *link;
	bool referenced;

	pthread_mutex_lock(&l->lock);
	link = l->link;
	l->link = NULL;
	if (!loader_is_closed(l)) /* opening it has failed */
		loader_move(l, LOADER_CLOSED);
	pthread_mutex_unlock(&l->lock);
	link_destroy(link);
	job_finish(&l->job);
	loader_free_classes(l);
	pending_drop_all(l);
	free(l->mix);
	free_options(&l->options);
	source_finish(&l->source);
	pthread_mutex_lock(&l->lock);
	referenced = l->n_refs;
	if (referenced)
		loader_move(l, LOADER_HUSK);
	pthread_mutex_unlock(&l->lock);
	if (!referenced)
		free_struct(l);
}

/* ---- the end with a GPU ----
 *
 * A closed loader stays alive, connection included, while tensors hold its batches or the GPU reads them. Calls for any
 * other loader check whether it can be freed. */

static struct batchd_loader *closed_loaders; /* under process_lock */
static atomic_uint n_closed;

static bool is_done(struct batchd_loader *l)
{
	struct link_gpu *g = l->link->gpu;
	struct link *over;
	bool done;

	pthread_mutex_lock(&l->lock);
	over = links_take_idle(l);
	done = g->ops->is_idle(g) && !l->retired && !l->n_calls;
	pthread_mutex_unlock(&l->lock);
	links_destroy(over);
	return done;
}

static void keep_closed(struct batchd_loader *l)
{
	process_lock();
	l->next_closed = closed_loaders;
	closed_loaders = l;
	atomic_fetch_add(&n_closed, 1);
	process_unlock();
}

void loader_reap(void)
{
	struct batchd_loader *l, *next;

	if (!atomic_load(&n_closed))
		return;
	process_lock();
	l = closed_loaders;
	closed_loaders = NULL;
	atomic_store(&n_closed, 0);
	process_unlock();
	for (; l; l = next) {
		next = l->next_closed;
		if (loader_is_foreign(l))
			continue; /* the parent's; its objects must not be touched here */
		if (is_done(l))
			loader_destroy(l);
		else
			keep_closed(l);
	}
}

/* Waits a little for pending slots, then frees the loader or leaves that to loader_reap. Called once, for a loader that
 * is closed and in which no call is in progress. Not under the lock. */
static void end_on_gpu(struct batchd_loader *l)
{
	struct link_gpu *g = l->link->gpu;
	struct timespec pause = { .tv_nsec = CLOSE_LOOK_US * 1000 };
	uint64_t began = clock_now_ns();
	bool pending;

	do {
		bool more;

		pthread_mutex_lock(&l->lock);
		slices_stop(l);
		g->ops->collect(g, &more, NULL);
		pending = more && g->n_pending;
		pthread_mutex_unlock(&l->lock);
		if (pending)
			nanosleep(&pause, NULL);
	} while (pending && clock_now_ns() - began < (uint64_t)CLOSE_MS * 1000000);
	if (is_done(l))
		loader_destroy(l);
	else
		keep_closed(l);
}

/* ---- calls ---- */

static bool loader_is_over(const struct batchd_loader *l)
{
	return !l->n_calls && l->link->n_leased == 0 && !l->retired;
}

/* Whether GPU work has to end before the loader may. Under the lock. */
static bool is_on_gpu(const struct batchd_loader *l)
{
	return l->link && l->link->gpu;
}

/* Whether the caller must destroy the loader: true once. Under the lock. Loaders with a GPU end in end_on_gpu. */
static bool ends_now(struct batchd_loader *l)
{
	if (l->life != LOADER_CLOSED || is_on_gpu(l) || !loader_is_over(l))
		return false;
	loader_move(l, LOADER_ENDING);
	return true;
}

/* The same for a loader with a GPU: whether the caller must call end_on_gpu. */
static bool ends_on_gpu_now(struct batchd_loader *l)
{
	if (l->life != LOADER_CLOSED || !is_on_gpu(l) || l->n_calls)
		return false;
	loader_move(l, LOADER_ENDING);
	return true;
}

static int begin_call(struct batchd_loader *l, bool even_closed)
{
	bool refused;

	if (loader_is_foreign(l))
		return BATCHD_E_FORKED;
	pthread_mutex_lock(&l->lock);
	refused = loader_is_closed(l) && !even_closed;
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
	closed = loader_is_closed(l);
	last = ends_now(l);
	on_gpu = is_on_gpu(l);
	ends_on_gpu = ends_on_gpu_now(l);
	if (closed && !l->n_calls && !on_gpu && l->link)
		connection_close(&l->link->connection); /* batchd_close has shut it down */
	pthread_mutex_unlock(&l->lock);
	if (last)
		loader_destroy(l);
	if (ends_on_gpu)
		end_on_gpu(l);
	else if (closed && on_gpu)
		loader_reap();
	return closed;
}

int loader_enter(struct batchd_loader *l)
{
	int r = begin_call(l, false);

	if (r < 0)
		return r;
	pthread_mutex_lock(&l->turn);
	return loader_is_closed(l) ? loader_leave(l, BATCHD_E_CLOSED) : 0;
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
	if (f->code && pthread_equal(l->consumer_thread, pthread_self()) && !l->fault.code)
		memcpy(l->fault.text, f->text, sizeof f->text);
}

int loader_end_with_batch(struct batchd_loader *l, int r, const struct fault *f)
{
	if (r < 0) {
		pthread_mutex_lock(&l->lock);
		loader_tell(l, f);
		pthread_mutex_unlock(&l->lock);
	}
	loader_leave_with_batch(l);
	return r;
}

void batchd_ref(struct batchd_loader *l)
{
	if (loader_is_foreign(l))
		return;
	pthread_mutex_lock(&l->lock);
	l->n_refs++;
	pthread_mutex_unlock(&l->lock);
}

void batchd_unref(struct batchd_loader *l)
{
	bool last;

	if (!l || loader_is_foreign(l))
		return;
	pthread_mutex_lock(&l->lock);
	l->n_refs--;
	last = l->life == LOADER_HUSK && !l->n_refs;
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

/* ---- closing, giving back ---- */

/* Wakes a call in progress: closing the descriptor would not wake a blocked receive. Under the lock. */
static void cut_connection(struct batchd_loader *l)
{
	struct connection *c = &l->link->connection;

	if (!l->n_calls)
		connection_close(c);
	else if (c->socket >= 0)
		shutdown(c->socket, SHUT_RDWR);
}

void batchd_close(struct batchd_loader *l)
{
	bool first, last, ends_on_gpu;

	if (!l)
		return;
	if (loader_is_foreign(l)) {
		if (l->link)
			connection_close(&l->link->connection); /* this process's copy only; the parent's objects may
			                                         * still use the rest */
		return;
	}
	pthread_mutex_lock(&l->lock);
	first = !loader_is_closed(l);
	if (first)
		loader_move(l, LOADER_CLOSED);
	if (l->link)
		l->link->ends_job = l->job.own;
	if (first && !is_on_gpu(l)) {
		slices_stop(l);
		/* When memory is too short for copies the leases last until the process exits, which the daemon notices
		 * by itself. */
		if (link_detach(l->link))
			link_send_close(l->link); /* unless it is lost */
		cut_connection(l);
	}
	last = ends_now(l);
	ends_on_gpu = ends_on_gpu_now(l);
	pthread_mutex_unlock(&l->lock);
	if (last)
		loader_destroy(l);
	if (ends_on_gpu)
		end_on_gpu(l);
}

int batchd_release(struct batchd_loader *l, uint32_t slot, uint64_t generation)
{
	bool last, on_gpu, released;

	if (loader_is_foreign(l))
		return BATCHD_E_FORKED;
	pthread_mutex_lock(&l->lock);
	released = links_release(l, slot, generation);
	on_gpu = is_on_gpu(l);
	last = released && ends_now(l);
	pthread_mutex_unlock(&l->lock);
	if (last)
		loader_destroy(l);
	if (on_gpu)
		loader_reap();
	return released ? 0 : BATCHD_E_INVALID;
}

/* ---- information ---- */

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
	if (l->link)
		memcpy(info, &l->link->info, n < sizeof *info ? n : sizeof *info);
	else
		memset(info, 0, n < sizeof *info ? n : sizeof *info);
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
	n = is_on_gpu(l) ? l->link->gpu->ops->n_held(l->link->gpu) : l->link ? l->link->n_leased : 0;
	pthread_mutex_unlock(lock);
	return n;
}

int batchd_fd(const struct batchd_loader *l)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)&l->lock;
	bool foreign = loader_is_foreign(l);
	int fd;

	if (!foreign)
		pthread_mutex_lock(lock);
	fd = l->outage.lost || loader_is_closed(l) || !l->link ? -1 : l->link->connection.socket;
	if (!foreign)
		pthread_mutex_unlock(lock);
	return fd;
}

/* ---- opening ---- */

void batchd_options_init(struct batchd_options *o)
{
	*o = (struct batchd_options){
		.size_bytes = sizeof *o,
		.dtype = BATCHD_FLOAT32,
		.batch_size = 64,
		.rank = -1,
		.world_size = 1,
		.autostart = 1,
		.reconnect_ms = 30000,
	};
}

static struct batchd_loader *loader_create(const struct batchd_options *o, uint64_t born_ns)
{
	struct batchd_loader *l = calloc(1, sizeof *l);
	pthread_mutexattr_t recursive;

	if (!l)
		return NULL;
	pthread_mutex_init(&l->lock, NULL);
	pthread_mutexattr_init(&recursive);
	pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&l->turn, &recursive);
	pthread_mutexattr_destroy(&recursive);
	l->consumer_thread = pthread_self();
	l->generation = process_generation();
	l->born_ns = born_ns;
	l->own_batches = o->own_batches;
	l->share = o->mode == BATCHD_SHARE;
	l->drop_last = o->drop_last;
	l->repeats = o->repeats ? o->repeats : 1;
	l->epoch_rows = o->epoch_rows;
	l->group_rows = o->group_batch_size ? o->group_batch_size : o->batch_size;
	return l;
}

/* One attempt. address as for open_link. */
static int loader_open_once(const struct batchd_options *o, uint64_t born_ns, char *address, struct batchd_loader **out,
			    struct fault *f)
{
	struct batchd_loader *l = loader_create(o, born_ns);
	struct link *link;
	int r;

	*out = NULL;
	if (!l)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	r = open_check(o, f);
	if (r == 0)
		r = mix_loader_read(l, o, f);
	if (r == 0)
		r = open_link(l, o, false, address, &link, f);
	if (r < 0) {
		loader_destroy(l);
		return r;
	}
	l->served = link->info.served;
	open_switch(l, link);
	*out = l;
	return 0;
}

/* A daemon that is away while a loader opens. If it has answered before, batchd_open waits as long as an open loader
 * waits for its own daemon (reconnect_ms); an address where no daemon was seen may be misspelt. Only the time without a
 * daemon counts, not the time in which a daemon indexed the data or waited for a producer before it went away. */
struct open_outage {
	bool seen; /* a daemon was there, at `address` */
	char address[ADDRESS_MAX_BYTES];
	struct fault why;           /* why it went away */
	uint64_t away_ns, began_ns; /* in all, and when this attempt began */
	struct backoff backoff;     /* since it first went away */
};

static uint64_t most_ms(const struct open_outage *a, const struct batchd_options *o)
{
	return a->seen || o->reconnect_ms < CONNECTION_RETURN_MS ? o->reconnect_ms : CONNECTION_RETURN_MS;
}

static void note_seen(struct open_outage *a, const char *address, const struct fault *f)
{
	if (!a->seen)
		a->why = *f;
	a->seen = true;
	snprintf(a->address, sizeof a->address, "%s", address);
}

/* A daemon returns to its own socket, where the other trainers of its job look for it, too; later any daemon will
 * do. */
static void choose_address(const struct open_outage *a, const struct batchd_options *o, char *address)
{
	bool same = a->seen && a->away_ns / 1000000 < o->reconnect_ms / CONNECTION_SAME_SHARE;

	snprintf(address, ADDRESS_MAX_BYTES, "%s", same ? a->address : "");
}

/* After a failure r: returns false if it is final, else true after a pause. */
static bool waits_for_return(const struct batchd_options *o, int r, struct open_outage *a, struct fault *f)
{
	unsigned pause_ms;
	uint64_t away_ms;

	if (r == BATCHD_E_CONNECT)
		a->away_ns += clock_now_ns() - a->began_ns;
	away_ms = a->away_ns / 1000000;
	if (!(a->seen && r == BATCHD_E_CONNECT) && !connection_may_return(o->socket, r))
		return false;
	if (away_ms >= most_ms(a, o)) {
		if (a->seen && away_ms) {
			struct fault last = *f;

			fault_set(f, r, "%.2000s; it did not come back within %.1f s: %.2000s", a->why.text,
				  (double)away_ms / 1000, last.text);
		}
		return false;
	}
	if (o->on_progress && o->on_progress(o->progress_arg, "daemon", away_ms / 1000, most_ms(a, o) / 1000)) {
		fault_set(f, BATCHD_E_CANCELLED, "opening %s was cancelled", o->dataset);
		return false;
	}
	pause_ms = a->seen ? backoff_next_ms(&a->backoff) : CONNECTION_LOOK_MS;
	poll(NULL, 0, (int)pause_ms);
	a->away_ns += (uint64_t)pause_ms * 1000000;
	return true;
}

int batchd_open(const struct batchd_options *given, struct batchd_loader **out, char *err, size_t err_size)
{
	char address[ADDRESS_MAX_BYTES];
	struct batchd_options o;
	struct open_outage away = { .backoff = { CONNECTION_LOOK_MS, CONNECTION_LOOK_MOST_MS, 0 } };
	struct fault f;
	int r;

	batchd_options_init(&o);
	memcpy(&o, given, given->size_bytes < sizeof o ? given->size_bytes : sizeof o);
	if (o.shuffle < 0)
		o.shuffle = 1;
	loader_reap();
	do {
		choose_address(&away, &o, address);
		away.began_ns = clock_now_ns();
		r = loader_open_once(&o, away.began_ns, address, out, &f);
		if (r == BATCHD_E_LOST || r == BATCHD_E_SHUTDOWN)
			note_seen(&away, address, &f);
	} while (r < 0 && waits_for_return(&o, r, &away, &f));
	return r == 0 ? 0 : fault_give(&f, err, err_size);
}
