/* The life of a batch on the GPU. delivery.h has the states.
 *
 * Nothing here waits for the GPU on the trainer's path, unless a stream that read a batch is destroyed before the batch
 * goes back: events are only queried. A trainer that waits for a batch while other slots of its own are pending checks
 * both in turn, so it never waits for a slot that it has to give back itself. */
#include "gpu/delivery.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "link/arrays.h"
#include "link/clock.h"
#include "finish/fatbin.h"
#include "finish/mix-plan.h"
#include "link/process.h"

/* ---- opening ---- */

static const struct link_gpu_ops ops;

int delivery_create(struct link *k, const struct batchd_options *o, struct fault *f)
{
	struct delivery *d;
	int r;

	if (!o->device || !*o->device || strcmp(o->device, "cpu") == 0)
		return 0;
	if (o->dtype != BATCHD_UINT8 && o->dtype != BATCHD_FLOAT16 && o->dtype != BATCHD_BFLOAT16 &&
	    o->dtype != BATCHD_FLOAT32)
		return fault_set(f, BATCHD_E_INVALID,
				 "dtype: on a GPU images are made as uint8, float16, bfloat16 or float32");
	d = calloc(1, sizeof *d);
	if (!d)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	r = gpu_open(&d->gpu, o->device, f);
	if (r < 0) {
		free(d);
		return r;
	}
	d->gpu_half.ops = &ops;
	d->fork_generation = process_generation();
	d->dtype = o->dtype;
	d->layout = o->layout;
	d->mixes = o->mix && o->dtype != BATCHD_UINT8;
	d->pending_end = &d->pending;
	d->link = k;
	k->gpu = &d->gpu_half;
	return 0;
}

/* What cuIpcOpenMemHandle said when it failed last in this process; 0: it has not failed. kept_ns: when it said so, if
 * that was a refusal of the machine's: for a minute the daemon is not asked for memory that is opened so. Anything else
 * (no memory left, a daemon killed meanwhile) tells nothing of the next loader. */
static atomic_int ipc_failed;
static _Atomic uint64_t ipc_kept_ns;
static const uint64_t KEEP_NS = UINT64_C(60) * 1000000000;

static void note_ipc_failure(int result)
{
	bool keep = result == CUDA_NOT_SUPPORTED || result == CUDA_NOT_PERMITTED || result == CUDA_INVALID_VALUE ||
		    result == CUDA_INVALID_HANDLE;

	atomic_store(&ipc_failed, result);
	if (keep)
		atomic_store(&ipc_kept_ns, clock_now_ns());
}

static bool offers_ipc(const struct link *k)
{
	uint64_t kept_ns = atomic_load(&ipc_kept_ns);

	return !k->without_ipc && !(kept_ns && clock_now_ns() - kept_ns < KEEP_NS);
}

void delivery_ask(struct delivery *d, Batchd__Wire__Open *open)
{
	struct stat st;

	open->device_uuid.data = d->gpu.uuid.bytes;
	open->device_uuid.len = sizeof d->gpu.uuid.bytes;
	open->pid_namespace = stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
	open->driver_version = (uint32_t)d->gpu.driver_version;
	open->network_namespace = stat("/proc/self/ns/net", &st) == 0 ? st.st_ino : 0;
	open->ipc_namespace = stat("/proc/self/ns/ipc", &st) == 0 ? st.st_ino : 0;
	open->device_mps = d->gpu.needs_mps;
	d->offers_ipc = offers_ipc(d->link);
	if (d->offers_ipc)
		open->device_kinds |= 1u << BATCHD__WIRE__SLAB_KIND__CUDA_IPC;
	if (d->gpu.maps_fds)
		open->device_kinds |= 1u << BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD;
}

enum batchd_dtype delivery_numbers(enum batchd_dtype dtype)
{
	return dtype == BATCHD_BFLOAT16 ? BATCHD_FLOAT32 : dtype;
}

static enum convert_number number_of(enum batchd_dtype dtype)
{
	return dtype == BATCHD_UINT8      ? CONVERT_TO_UINT8
	       : dtype == BATCHD_FLOAT16  ? CONVERT_TO_FLOAT16
	       : dtype == BATCHD_BFLOAT16 ? CONVERT_TO_BFLOAT16
					  : CONVERT_TO_FLOAT32;
}

/* A pipeline that writes numbers that no pixel has (RandomErasing after Normalize) has finished images in the slot. */
static int plan_numbers(struct link *k, const struct link_field *view, struct finishing *to, struct fault *f)
{
	struct delivery *d = delivery_of(k);
	unsigned first = d->layout == BATCHD_NCHW ? 1 : 0;
	uint32_t h = view->is.shape[first], w = view->is.shape[first + 1],
		 c = view->is.shape[d->layout == BATCHD_NCHW ? 0 : 2];

	if (k->info.stored_layout != d->layout || view->is.dtype != delivery_numbers(d->dtype) ||
	    view->is.n_dims != 3 || c < 1 || c > 3 || !h || !w || (uint64_t)h * w > UINT32_MAX / 8)
		return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s offers images of another kind than asked for",
				 k->connection.address);
	convert_plan_init(&to->plan, number_of(d->dtype), d->layout == BATCHD_NCHW, c, h * w, NULL, NULL);
	to->width = w;
	to->has_numbers = true;
	to->is_image = d->mixes || d->dtype == BATCHD_BFLOAT16;
	d->any_image |= to->is_image;
	return 0;
}

static int plan_view(struct link *k, const struct link_field *view, struct finishing *to, struct fault *f)
{
	struct delivery *d = delivery_of(k);
	uint32_t h = view->is.shape[0], w = view->is.shape[1], c = view->is.shape[2];

	if (view->is.dtype != BATCHD_UINT8)
		return plan_numbers(k, view, to, f);
	if (k->info.stored_layout != BATCHD_NHWC || view->is.dtype != BATCHD_UINT8 || view->is.n_dims != 3 || c < 1 ||
	    c > 3 || !h || !w || (uint64_t)h * w > UINT32_MAX / 8)
		return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s offers images that are not uint8 NHWC for the GPU",
				 k->connection.address);
	if (d->dtype != BATCHD_UINT8 && !view->to_tensor)
		return fault_set(
			f, BATCHD_E_INVALID,
			"dtype: floats need \"ToTensor\" in the transform, which scales pixels to 0..1; without it ask for "
			"dtype uint8");
	convert_plan_init(&to->plan, number_of(d->dtype), d->layout == BATCHD_NCHW, c, h * w,
			  view->is.has_normalize ? view->is.mean : NULL, view->is.has_normalize ? view->is.std : NULL);
	to->width = w;
	to->is_image = d->dtype != BATCHD_UINT8 || (d->layout == BATCHD_NCHW && c > 1);
	d->any_image |= to->is_image;
	return 0;
}

static void describe_first(const struct delivery *d, struct batchd_info *i)
{
	uint32_t h = i->shape[0], w = i->shape[1], c = i->shape[2];
	bool has_numbers = i->dtype != BATCHD_UINT8;

	i->dtype = d->dtype;
	i->layout = d->layout;
	if (d->dtype != BATCHD_UINT8)
		i->has_normalize = 0; /* finishing will do it */
	if (d->layout == BATCHD_NCHW && !has_numbers)
		i->shape[0] = c, i->shape[1] = h, i->shape[2] = w;
}

/* What the trainer gets: images become a tensor other than the slot's content, unless the trainer asked for that
 * content. */
static int delivery_plan(struct link *k, struct fault *f)
{
	struct delivery *d = delivery_of(k);
	int r = 0;

	d->finishing = calloc(k->fields.n ? k->fields.n : 1, sizeof *d->finishing);
	if (!d->finishing)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	for (uint32_t n = 0; r == 0 && n < k->fields.n; n++)
		if (k->fields.list[n].is.view)
			r = plan_view(k, &k->fields.list[n], &d->finishing[n], f);
	if (r == 0 && fields_first(&k->fields) && fields_first(&k->fields)->is.view)
		describe_first(d, &k->info);
	return r;
}

/* The driver or the GPU has no code in an image: an older driver than the toolkit's, for example. */
static bool cannot_run(int r)
{
	return r == CUDA_NO_BINARY_FOR_GPU || r == CUDA_UNSUPPORTED_PTX_VERSION || r == CUDA_INVALID_IMAGE ||
	       r == CUDA_INVALID_PTX || r == CUDA_JIT_COMPILER_NOT_FOUND || r == CUDA_JIT_COMPILATION_DISABLED ||
	       r == CUDA_NOT_FOUND || r == CUDA_NOT_SUPPORTED;
}

/* With lazy loading the driver reads the code here. */
static void kernel_name(const struct delivery *d, const struct finishing *to, char name[32])
{
	struct mix_plan mix;

	if (d->mixes || to->has_numbers) {
		mix_plan_init(&mix, &to->plan, to->width);
		(to->has_numbers ? mix_plan_numbers_kernel : mix_plan_kernel)(&mix, name);
	} else {
		convert_plan_kernel(&to->plan, name);
	}
}

static int get_kernels(struct delivery *d)
{
	int r = CUDA_OK;

	for (uint32_t n = 0; r == CUDA_OK && n < d->link->fields.n; n++) {
		struct finishing *to = &d->finishing[n];
		char name[32];

		if (!to->is_image)
			continue;
		kernel_name(d, to, name);
		r = d->gpu.driver->module_get_function(&to->kernel, d->module, name);
	}
	return r;
}

static int load_image(struct delivery *d, const void *image)
{
	int r = d->gpu.driver->module_load_data(&d->module, image);

	if (r != CUDA_OK)
		return r;
	/* With lazy loading the driver reads the code here. */
	r = get_kernels(d);
	if (r == CUDA_OK && d->mixes)
		r = d->gpu.driver->module_get_function(&d->target_kernel, d->module, "mix_targets");
	d->has_kernel = r == CUDA_OK;
	if (cannot_run(r)) {
		d->gpu.driver->module_unload(d->module);
		d->module = NULL;
		d->target_kernel = NULL;
	}
	return r;
}

/* Machine code first. Where the driver cannot use that it compiles the PTX, which takes about a second, once per
 * machine and user, as the driver caches the result. If that fails too, the library behaves as if built without an
 * image. */
static int load_kernel(struct delivery *d)
{
	int r, of_image;

	if (!d->any_image || !convert_image())
		return CUDA_OK;
	r = of_image = load_image(d, convert_image());
	if (cannot_run(r))
		r = load_image(d, convert_ptx());
	if (!cannot_run(r))
		return r;
	snprintf(d->no_kernel, sizeof d->no_kernel,
		 "the driver takes the finishing kernel neither as machine code (%s) nor to compile it (%s)",
		 cuda_error_name(d->gpu.driver, of_image), cuda_error_name(d->gpu.driver, r));
	return CUDA_OK;
}

/* Notes in d->reason why the daemon's slab cannot be mapped. A CUDA result after which nothing works, or CUDA_OK. */
static int delivery_forgo(struct delivery *d, int result, const char *way, const char *call)
{
	d->imported = (struct daemon_memory){ 0 };
	d->refused = true;
	snprintf(d->reason, sizeof d->reason, "%s does not work here: %s says %s", way, call,
		 cuda_error_name(d->gpu.driver, result));
	return cuda_error_sticky(result) ? result : CUDA_OK;
}

static int import_handle(struct delivery *d, const Batchd__Wire__Opened *m)
{
	struct cuda_ipc_handle handle;
	int r;

	memcpy(&handle, m->ipc_handle.data, sizeof handle);
	r = d->gpu.driver->ipc_open_mem_handle(&d->imported.address, handle, CUDA_IPC_LAZY_PEER_ACCESS);
	if (r == CUDA_OK)
		return CUDA_OK;
	note_ipc_failure(r);
	return delivery_forgo(d, r, "CUDA IPC", "cuIpcOpenMemHandle");
}

static int import_fd(struct delivery *d, const Batchd__Wire__Opened *m, int fd)
{
	const char *call;
	int r = vmm_import(d->gpu.driver, d->gpu.device, fd, m->device_bytes, &d->imported.vmm, &call);

	if (r != CUDA_OK)
		return delivery_forgo(d, r, "mapping the daemon's memory by its descriptor", call);
	d->imported.address = d->imported.vmm.address;
	return CUDA_OK;
}

/* Why the daemon offers no memory: its own text, after the failure in this process. */
static void note_no_offer(struct delivery *d, const char *why)
{
	int r = d->offers_ipc ? CUDA_OK : atomic_load(&ipc_failed);

	if (!*why)
		why = "the daemon does not deliver to GPUs";
	if (r)
		snprintf(d->reason, sizeof d->reason, "CUDA IPC does not work here: cuIpcOpenMemHandle says %s; %.500s",
			 cuda_error_name(d->gpu.driver, r), why);
	else
		snprintf(d->reason, sizeof d->reason, "%.500s", why);
}

/* Opens the daemon's slab, or writes into d->reason why it cannot. */
static int delivery_import(struct link *k, const Batchd__Wire__Opened *m, int fd)
{
	struct delivery *d = delivery_of(k);

	if (!m->device_uuid.len) {
		note_no_offer(d, m->device_reason);
		return CUDA_OK;
	}
	if (memcmp(m->device_uuid.data, d->gpu.uuid.bytes, sizeof d->gpu.uuid.bytes) != 0) {
		snprintf(d->reason, sizeof d->reason, "the daemon offers memory of another GPU");
		return CUDA_OK;
	}
	d->stride = (size_t)m->device_slot_bytes;
	return m->device_kind == BATCHD__WIRE__SLAB_KIND__CUDA_IPC ? import_handle(d, m) : import_fd(d, m, fd);
}

/* Gives the mapping back. A CUDA result. */
static int close_mapping(struct delivery *d, struct daemon_memory *m)
{
	const char *call;
	int r = m->vmm.address ? vmm_close(d->gpu.driver, &m->vmm, &call)
			       : d->gpu.driver->ipc_close_mem_handle(m->address);

	m->address = 0;
	return r;
}

static int delivery_attach_link(struct link *k, const Batchd__Wire__Opened *m, int slab_fd, int device_fd,
				struct fault *f)
{
	struct delivery *d = delivery_of(k);
	int r = delivery_import(k, m, device_fd);
	size_t n;

	if (r != CUDA_OK)
		return gpu_fault(&d->gpu, r, f, "cannot map the daemon's memory on the GPU");
	if (d->refused && m->device_kind == BATCHD__WIRE__SLAB_KIND__CUDA_IPC && d->gpu.maps_fds)
		return DELIVERY_E_OTHER_WAY;
	if (!d->imported.address) {
		if (!slab_has(k->slab, k->n_slots - 1))
			return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s offers memory for a GPU that is not whole",
					 k->connection.address);
		r = copy_create(&d->copy, &d->gpu, slab_fd, k->n_slots, (size_t)m->slot_bytes, f);
		if (r < 0)
			return r;
		n = strlen(d->reason);
		if (*copy_detour(d->copy))
			snprintf(d->reason + n, sizeof d->reason - n, "; %s", copy_detour(d->copy));
	}
	return gpu_fault(&d->gpu, load_kernel(d), f, "cannot load the finishing kernel");
}

int delivery_attach(struct link *k, const Batchd__Wire__Opened *m, int slab_fd, int device_fd, struct fault *f)
{
	struct delivery *d = delivery_of(k);
	struct gpu_visit visit;
	int r = delivery_plan(k, f);

	if (r < 0)
		return r;
	d->lease = calloc(k->n_slots, sizeof *d->lease);
	if (!d->lease)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	r = gpu_enter(&d->gpu, &visit);
	if (r != CUDA_OK)
		return gpu_fault(&d->gpu, r, f, "cannot use the GPU");
	r = delivery_attach_link(k, m, slab_fd, device_fd, f);
	gpu_leave(&d->gpu, &visit);
	k->info.device = d->gpu.name;
	k->info.device_ordinal = d->gpu.ordinal;
	memcpy(k->info.device_uuid, d->gpu.uuid.bytes, sizeof k->info.device_uuid);
	k->info.device_path = d->imported.vmm.address ? BATCHD_DEVICE_VMM_FD
			      : d->imported.address   ? BATCHD_DEVICE_IPC
						      : BATCHD_DEVICE_COPY;
	if (k->info.device_path == BATCHD_DEVICE_IPC)
		memcpy(k->info.device_handle, m->ipc_handle.data, sizeof k->info.device_handle);
	k->info.device_reason = d->reason;
	k->info.can_finish = !d->any_image || d->has_kernel;
	k->info.finish_reason = d->no_kernel;
	k->no_device = d->refused ? d->reason : NULL;
	d->gpu_half.looks_ahead = d->copy != NULL;
	return r;
}

/* Releases everything. Most errors no longer matter: the process's end releases the rest. Returns whether the daemon's
 * memory is no longer mapped. */
static bool delivery_dismantle(struct delivery *d)
{
	const struct cuda_driver *driver = d->gpu.driver;
	bool unmapped = true;

	for (uint32_t i = 0; d->lease && i < d->link->n_slots; i++)
		for (unsigned k = 0; k < DELIVERY_STREAMS; k++)
			if (d->lease[i].event[k])
				driver->event_destroy(d->lease[i].event[k]);
	if (d->module)
		driver->module_unload(d->module);
	if (d->imported.address)
		unmapped = close_mapping(d, &d->imported) == CUDA_OK;
	copy_destroy(d->copy);
	return unmapped;
}

static bool close_half(struct link_gpu *g)
{
	struct delivery *d = delivery_from(g);
	struct gpu_visit visit;
	bool unmapped = !d->imported.address;

	/* a second try, as there is no later time for it */
	if (gpu_enter(&d->gpu, &visit) == CUDA_OK || gpu_enter(&d->gpu, &visit) == CUDA_OK) {
		unmapped = delivery_dismantle(d);
		gpu_leave(&d->gpu, &visit);
	}
	gpu_close(&d->gpu);
	free(d->lease);
	free(d->finishing);
	free(d);
	return unmapped;
}

/* ---- slots ---- */

cuda_ptr delivery_slot(const struct delivery *d, uint32_t slot)
{
	if (d->lease[slot].large)
		return d->lease[slot].large;
	return d->imported.address ? d->imported.address + slot * d->stride : copy_slot(d->copy, slot);
}

struct device_lease *delivery_lease(struct link *k, uint32_t slot, uint64_t generation)
{
	struct device_lease *lease = slot < k->n_slots ? &delivery_of(k)->lease[slot] : NULL;

	return lease && lease->n_lent && lease->generation == generation ? lease : NULL;
}

static bool may_release(struct link_gpu *g, uint32_t slot)
{
	struct delivery *d = delivery_from(g);

	if (!d->lease[slot].n_lent)
		return false;
	d->lease[slot].n_lent--;
	return true;
}

static uint32_t delivery_slot_of(const struct delivery *d, const struct device_lease *lease)
{
	return (uint32_t)(lease - d->lease);
}

/* Whether the trainer or a tensor has a slice of it. */
static bool is_with_caller(struct device_lease *lease)
{
	return lease->n_lent + lease->n_exported > atomic_load(&lease->n_returned);
}

static uint32_t n_held(const struct link_gpu *g)
{
	const struct delivery *d = (const struct delivery *)g;
	const struct link *k = d->link;
	uint32_t n = 0;

	for (uint32_t i = 0; i < k->n_slots; i++)
		n += k->lease[i].held && (k->lease[i].more || is_with_caller(&d->lease[i]));
	return n;
}

/* CUDA_STREAM_PER_THREAD has one value, but means another stream in each thread. */
static bool is_other_threads(const struct device_lease *lease, unsigned i)
{
	return lease->stream[i] == CUDA_STREAM_PER_THREAD && !pthread_equal(lease->thread[i], pthread_self());
}

int delivery_use(struct delivery *d, struct device_lease *lease, struct cuda_stream *stream)
{
	bool copies = d->copy && !lease->large; /* a large batch is there when it is lent */
	int r = copies ? copy_wait(d->copy, delivery_slot_of(d, lease), stream) : CUDA_OK;

	if (r != CUDA_OK)
		return r;
	for (unsigned i = 0; i < lease->n_streams; i++)
		if (lease->stream[i] == stream && !is_other_threads(lease, i))
			return CUDA_OK;
	if (lease->n_streams == DELIVERY_STREAMS)
		return CUDA_INVALID_VALUE;
	lease->thread[lease->n_streams] = pthread_self();
	lease->stream[lease->n_streams++] = stream;
	return CUDA_OK;
}

int delivery_is_capturing(const struct delivery *d, struct cuda_stream *stream, bool *capturing)
{
	int status = CUDA_CAPTURE_NONE, r = d->gpu.driver->stream_is_capturing(stream, &status);

	/* IMPLICIT is the answer for the legacy stream: another stream that waits for it is capturing. */
	*capturing = r == CUDA_STREAM_CAPTURE_IMPLICIT || (r == CUDA_OK && status != CUDA_CAPTURE_NONE);
	return *capturing ? CUDA_OK : r;
}

/* ---- giving back ---- */

/* Nothing reads the slot's batch any more. A GPU that is lost needs nothing freed. */
static void delivery_free(struct delivery *d, uint32_t slot)
{
	struct device_lease *lease = &d->lease[slot];
	struct gpu_visit visit;

	if (lease->large && gpu_enter(&d->gpu, &visit) == CUDA_OK) {
		d->gpu.driver->mem_free(lease->large);
		gpu_leave(&d->gpu, &visit);
	}
	lease->large = 0;
	if (d->copy)
		copy_free(d->copy, slot);
	d->gpu_half.on_free(d->link, slot);
}

void delivery_return(struct delivery *d, struct returned *node)
{
	struct returned *head = atomic_load(&d->returned);

	atomic_fetch_add(&d->lease[node->slot].n_returned, 1);
	do
		node->next = head;
	while (!atomic_compare_exchange_weak(&d->returned, &head, node));
}

/* The stream on which to record an event for the lease's stream: that stream itself, except for another thread's
 * default stream. That one can be reached only through the legacy stream, which waits for all such streams. */
static struct cuda_stream *stream_to_record(const struct device_lease *lease, unsigned i)
{
	return is_other_threads(lease, i) ? CUDA_STREAM_LEGACY : lease->stream[i];
}

/* Records an event after all work queued so far on the lease's streams, unless one of them captures a CUDA graph, of
 * which the event would become a part: then it is recorded later. *failed: the stream for which recording failed. In
 * the GPU's context. */
static int delivery_record(struct delivery *d, struct device_lease *lease, struct cuda_stream **failed)
{
	bool capturing = false;
	int r = CUDA_OK;

	for (unsigned i = 0; i < lease->n_streams && r == CUDA_OK && !capturing; i++) {
		*failed = lease->stream[i];
		r = delivery_is_capturing(d, stream_to_record(lease, i), &capturing);
	}
	lease->recorded = r == CUDA_OK && !capturing;
	for (unsigned i = 0; i < lease->n_streams && lease->recorded && r == CUDA_OK; i++) {
		*failed = lease->stream[i];
		if (!lease->event[i])
			r = d->gpu.driver->event_create(&lease->event[i], CUDA_EVENT_DISABLE_TIMING);
		if (r == CUDA_OK)
			r = d->gpu.driver->event_record(lease->event[i], stream_to_record(lease, i));
	}
	return r;
}

/* The driver's results for a stream that captures, or while any stream does: retry later. */
static bool is_capturing_result(int r)
{
	return r >= CUDA_STREAM_CAPTURE_UNSUPPORTED && r <= CUDA_STREAM_CAPTURE_IMPLICIT;
}

/* Waits for all work of the context. *waited: false if that would spoil a capture. A result other than CUDA_OK concerns
 * the context, and ends the loader. In the GPU's context. */
static int wait_for_all(const struct delivery *d, bool *waited)
{
	bool capturing = false;
	int r;

	*waited = false;
	(void)delivery_is_capturing(d, CUDA_STREAM_LEGACY, &capturing);
	if (capturing)
		return CUDA_OK;
	r = d->gpu.driver->ctx_synchronize();
	*waited = r == CUDA_OK;
	return is_capturing_result(r) ? CUDA_OK : r;
}

int delivery_believe(const struct delivery *d, int result)
{
	bool waited;

	if (result == CUDA_CONTEXT_IS_DESTROYED)
		return wait_for_all(d, &waited);
	return cuda_error_sticky(result) ? result : CUDA_OK;
}

/* For a stream or an event that cannot tell when the lease's work is over: waits for all work of the context, after
 * which nothing of the lease is left to query, or leaves it for later. A result as of wait_for_all. */
static int wait_instead(struct delivery *d, struct device_lease *lease)
{
	bool waited;
	int r = wait_for_all(d, &waited);

	lease->recorded = waited;
	if (waited)
		lease->n_streams = 0;
	return r;
}

static int record_or_wait(struct delivery *d, struct device_lease *lease)
{
	struct cuda_stream *failed;

	return delivery_record(d, lease, &failed) == CUDA_OK ? CUDA_OK : wait_instead(d, lease);
}

static void delivery_append(struct delivery *d, struct device_lease *lease)
{
	lease->pending = true;
	lease->next = NULL;
	*d->pending_end = lease;
	d->pending_end = &lease->next;
	d->gpu_half.n_pending++;
}

/* Handles tensors that are gone. An event recorded now is behind all work that was queued while they lived. In the
 * GPU's context, unless that is lost. */
static void take_returned(struct delivery *d)
{
	struct returned *next, *node = atomic_exchange(&d->returned, NULL);

	for (; node; node = next) {
		struct device_lease *lease = &d->lease[node->slot];

		next = node->next;
		atomic_fetch_sub(&lease->n_returned, 1);
		lease->n_exported--;
		lease->deferred = true;
		d->n_exported--;
		if (lease_ends(&d->link->lease[node->slot])) {
			if (!d->lost)
				d->lost = record_or_wait(d, lease);
			delivery_append(d, lease);
		}
		free(node);
	}
}

static void delivery_release(struct link_gpu *g, uint32_t slot)
{
	struct delivery *d = delivery_from(g);
	struct device_lease *lease = &d->lease[slot];
	struct gpu_visit visit;

	if (!lease->deferred) {
		delivery_free(d, slot);
		return;
	}
	if (!d->lost && !(d->lost = gpu_enter(&d->gpu, &visit))) {
		d->lost = record_or_wait(d, lease);
		gpu_leave(&d->gpu, &visit);
	}
	delivery_append(d, lease);
}

/* CUDA_OK: all of its work is complete. */
static int delivery_query(struct delivery *d, struct device_lease *lease)
{
	int r = lease->recorded ? CUDA_OK : record_or_wait(d, lease);

	for (unsigned i = 0; i < lease->n_streams && lease->recorded && r == CUDA_OK; i++)
		r = d->gpu.driver->event_query(lease->event[i]);
	if (r != CUDA_OK && r != CUDA_NOT_READY)
		r = wait_instead(d, lease);
	return r == CUDA_OK && !lease->recorded ? CUDA_NOT_READY : r;
}

static void give_back_complete(struct delivery *d)
{
	struct device_lease **at = &d->pending;

	while (*at && !d->lost) {
		struct device_lease *lease = *at;
		int r = delivery_query(d, lease);

		if (r == CUDA_NOT_READY) {
			at = &lease->next;
			continue;
		}
		if (r != CUDA_OK) {
			d->lost = r;
			break;
		}
		*at = lease->next;
		if (!*at)
			d->pending_end = at;
		lease->pending = false;
		d->gpu_half.n_pending--;
		delivery_free(d, delivery_slot_of(d, lease));
	}
}

/* Gives back slots whose work is complete. A CUDA result: the error that ended the GPU for this process, or CUDA_OK. */
static int delivery_look(struct delivery *d)
{
	struct gpu_visit visit;

	if ((d->pending || atomic_load(&d->returned)) && !d->lost) {
		d->lost = gpu_enter(&d->gpu, &visit);
		if (!d->lost) {
			take_returned(d);
			give_back_complete(d);
			gpu_leave(&d->gpu, &visit);
		}
	}
	if (d->lost)
		take_returned(d); /* without CUDA: only to note that the tensors are gone */
	return d->lost;
}

static int delivery_collect(struct link_gpu *g, bool *more, struct fault *f)
{
	struct delivery *d = delivery_from(g);
	int lost = delivery_look(d);

	*more = !lost && (d->pending || d->n_exported);
	if (!lost)
		return 0;
	if (f) {
		gpu_fault(&d->gpu, lost, f, "the trainer's work on the GPU failed");
		f->code = BATCHD_E_GPU;
	}
	return BATCHD_E_GPU;
}

/* The trainer's own work on the batch is queued on its stream: an event after it tells when the slot may go back. 0 or
 * a code with f. */
static int release_behind(struct delivery *d, struct device_lease *lease, struct cuda_stream *stream, struct fault *f)
{
	struct lease *host = &d->link->lease[delivery_slot_of(d, lease)];
	struct cuda_stream *failed = NULL;
	bool capturing = false;
	int r = delivery_is_capturing(d, stream, &capturing);

	if (capturing)
		return fault_set(
			f, BATCHD_E_INVALID,
			"batchd_cuda_release: not inside the capture of a CUDA graph; release it before or after");
	if (r == CUDA_OK)
		r = delivery_use(d, lease, stream);
	if (r == CUDA_OK && host->n_out == 1 && !host->more)
		r = delivery_record(d, lease, &failed);
	if (r != CUDA_OK && failed && failed != stream) /* an earlier stream; for its own stream the caller gets the
	                                                 * error */
		r = wait_instead(d, lease);
	if (r != CUDA_OK) {
		int lost = delivery_believe(d, r);

		if (lost)
			d->lost = lost;
		(lost ? gpu_fault : gpu_fault_on_stream)(
			&d->gpu, r, f, "batchd_cuda_release cannot note what the stream still does with the batch");
		return f->code = BATCHD_E_GPU;
	}
	lease->n_lent--;
	lease->deferred = true;
	if (lease_ends(host))
		delivery_append(d, lease);
	return 0;
}

int delivery_release_behind(struct delivery *d, struct device_lease *lease, struct cuda_stream *stream, struct fault *f)
{
	struct gpu_visit visit;
	int r = gpu_enter(&d->gpu, &visit);

	if (r != CUDA_OK) {
		gpu_fault(&d->gpu, r, f, "batchd_cuda_release cannot use the GPU");
		return f->code = BATCHD_E_GPU;
	}
	r = release_behind(d, lease, stream, f);
	take_returned(d);
	give_back_complete(d);
	gpu_leave(&d->gpu, &visit);
	return r;
}

/* ---- unmapping while the loader lives ---- */

static bool is_held(const struct delivery *d)
{
	bool held = false;

	for (uint32_t i = 0; i < d->link->n_slots; i++)
		held |= d->lease[i].n_lent || d->lease[i].n_exported;
	return held;
}

static bool is_idle(struct link_gpu *g)
{
	struct delivery *d = delivery_from(g);
	int lost = delivery_look(d);

	/* After a fatal error nothing runs on the GPU any more, and no event will complete. */
	return !is_held(d) && (lost || !d->pending);
}

/* Takes the mapping out if it may be closed: from then on no call finds it. */
static struct daemon_memory take_mapping(struct delivery *d)
{
	struct daemon_memory taken = { 0 };

	pthread_mutex_lock(d->link->host.lock);
	if (is_idle(&d->gpu_half) && !d->lost) {
		taken = d->imported;
		d->imported = (struct daemon_memory){ 0 };
	}
	pthread_mutex_unlock(d->link->host.lock);
	return taken;
}

static enum link_gpu_mapping delivery_unmap(struct link_gpu *g)
{
	struct delivery *d = delivery_from(g);
	struct gpu_visit visit;
	struct daemon_memory taken;
	int r;

	/* A daemon that stops need not wait for memory that came as a descriptor. */
	if (!d->imported.address || d->imported.vmm.address)
		return LINK_GPU_NONE;
	taken = take_mapping(d);
	if (!taken.address)
		return LINK_GPU_BUSY;
	r = gpu_enter(&d->gpu, &visit);
	if (r == CUDA_OK) {
		r = close_mapping(d, &taken);
		gpu_leave(&d->gpu, &visit);
	}
	return r == CUDA_OK ? LINK_GPU_UNMAPPED : LINK_GPU_STUCK;
}

/* ---- delivering ---- */

/* Begins to copy the bytes of the slot that the batch uses. */
static int begin_copy(struct delivery *d, const struct ready *b, bool is_lent)
{
	const struct link *k = d->link;
	struct copy_request r = { .slot = b->slot, .generation = b->generation };

	if (k->info.served) {
		r.data_bytes = arrays_extent(slab_slot(k->slab, b->slot), (size_t)k->row_bytes);
	} else {
		r.data_bytes = b->n_rows * k->row_bytes;
		fields_rest(&k->fields, b->n_rows, &r.rest_offset, &r.rest_bytes);
	}
	return copy_begin(d->copy, &r, is_lent);
}

/* Begins the batch's copy, and that of the next batch if it has arrived, so that it runs while the trainer works on
 * this one. */
static int begin_copies(struct delivery *d, const struct ready *b, const struct ready *next)
{
	struct gpu_visit visit;
	int r = gpu_enter(&d->gpu, &visit);

	if (r != CUDA_OK)
		return r;
	r = begin_copy(d, b, true);
	if (r == CUDA_OK && next && next->n_rows &&
	    !next->large_bytes) /* 0: the mark of the end of a producer's epoch */
		r = begin_copy(d, next, false);
	gpu_leave(&d->gpu, &visit);
	return r == CUDA_OK ? copy_begun(d->copy, b->slot) : r;
}

/* A batch that does not fit its slot has no place in the GPU's slots either: it gets memory there until it is given
 * back, and is copied now. */
static int deliver_large(struct delivery *d, const struct ready *b)
{
	const struct cuda_driver *driver = d->gpu.driver;
	struct device_lease *lease = &d->lease[b->slot];
	struct cuda_stream *stream = NULL;
	struct gpu_visit visit;
	int r = gpu_enter(&d->gpu, &visit);

	if (r != CUDA_OK)
		return r;
	r = driver->mem_alloc(&lease->large, (size_t)b->large_bytes);
	lease->large = r == CUDA_OK ? lease->large : 0;
	if (r == CUDA_OK)
		r = driver->stream_create_with_priority(&stream, CUDA_STREAM_NON_BLOCKING, 0);
	if (r == CUDA_OK) {
		r = driver->memcpy_htod_async(lease->large, link_data(d->link, b->slot), (size_t)b->large_bytes,
					      stream);
		r = r == CUDA_OK ? driver->stream_synchronize(stream) : r;
		driver->stream_destroy(stream);
	}
	gpu_leave(&d->gpu, &visit);
	return r;
}

/* The first slice of a batch, or the whole batch, resets the lease. */
static void note_lent(struct delivery *d, const struct ready *b)
{
	struct device_lease *lease = &d->lease[b->slot];
	uint64_t generation = link_stamp(d->link, b->generation);

	pthread_mutex_lock(d->link->host.lock);
	if (lease->generation != generation) {
		lease->generation = generation;
		lease->n_lent = lease->n_streams = 0;
		lease->deferred = lease->recorded = false;
	}
	lease->n_lent++;
	pthread_mutex_unlock(d->link->host.lock);
}

static int delivery_make_room(struct link_gpu *g, const struct ready *next, struct fault *f)
{
	struct delivery *d = delivery_from(g);
	struct gpu_visit visit;
	char what[192];
	bool waits;
	int r;

	if (!d->copy || copy_has_room(d->copy, next ? &next->slot : NULL))
		return 0;
	pthread_mutex_lock(d->link->host.lock);
	waits = d->pending != NULL;
	pthread_mutex_unlock(d->link->host.lock);
	if (waits)
		return BATCHD_AGAIN;
	r = gpu_enter(&d->gpu, &visit);
	if (r == CUDA_OK) {
		r = copy_add_place(d->copy);
		gpu_leave(&d->gpu, &visit);
	}
	if (r == CUDA_OK)
		return 0;
	copy_describe(d->copy, what, sizeof what);
	return gpu_fault(&d->gpu, r, f, what);
}

static int delivery_deliver(struct link_gpu *g, const struct ready *b, const struct ready *next, void **device_slot,
			    struct fault *f)
{
	struct delivery *d = delivery_from(g);
	int r;

	note_lent(d, b);
	r = b->large_bytes ? deliver_large(d, b) : d->copy ? begin_copies(d, b, next) : CUDA_OK;
	if (r != CUDA_OK) {
		gpu_fault(&d->gpu, r, f, "cannot copy a batch to the GPU");
		return f->code = BATCHD_E_GPU;
	}
	*device_slot = (void *)(uintptr_t)delivery_slot(d, b->slot);
	return 0;
}

static const struct link_gpu_ops ops = {
	.collect = delivery_collect,
	.is_idle = is_idle,
	.n_held = n_held,
	.make_room = delivery_make_room,
	.deliver = delivery_deliver,
	.may_release = may_release,
	.release = delivery_release,
	.unmap = delivery_unmap,
	.close = close_half,
};
