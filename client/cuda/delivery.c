/* The life of a batch on the GPU. delivery.h has the states.
 *
 * Nothing here waits for the GPU on the trainer's path, unless a stream that read a batch is destroyed before the batch
 * goes back: events are only asked whether they are complete. A trainer that
 * waits for a batch while others of its slots are pending looks at both in turn, so it can never wait for a slot that
 * is its own to give back. */
#include "cuda/delivery.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "arrays.h"
#include "clock.h"
#include "cuda/image.h"
#include "process.h"
#include "slices.h"
#include "stream.h"

enum { LOOK_MS = 1, SIGNAL_MS = 100, CLOSE_MS = 5000, CLOSE_LOOK_US = 200 };

/* ---- opening ---- */

int delivery_create(struct delivery **out, const struct batchd_options *o, struct fault *f)
{
	struct delivery *d;
	int r;

	*out = NULL;
	delivery_reap();
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
	d->fork_generation = process_generation();
	d->dtype = o->dtype;
	d->layout = o->layout;
	d->pending_end = &d->pending;
	*out = d;
	return 0;
}

/* What cuIpcOpenMemHandle said in this process when it failed; 0: it has not. It is not tried again: on a machine where
 * it fails it fails for every loader. */
static atomic_int ipc_failed;

void delivery_ask(struct delivery *d, Batchd__Wire__Open *open)
{
	struct stat st;

	open->device_uuid.data = d->gpu.uuid.bytes;
	open->device_uuid.len = sizeof d->gpu.uuid.bytes;
	open->pid_namespace = stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
	open->driver_version = (uint32_t)d->gpu.driver_version;
	open->network_namespace = stat("/proc/self/ns/net", &st) == 0 ? st.st_ino : 0;
	open->ipc_namespace = stat("/proc/self/ns/ipc", &st) == 0 ? st.st_ino : 0;
	if (!atomic_load(&ipc_failed))
		open->device_kinds |= 1u << BATCHD__WIRE__SLAB_KIND__CUDA_IPC;
	if (d->gpu.maps_fds)
		open->device_kinds |= 1u << BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD;
}

/* What the trainer gets: for images another tensor than what is in the slot, unless it asked for just that. */
static int plan(struct link *k, const Batchd__Wire__Opened *m, struct fault *f)
{
	struct delivery *d = k->delivery;
	struct batchd_info *i = &k->info;
	enum finish_number number = d->dtype == BATCHD_UINT8      ? FINISH_TO_UINT8
				    : d->dtype == BATCHD_FLOAT16  ? FINISH_TO_FLOAT16
				    : d->dtype == BATCHD_BFLOAT16 ? FINISH_TO_BFLOAT16
								  : FINISH_TO_FLOAT32;
	uint32_t h, w, c;

	if (m->layout == BATCHD__WIRE__LAYOUT__AS_STORED)
		return 0;
	h = i->n_dims == 3 ? i->shape[0] : 0;
	w = i->n_dims == 3 ? i->shape[1] : 0;
	c = i->n_dims == 3 ? i->shape[2] : 0;
	if (m->layout != BATCHD__WIRE__LAYOUT__NHWC || m->dtype != BATCHD__WIRE__DTYPE__UINT8 || c < 1 ||
	    c > FINISH_MAX_CHANNELS || !h || !w || (uint64_t)h * w > UINT32_MAX / 8 || (m->n_mean && m->n_mean < c))
		return fault_set(f, BATCHD_E_PROTOCOL,
				 "batchd at %s offers images that are not uint8 NHWC for the GPU",
				 k->connection.address);
	if (d->dtype != BATCHD_UINT8 && !m->to_tensor)
		return fault_set(
			f, BATCHD_E_INVALID,
			"dtype: floats need \"ToTensor\" in the transform, which scales pixels to 0..1; without it ask for "
			"dtype uint8");
	finish_plan_init(&d->plan, number, d->layout == BATCHD_NCHW, c, h * w, m->n_mean ? m->mean : NULL,
			 m->n_std ? m->std : NULL);
	d->is_image = d->dtype != BATCHD_UINT8 || (d->layout == BATCHD_NCHW && c > 1);
	i->dtype = d->dtype;
	i->layout = d->layout;
	if (d->dtype != BATCHD_UINT8)
		i->has_normalize = 0; /* it will be done */
	if (d->layout == BATCHD_NCHW)
		i->shape[0] = c, i->shape[1] = h, i->shape[2] = w;
	return 0;
}

/* A driver or a GPU for which there is no code in an image: an older driver than the toolkit's, for example. */
static bool cannot_run(int r)
{
	return r == CUDA_NO_BINARY_FOR_GPU || r == CUDA_UNSUPPORTED_PTX_VERSION || r == CUDA_INVALID_IMAGE ||
	       r == CUDA_INVALID_PTX || r == CUDA_JIT_COMPILER_NOT_FOUND || r == CUDA_JIT_COMPILATION_DISABLED ||
	       r == CUDA_NOT_FOUND || r == CUDA_NOT_SUPPORTED;
}

static int load_image(struct delivery *d, const void *image, const char *name)
{
	int r = d->gpu.driver->module_load_data(&d->module, image);

	if (r != CUDA_OK)
		return r;
	/* With lazy loading this is where the code is looked at. */
	r = d->gpu.driver->module_get_function(&d->kernel, d->module, name);
	if (cannot_run(r)) {
		d->gpu.driver->module_unload(d->module);
		d->module = NULL;
		d->kernel = NULL;
	}
	return r;
}

/* Machine code first; where the driver has no use for that it compiles the PTX, which takes it about a second, once per
 * machine and user, as it keeps the result. If it cannot do that either it is as if there were no image. */
static int load_kernel(struct delivery *d)
{
	char name[32];
	int r, of_image;

	if (!d->is_image || !finish_image())
		return CUDA_OK;
	finish_plan_kernel(&d->plan, name);
	r = of_image = load_image(d, finish_image(), name);
	if (cannot_run(r))
		r = load_image(d, finish_ptx(), name);
	if (!cannot_run(r))
		return r;
	snprintf(d->no_kernel, sizeof d->no_kernel,
		 "the driver takes the finishing kernel neither as machine code (%s) nor to compile it (%s)",
		 cuda_error_name(d->gpu.driver, of_image), cuda_error_name(d->gpu.driver, r));
	return CUDA_OK;
}

/* Notes in d->reason why the daemon's slab cannot be mapped. A CUDA result after which nothing works, or CUDA_OK. */
static int forgo(struct delivery *d, int result, const char *way, const char *call)
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
	atomic_store(&ipc_failed, r);
	return forgo(d, r, "CUDA IPC", "cuIpcOpenMemHandle");
}

static int import_fd(struct delivery *d, const Batchd__Wire__Opened *m, int fd)
{
	const char *call;
	int r = vmm_import(d->gpu.driver, d->gpu.device, fd, m->device_bytes, &d->imported.vmm, &call);

	if (r != CUDA_OK)
		return forgo(d, r, "mapping the daemon's memory by its descriptor", call);
	d->imported.address = d->imported.vmm.address;
	return CUDA_OK;
}

/* Why the daemon offers none: its own words, behind what went wrong here before. */
static void note_no_offer(struct delivery *d, const char *why)
{
	int r = atomic_load(&ipc_failed);

	if (!*why)
		why = "the daemon does not deliver to GPUs";
	if (r)
		snprintf(d->reason, sizeof d->reason, "CUDA IPC does not work here: cuIpcOpenMemHandle says %s; %.500s",
			 cuda_error_name(d->gpu.driver, r), why);
	else
		snprintf(d->reason, sizeof d->reason, "%.500s", why);
}

/* Opens the daemon's slab, or says in d->reason why not. */
static int import(struct link *k, const Batchd__Wire__Opened *m, int fd)
{
	struct delivery *d = k->delivery;

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
static int unmap(struct delivery *d, struct daemon_memory *m)
{
	const char *call;
	int r = m->vmm.address ? vmm_close(d->gpu.driver, &m->vmm, &call)
			       : d->gpu.driver->ipc_close_mem_handle(m->address);

	m->address = 0;
	return r;
}

char *delivery_forgoes(struct delivery *d)
{
	static char nothing[] = "";

	return d && d->refused ? d->reason : nothing;
}

static int attach(struct link *k, const Batchd__Wire__Opened *m, int slab_fd, int device_fd, struct fault *f)
{
	struct delivery *d = k->delivery;
	int r = import(k, m, device_fd);
	size_t n;

	if (r != CUDA_OK)
		return gpu_fault(&d->gpu, r, f, "cannot map the daemon's memory on the GPU");
	if (d->refused && m->device_kind == BATCHD__WIRE__SLAB_KIND__CUDA_IPC && d->gpu.maps_fds)
		return DELIVERY_E_OTHER_WAY;
	if (!d->imported.address) {
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
	struct delivery *d = k->delivery;
	struct gpu_visit visit;
	int r = plan(k, m, f);

	if (r < 0)
		return r;
	d->lease = calloc(k->n_slots, sizeof *d->lease);
	if (!d->lease)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	r = gpu_enter(&d->gpu, &visit);
	if (r != CUDA_OK)
		return gpu_fault(&d->gpu, r, f, "cannot use the GPU");
	r = attach(k, m, slab_fd, device_fd, f);
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
	k->info.can_finish = !d->is_image || d->kernel;
	k->info.finish_reason = d->no_kernel;
	return r;
}

/* Most errors are no longer of interest to anybody; what cannot be given back goes with the process. Whether the
 * daemon's memory is mapped no more. */
static bool dismantle(struct delivery *d, uint32_t n_slots)
{
	const struct cuda_driver *driver = d->gpu.driver;
	bool unmapped = true;

	for (uint32_t i = 0; d->lease && i < n_slots; i++)
		for (unsigned k = 0; k < DELIVERY_STREAMS; k++)
			if (d->lease[i].event[k])
				driver->event_destroy(d->lease[i].event[k]);
	if (d->module)
		driver->module_unload(d->module);
	if (d->imported.address)
		unmapped = unmap(d, &d->imported) == CUDA_OK;
	copy_destroy(d->copy);
	return unmapped;
}

bool delivery_destroy(struct delivery *d, uint32_t n_slots)
{
	struct gpu_visit visit;
	bool unmapped;

	if (!d)
		return true;
	unmapped = !d->imported.address;
	/* a second try, as there will be no other time */
	if (gpu_enter(&d->gpu, &visit) == CUDA_OK || gpu_enter(&d->gpu, &visit) == CUDA_OK) {
		unmapped = dismantle(d, n_slots);
		gpu_leave(&d->gpu, &visit);
	}
	gpu_close(&d->gpu);
	free(d->lease);
	free(d);
	return unmapped;
}

/* ---- slots ---- */

cuda_ptr delivery_slot(const struct delivery *d, uint32_t slot)
{
	return d->imported.address ? d->imported.address + slot * d->stride : copy_slot(d->copy, slot);
}

struct device_lease *delivery_lease(struct link *k, uint32_t slot, uint64_t generation)
{
	struct device_lease *lease = slot < k->n_slots ? &k->delivery->lease[slot] : NULL;

	return lease && lease->n_lent && lease->generation == generation ? lease : NULL;
}

bool delivery_may_release(struct delivery *d, uint32_t slot)
{
	if (!d->lease[slot].n_lent)
		return false;
	d->lease[slot].n_lent--;
	return true;
}

static uint32_t slot_of(const struct delivery *d, const struct device_lease *lease)
{
	return (uint32_t)(lease - d->lease);
}

/* Whether the trainer or a tensor has anything of it. */
static bool has_somebody(struct device_lease *lease)
{
	return lease->n_lent + lease->n_exported > atomic_load(&lease->n_returned);
}

uint32_t delivery_n_held(const struct link *k)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < k->n_slots; i++)
		n += k->lease[i].held && (k->lease[i].more || has_somebody(&k->delivery->lease[i]));
	return n;
}

/* One and the same number means another stream in each thread. */
static bool is_other_threads(const struct device_lease *lease, unsigned i)
{
	return lease->stream[i] == CUDA_STREAM_PER_THREAD && !pthread_equal(lease->thread[i], pthread_self());
}

int delivery_use(struct delivery *d, struct device_lease *lease, struct cuda_stream *stream)
{
	int r = d->copy ? copy_wait(d->copy, slot_of(d, lease), stream) : CUDA_OK;

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

	/* Of the legacy stream: another one that waits for it is. */
	*capturing = r == CUDA_STREAM_CAPTURE_IMPLICIT || (r == CUDA_OK && status != CUDA_CAPTURE_NONE);
	return *capturing ? CUDA_OK : r;
}

/* ---- giving back ---- */

void delivery_return(struct delivery *d, struct returned *node)
{
	struct returned *head = atomic_load(&d->returned);

	atomic_fetch_add(&d->lease[node->slot].n_returned, 1);
	do
		node->next = head;
	while (!atomic_compare_exchange_weak(&d->returned, &head, node));
}

/* Where to record what tells of the lease's stream: the stream itself, but another thread's own default stream can only
 * be reached through the legacy one, which waits for all such streams. */
static struct cuda_stream *stream_to_record(const struct device_lease *lease, unsigned i)
{
	return is_other_threads(lease, i) ? CUDA_STREAM_LEGACY : lease->stream[i];
}

/* Records an event behind all that the lease's streams were given so far, unless one of them captures a CUDA graph, of
 * which the event would become a part: then that is left for later. *failed: the stream with which it could not be
 * done. In the GPU's context. */
static int record(struct delivery *d, struct device_lease *lease, struct cuda_stream **failed)
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

/* What the driver says of a stream that captures, or while one does: it may be asked again later. */
static bool is_capturing_result(int r)
{
	return r >= CUDA_STREAM_CAPTURE_UNSUPPORTED && r <= CUDA_STREAM_CAPTURE_IMPLICIT;
}

/* Where a stream or an event cannot tell when the lease's work is over, say because the trainer has destroyed the
 * stream: waits for all work of the context, after which nothing of the lease is left to ask. A result other than
 * CUDA_OK is the context's own, and the end of the loader. In the GPU's context. */
static int wait_instead(struct delivery *d, struct device_lease *lease)
{
	bool capturing = false;
	int r;

	lease->recorded = false;
	(void)delivery_is_capturing(d, CUDA_STREAM_LEGACY, &capturing);
	if (capturing)
		return CUDA_OK; /* waiting would spoil the capture: later */
	r = d->gpu.driver->ctx_synchronize();
	if (r == CUDA_OK) {
		lease->n_streams = 0;
		lease->recorded = true;
	}
	return is_capturing_result(r) ? CUDA_OK : r;
}

static int record_or_wait(struct delivery *d, struct device_lease *lease)
{
	struct cuda_stream *failed;

	return record(d, lease, &failed) == CUDA_OK ? CUDA_OK : wait_instead(d, lease);
}

static void append(struct delivery *d, struct device_lease *lease)
{
	lease->pending = true;
	lease->next = NULL;
	*d->pending_end = lease;
	d->pending_end = &lease->next;
}

/* Tensors that are gone. An event recorded now is behind whatever was queued while they lived. In the GPU's context,
 * unless that is lost. */
static void take_returned(struct link *k)
{
	struct delivery *d = k->delivery;
	struct returned *next, *node = atomic_exchange(&d->returned, NULL);

	for (; node; node = next) {
		struct device_lease *lease = &d->lease[node->slot];

		next = node->next;
		atomic_fetch_sub(&lease->n_returned, 1);
		lease->n_exported--;
		lease->deferred = true;
		d->n_exported--;
		if (lease_ends(&k->lease[node->slot])) {
			if (!d->lost)
				d->lost = record_or_wait(d, lease);
			append(d, lease);
		}
		free(node);
	}
}

void delivery_let_go(struct link *k, uint32_t slot)
{
	struct delivery *d = k->delivery;
	struct device_lease *lease = &d->lease[slot];
	struct gpu_visit visit;

	if (!lease->deferred) {
		link_end_lease(k, slot);
		return;
	}
	if (!d->lost && !(d->lost = gpu_enter(&d->gpu, &visit))) {
		d->lost = record_or_wait(d, lease);
		gpu_leave(&d->gpu, &visit);
	}
	append(d, lease);
}

/* CUDA_OK: all of its work is complete. */
static int query(struct delivery *d, struct device_lease *lease)
{
	int r = lease->recorded ? CUDA_OK : record_or_wait(d, lease);

	for (unsigned i = 0; i < lease->n_streams && lease->recorded && r == CUDA_OK; i++)
		r = d->gpu.driver->event_query(lease->event[i]);
	if (r != CUDA_OK && r != CUDA_NOT_READY)
		r = wait_instead(d, lease);
	return r == CUDA_OK && !lease->recorded ? CUDA_NOT_READY : r;
}

static void give_back_complete(struct link *k)
{
	struct delivery *d = k->delivery;
	struct device_lease **at = &d->pending;

	while (*at && !d->lost) {
		struct device_lease *lease = *at;
		int r = query(d, lease);

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
		link_end_lease(k, slot_of(d, lease));
	}
}

int delivery_collect(struct link *k, bool *more)
{
	struct delivery *d = k->delivery;
	struct gpu_visit visit;

	if ((d->pending || atomic_load(&d->returned)) && !d->lost) {
		d->lost = gpu_enter(&d->gpu, &visit);
		if (!d->lost) {
			take_returned(k);
			give_back_complete(k);
			gpu_leave(&d->gpu, &visit);
		}
	}
	if (d->lost)
		take_returned(k); /* without CUDA: only to know that nobody has them */
	*more = !d->lost && (d->pending || d->n_exported);
	return d->lost;
}

/* The trainer's own work on the batch is queued on its stream: an event behind it tells when the slot may go back. 0 or
 * a code with f. */
static int release_behind(struct link *k, struct device_lease *lease, struct cuda_stream *stream,
			  struct fault *f)
{
	struct delivery *d = k->delivery;
	struct cuda_stream *failed = NULL;
	bool capturing = false;
	int r = delivery_is_capturing(d, stream, &capturing);

	if (capturing)
		return fault_set(
			f, BATCHD_E_INVALID,
			"batchd_cuda_release: not inside the capture of a CUDA graph; release it before or after");
	if (r == CUDA_OK)
		r = delivery_use(d, lease, stream);
	if (r == CUDA_OK && k->lease[slot_of(d, lease)].n_out == 1 && !k->lease[slot_of(d, lease)].more)
		r = record(d, lease, &failed);
	if (r != CUDA_OK && failed && failed != stream) /* an earlier one; the caller's own it is told of */
		r = wait_instead(d, lease);
	if (r != CUDA_OK) {
		if (cuda_error_sticky(r))
			d->lost = r;
		gpu_fault_on_stream(&d->gpu, r, f,
				    "batchd_cuda_release cannot note what the stream still does with the batch");
		return f->code = BATCHD_E_GPU;
	}
	lease->n_lent--;
	lease->deferred = true;
	if (lease_ends(&k->lease[slot_of(d, lease)]))
		append(d, lease);
	return 0;
}

static int release_in_context(struct link *k, struct device_lease *lease, struct cuda_stream *stream,
			      struct fault *f)
{
	struct delivery *d = k->delivery;
	struct gpu_visit visit;
	int r = gpu_enter(&d->gpu, &visit);

	if (r != CUDA_OK) {
		gpu_fault(&d->gpu, r, f, "batchd_cuda_release cannot use the GPU");
		return f->code = BATCHD_E_GPU;
	}
	r = release_behind(k, lease, stream, f);
	take_returned(k);
	give_back_complete(k);
	gpu_leave(&d->gpu, &visit);
	return r;
}

int batchd_cuda_release(struct batchd_loader *l, uint32_t slot, uint64_t generation, void *stream)
{
	struct device_lease *lease = NULL;
	struct link *owner;
	struct fault f = { 0 };
	int r;

	if (loader_is_foreign(l))
		return BATCHD_E_FORKED;
	pthread_mutex_lock(&l->lock);
	owner = loader_find_link(l, generation);
	if (owner && owner->delivery)
		lease = delivery_lease(owner, slot, generation);
	r = lease ? release_in_context(owner, lease, stream, &f)
		  : fault_set(&f, BATCHD_E_INVALID, "batchd_cuda_release: %s",
			      l->link && l->link->delivery ? "this batch is no longer on loan, or a tensor has it"
					  : "this loader delivers to no GPU: option device");
	loader_tell(l, &f);
	pthread_mutex_unlock(&l->lock);
	return r;
}

/* ---- next ---- */

static bool is_held(const struct link *k)
{
	bool held = false;

	for (uint32_t i = 0; i < k->n_slots; i++)
		held |= k->delivery->lease[i].n_lent || k->delivery->lease[i].n_exported;
	return held;
}

/* Whether nobody has a batch of this link any more, and nothing on the GPU reads one. */
static bool is_over(struct link *k)
{
	bool more;
	int lost = delivery_collect(k, &more);

	/* After a fatal error nothing runs on the GPU any more, and no event will tell. */
	return !is_held(k) && (lost || !k->delivery->pending);
}

/* Retired links that are over: taken off the list, to be destroyed without the lock. */
static struct link *take_over_retired(struct batchd_loader *l)
{
	struct link **at = &l->retired, *k, *over = NULL;

	while ((k = *at)) {
		if (!k->delivery || !is_over(k)) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		k->next = over;
		over = k;
	}
	return over;
}

/* Takes the mapping out, if it may go: nobody finds it any more then. */
static struct daemon_memory take_mapping(struct link *k)
{
	struct daemon_memory taken = { 0 };

	pthread_mutex_lock(k->host.lock);
	if (is_over(k) && !k->delivery->lost) {
		taken = k->delivery->imported;
		k->delivery->imported = (struct daemon_memory){ 0 };
	}
	pthread_mutex_unlock(k->host.lock);
	return taken;
}

/* A daemon that stops need not wait for memory that came as a descriptor; one that makes larger slots wants the old ones
 * back. */
static bool outlives_daemon(const struct link *k, bool reopen)
{
	return k->delivery->imported.vmm.address && !reopen;
}

bool delivery_part(struct link *k, bool reopen)
{
	struct delivery *d = k->delivery;
	struct gpu_visit visit;
	struct daemon_memory taken;
	int r;

	if (!d || !d->imported.address || outlives_daemon(k, reopen))
		return true;
	taken = take_mapping(k);
	if (!taken.address)
		return false;
	r = gpu_enter(&d->gpu, &visit);
	if (r == CUDA_OK) {
		r = unmap(d, &taken);
		gpu_leave(&d->gpu, &visit);
	}
	pthread_mutex_lock(k->host.lock);
	if (r == CUDA_OK)
		link_send_close(k);
	connection_close(&k->connection);
	pthread_mutex_unlock(k->host.lock);
	return true;
}

static void destroy_links(struct link *k)
{
	for (struct link *next; k; k = next) {
		next = k->next;
		link_destroy(k);
	}
}

static int collect(struct batchd_loader *l, bool *more)
{
	struct link *over;
	int lost;

	pthread_mutex_lock(&l->lock);
	lost = delivery_collect(l->link, more);
	over = l->retired ? take_over_retired(l) : NULL;
	pthread_mutex_unlock(&l->lock);
	destroy_links(over);
	if (l->absence.lost)
		delivery_part(l->link, l->absence.why.reopen);
	return lost;
}

static int say_lost(struct batchd_loader *l, int lost)
{
	gpu_fault(&l->link->delivery->gpu, lost, &l->fault, "the trainer's work on the GPU failed");
	l->fault.code = BATCHD_E_GPU;
	return BATCHD_E_GPU;
}

/* How much of a slot there is to copy. */
static int begin_copy(struct batchd_loader *l, uint32_t slot, uint64_t generation, uint32_t n_rows)
{
	struct copy_request r = { .slot = slot, .generation = generation };

	if (l->served) {
		r.data_bytes = arrays_extent(slab_slot(l->link->slab, slot), (size_t)l->link->row_bytes);
	} else {
		r.data_bytes = n_rows * l->link->row_bytes;
		r.labels_offset = l->link->labels_offset;
		r.labels_bytes = n_rows * l->link->label_bytes;
	}
	return copy_begin(l->link->delivery->copy, &r);
}

/* Begins the batch's copy, and that of the next one if it is here already, so that it runs while the trainer works on
 * this one. */
static int begin_copies(struct batchd_loader *l, const struct batchd_batch *b)
{
	struct delivery *d = l->link->delivery;
	uint32_t n_rows = slices_per_batch(l) > 1 ? l->cut.batch.n_rows : b->n_rows;
	const struct ready *next;
	struct gpu_visit visit;
	int r = gpu_enter(&d->gpu, &visit);

	if (r != CUDA_OK)
		return r;
	r = begin_copy(l, b->slot, b->generation & LINK_GENERATIONS, n_rows);
	next = r == CUDA_OK && !b->last ? stream_peek(l) : NULL;
	if (next && next->n_rows) /* none: the mark of the end of a producer's epoch */
		r = begin_copy(l, next->slot, next->generation, next->n_rows);
	gpu_leave(&d->gpu, &visit);
	return r == CUDA_OK ? copy_begun(d->copy, b->slot) : r;
}

/* The first slice of a batch, or the whole, makes the lease new. */
static void note_lent(struct batchd_loader *l, const struct batchd_batch *b)
{
	struct device_lease *lease = &l->link->delivery->lease[b->slot];

	pthread_mutex_lock(&l->lock);
	if (lease->generation != b->generation) {
		lease->generation = b->generation;
		lease->n_lent = lease->n_streams = 0;
		lease->deferred = lease->recorded = false;
	}
	lease->n_lent++;
	pthread_mutex_unlock(&l->lock);
}

/* Nobody will give back what nobody was given. */
static void take_back(struct batchd_loader *l, const struct batchd_batch *b)
{
	pthread_mutex_lock(&l->lock);
	l->link->delivery->lease[b->slot].n_lent--;
	slices_stop(l);
	if (lease_ends(&l->link->lease[b->slot]))
		link_let_go(l->link, b->slot);
	pthread_mutex_unlock(&l->lock);
}

static int arrive(struct batchd_loader *l, struct batchd_batch *b)
{
	struct delivery *d = l->link->delivery;
	char *slot;
	int r;

	note_lent(l, b);
	r = d->copy ? begin_copies(l, b) : CUDA_OK;
	if (r != CUDA_OK) {
		take_back(l, b);
		gpu_fault(&d->gpu, r, &l->fault, "cannot copy a batch to the GPU");
		return l->fault.code = BATCHD_E_GPU;
	}
	slot = (char *)(uintptr_t)delivery_slot(d, b->slot);
	b->device_data = slot + b->row * l->link->row_bytes;
	b->device_labels = slot + l->link->labels_offset + b->row * l->link->label_bytes;
	return BATCHD_OK;
}

/* How long to wait for a batch before slots are looked after again; 0 when the caller's patience is at its end. */
static int patience(bool more, int timeout_ms, uint64_t waited_ns)
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

int delivery_next(struct batchd_loader *l, struct batchd_batch *b, int timeout_ms)
{
	struct batchd_batch full = { .size_bytes = sizeof full };
	uint64_t began = clock_now_ns();
	int r, wait_ms, lost;
	bool more;

	delivery_reap();
	do {
		lost = collect(l, &more);
		if (lost)
			return say_lost(l, lost);
		wait_ms = patience(more, timeout_ms, clock_now_ns() - began);
		r = stream_next(l, &full, wait_ms, began);
	} while (r == BATCHD_AGAIN && wait_ms != 0 && wait_ms != BATCHD_UNTIL_SIGNAL);
	if (r == BATCHD_OK)
		r = arrive(l, &full);
	if (r == BATCHD_OK) {
		full.size_bytes = b->size_bytes;
		memcpy(b, &full, b->size_bytes < sizeof full ? b->size_bytes : sizeof full);
	}
	return r;
}

/* ---- the end ---- */

static struct batchd_loader *closed; /* with batches that somebody still has; under process_lock */
static atomic_uint n_closed;

static bool is_done(struct batchd_loader *l)
{
	struct link *over;
	bool done;

	pthread_mutex_lock(&l->lock);
	over = take_over_retired(l);
	done = is_over(l->link) && !l->retired && !l->n_calls;
	pthread_mutex_unlock(&l->lock);
	destroy_links(over);
	return done;
}

static void keep(struct batchd_loader *l)
{
	process_lock();
	l->link->delivery->next_closed = closed;
	closed = l;
	atomic_fetch_add(&n_closed, 1);
	process_unlock();
}

void delivery_reap(void)
{
	struct batchd_loader *l, *next;

	if (!atomic_load(&n_closed))
		return;
	process_lock();
	l = closed;
	closed = NULL;
	atomic_store(&n_closed, 0);
	process_unlock();
	for (; l; l = next) {
		next = l->link->delivery->next_closed;
		if (loader_is_foreign(l))
			continue; /* the parent's; its objects here are not to be touched */
		if (is_done(l))
			loader_destroy(l);
		else
			keep(l);
	}
}

void delivery_close(struct batchd_loader *l)
{
	uint64_t began = clock_now_ns();
	struct timespec pause = { .tv_nsec = CLOSE_LOOK_US * 1000 };
	bool pending;

	do {
		bool more;

		pthread_mutex_lock(&l->lock);
		slices_stop(l);
		delivery_collect(l->link, &more);
		pending = more && l->link->delivery->pending;
		pthread_mutex_unlock(&l->lock);
		if (pending)
			nanosleep(&pause, NULL);
	} while (pending && clock_now_ns() - began < (uint64_t)CLOSE_MS * 1000000);
	if (is_done(l))
		loader_destroy(l);
	else
		keep(l);
}
