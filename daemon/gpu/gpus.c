/* The loop thread's side: the GPUs in use, which slabs mirror which host slab, and passing work to a GPU's threads and
 * back.
 *
 * The awkward corner is a host slab that is mirrored on several GPUs (share mode, trainers on each of them). Its pages
 * can be registered only once, so the opener of the first slab does it and other slabs wait until it has. When the last
 * slab closes, that opener unregisters the pages, after the copies of all slabs have ended. */
#include "gpu/gpus-impl.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/log.h"
#include "base/thread-kind.h"

enum { MAX_GPUS = 64 }; /* requested at a time, found or not: each takes two threads */

#define NS_PER_S UINT64_C(1000000000)

const char *const gpu_size_class_names[GPU_SIZE_CLASSES] = { "64KiB", "1MiB", "16MiB", "256MiB", "larger" };
const char *const gpu_share_names[GPU_N_SHARES] = { "cuda-ipc", "cuda-vmm-fd" };

/* ---- handing work over ---- */

static void gpus_submit(struct gpu *gpu, struct gpu_work *w, enum gpu_work_kind kind)
{
	struct gpu_thread *t = kind == GPU_WORK_COPY ? &gpu->copier : &gpu->opener;
	w->gpu = gpu;
	w->kind = kind;
	w->next = NULL;
	w->result = 0;
	pthread_mutex_lock(&gpu->all->lock);
	if (t->first)
		t->last->next = w;
	else
		t->first = w;
	t->last = w;
	pthread_cond_signal(&t->asked);
	pthread_mutex_unlock(&gpu->all->lock);
}

void gpu_copy_begin(struct gpu_slab *slab, struct gpu_copy *copy)
{
	assert(is_loop_thread());
	assert(copy->done);
	copy->work.slab = slab;
	gpus_submit(slab->gpu, &copy->work, GPU_WORK_COPY);
}

/* ---- GPUs ---- */

static struct gpu *find_gpu(struct gpus *g, const unsigned char uuid[GPU_UUID_BYTES])
{
	for (struct gpu *gpu = g->list; gpu; gpu = gpu->next) {
		if (!gpu->stop && !memcmp(gpu->uuid.bytes, uuid, GPU_UUID_BYTES))
			return gpu;
	}
	return NULL;
}

/* Only the loop thread handles signals. */
static int start_thread(struct gpu *gpu, struct gpu_thread *t, void *(*run)(void *arg))
{
	sigset_t all, before;
	t->gpu = gpu;
	pthread_cond_init(&t->asked, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int r = pthread_create(&t->id, NULL, run, t);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		pthread_cond_destroy(&t->asked);
	return -r;
}

static void stop_gpu(struct gpu *gpu)
{
	pthread_mutex_lock(&gpu->all->lock);
	gpu->stop = true;
	pthread_cond_signal(&gpu->opener.asked);
	pthread_cond_signal(&gpu->copier.asked);
	pthread_mutex_unlock(&gpu->all->lock);
}

static void join_thread(struct gpu_thread *t)
{
	pthread_join(t->id, NULL);
	pthread_cond_destroy(&t->asked);
}

/* Starts both threads, or none. */
static int gpus_start_threads(struct gpu *gpu)
{
	int r = start_thread(gpu, &gpu->opener, gpu_opener_run);
	if (r)
		return r;
	r = start_thread(gpu, &gpu->copier, gpu_copier_run);
	if (r) {
		pthread_mutex_lock(&gpu->all->lock);
		gpu->stop = true;
		pthread_cond_signal(&gpu->opener.asked);
		pthread_mutex_unlock(&gpu->all->lock);
		join_thread(&gpu->opener); /* immediate: it has nothing to do */
	}
	return r;
}

static int make_gpu(struct gpus *g, const unsigned char uuid[GPU_UUID_BYTES], struct gpu **out, char *why)
{
	unsigned n = 0;
	for (struct gpu *other = g->list; other; other = other->next)
		n++;
	if (n >= MAX_GPUS) {
		snprintf(why, GPU_REASON_BYTES, "the daemon is asked for more than %d GPUs at a time", MAX_GPUS);
		return GPU_E_REFUSED;
	}
	struct gpu *gpu = calloc(1, sizeof(*gpu));
	if (!gpu)
		return -ENOMEM;
	gpu->all = g;
	memcpy(gpu->uuid.bytes, uuid, GPU_UUID_BYTES);
	gpu->stats.numa_node = -1;
	memcpy(gpu->stats.uuid, uuid, GPU_UUID_BYTES);
	int r = gpus_start_threads(gpu);
	if (r) {
		free(gpu);
		snprintf(why, GPU_REASON_BYTES, "the daemon cannot start threads for the GPU: %s", strerror(-r));
		return GPU_E_REFUSED;
	}
	list_push(&g->list, gpu, next);
	*out = gpu;
	return 0;
}

/* A GPU that this machine does not have would otherwise keep its threads for ever. */
static void retire_unknown(struct gpu *gpu)
{
	pthread_mutex_lock(&gpu->all->lock);
	bool known = gpu->known;
	pthread_mutex_unlock(&gpu->all->lock);
	if (gpu->n_slabs == 0 && !known && !gpu->stop)
		stop_gpu(gpu);
}

/* ---- host slabs ---- */

static struct gpu_host *find_host(struct gpus *g, const uint8_t *base)
{
	struct gpu_host *h = g->hosts;
	while (h && h->base != base)
		h = h->next;
	return h;
}

static struct gpu_host *make_host(struct gpus *g, const struct gpu_slab_params *p)
{
	struct gpu_host *h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->base = p->host;
	h->slot_bytes = p->slot_bytes;
	h->n_slots = p->n_slots;
	list_push(&g->hosts, h, next);
	return h;
}

static void free_host(struct gpus *g, struct gpu_host *h)
{
	list_remove(&g->hosts, h, next);
	free(h);
}

/* ---- GPUs that do not answer ---- */

static uint64_t patience_ns(const struct gpus *g)
{
	return g->params.answer_ns ? g->params.answer_ns : 60 * NS_PER_S;
}

static bool has_worked(struct gpu *gpu)
{
	pthread_mutex_lock(&gpu->all->lock);
	bool worked = gpu->worked;
	pthread_mutex_unlock(&gpu->all->lock);
	return worked;
}

/* For how long the driver has not returned on a GPU that has never worked, if that is too long; else 0. A GPU that has
 * worked is different: trainers depend on it, and the watchdog ends the daemon. */
static uint64_t silent_ns(struct gpu *gpu)
{
	pthread_mutex_lock(&gpu->all->lock);
	uint64_t since = gpu->worked ? 0 : gpu->opener.busy_since_ns;
	uint64_t ns = since ? clock_now_ns() - since : 0;
	pthread_mutex_unlock(&gpu->all->lock);
	return ns >= patience_ns(gpu->all) ? ns : 0;
}

static void explain_silence(uint64_t ns, char *why)
{
	snprintf(
		why, GPU_REASON_BYTES,
		"on the daemon's side: the NVIDIA driver has not answered for %llu s; nvidia-smi and dmesg may say more",
		(unsigned long long)(ns / NS_PER_S));
}

/* The driver may still read the host slab; when it returns, the GPU's thread does nothing more for the slab. */
static void give_up(struct gpu_slab_work *sw, uint64_t ns)
{
	struct gpus *g = sw->slab.gpu->all;
	char why[GPU_REASON_BYTES];
	pthread_mutex_lock(&g->lock);
	sw->given_up = true;
	pthread_mutex_unlock(&g->lock);
	if (sw->pin)
		sw->host->pinning = false;
	explain_silence(ns, why);
	sw->params.on_open(sw->params.arg, NULL, GPU_E_LATE, why);
}

static void give_up_all(struct gpu *gpu, uint64_t ns)
{
	struct gpu_slab_work *next, *sw = gpu->openings;
	gpu->openings = NULL;
	for (; sw; sw = next) {
		next = sw->next_opening;
		give_up(sw, ns);
	}
}

static void wake_waiting(struct gpu_host *h);

static void on_answer_due(uv_timer_t *t)
{
	struct gpus *g = t->data;
	bool waits = false;
	for (struct gpu *gpu = g->list; gpu; gpu = gpu->next) {
		uint64_t ns = silent_ns(gpu);
		if (ns)
			give_up_all(gpu, ns);
		waits |= gpu->openings && !has_worked(gpu);
	}
	for (struct gpu_host *h = g->hosts; h; h = h->next)
		wake_waiting(h);
	if (!waits)
		uv_timer_stop(t);
}

static void await_answer(struct gpus *g)
{
	uint64_t ms = patience_ns(g) / 4 / 1000000 + 1;
	if (!uv_is_active((uv_handle_t *)&g->answer))
		uv_timer_start(&g->answer, on_answer_due, ms, ms);
}

/* ---- opening ---- */

static void begin_open(struct gpu_slab_work *sw)
{
	struct gpu_host *h = sw->host;
	sw->pin = !h->decided;
	if (sw->pin)
		h->pinning = true;
	sw->slab.pinned = h->pinned;
	sw->slab.numa_node = -1;
	gpus_submit(sw->slab.gpu, &sw->work, GPU_WORK_OPEN);
}

int gpu_slab_open(struct gpus *g, const struct gpu_slab_params *params, char *why)
{
	assert(is_loop_thread());
	assert(params->on_open && params->n_slots > 0);
	if (g->params.memory_bytes == 0) {
		snprintf(why, GPU_REASON_BYTES, "gpu_memory is off in the daemon's configuration");
		return GPU_E_REFUSED;
	}
	struct gpu *gpu = find_gpu(g, params->uuid);
	uint64_t ns = gpu ? silent_ns(gpu) : 0;
	if (ns) {
		explain_silence(ns, why);
		return GPU_E_REFUSED;
	}
	struct gpu_slab_work *sw = calloc(1, sizeof(*sw));
	struct gpu_host *h = find_host(g, params->host);
	int r = sw ? 0 : -ENOMEM;
	if (r == 0 && !gpu)
		r = make_gpu(g, params->uuid, &gpu, why);
	if (r == 0 && !h && !(h = make_host(g, params)))
		r = -ENOMEM;
	if (r) {
		if (gpu)
			retire_unknown(gpu);
		free(sw);
		return r;
	}
	sw->params = *params;
	sw->slab.gpu = gpu;
	sw->slab.arg = params->arg;
	sw->slab.share = params->share;
	sw->slab.fd = -1;
	sw->work.slab = &sw->slab;
	sw->host = h;
	h->n_slabs++;
	gpu->n_slabs++;
	list_push(&gpu->openings, sw, next_opening);
	if (!has_worked(gpu))
		await_answer(g);
	if (h->pinning) {
		list_push(&h->waiting, sw, next);
	} else {
		begin_open(sw);
	}
	return 0;
}

/* Slabs that waited for the pages to be registered: all of them go on; if the registering slab failed, the first one
 * registers instead. */
static void wake_waiting(struct gpu_host *h)
{
	while (h->waiting && !h->pinning) {
		struct gpu_slab_work *sw = h->waiting;
		h->waiting = sw->next;
		begin_open(sw);
	}
}

static void on_late_closed(void *arg, bool lost)
{
	struct gpu_slab_work *sw = arg;
	if (sw->params.on_late)
		sw->params.on_late(sw->params.arg, lost);
}

static void on_memory_freed(struct gpu_slab_work *sw);

/* The driver has returned after all. */
static void on_opened_late(struct gpu_slab_work *sw)
{
	struct gpu *gpu = sw->slab.gpu;
	struct gpu_host *h = sw->host;
	if (sw->work.result == 0) {
		if (sw->pin && sw->slab.pinned) {
			h->decided = h->pinned = true;
			h->pinner = gpu;
		}
		gpu_slab_close(&sw->slab, on_late_closed, sw);
		return;
	}
	sw->on_closed = on_late_closed;
	sw->closed_arg = sw;
	sw->work.result = sw->work.result == GPU_E_LOST ? GPU_E_LOST : 0;
	on_memory_freed(sw);
	retire_unknown(gpu);
}

/* The slab of a host slab that is pinned is refused, and the others have been closed meanwhile: its pages have to be
 * unregistered first. */
static bool leaves_pinned(const struct gpu_slab_work *sw)
{
	return sw->work.result == GPU_E_REFUSED && sw->host->n_slabs == 1 && sw->host->pinned;
}

static void on_opened(struct gpu_slab_work *sw)
{
	struct gpu *gpu = sw->slab.gpu;
	struct gpus *g = gpu->all;
	struct gpu_host *h = sw->host;
	int result = sw->work.result;
	if (sw->given_up) {
		on_opened_late(sw);
		return;
	}
	list_remove(&gpu->openings, sw, next_opening);
	if (leaves_pinned(sw)) {
		sw->params.on_open(sw->params.arg, NULL, GPU_E_LATE, sw->why);
		on_opened_late(sw);
		return;
	}
	if (sw->pin) {
		h->pinning = false;
		h->decided = result == 0;
		h->pinned = result == 0 && sw->slab.pinned;
		h->pinner = h->pinned ? gpu : NULL;
	}
	if (result) {
		h->n_slabs--;
		gpu->n_slabs--;
	}
	wake_waiting(h);
	if (result == 0 && sw->pin && !h->pinned && g->params.pin != GPU_PIN_OFF)
		log_record(LOG_LEVEL_WARNING, "not-pinned", "%s; copies to the GPU are slower", sw->why);
	if (result == 0) {
		sw->params.on_open(sw->params.arg, &sw->slab, 0, "");
		return;
	}
	if (h->n_slabs == 0)
		free_host(g, h);
	retire_unknown(gpu);
	sw->params.on_open(sw->params.arg, NULL, result, sw->why);
	free(sw);
}

/* ---- closing ---- */

void gpu_slab_close(struct gpu_slab *slab, void (*on_closed)(void *arg, bool lost), void *arg)
{
	assert(is_loop_thread());
	assert(on_closed);
	struct gpu_slab_work *sw = slab_work_of(slab);
	sw->on_closed = on_closed;
	sw->closed_arg = arg;
	gpus_submit(slab->gpu, &sw->work, GPU_WORK_CLOSE);
}

static void end_closing(struct gpu_slab_work *sw)
{
	sw->on_closed(sw->closed_arg, sw->work.result != 0);
	free(sw);
}

static void on_memory_freed(struct gpu_slab_work *sw)
{
	struct gpu_host *h = sw->host;
	sw->slab.gpu->n_slabs--;
	if (--h->n_slabs > 0) {
		end_closing(sw);
	} else if (h->pinned) {
		h->pinning = true; /* a slab that is opened meanwhile waits, and pins again */
		gpus_submit(h->pinner, &sw->work, GPU_WORK_UNPIN);
	} else {
		free_host(sw->slab.gpu->all, h);
		end_closing(sw);
	}
}

static void on_unpinned(struct gpu_slab_work *sw)
{
	struct gpu_host *h = sw->host;
	h->pinning = h->decided = h->pinned = false;
	h->pinner = NULL;
	wake_waiting(h);
	if (h->n_slabs == 0)
		free_host(sw->slab.gpu->all, h);
	end_closing(sw);
}

/* ---- completed work ---- */

static void gpus_on_copied(struct gpu_work *w)
{
	struct gpu_copy *copy = (struct gpu_copy *)(void *)w;
	char why[GPU_REASON_BYTES] = "";
	if (w->result) {
		pthread_mutex_lock(&w->gpu->all->lock);
		snprintf(why, sizeof(why), "%s", w->gpu->lost ? w->gpu->lost_text : w->gpu->copy_error);
		pthread_mutex_unlock(&w->gpu->all->lock);
	}
	copy->done(copy, w->result, why);
}

static void gpus_dispatch(struct gpu_work *w)
{
	switch ((enum gpu_work_kind)w->kind) {
	case GPU_WORK_OPEN:
		on_opened(slab_work_of(w->slab));
		break;
	case GPU_WORK_CLOSE:
		on_memory_freed(slab_work_of(w->slab));
		break;
	case GPU_WORK_UNPIN:
		on_unpinned(slab_work_of(w->slab));
		break;
	case GPU_WORK_COPY:
		gpus_on_copied(w);
		break;
	}
}

static void tell_lost(struct gpus *g)
{
	for (struct gpu *gpu = g->list; gpu; gpu = gpu->next) {
		char text[GPU_REASON_BYTES];
		pthread_mutex_lock(&g->lock);
		bool lost = gpu->lost;
		memcpy(text, gpu->lost_text, sizeof(text));
		pthread_mutex_unlock(&g->lock);
		if (!lost || gpu->told)
			continue;
		gpu->told = true;
		g->params.on_lost(g->params.arg, gpu, text);
	}
}

static void join_ended(struct gpus *g)
{
	for (struct gpu **at = &g->list, *gpu; (gpu = *at);) {
		pthread_mutex_lock(&g->lock);
		bool ended = gpu->opener.ended && gpu->copier.ended;
		pthread_mutex_unlock(&g->lock);
		if (!ended) {
			at = &gpu->next;
			continue;
		}
		*at = gpu->next;
		join_thread(&gpu->opener);
		join_thread(&gpu->copier);
		free(gpu);
	}
}

static void gpus_on_async_closed(uv_handle_t *h)
{
	struct gpus *g = h->data;
	void (*on_closed)(void *) = g->on_closed;
	void *arg = g->on_closed_arg;
	pthread_mutex_destroy(&g->driver_lock);
	pthread_mutex_destroy(&g->lock);
	free(g->mps_directory);
	free(g);
	if (on_closed)
		on_closed(arg);
}

static void gpus_on_timer_closed(uv_handle_t *h)
{
	struct gpus *g = h->data;
	uv_close((uv_handle_t *)&g->async, gpus_on_async_closed);
}

/* Threads end when no host slab is mirrored any more: until then a thread may still have to unregister one. */
static void maybe_end(struct gpus *g)
{
	if (!g->closing || g->hosts || g->ended)
		return;
	for (struct gpu *gpu = g->list; gpu; gpu = gpu->next) {
		if (!gpu->stop)
			stop_gpu(gpu);
	}
	if (!g->list) {
		g->ended = true;
		uv_close((uv_handle_t *)&g->answer, gpus_on_timer_closed);
	}
}

static void gpus_drain(uv_async_t *async)
{
	struct gpus *g = async->data;
	pthread_mutex_lock(&g->lock);
	struct gpu_work *w = g->done;
	g->done = g->done_last = NULL;
	pthread_mutex_unlock(&g->lock);
	tell_lost(g); /* first: its sessions end before their copies are reported as failed */
	while (w) {
		struct gpu_work *next = w->next;
		gpus_dispatch(w);
		w = next;
	}
	join_ended(g);
	maybe_end(g);
}

/* ---- life ---- */

int gpus_create(uv_loop_t *loop, const struct gpus_params *params, struct gpus **out)
{
	assert(is_loop_thread());
	struct gpus *g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->params = *params;
	int r = gpu_hide_mps(g);
	if (r == 0)
		r = uv_async_init(loop, &g->async, gpus_drain);
	if (r) {
		free(g->mps_directory);
		free(g);
		return r;
	}
	uv_timer_init(loop, &g->answer);
	g->async.data = g->answer.data = g;
	pthread_mutex_init(&g->lock, NULL);
	pthread_mutex_init(&g->driver_lock, NULL);
	*out = g;
	return 0;
}

void gpus_close(struct gpus *g, void (*on_closed)(void *arg), void *arg)
{
	assert(is_loop_thread());
	g->closing = true;
	g->on_closed = on_closed;
	g->on_closed_arg = arg;
	maybe_end(g);
}

void gpus_use_mps(struct gpus *g)
{
	assert(is_loop_thread());
	if (!g)
		return;
	pthread_mutex_lock(&g->lock);
	g->uses_mps = true;
	pthread_mutex_unlock(&g->lock);
}

/* ---- status ---- */

bool gpu_is_lost(const struct gpu *gpu)
{
	return gpu->told;
}

bool gpu_has_uuid(const struct gpu *gpu, const unsigned char uuid[GPU_UUID_BYTES])
{
	return !memcmp(gpu->uuid.bytes, uuid, GPU_UUID_BYTES);
}

unsigned gpus_get_stats(struct gpus *g, struct gpu_stats *stats, unsigned n)
{
	assert(is_loop_thread());
	unsigned filled = 0;
	pthread_mutex_lock(&g->lock);
	for (struct gpu *gpu = g->list; gpu && filled < n; gpu = gpu->next) {
		if (!gpu->known)
			continue;
		stats[filled] = gpu->stats;
		stats[filled].lost = gpu->lost;
		stats[filled].in_flight = gpu->copier.n_under_way;
		stats[filled++].driver_version = g->driver_version;
	}
	pthread_mutex_unlock(&g->lock);
	return filled;
}

static void look_at_thread(const struct gpu_thread *t, uint64_t now, uint64_t *oldest)
{
	if (t->busy_since_ns && now > t->busy_since_ns && now - t->busy_since_ns > *oldest)
		*oldest = now - t->busy_since_ns;
}

uint64_t gpus_oldest_busy_ns(struct gpus *g)
{
	assert(is_loop_thread());
	uint64_t oldest = 0;
	pthread_mutex_lock(&g->lock);
	uint64_t now = clock_now_ns();
	for (struct gpu *gpu = g->list; gpu; gpu = gpu->next) {
		if (!gpu->worked)
			continue;
		look_at_thread(&gpu->opener, now, &oldest);
		look_at_thread(&gpu->copier, now, &oldest);
	}
	pthread_mutex_unlock(&g->lock);
	return oldest;
}

int gpus_driver_version(struct gpus *g)
{
	if (!g)
		return 0;
	pthread_mutex_lock(&g->lock);
	int version = g->driver_version;
	pthread_mutex_unlock(&g->lock);
	return version;
}
