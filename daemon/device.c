/* See device.h. CUDA's own conditions for sharing memory between processes that can be known before trying are checked
 * here: the same user, as the kernel's driver compares effective uids; the same PID namespace, as handles name
 * processes; the same driver on both sides. The rest (MIG, compute mode, what a driver refuses) the GPU's thread finds
 * out. */
#include "device.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mirror.h"
#include "job.h"
#include "session-state.h"
#include "util/log.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

/* Opening a mirror belongs to the job: the session that asked may leave meanwhile, and others may want the same. */
struct device_task {
	struct job_task task;
	struct slots *slots; /* to compare with, not to look into */
	unsigned char uuid[GPU_UUID_BYTES];
	/* Why it was not opened. */
	int result;
	const char *why;
};

/* ---- the wish ---- */

static void give_up(struct session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void give_up(struct session *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->device.reason, sizeof(s->device.reason), fmt, ap);
	va_end(ap);
	s->device.wanted = false;
	log_record(LOG_LEVEL_NOTICE, "no-device", "session %llu gets no device memory: %s",
		   (unsigned long long)s->number, s->device.reason);
}

static uint64_t own_pid_namespace(void)
{
	struct stat st;
	return stat("/proc/self/ns/pid", &st) ? 0 : (uint64_t)st.st_ino;
}

static bool same_driver(struct session *s)
{
	uint32_t ours = (uint32_t)gpus_driver_version(s->daemon->gpus), theirs = s->device.driver_version;
	if (!ours || !theirs || ours == theirs)
		return true;
	give_up(s,
		"the trainer uses the CUDA driver of version %u.%u and the daemon that of version %u.%u; memory is shared between equal ones only",
		theirs / 1000, theirs % 1000 / 10, ours / 1000, ours % 1000 / 10);
	return false;
}

void device_wish(struct session *s, const Batchd__Wire__Open *open)
{
	struct device *d = &s->device;
	if (!open->device_uuid.len)
		return;
	uint64_t ours = own_pid_namespace();
	d->asked = d->wanted = true;
	memcpy(d->uuid, open->device_uuid.data, sizeof(d->uuid));
	d->driver_version = open->driver_version;
	if (s->uid != geteuid())
		give_up(s,
			"the trainer runs as user %u and the daemon as user %u; CUDA shares memory between processes of one user only",
			(unsigned)s->uid, (unsigned)geteuid());
	else if (open->pid_namespace && ours && open->pid_namespace != ours)
		give_up(s,
			"the trainer and the daemon are in different PID namespaces (containers?), between which CUDA shares no memory; share it, as with docker run "
			"--pid=host or --pid=container:NAME");
	else
		same_driver(s);
}

/* ---- the mirror ---- */

/* Those who waited for it, and did not get it. */
static bool waits_for(const struct session *s, const struct device_task *task)
{
	return s->state == SESSION_OPENING && s->peer && s->device.wanted &&
	       !memcmp(s->device.uuid, task->uuid, sizeof(task->uuid)) &&
	       loader_stream(task->task.job->loader, s->consumer.rank)->slots == task->slots;
}

static void not_opened(struct session *s, int result, const char *text)
{
	struct refusal why;
	if (result != GPU_E_UNPINNED && result != GPU_E_LOST) {
		give_up(s, "%s", text);
		return;
	}
	bool lost = result == GPU_E_LOST;
	refuse(&why, lost ? CODE(GPU_LOST) : CODE(LIMIT), lost ? "" : "pin_memory", "%s", text);
	s->daemon->job_ops->ended(s, &why);
}

/* Failing one may take others along, so the list is begun afresh after each. */
static void refuse_waiting(const struct device_task *task)
{
	struct job *j = task->task.job;
	for (struct session *s = j->sessions; s;) {
		bool waits = waits_for(s, task);
		if (waits)
			not_opened(s, task->result, task->why);
		s = waits ? j->sessions : s->next_in_job;
	}
}

static void done(struct job_task *t)
{
	struct device_task *task = (struct device_task *)t;
	if (task->result && t->job->state == JOB_READY)
		refuse_waiting(task);
	free(task);
}

static void on_mirror_open(void *arg, struct mirror *m, int result, const char *why)
{
	struct device_task *task = arg;
	task->result = m ? 0 : result;
	task->why = why;
	struct batchd *b = task->task.job->daemon;
	b->on_activity(b); /* the driver has been started, perhaps for a trainer that has gone meanwhile */
	job_task_end(&task->task);
}

static bool begin(struct session *s, struct slots *slots)
{
	char why[GPU_REASON_BYTES] = "the daemon is out of memory";
	struct device_task *task = malloc(sizeof(*task));
	int r = -ENOMEM;
	if (task) {
		*task = (struct device_task){ .task = { .done = done }, .slots = slots };
		memcpy(task->uuid, s->device.uuid, sizeof(task->uuid));
		r = mirror_open(slots, s->daemon->gpus, task->uuid, on_mirror_open, task, why);
	}
	if (r) {
		free(task);
		give_up(s, "%s", why);
		return false;
	}
	job_task_begin(&task->task, s->job);
	return true;
}

/* The first slab on a GPU starts the driver and makes a context, which takes seconds. Once is enough: the client repeats
 * it to its user. It may be the end of the session. */
static void tell_progress(struct session *s)
{
	Batchd__Wire__Progress p = BATCHD__WIRE__PROGRESS__INIT;
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	if (s->device.told || !s->peer)
		return;
	s->device.told = true;
	p.phase = (char *)"gpu";
	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS;
	m.progress = &p;
	peer_send(s->peer, &m, NULL, 0);
}

bool device_fixes(const struct session *s, const struct slots *slots)
{
	return s->device.asked && !slots->fixed && !slots->growing && slots->n_made < slots->n;
}

bool device_ready(struct session *s, struct slots *slots)
{
	if (s->device.wanted && slots->growing)
		return false; /* until the rest has been made: a GPU's thread takes a slab as a whole */
	struct mirror *m = s->device.wanted ? mirror_find(slots, s->device.uuid) : NULL;
	if (m && m->slab) {
		same_driver(s); /* the daemon may have learnt its own version on the way here */
	} else if (m || (s->device.wanted && begin(s, slots))) {
		tell_progress(s);
		return false;
	}
	return true;
}

void device_attach(struct session *s)
{
	s->consumer.mirror = s->device.wanted ? mirror_find(s->consumer.slots, s->device.uuid) : NULL;
}

void device_forgo(struct session *s, const char *text)
{
	if (!*text || !s->consumer.mirror || s->consumer.seek)
		return;
	s->consumer.mirror = NULL; /* it lives as long as the slots; whoever comes may use it */
	give_up(s, "on the trainer's side: %s", text);
}

void device_describe(struct session *s, Batchd__Wire__Opened *o)
{
	const struct mirror *m = s->consumer.mirror;
	o->driver_version = (uint32_t)gpus_driver_version(s->daemon->gpus);
	o->device_reason = s->device.reason;
	if (!m)
		return;
	o->device_uuid = (ProtobufCBinaryData){ GPU_UUID_BYTES, s->device.uuid };
	o->ipc_handle = (ProtobufCBinaryData){ GPU_HANDLE_BYTES, m->slab->handle };
	o->device_bytes = m->slab->bytes;
	o->device_slot_bytes = m->slots->layout.slot_bytes;
}

/* ---- the end of a GPU ---- */

void device_on_lost(struct batchd *b, const struct gpu *gpu, const char *text)
{
	struct refusal why;
	refuse(&why, CODE(GPU_LOST), "", "%s", text);
	for (struct session *s = b->sessions; s;) {
		bool opening = s->state == SESSION_OPENING && s->device.wanted && gpu_has_uuid(gpu, s->device.uuid);
		bool hit = s->peer && (opening || (s->consumer.mirror && s->consumer.mirror->slab->gpu == gpu));
		if (hit)
			b->job_ops->ended(s, &why);
		s = hit ? b->sessions : s->next; /* closing one may free others */
	}
}
