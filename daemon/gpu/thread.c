/* A GPU's opener: the thread that finds the driver and the GPU, makes the context, allocates, pins and exports, and
 * undoes all that. Each step may take seconds; the copier (copier.c) works on meanwhile.
 *
 * Every call's result goes through `gpu_thread_failed`. An error that the driver calls sticky, or "unknown error" in the middle of
 * work (which is how a GPU that has fallen off the bus appears), loses the GPU: from then on no call is made, not even
 * to free memory, because the driver may never return from it.
 *
 * Opening and closing a slab is different. Drivers return "unknown error" for operations that they do not support on
 * this machine, and for some that fail by themselves, so there that result alone does not lose the GPU: a probe decides. A
 * GPU on which no slab was ever opened is not reported as lost: it is written off, and every request for it is refused.
 * Otherwise an unsuitable driver would end the daemon, also for CPU trainers, each time a trainer asks.
 *
 * A driver may also never return. On a GPU that has never worked the loop thread then gives the slab up after a minute
 * (gpus.c); the thread stays in the driver.
 *
 * Drivers pin memory under locks that all processes share. While one process pins, the others wait even in calls as
 * simple as cuMemGetInfo. So memory is pinned and unpinned in pieces, with a pause after each. */
#include "gpu/gpus-impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/numa.h"
#include "base/size.h"
#include "base/thread-kind.h"

#define MIB (UINT64_C(1) << 20)
#define SLAB_ALIGN (2 * MIB)       /* smaller allocations share a block, and the handle would expose the whole block */
#define MOST_REGISTERED (64 * MIB) /* at once: 2 to 6 ms of the driver's locks (tests/gpu/RESULTS.md) */
enum { AUTO_MEMORY_PERCENT = 10, MOST_SPOILT = 2, REFUSED_S = 60, PAUSE_US = 1000 };

/* ---- results ---- */

/* Whether the call failed; notes that it did. */
static bool gpu_thread_failed(struct gpu *gpu, int result, const char *call)
{
	if (result == CUDA_OK)
		return false;
	const char *name = gpu_note_error(gpu, result, call);
	snprintf(gpu->own.last_error, sizeof(gpu->own.last_error), "%.70s in %.60s", name, call);
	gpu->own.result = result;
	if (gpu->own.lost || !gpu->own.context)
		return true;
	if (result == CUDA_UNKNOWN && gpu->own.probes)
		gpu->own.doubtful = true;
	else if (cuda_error_sticky(result) || result == CUDA_UNKNOWN)
		gpu_lose(gpu, call, name);
	return true;
}

static int gpu_thread_refuse(struct gpu_slab_work *sw, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int gpu_thread_refuse(struct gpu_slab_work *sw, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(sw->why, sizeof(sw->why), fmt, ap);
	va_end(ap);
	return GPU_E_REFUSED;
}

/* A driver that has refused will refuse again, and each attempt may take seconds: for a minute the stored reason is the
 * answer. Exhausted memory is not stored, because it may be available sooner. */
static void note_refused(struct gpu *gpu, const struct gpu_slab_work *sw)
{
	if (!gpu->own.context || gpu->own.result == CUDA_OUT_OF_MEMORY)
		return;
	enum gpu_share share = sw->params.share;
	memcpy(gpu->own.refused_why[share], sw->why, sizeof(gpu->own.refused_why[share]));
	gpu->own.refused_ns[share] = clock_now_ns();
}

/* After a call that should not fail: refused, or lost. */
static int refuse_failed(struct gpu *gpu, struct gpu_slab_work *sw, const char *what)
{
	if (gpu->own.lost && gpu->written_off[0]) /* the texts do not change once it is lost */
		return gpu_thread_refuse(sw, "%s", gpu->written_off);
	if (gpu->own.lost) {
		snprintf(sw->why, sizeof(sw->why), "%s", gpu->lost_text);
		return GPU_E_LOST;
	}
	gpu_thread_refuse(sw, "%s: %s", what, gpu->own.last_error);
	note_refused(gpu, sw);
	return GPU_E_REFUSED;
}

/* ---- finding the GPU ---- */

static void explain_init(const struct cuda_driver *d, int result, char *why, size_t n)
{
	const char *advice, *meaning = cuda_init_meaning(result, &advice);
	snprintf(why, n, "%s (%s in cuInit): %s", meaning, cuda_error_name(d, result), advice);
}

static int find_driver(struct gpu *gpu, struct gpu_slab_work *sw)
{
	struct gpus *g = gpu->all;
	char why[400] = "";
	int version = 0;
	pthread_mutex_lock(&g->lock);
	bool uses_mps = g->uses_mps;
	pthread_mutex_unlock(&g->lock);
	pthread_mutex_lock(&g->driver_lock);
	int r = g->driver_found ? 0 : cuda_driver_load(&g->driver, why, sizeof(why));
	if (r == 0 && !g->driver_found) {
		gpu_choose_mps(g, uses_mps);
		r = g->driver.init(0);
		if (r)
			explain_init(&g->driver, r, why, sizeof(why));
		else if ((r = g->driver.driver_get_version(&version)))
			snprintf(why, sizeof(why),
				 "the NVIDIA driver does not say what it is: %s in cuDriverGetVersion",
				 cuda_error_name(&g->driver, r));
		else if (version < CUDA_LEAST_DRIVER)
			r = -1, snprintf(why, sizeof(why), "the NVIDIA driver is too old (CUDA %d.%d; 11.4 is needed)",
					 version / 1000, version % 1000 / 10);
		g->driver_found = r == 0;
	}
	pthread_mutex_unlock(&g->driver_lock);
	if (r)
		return gpu_thread_refuse(sw, "on the daemon's side: %s", why);
	if (version) {
		pthread_mutex_lock(&g->lock);
		g->driver_version = version;
		pthread_mutex_unlock(&g->lock);
	}
	return 0;
}

static int find_device(struct gpu *gpu, struct gpu_slab_work *sw)
{
	const struct cuda_driver *d = &gpu->all->driver;
	char text[GPU_UUID_TEXT_BYTES];
	int n = 0, unknown = 0;
	if (gpu_thread_failed(gpu, d->device_get_count(&n), "cuDeviceGetCount"))
		return refuse_failed(gpu, sw, "the daemon cannot list its GPUs");
	for (int i = 0; i < n; i++) {
		struct cuda_uuid uuid;
		cuda_device device;
		if (gpu_thread_failed(gpu, d->device_get(&device, i), "cuDeviceGet") ||
		    gpu_thread_failed(gpu, d->device_get_uuid(&uuid, device), "cuDeviceGetUuid")) {
			unknown++;
		} else if (!memcmp(uuid.bytes, gpu->uuid.bytes, sizeof(uuid.bytes))) {
			gpu->own.device = device;
			return 0;
		}
	}
	if (unknown)
		return refuse_failed(gpu, sw, "the daemon cannot look at its GPUs");
	gpu_uuid_format(gpu->uuid.bytes, text);
	return gpu_thread_refuse(
		sw,
		"the daemon sees no %s among its %d GPUs (CUDA_VISIBLE_DEVICES, the container or the service may hide it, or it is part of a GPU)",
		text, n);
}

static bool under_mps(const struct gpu *gpu)
{
	int enabled = 0;
	/* A driver before CUDA 12.2 does not know the attribute; then the answer is no. */
	return gpu->all->driver.device_get_attribute(&enabled, CUDA_DEVICE_MPS_ENABLED, gpu->own.device) == CUDA_OK &&
	       enabled;
}

/* The kernel's answer for the GPU's place on the PCI bus; -1: the driver does not tell the place. */
static int find_pci_node(struct gpu *gpu)
{
	const struct cuda_driver *d = &gpu->all->driver;
	int domain = 0, bus = 0, device = 0;
	if (gpu_thread_failed(gpu, d->device_get_attribute(&domain, CUDA_DEVICE_PCI_DOMAIN_ID, gpu->own.device),
			      "cuDeviceGetAttribute") ||
	    gpu_thread_failed(gpu, d->device_get_attribute(&bus, CUDA_DEVICE_PCI_BUS_ID, gpu->own.device),
			      "cuDeviceGetAttribute") ||
	    gpu_thread_failed(gpu, d->device_get_attribute(&device, CUDA_DEVICE_PCI_DEVICE_ID, gpu->own.device),
			      "cuDeviceGetAttribute"))
		return -1;
	return numa_of_pci(gpu->all->params.root, domain, bus, device);
}

/* The NUMA node near the GPU, or -1. It only makes copies faster, so a GPU whose node cannot be found is used all the
 * same; the caller checks whether the GPU is lost. */
static int find_node(struct gpu *gpu)
{
	int node = -1;
	int r = gpu->all->driver.device_get_attribute(&node, CUDA_DEVICE_HOST_NUMA_ID, gpu->own.device);
	if (r == CUDA_OK && node >= 0)
		return node;
	/* invalid: a driver before CUDA 12.2 does not know it */
	if (r != CUDA_INVALID_VALUE)
		(void)gpu_thread_failed(gpu, r, "cuDeviceGetAttribute");
	return gpu->own.lost ? -1 : find_pci_node(gpu);
}

/* Whether the GPU itself allows sharing memory between processes. An instance of a divided GPU (MIG) is tried like any
 * other GPU: memory can be shared within one instance, and a driver that refuses says so. */
static int check_device(struct gpu *gpu, struct gpu_slab_work *sw)
{
	const struct cuda_driver *d = &gpu->all->driver;
	char name[sizeof(gpu->stats.name)] = "";
	int mode = 0, integrated = 0;
	size_t total = 0;
	if (gpu_thread_failed(gpu, d->device_get_name(name, sizeof(name), gpu->own.device), "cuDeviceGetName") ||
	    gpu_thread_failed(gpu, d->device_total_mem(&total, gpu->own.device), "cuDeviceTotalMem") ||
	    gpu_thread_failed(gpu, d->device_get_attribute(&mode, CUDA_DEVICE_COMPUTE_MODE, gpu->own.device),
			      "cuDeviceGetAttribute") ||
	    gpu_thread_failed(gpu, d->device_get_attribute(&integrated, CUDA_DEVICE_INTEGRATED, gpu->own.device),
			      "cuDeviceGetAttribute"))
		return refuse_failed(gpu, sw, "the daemon cannot look at the GPU");
	int node = find_node(gpu);
	if (gpu->own.lost)
		return refuse_failed(gpu, sw, "the daemon cannot look at the GPU");
	const struct gpus_params *p = &gpu->all->params;
	gpu->own.budget_bytes =
		p->memory_bytes == GPU_MEMORY_AUTO ? total / 100 * AUTO_MEMORY_PERCENT : p->memory_bytes;
	pthread_mutex_lock(&gpu->all->lock);
	gpu->known = true;
	memcpy(gpu->stats.name, name, sizeof(name));
	gpu->stats.numa_node = node;
	gpu->stats.budget_bytes = gpu->own.budget_bytes;
	pthread_mutex_unlock(&gpu->all->lock);
	if (integrated)
		return gpu_thread_refuse(sw, "%s shares the machine's memory; it is not shared between processes",
					 name);
	/* Under MPS the one process is MPS's own, shared by all its clients. */
	if (mode != CUDA_COMPUTE_DEFAULT && !(mode == CUDA_COMPUTE_EXCLUSIVE_PROCESS && under_mps(gpu)))
		return gpu_thread_refuse(
			sw, "%s is in compute mode %s (nvidia-smi -c DEFAULT changes it)", name,
			mode == CUDA_COMPUTE_EXCLUSIVE_PROCESS
				? "EXCLUSIVE_PROCESS, which lets one process use it at a time, or MPS's clients, of which this daemon is none"
				: "PROHIBITED, which lets no process use it");
	return 0;
}

/* ---- the context ---- */

static void drop_context(struct gpu *gpu)
{
	const struct cuda_driver *d = &gpu->all->driver;
	if (gpu->own.lost || gpu->own.keeps || !gpu->own.context)
		return;
	while (gpu->copies.n_events)
		gpu_thread_failed(gpu, d->event_destroy(gpu->copies.events[--gpu->copies.n_events]), "cuEventDestroy");
	if (gpu->copies.stream)
		gpu_thread_failed(gpu, d->stream_destroy(gpu->copies.stream), "cuStreamDestroy");
	if (gpu->own.stream)
		gpu_thread_failed(gpu, d->stream_destroy(gpu->own.stream), "cuStreamDestroy");
	gpu_thread_failed(gpu, d->ctx_set_current(NULL), "cuCtxSetCurrent");
	gpu_thread_failed(gpu, d->primary_ctx_release(gpu->own.device), "cuDevicePrimaryCtxRelease");
	gpu->copies.stream = gpu->own.stream = NULL;
	gpu->own.context = NULL;
	pthread_mutex_lock(&gpu->all->lock);
	gpu->stats.context = false;
	pthread_mutex_unlock(&gpu->all->lock);
}

static int gpu_thread_make_stream(struct gpu *gpu)
{
	const struct cuda_driver *d = &gpu->all->driver;
	int least = 0, greatest = 0;
	if (gpu_thread_failed(gpu, d->ctx_set_current(gpu->own.context), "cuCtxSetCurrent") ||
	    gpu_thread_failed(gpu, d->ctx_get_stream_priority_range(&least, &greatest),
			      "cuCtxGetStreamPriorityRange") ||
	    gpu_thread_failed(gpu,
			      d->stream_create_with_priority(&gpu->copies.stream, CUDA_STREAM_NON_BLOCKING, greatest),
			      "cuStreamCreateWithPriority") ||
	    gpu_thread_failed(gpu, d->stream_create_with_priority(&gpu->own.stream, CUDA_STREAM_NON_BLOCKING, greatest),
			      "cuStreamCreateWithPriority"))
		return -1;
	for (unsigned i = 0; i < GPU_IN_FLIGHT; i++) {
		if (gpu_thread_failed(gpu,
				      d->event_create(&gpu->copies.events[i],
						      CUDA_EVENT_BLOCKING_SYNC | CUDA_EVENT_DISABLE_TIMING),
				      "cuEventCreate"))
			return -1;
		gpu->copies.n_events++;
	}
	return 0;
}

/* The primary context, which frameworks also use: it takes its GPU memory only once per process. */
static int make_context(struct gpu *gpu, struct gpu_slab_work *sw)
{
	const struct cuda_driver *d = &gpu->all->driver;
	unsigned flags = 0;
	int active = 0;
	if (gpu->own.context)
		return 0;
	if (gpu_thread_failed(gpu, d->primary_ctx_get_state(gpu->own.device, &flags, &active),
			      "cuDevicePrimaryCtxGetState"))
		return refuse_failed(gpu, sw, "the daemon cannot use the GPU");
	/* By default a thread that waits for the GPU spins on a core. */
	if (!active && gpu_thread_failed(gpu, d->primary_ctx_set_flags(gpu->own.device, CUDA_CTX_SCHED_BLOCKING_SYNC),
					 "cuDevicePrimaryCtxSetFlags"))
		return refuse_failed(gpu, sw, "the daemon cannot use the GPU");
	if (gpu_thread_failed(gpu, d->primary_ctx_retain(&gpu->own.context, gpu->own.device),
			      "cuDevicePrimaryCtxRetain")) {
		gpu->own.context = NULL;
		return refuse_failed(gpu, sw, "the daemon cannot make a CUDA context");
	}
	gpu->own.n_contexts++;
	if (gpu_thread_make_stream(gpu)) {
		int r = refuse_failed(gpu, sw, "the daemon cannot make a copy stream");
		drop_context(gpu);
		return r;
	}
	pthread_mutex_lock(&gpu->all->lock);
	gpu->stats.context = true;
	pthread_mutex_unlock(&gpu->all->lock);
	return 0;
}

static void leave_context(struct gpu *gpu)
{
	if (gpu->own.n_uses == 0)
		drop_context(gpu);
}

/* ---- pinning ---- */

/* Whole slots per registration if they fit, so that few copies have to be split. */
uint64_t gpu_piece_bytes(const struct gpu_host *h)
{
	uint64_t slots = MOST_REGISTERED / h->slot_bytes;
	return slots ? slots * h->slot_bytes : MOST_REGISTERED;
}

static uint64_t host_bytes(const struct gpu_host *h)
{
	return (uint64_t)h->slot_bytes * h->n_slots;
}

/* Between two pieces: other processes that wait for the driver's locks get them, and the watchdog sees progress. */
static void pause_pinning(struct gpu *gpu)
{
	gpu_touch(&gpu->opener);
	nanosleep(&(struct timespec){ .tv_nsec = PAUSE_US * 1000 }, NULL);
}

/* False: CUDA has not released all of it. */
static bool gpu_thread_unregister(struct gpu *gpu, struct gpu_host *h, uint64_t bytes)
{
	bool all = true;
	for (uint64_t at = 0; at < bytes && !gpu->own.lost; at += gpu_piece_bytes(h)) {
		if (at)
			pause_pinning(gpu);
		all &= !gpu_thread_failed(gpu, gpu->all->driver.mem_host_unregister(h->base + at),
					  "cuMemHostUnregister");
	}
	return all && !gpu->own.lost;
}

/* Copies from memory of another processor use the link between the two, which is slower than the GPU's. Pinned pages
 * can no longer be moved. */
static bool move_near(struct gpu *gpu, uint8_t *base, uint64_t bytes)
{
	int node = gpu->stats.numa_node; /* only this thread writes it */
	if (node < 0)
		return false;
	int r = numa_prefer(base, (size_t)bytes, (unsigned)node);
	pthread_mutex_lock(&gpu->all->lock);
	gpu->stats.numa_error = -r;
	pthread_mutex_unlock(&gpu->all->lock);
	return r == 0;
}

static int register_pieces(struct gpu *gpu, struct gpu_slab_work *sw)
{
	struct gpu_host *h = sw->host;
	uint64_t all = host_bytes(h);
	bool moved = true;
	for (uint64_t at = 0; at < all; at += gpu_piece_bytes(h)) {
		uint64_t n = all - at < gpu_piece_bytes(h) ? all - at : gpu_piece_bytes(h);
		if (at)
			pause_pinning(gpu);
		if (gpu->own.lost) /* by a copy meanwhile */
			return -1;
		moved &= move_near(gpu, h->base + at, n);
		if (gpu_thread_failed(gpu,
				      gpu->all->driver.mem_host_register(h->base + at, n, CUDA_HOST_REGISTER_PORTABLE),
				      "cuMemHostRegister")) {
			gpu_thread_unregister(gpu, h, at);
			return -1;
		}
	}
	sw->slab.numa_node = moved ? gpu->stats.numa_node : -1;
	return 0;
}

/* Pinned pages can be neither swapped nor reclaimed: enough memory must stay unpinned for the machine and the control
 * group. */
static bool may_pin(struct gpu *gpu, uint64_t bytes, char *why, size_t n)
{
	struct gpus *g = gpu->all;
	char slab[32], had[32], left_text[32];
	uint64_t left = memory_left(NULL), all = g->params.machine_bytes;
	if (g->params.pin == GPU_PIN_AUTO && all && all < GPU_PIN_LEAST_BYTES) {
		snprintf(
			why, n,
			"%s of batches are not pinned: this machine or control group has %s, and pin_memory: auto pins nothing below 8 GiB; pin_memory: on pins all the same",
			size_format(bytes, slab, sizeof(slab)), size_format(all, had, sizeof(had)));
		return false;
	}
	pthread_mutex_lock(&g->lock);
	uint64_t pinned = g->pinned_bytes;
	pthread_mutex_unlock(&g->lock);
	if ((double)(pinned + bytes) <= g->params.pin_limit * (double)(pinned + bytes + left))
		return true;
	snprintf(
		why, n,
		"%s of batches are not pinned: with the %s that are, it would be more than %.0f %% (pin_limit) of what is pinned or left, of which %s are left",
		size_format(bytes, slab, sizeof(slab)), size_format(pinned, had, sizeof(had)),
		g->params.pin_limit * 100, size_format(left, left_text, sizeof(left_text)));
	return false;
}

static void count_pinned(struct gpu *gpu, uint64_t bytes)
{
	pthread_mutex_lock(&gpu->all->lock);
	gpu->all->pinned_bytes += bytes;
	gpu->stats.pinned_bytes += bytes;
	pthread_mutex_unlock(&gpu->all->lock);
}

static void note_unpinned(struct gpu *gpu, const char *note)
{
	pthread_mutex_lock(&gpu->all->lock);
	snprintf(gpu->stats.pin_note, sizeof(gpu->stats.pin_note), "%s", note);
	pthread_mutex_unlock(&gpu->all->lock);
}

/* 0, pinned or not; GPU_E_UNPINNED, GPU_E_LOST. */
static int gpu_thread_pin(struct gpu *gpu, struct gpu_slab_work *sw)
{
	struct gpu_host *h = sw->host;
	uint64_t bytes = host_bytes(h);
	enum gpu_pin mode = gpu->all->params.pin;
	char note[GPU_REASON_BYTES] = "pin_memory is off in the configuration";
	bool wanted = mode != GPU_PIN_OFF && may_pin(gpu, bytes, note, sizeof(note));
	if (wanted && register_pieces(gpu, sw) == 0) {
		sw->slab.pinned = true;
		gpu->own.n_uses++;
		count_pinned(gpu, bytes);
		return 0;
	}
	if (gpu->own.lost)
		return refuse_failed(gpu, sw, "");
	if (wanted)
		snprintf(note, sizeof(note), "batches cannot be pinned: %s", gpu->own.last_error);
	note_unpinned(gpu, note);
	snprintf(sw->why, sizeof(sw->why), "%.400s%s", note,
		 mode == GPU_PIN_ON
			 ? "; pin_memory is on in the daemon's configuration, auto would go on with slower copies"
			 : "");
	return mode == GPU_PIN_ON ? GPU_E_UNPINNED : 0;
}

static bool gpu_thread_unpin(struct gpu *gpu, struct gpu_slab_work *sw)
{
	uint64_t bytes = host_bytes(sw->host);
	bool all = gpu_thread_unregister(gpu, sw->host, bytes);
	gpu->own.n_uses--;
	pthread_mutex_lock(&gpu->all->lock);
	gpu->all->pinned_bytes -= bytes;
	gpu->stats.pinned_bytes -= bytes;
	pthread_mutex_unlock(&gpu->all->lock);
	return all;
}

/* ---- slabs ---- */

static void count_slab(struct gpu *gpu, int n, uint64_t bytes)
{
	gpu->own.slab_bytes += n > 0 ? bytes : -bytes;
	gpu->own.n_uses += (unsigned)n;
	pthread_mutex_lock(&gpu->all->lock);
	gpu->stats.n_slabs += (uint64_t)(int64_t)n;
	gpu->stats.slab_bytes = gpu->own.slab_bytes;
	pthread_mutex_unlock(&gpu->all->lock);
}

static int check_budget(struct gpu *gpu, struct gpu_slab_work *sw)
{
	char slab[32], used[32], budget[32];
	if (gpu->own.slab_bytes <= gpu->own.budget_bytes &&
	    sw->slab.bytes <= gpu->own.budget_bytes - gpu->own.slab_bytes)
		return 0;
	return gpu_thread_refuse(
		sw, "no room on %s: this trainer's batches take %s there, and %s of gpu_memory's %s are in use",
		gpu->stats.name, size_format(sw->slab.bytes, slab, sizeof(slab)),
		size_format(gpu->own.slab_bytes, used, sizeof(used)),
		size_format(gpu->own.budget_bytes, budget, sizeof(budget)));
}

static int refuse_memory(struct gpu *gpu, struct gpu_slab_work *sw)
{
	char slab[32];
	int r = refuse_failed(gpu, sw, gpu->stats.name);
	if (gpu->own.result == CUDA_OUT_OF_MEMORY)
		gpu_thread_refuse(sw, "%s has no %s left for this trainer's batches: %s", gpu->stats.name,
				  size_format(sw->slab.bytes, slab, sizeof(slab)), gpu->own.last_error);
	return r;
}

static void free_memory(struct gpu *gpu, struct gpu_slab_work *sw)
{
	const struct cuda_driver *d = &gpu->all->driver;
	const char *call = "";
	if (sw->slab.fd >= 0)
		close(sw->slab.fd);
	sw->slab.fd = -1;
	if (gpu->own.lost)
		return;
	if (sw->slab.share == GPU_SHARE_FD) {
		int r = vmm_close(d, &sw->vmm, &call);
		gpu_thread_failed(gpu, r, call);
	} else {
		gpu_thread_failed(gpu, d->mem_free(sw->memory), "cuMemFree");
	}
}

/* The previous contents may belong to another user. */
static int gpu_thread_wipe(struct gpu *gpu, struct gpu_slab_work *sw)
{
	const struct cuda_driver *d = &gpu->all->driver;
	if (gpu_thread_failed(gpu, d->memset_d8_async(sw->memory, 0, sw->slab.bytes, gpu->own.stream),
			      "cuMemsetD8Async") ||
	    gpu_thread_failed(gpu, d->stream_synchronize(gpu->own.stream), "cuStreamSynchronize"))
		return refuse_failed(gpu, sw, "the daemon cannot clear memory on the GPU");
	return 0;
}

/* Allocates memory that is shared by a descriptor. */
static int allocate_vmm(struct gpu *gpu, struct gpu_slab_work *sw)
{
	const struct cuda_driver *d = &gpu->all->driver;
	const char *call = "";
	int r = vmm_create(d, gpu->own.device, sw->slab.bytes, &sw->vmm, &call);
	if (gpu_thread_failed(gpu, r, call))
		return refuse_memory(gpu, sw);
	sw->memory = sw->vmm.address;
	r = gpu_thread_wipe(gpu, sw);
	if (r == 0) {
		int fd = -1, exported = vmm_export(d, &sw->vmm, &fd, &call);
		if (gpu_thread_failed(gpu, exported, call))
			r = refuse_failed(gpu, sw, "this GPU's memory cannot be shared by a descriptor");
		else
			sw->slab.fd = fd;
	}
	if (r)
		free_memory(gpu, sw);
	return r;
}

static int gpu_thread_allocate(struct gpu *gpu, struct gpu_slab_work *sw)
{
	const struct cuda_driver *d = &gpu->all->driver;
	struct cuda_ipc_handle handle;
	int capable = 1;
	if (sw->slab.share == GPU_SHARE_FD)
		return allocate_vmm(gpu, sw);
	if (gpu_thread_failed(gpu, d->mem_alloc(&sw->memory, sw->slab.bytes), "cuMemAlloc"))
		return refuse_memory(gpu, sw);
	if (d->pointer_get_attribute(&capable, CUDA_POINTER_IS_LEGACY_IPC_CAPABLE, sw->memory) != CUDA_OK)
		capable = 1; /* the driver does not know the attribute; the next call tells */
	if (!capable || gpu_thread_failed(gpu, d->ipc_get_mem_handle(&handle, sw->memory), "cuIpcGetMemHandle")) {
		int r = capable ? refuse_failed(gpu, sw, "this GPU's memory cannot be shared between processes")
				: gpu_thread_refuse(sw, "%s's memory cannot be shared between processes by CUDA IPC",
						    gpu->stats.name);
		free_memory(gpu, sw);
		return r;
	}
	memcpy(sw->slab.handle, handle.bytes, sizeof(handle.bytes));
	return 0;
}

/* Whether the GPU still works, after a call returned "unknown error" for a slab: tested by a copy of four bytes. A GPU without memory for the test has answered, and so works. */
static bool still_works(struct gpu *gpu)
{
	static const uint32_t word = 0;
	const struct cuda_driver *d = &gpu->all->driver;
	cuda_ptr memory = 0;
	const char *call = "cuMemAlloc";
	int r = d->mem_alloc(&memory, sizeof(word));
	if (r == CUDA_OUT_OF_MEMORY)
		return true;
	if (r == CUDA_OK && (call = "cuMemcpyHtoDAsync",
			     r = d->memcpy_htod_async(memory, &word, sizeof(word), gpu->own.stream)) == CUDA_OK)
		call = "cuStreamSynchronize", r = d->stream_synchronize(gpu->own.stream);
	if (r == CUDA_OK)
		call = "cuMemFree", r = d->mem_free(memory);
	if (r != CUDA_OK)
		gpu_lose(gpu, call, cuda_error_name(d, r));
	return r == CUDA_OK;
}

static void begin_probing(struct gpu *gpu)
{
	gpu->own.probes = true;
	gpu->own.doubtful = false;
}

/* After closing or unpinning. Afterwards only the context is left to go, if nothing else needs it. */
static void end_probing(struct gpu *gpu)
{
	if (gpu->own.doubtful && gpu->own.context && !gpu->own.lost)
		(void)still_works(gpu);
	leave_context(gpu);
	gpu->own.probes = false;
}

/* Rounds the size to what the driver can allocate, and checks whether it can do so at all. */
static int round_vmm(struct gpu *gpu, struct gpu_slab_work *sw)
{
	const struct cuda_driver *d = &gpu->all->driver;
	const char *call = "";
	bool supported;
	int r = vmm_look(d, gpu->own.device, &supported, &call);
	if (gpu_thread_failed(gpu, r, call))
		return refuse_failed(gpu, sw, "the daemon cannot look at the GPU");
	if (!supported)
		return gpu_thread_refuse(sw, "memory of %s cannot be shared by a descriptor (attributes 102 and 103)",
					 gpu->stats.name);
	r = vmm_round(d, gpu->own.device, &sw->slab.bytes, &call);
	return gpu_thread_failed(gpu, r, call)
		       ? refuse_failed(gpu, sw, "this GPU's memory cannot be shared by a descriptor")
		       : 0;
}

/* Whether the loop thread waits for the slab no more. */
static bool is_given_up(const struct gpu *gpu, const struct gpu_slab_work *sw)
{
	pthread_mutex_lock(&gpu->all->lock);
	bool given_up = sw->given_up;
	pthread_mutex_unlock(&gpu->all->lock);
	return given_up;
}

static int open_in_context(struct gpu *gpu, struct gpu_slab_work *sw)
{
	uint64_t bytes = (uint64_t)sw->params.slot_bytes * sw->params.n_slots;
	sw->slab.bytes = (bytes + SLAB_ALIGN - 1) / SLAB_ALIGN * SLAB_ALIGN;
	int r = sw->slab.share == GPU_SHARE_FD ? round_vmm(gpu, sw) : 0;
	if (r == 0)
		r = check_budget(gpu, sw);
	if (r == 0)
		r = gpu_thread_allocate(gpu, sw);
	if (r)
		return r;
	if (is_given_up(gpu, sw))
		r = GPU_E_REFUSED;
	else if (sw->pin)
		r = gpu_thread_pin(gpu, sw);
	if (r == 0 && gpu->own.doubtful && !still_works(gpu))
		r = refuse_failed(gpu, sw, "");
	if (r == 0)
		count_slab(gpu, 1, sw->slab.bytes);
	else
		free_memory(gpu, sw);
	return r;
}

/* Opens the slab and investigates "unknown error" results. */
static int open_carefully(struct gpu *gpu, struct gpu_slab_work *sw)
{
	begin_probing(gpu);
	int r = make_context(gpu, sw);
	gpu_touch(&gpu->opener);
	if (r == 0)
		r = open_in_context(gpu, sw);
	if (r && gpu->own.doubtful && gpu->own.context && !gpu->own.lost && !still_works(gpu))
		r = refuse_failed(gpu, sw, "");
	gpu->own.probes = false;
	if (r == 0) {
		pthread_mutex_lock(&gpu->all->lock);
		gpu->worked = true;
		pthread_mutex_unlock(&gpu->all->lock);
	}
	return r;
}

/* A trainer that is told of a failed copy opens again. That may help once; if copies fail repeatedly, trainers do
 * better without the daemon's copies. */
static int check_spoilt(struct gpu *gpu, struct gpu_slab_work *sw)
{
	char error[sizeof(gpu->copy_error)];
	pthread_mutex_lock(&gpu->all->lock);
	bool often = gpu->n_spoilt >= MOST_SPOILT && gpu_was_spoilt_lately(gpu);
	memcpy(error, gpu->copy_error, sizeof(error));
	pthread_mutex_unlock(&gpu->all->lock);
	if (!often)
		return 0;
	return gpu_thread_refuse(sw, "the daemon's copies to %s fail (%s); it tries again in a minute", gpu->stats.name,
				 error);
}

static int check_refused(struct gpu *gpu, struct gpu_slab_work *sw)
{
	uint64_t refused_ns = gpu->own.refused_ns[sw->params.share];
	if (!refused_ns || clock_now_ns() - refused_ns >= REFUSED_S * UINT64_C(1000000000))
		return 0;
	return gpu_thread_refuse(sw, "%.450s; the daemon tries again in a minute",
				 gpu->own.refused_why[sw->params.share]);
}

static int open_slab(struct gpu *gpu, struct gpu_slab_work *sw)
{
	if (gpu->own.lost)
		return refuse_failed(gpu, sw, "");
	int r = is_given_up(gpu, sw) ? GPU_E_REFUSED : check_spoilt(gpu, sw);
	if (r == 0)
		r = check_refused(gpu, sw);
	if (r == 0)
		r = find_driver(gpu, sw);
	gpu_touch(&gpu->opener);
	if (r == 0)
		r = find_device(gpu, sw);
	if (r == 0)
		r = check_device(gpu, sw);
	if (r == 0)
		r = open_carefully(gpu, sw);
	leave_context(gpu);
	return r;
}

static int close_slab(struct gpu *gpu, struct gpu_slab_work *sw)
{
	gpu->own.keeps |= sw->slab.left;
	begin_probing(gpu);
	if (!sw->slab.left)
		free_memory(gpu, sw);
	count_slab(gpu, -1, sw->slab.bytes);
	end_probing(gpu);
	return gpu->own.lost ? GPU_E_LOST : 0;
}

static int unpin_host(struct gpu *gpu, struct gpu_slab_work *sw)
{
	begin_probing(gpu);
	bool all = gpu_thread_unpin(gpu, sw);
	end_probing(gpu);
	return gpu->own.lost ? GPU_E_LOST : all ? 0 : GPU_E_FAILED;
}

/* ---- the loop ---- */

static int gpu_thread_work(struct gpu *gpu, struct gpu_work *w)
{
	struct gpu_slab_work *sw = slab_work_of(w->slab);
	return w->kind == GPU_WORK_OPEN    ? open_slab(gpu, sw)
	       : w->kind == GPU_WORK_CLOSE ? close_slab(gpu, sw)
					   : unpin_host(gpu, sw);
}

void *gpu_opener_run(void *arg)
{
	struct gpu_thread *t = arg;
	struct gpu *gpu = t->gpu;
	thread_kind = THREAD_OTHER;
	pthread_setname_np(pthread_self(), "batchd-gpu-open");
	for (struct gpu_work *w; (w = gpu_next_work(t, 0, 1));)
		gpu_finish_work(gpu, w, gpu_thread_work(gpu, w));
	drop_context(gpu);
	gpu_thread_ends(t);
	return NULL;
}
