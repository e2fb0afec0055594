/* A GPU's copier: the thread that copies. It sleeps while there is nothing to do, and in the driver (blocking, not
 * spinning) while copies are under way. Several copies are queued at once, so that the copy engine proceeds from one to
 * the next by itself; when this thread sees the oldest complete it fetches the copies requested meanwhile.
 *
 * Work comes only while a slab is open, so the opener's context, stream and events exist as long as a copy is under
 * way. */
#include "gpu/gpus-impl.h"
#include "base/thread-kind.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

/* ---- results ---- */

/* Whether the call failed; notes that it did. A working GPU does not return "unknown error" in the middle of copies. */
static bool gpu_copier_failed(struct gpu *gpu, int result, const char *call)
{
	if (result == CUDA_OK)
		return false;
	const char *name = gpu_note_error(gpu, result, call);
	pthread_mutex_lock(&gpu->all->lock);
	snprintf(gpu->copy_error, sizeof(gpu->copy_error), "%.70s in %.60s", name, call);
	pthread_mutex_unlock(&gpu->all->lock);
	if (cuda_error_sticky(result) || result == CUDA_UNKNOWN)
		gpu_lose(gpu, call, name);
	return true;
}

static void note_spoilt(struct gpu *gpu, struct gpu_slab_work *sw)
{
	if (sw->spoilt)
		return;
	pthread_mutex_lock(&gpu->all->lock);
	gpu->n_spoilt = gpu_was_spoilt_lately(gpu) ? gpu->n_spoilt + 1 : 1;
	gpu->spoilt_ns = clock_now_ns();
	pthread_mutex_unlock(&gpu->all->lock);
	sw->spoilt = true;
}

/* ---- copies ---- */

/* After a failed call: every copy that was begun has ended when this returns, or the GPU is lost. */
static void gpu_copier_settle(struct gpu *gpu)
{
	if (!gpu->own.lost &&
	    gpu_copier_failed(gpu, gpu->all->driver.stream_synchronize(gpu->copies.stream), "cuStreamSynchronize") &&
	    !gpu->own.lost)
		gpu_lose(gpu, "cuStreamSynchronize", "an error after an error");
}

/* The opener makes a context for the first slab and destroys it with the last. */
static bool enter_context(struct gpu *gpu)
{
	if (gpu->copies.n_context == gpu->own.n_contexts)
		return true;
	if (gpu_copier_failed(gpu, gpu->all->driver.ctx_set_current(gpu->own.context), "cuCtxSetCurrent"))
		return false;
	gpu->copies.n_context = gpu->own.n_contexts;
	return true;
}

/* A copy whose source lies in two registrations fails, or is slow. */
static bool copy_part(struct gpu *gpu, const struct gpu_slab_work *sw, uint64_t at, uint64_t bytes)
{
	uint64_t piece = sw->slab.pinned ? gpu_piece_bytes(sw->host) : bytes;
	while (bytes) {
		uint64_t left = sw->slab.pinned ? piece - at % piece : bytes, n = bytes < left ? bytes : left;
		if (gpu_copier_failed(gpu,
				      gpu->all->driver.memcpy_htod_async(sw->memory + at, sw->params.host + at, n,
									 gpu->copies.stream),
				      "cuMemcpyHtoDAsync"))
			return false;
		at += n;
		bytes -= n;
	}
	return true;
}

static int start_copy(struct gpu *gpu, struct gpu_copy *copy)
{
	const struct gpu_slab_work *sw = slab_work_of(copy->work.slab);
	if (gpu->own.lost)
		return GPU_E_LOST;
	if (!enter_context(gpu))
		return gpu->own.lost ? GPU_E_LOST : GPU_E_FAILED;
	for (uint32_t i = 0; i < copy->n_parts; i++) {
		if (!copy_part(gpu, sw, copy->part[i].offset, copy->part[i].bytes))
			goto fail;
	}
	copy->event = gpu->copies.events[gpu->copies.n_events - 1];
	if (gpu_copier_failed(gpu, gpu->all->driver.event_record(copy->event, gpu->copies.stream), "cuEventRecord"))
		goto fail;
	gpu->copies.n_events--;
	return 0;
fail:
	gpu_copier_settle(gpu); /* a part may be under way: the host memory must not be reused before it has ended */
	return gpu->own.lost ? GPU_E_LOST : GPU_E_FAILED;
}

static unsigned size_class(uint64_t bytes)
{
	static const uint64_t below[GPU_SIZE_CLASSES - 1] = { 64 << 10, MIB, 16 * MIB, 256 * MIB };
	unsigned c = 0;
	while (c < GPU_SIZE_CLASSES - 1 && bytes >= below[c])
		c++;
	return c;
}

static void count_copy(struct gpu *gpu, const struct gpu_copy *copy)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < copy->n_parts; i++)
		bytes += copy->part[i].bytes;
	unsigned c = size_class(bytes);
	pthread_mutex_lock(&gpu->all->lock);
	gpu->stats.copies[c].n++;
	gpu->stats.copies[c].bytes += bytes;
	gpu->stats.n_pageable += !copy->work.slab->pinned;
	pthread_mutex_unlock(&gpu->all->lock);
}

/* ---- the loop ---- */

static void land_oldest(struct gpu *gpu, int result)
{
	struct gpu_copy *copy = gpu->copies.flying[gpu->copies.oldest];
	gpu->copies.oldest = (gpu->copies.oldest + 1) % GPU_IN_FLIGHT;
	gpu->copies.n_flying--;
	gpu->copies.events[gpu->copies.n_events++] = copy->event;
	if (result)
		note_spoilt(gpu, slab_work_of(copy->work.slab));
	if (result == 0 && copy->n_parts)
		count_copy(gpu, copy);
	copy->seen_ns = result == 0 ? clock_now_ns() : 0;
	gpu_finish_work(gpu, &copy->work, result);
}

/* Waits for the oldest copy and completes all copies that are finished by then. If the GPU is lost, all copies have
 * ended, with an error. */
static void land_copies(struct gpu *gpu)
{
	const struct cuda_driver *d = &gpu->all->driver;
	bool first = true;
	while (gpu->copies.n_flying) {
		struct cuda_event *event = gpu->copies.flying[gpu->copies.oldest]->event;
		int r = gpu->own.lost ? CUDA_OK : first ? d->event_synchronize(event) : d->event_query(event);
		if (r == CUDA_NOT_READY)
			return;
		bool bad = gpu_copier_failed(gpu, r, first ? "cuEventSynchronize" : "cuEventQuery");
		if (bad)
			gpu_copier_settle(gpu);
		land_oldest(gpu, gpu->own.lost ? GPU_E_LOST : bad ? GPU_E_FAILED : 0);
		first = false;
	}
}

static void take_off(struct gpu *gpu, struct gpu_copy *copy)
{
	int r = start_copy(gpu, copy);
	if (r) {
		note_spoilt(gpu, slab_work_of(copy->work.slab));
		copy->seen_ns = 0;
		gpu_finish_work(gpu, &copy->work, r);
		return;
	}
	gpu->copies.flying[(gpu->copies.oldest + gpu->copies.n_flying) % GPU_IN_FLIGHT] = copy;
	gpu->copies.n_flying++;
}

void *gpu_copier_run(void *arg)
{
	struct gpu_thread *t = arg;
	struct gpu *gpu = t->gpu;
	thread_kind = THREAD_OTHER;
	pthread_setname_np(pthread_self(), "batchd-gpu");
	for (;;) {
		struct gpu_work *w = gpu_next_work(t, gpu->copies.n_flying, GPU_IN_FLIGHT);
		if (w)
			take_off(gpu, (struct gpu_copy *)(void *)w);
		else if (gpu->copies.n_flying)
			land_copies(gpu);
		else
			break;
	}
	gpu_thread_ends(t);
	return NULL;
}
