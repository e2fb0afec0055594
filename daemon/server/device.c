/* See device.h. All that can be known before trying is checked here. CUDA IPC is used between processes of one user only,
 * because drivers may compare effective uids (580.159 does not), and in one PID namespace, because handles name
 * processes; it may fail between two network or IPC namespaces; and both sides need the same driver. A descriptor works
 * wherever the trainer sees the GPU, also with libraries of another driver version (cuda-compat). The GPU's thread finds
 * out the rest (MIG, compute mode, a refusal by the driver): if one way is refused, the other is tried, provided the
 * trainer knows it. */
#include "server/device.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch/device-slab.h"
#include "server/job.h"
#include "server/session-state.h"
#include "base/container.h"
#include "base/log.h"
#include "base/namespace.h"
#include "base/thread-kind.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

/* Opening a device slab belongs to the job: the session that asked may leave meanwhile, and other sessions may want the
 * same slab. */
struct device_task {
	struct job_task task;
	struct slots *slots; /* only compared, never dereferenced */
	unsigned char uuid[GPU_UUID_BYTES];
	enum gpu_share share;
	/* Why it was not opened. */
	int result;
	const char *why;
};

/* ---- the wish ---- */

static void device_give_up(struct session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void device_give_up(struct session *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->device.reason, sizeof(s->device.reason), fmt, ap);
	va_end(ap);
	s->device.wanted = false;
	log_record(LOG_LEVEL_NOTICE, "no-device", "session %llu gets no device memory: %s",
		   (unsigned long long)s->number, s->device.reason);
}

static const char *reason_of(const struct device *d, char text[GPU_REASON_BYTES])
{
	const char *ipc = d->refused[GPU_SHARE_IPC], *fd = d->refused[GPU_SHARE_FD];
	if (!*ipc || !*fd || !strcmp(ipc, fd))
		return *ipc ? ipc : fd;
	snprintf(text, GPU_REASON_BYTES, "%.245s; by a descriptor: %.245s", ipc, fd);
	return text;
}

/* Rules out one way; after the last one the wish is given up. */
static void device_drop(struct session *s, enum gpu_share share, const char *why)
{
	struct device *d = &s->device;
	char text[GPU_REASON_BYTES];
	d->shares &= ~(1u << share);
	snprintf(d->refused[share], sizeof(d->refused[share]), "%s", why);
	if (!d->shares && d->wanted)
		device_give_up(s, "%s", reason_of(d, text));
}

static bool same_driver(const struct session *s, char why[GPU_REASON_BYTES])
{
	uint32_t ours = (uint32_t)gpus_driver_version(s->engine->gpus), theirs = s->device.driver_version;
	if (!ours || !theirs || ours == theirs)
		return true;
	snprintf(
		why, GPU_REASON_BYTES,
		"the trainer uses the CUDA driver of version %u.%u and the daemon that of version %u.%u; CUDA IPC works between equal ones only",
		theirs / 1000, theirs % 1000 / 10, ours / 1000, ours % 1000 / 10);
	return false;
}

static bool same_namespace(const char *kind, uint64_t theirs)
{
	uint64_t ours = namespace_own(kind);
	return !theirs || !ours || ours == theirs;
}

/* Why CUDA IPC cannot work between the two processes, or NULL. */
static const char *find_obstacle(const struct session *s, const Batchd__Wire__Open *open, char text[GPU_REASON_BYTES])
{
	if (s->uid != geteuid())
		snprintf(
			text, GPU_REASON_BYTES,
			"the trainer runs as user %u and the daemon as user %u; batchd uses CUDA IPC between processes of one "
			"user only",
			(unsigned)s->uid, (unsigned)geteuid());
	else if (!same_namespace("pid", open->pid_namespace))
		snprintf(
			text, GPU_REASON_BYTES,
			"the trainer and the daemon are in different PID namespaces (containers?), between which CUDA IPC "
			"does not work; share it, as with docker run --pid=host or --pid=container:NAME");
	else if (same_driver(s, text))
		return NULL;
	return text;
}

/* Whether the daemon may become a client of MPS for this trainer, if it has to. MPS serves one user at a time. */
static bool may_use_mps(struct session *s, const Batchd__Wire__Open *open)
{
	if (open->device_mps && s->uid != geteuid()) {
		device_give_up(
			s,
			"the trainer shares the GPU by MPS, which serves one user at a time, and runs as user %u, the daemon as user %u; nvidia-smi -c DEFAULT lets the daemon use the GPU beside MPS",
			(unsigned)s->uid, (unsigned)geteuid());
		return false;
	}
	if (open->device_mps)
		gpus_use_mps(s->engine->gpus);
	return true;
}

void device_wish(struct session *s, const Batchd__Wire__Open *open)
{
	assert(is_loop_thread());
	assert(!s->device.asked);
	struct device *d = &s->device;
	char text[GPU_REASON_BYTES];
	if (!open->device_uuid.len)
		return;
	d->asked = d->wanted = true;
	memcpy(d->uuid, open->device_uuid.data, sizeof(d->uuid));
	d->driver_version = open->driver_version;
	d->shares = 1u << GPU_SHARE_IPC | 1u << GPU_SHARE_FD;
	d->prefers_fd = !same_namespace("net", open->network_namespace) || !same_namespace("ipc", open->ipc_namespace);
	if (!may_use_mps(s, open))
		return;
	const char *obstacle = find_obstacle(s, open, text);
	if (obstacle)
		device_drop(s, GPU_SHARE_IPC, obstacle);
	else if (!(open->device_kinds & 1u << BATCHD__WIRE__SLAB_KIND__CUDA_IPC))
		device_drop(s, GPU_SHARE_IPC, "the trainer's process cannot map memory by CUDA IPC");
	if (!(open->device_kinds & 1u << BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD))
		device_drop(s, GPU_SHARE_FD,
			    "the trainer's GPU or driver cannot map memory that comes as a descriptor");
}

/* ---- the device slab ---- */

/* The best remaining way. False: none. */
static bool best_way(const struct device *d, enum gpu_share *share)
{
	bool both = d->shares == (1u << GPU_SHARE_IPC | 1u << GPU_SHARE_FD);
	*share = d->shares & 1u << GPU_SHARE_IPC && !(both && d->prefers_fd) ? GPU_SHARE_IPC : GPU_SHARE_FD;
	return d->wanted && d->shares;
}

/* The device slab that the session can use, open or being opened: the better kind if there are both. An existing slab
 * is better than a second one, which would take the same amount of GPU memory again. */
static struct device_slab *device_find(const struct session *s, const struct slots *slots)
{
	const struct device *d = &s->device;
	enum gpu_share best;
	if (!best_way(d, &best))
		return NULL;
	struct device_slab *m = device_slab_find(slots, d->uuid, best);
	enum gpu_share other = best == GPU_SHARE_IPC ? GPU_SHARE_FD : GPU_SHARE_IPC;
	return m || !(d->shares & 1u << other) ? m : device_slab_find(slots, d->uuid, other);
}

/* A trainer could not open the device slab. Where no session uses it, it would only take memory. */
static void drop_unused(struct engine *e, struct device_slab *m)
{
	for (const struct session *s = e->sessions; s; s = s->next) {
		if (s->consumer.device_slab == m)
			return;
	}
	device_slab_drop(m);
}

/* The device slab as of device_find, without CUDA IPC where the daemon has learnt meanwhile, from the driver that it has
 * started for it, that the trainer has another one. */
static struct device_slab *find_openable(struct session *s, const struct slots *slots)
{
	struct device_slab *m = device_find(s, slots);
	char why[GPU_REASON_BYTES];
	if (!m || !m->slab || m->share != GPU_SHARE_IPC || same_driver(s, why))
		return m;
	device_drop(s, GPU_SHARE_IPC, why);
	drop_unused(s->engine, m);
	return device_find(s, slots);
}

/* Whether a session waits for the slab that this task opens. */
static bool device_waits_for(const struct session *s, const struct device_task *task)
{
	return s->state == SESSION_OPENING && s->device.wanted && s->device.shares & 1u << task->share &&
	       !memcmp(s->device.uuid, task->uuid, sizeof(task->uuid)) &&
	       loader_stream(task->task.job->loader, s->consumer.rank)->slots == task->slots;
}

static void not_opened(struct session *s, enum gpu_share share, int result, const char *text)
{
	struct refusal why;
	if (result != GPU_E_UNPINNED && result != GPU_E_LOST) {
		device_drop(s, share, text);
		return;
	}
	bool lost = result == GPU_E_LOST;
	refuse(&why, lost ? CODE(GPU_LOST) : CODE(LIMIT), lost ? "" : "pin_memory", "%s", text);
	s->engine->job_ops->end(s, &why);
}

static void refuse_waiting(const struct device_task *task)
{
	for (struct session *s = task->task.job->sessions; s; s = s->next_in_job) {
		if (device_waits_for(s, task))
			not_opened(s, task->share, task->result, task->why);
	}
}

static void device_done(struct job_task *t)
{
	struct device_task *task = container_of(t, struct device_task, task);
	if (task->result && t->job->state == JOB_READY)
		refuse_waiting(task);
	free(task);
}

static void on_device_slab_open(void *arg, struct device_slab *m, int result, const char *why)
{
	struct device_task *task = arg;
	task->result = m ? 0 : result;
	task->why = why;
	struct engine *e = task->task.job->engine;
	e->on_activity(e); /* the driver has been started, even if its trainer has gone meanwhile */
	job_task_end(&task->task);
}

/* Memory that comes as a descriptor counts as one of the descriptors that the daemon may have open for the user. */
static int charge_fd(struct session *s, enum gpu_share share, struct charge *fd, char *why)
{
	int r = share == GPU_SHARE_FD ? charge_begin(fd, &s->engine->budget.accounts, s->uid, ACCOUNT_FDS, 1) : 0;
	if (r > 0)
		snprintf(
			why, GPU_REASON_BYTES,
			"the daemon has too many descriptors open for this user (limits.fds_per_user in its configuration)");
	return r;
}

static bool begin_way(struct session *s, struct slots *slots, enum gpu_share share)
{
	assert(s->device.shares & 1u << share);
	char why[GPU_REASON_BYTES] = "the daemon is out of memory";
	struct device_task *task = malloc(sizeof(*task));
	struct charge fd = { 0 };
	int r = task ? charge_fd(s, share, &fd, why) : -ENOMEM;
	if (r == 0) {
		*task = (struct device_task){ .task = { .done = device_done }, .slots = slots, .share = share };
		memcpy(task->uuid, s->device.uuid, sizeof(task->uuid));
		r = device_slab_open(slots, s->engine->gpus, task->uuid, share, &fd, on_device_slab_open, task, why);
	}
	if (r) {
		charge_release(&fd);
		free(task);
		device_drop(s, share, why);
		return false;
	}
	job_task_begin(&task->task, s->job);
	return true;
}

static bool device_begin(struct session *s, struct slots *slots)
{
	enum gpu_share share;
	while (best_way(&s->device, &share)) {
		if (begin_way(s, slots, share))
			return true;
	}
	return false;
}

/* The first slab on a GPU starts the driver and makes a context, which takes seconds. One message is enough, because
 * the client repeats it to its user. */
static void tell_progress(struct session *s)
{
	Batchd__Wire__Progress p = BATCHD__WIRE__PROGRESS__INIT;
	if (s->device.told)
		return;
	s->device.told = true;
	p.phase = (char *)"gpu";
	peer_send(s->peer, WIRE_SERVER(PROGRESS, progress, &p), NULL, 0);
}

bool device_fixes(const struct session *s, const struct slots *slots)
{
	return s->device.asked && !slots->fixed && !slots->growing && slots->n_made < slots->n;
}

bool device_ready(struct session *s, struct slots *slots)
{
	assert(is_loop_thread());
	assert(s->job && slots);
	if (s->device.asked && slots->growing)
		return false; /* until the rest has been made: a GPU's thread, or the trainer, takes a slab as a whole */
	struct device_slab *m = find_openable(s, slots);
	if ((m && m->slab) || (!m && !device_begin(s, slots)))
		return true;
	tell_progress(s);
	return false;
}

void device_attach(struct session *s)
{
	assert(is_loop_thread());
	assert(s->consumer.slots);
	s->consumer.device_slab = device_find(s, s->consumer.slots);
}

static void leave_slab(struct session *s)
{
	struct device_slab *m = s->consumer.device_slab;
	s->consumer.device_slab = NULL;
	drop_unused(s->engine, m);
}

void device_come_again(struct session *s)
{
	assert(is_loop_thread());
	if (s->consumer.device_slab && !s->consumer.seek)
		leave_slab(s);
}

void device_forgo(struct session *s, const char *text)
{
	assert(is_loop_thread());
	if (!*text || !s->consumer.device_slab || s->consumer.seek)
		return;
	leave_slab(s);
	device_give_up(s, "on the trainer's side: %s", text);
}

void device_describe(struct session *s, Batchd__Wire__Opened *o)
{
	assert(is_loop_thread());
	const struct device_slab *m = s->consumer.device_slab;
	o->driver_version = (uint32_t)gpus_driver_version(s->engine->gpus);
	o->device_reason = s->device.reason;
	if (!m)
		return;
	o->device_uuid = (ProtobufCBinaryData){ GPU_UUID_BYTES, s->device.uuid };
	if (m->share == GPU_SHARE_IPC)
		o->ipc_handle = (ProtobufCBinaryData){ GPU_HANDLE_BYTES, m->slab->handle };
	o->device_kind =
		m->share == GPU_SHARE_IPC ? BATCHD__WIRE__SLAB_KIND__CUDA_IPC : BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD;
	o->device_bytes = m->slab->bytes;
	o->device_slot_bytes = m->slots->layout.slot_bytes;
}

int device_fd(const struct session *s)
{
	const struct device_slab *m = s->consumer.device_slab;
	return m && m->share == GPU_SHARE_FD ? m->slab->fd : -1;
}

bool device_must_stay(const struct session *s)
{
	const struct device_slab *m = s->consumer.device_slab;
	return m && m->share == GPU_SHARE_IPC && !m->left && !gpu_is_lost(m->slab->gpu);
}

/* ---- the end of a GPU ---- */

void device_on_lost(struct engine *e, const struct gpu *gpu, const char *text)
{
	assert(is_loop_thread());
	struct refusal why;
	refuse(&why, CODE(GPU_LOST), "", "%s", text);
	for (struct session *s = e->sessions; s; s = s->next) {
		bool opening = s->state == SESSION_OPENING && s->device.wanted && gpu_has_uuid(gpu, s->device.uuid);
		if (s->peer && (opening || (s->consumer.device_slab && s->consumer.device_slab->slab->gpu == gpu)))
			e->job_ops->end(s, &why);
	}
}
