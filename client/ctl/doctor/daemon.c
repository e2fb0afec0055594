/* Findings of doctor about a daemon: whether one answers, and on each GPU what a trainer gets from it.
 *
 * That is tried with a loader, as the driver decides by rules that cannot be looked up from here: this process opens a
 * small data set with its batches on the GPU, and compares one batch with its copy in host memory. Differences between
 * the two sides are reported in the light of that result; without a result, with what they may mean. */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batchd.h"
#include "gpu/driver.h"
#include "ctl/doctor/doctor.h"
#include "base/namespace.h"

enum { ROWS = 8, ROW_BYTES = 4096, WAIT_MS = 30000 };

#define TRIAL_DATASET "random:length=8,shape=4096,dtype=uint8"

/* ---- does it answer ---- */

static json_t *doctor_daemon_ask(struct doctor *d, const char *part, int *r, char *err, size_t err_size)
{
	char *text = NULL;
	json_t *root, *daemon;

	*r = batchd_status(d->socket, &text, err, err_size);
	root = *r == 0 ? json_loads(text, 0, NULL) : NULL;
	daemon = json_incref(json_object_get(root, part));
	json_decref(root);
	free(text);
	return daemon;
}

void doctor_daemon(struct doctor *d)
{
	char err[1024] = "";
	int r;
	json_t *daemon = doctor_daemon_ask(d, "daemon", &r, err, sizeof err);
	const char *version = json_string_value(json_object_get(daemon, "version"));

	d->daemon_answers = r == 0 && version;
	if (r == BATCHD_E_CONNECT && !d->socket)
		doctor_say(d, FINDING_NOTE, "daemon", NULL,
			   "none is running; the first trainer starts one for its user");
	else if (!d->daemon_answers)
		doctor_say(d, FINDING_PROBLEM, "daemon",
			   r == BATCHD_E_ACCESS ? "ask to be let into the group that owns the socket"
						: "see `systemctl status batchd`, or start one with `batchd`",
			   "%s", r < 0 ? err : "its answer is not a daemon's status");
	else if (strcmp(version, BATCHD_VERSION) == 0)
		doctor_say(d, FINDING_OK, "daemon", NULL, "batchd %s answers", version);
	else
		doctor_say(d, FINDING_NOTE, "daemon", "install one version and restart the daemon",
			   "it is batchd %s, and this is %s; they understand "
			   "each other, but newer features need both",
			   version, BATCHD_VERSION);
	json_decref(daemon);
}

/* What the daemon pins for GPUs, and why not more. */
void doctor_pinning(struct doctor *d)
{
	char err[256] = "";
	int r;
	json_t *memory = d->daemon_answers ? doctor_daemon_ask(d, "memory", &r, err, sizeof err) : NULL;
	const json_t *pinning = json_object_get(memory, "pinning");
	const char *text = json_string_value(json_object_get(pinning, "text"));
	const char *asked = json_string_value(json_object_get(pinning, "asked"));

	if (text && asked)
		doctor_say(d, FINDING_OK, "pinning", NULL, "pin_memory is %s; %s", asked, text);
	json_decref(memory);
}

void doctor_numa(struct doctor *d)
{
	char err[256] = "";
	int r;
	json_t *numa = d->daemon_answers ? doctor_daemon_ask(d, "numa", &r, err, sizeof err) : NULL;
	const char *text = json_string_value(json_object_get(numa, "text"));

	if (text && json_is_true(json_object_get(numa, "error")))
		doctor_say(d, FINDING_NOTE, "NUMA",
			   "let the daemon call mbind and sched_setaffinity (a container's seccomp profile, or "
			   "SystemCallFilter= in a unit)",
			   "%s", text);
	else if (text)
		doctor_say(d, FINDING_OK, "NUMA", NULL, "%s", text);
	json_decref(numa);
}

/* ---- a loader ---- */

static int doctor_daemon_open_loader(const struct doctor *d, int ordinal, struct batchd_loader **loader, char *err,
				     size_t err_size)
{
	struct batchd_options o;
	char device[24];

	snprintf(device, sizeof device, "cuda:%d", ordinal);
	batchd_options_init(&o);
	o.socket = d->socket;
	o.dataset = TRIAL_DATASET;
	o.batch_size = ROWS;
	o.n_slots = 2;
	o.autostart = 0;
	o.reconnect_ms = 0;
	o.device = device;
	o.program = "batchctl doctor";
	return batchd_open(&o, loader, err, err_size);
}

/* Takes a batch and compares its bytes on the GPU with those in host memory. 0; 1: they differ; or a code. */
static int look_at_batch(struct batchd_loader *l, const struct cuda_driver *cu, struct cuda_stream *stream, char *room)
{
	struct batchd_batch b = { .size_bytes = sizeof b };
	int r = batchd_start(l, 0, 0, 0, NULL), cuda = CUDA_OK;
	bool same;

	if (r >= 0)
		r = batchd_next(l, &b, WAIT_MS);
	if (r != BATCHD_OK)
		return r == BATCHD_AGAIN ? -ETIMEDOUT : r < 0 ? r : BATCHD_E_PROTOCOL;
	memset(room, 0, ROWS * ROW_BYTES);
	r = batchd_cuda_wait(l, b.slot, b.generation, stream);
	if (r == BATCHD_OK)
		cuda = cu->memcpy_dtoh_async(room, (cuda_ptr)(uintptr_t)b.device_data, b.n_rows * ROW_BYTES, stream);
	if (r == BATCHD_OK && cuda == CUDA_OK)
		cuda = cu->stream_synchronize(stream);
	same = r == BATCHD_OK && cuda == CUDA_OK && memcmp(room, b.data, b.n_rows * ROW_BYTES) == 0;
	batchd_release(l, b.slot, b.generation);
	return r < 0 ? r : !same;
}

static void say_path(struct doctor *d, const struct batchd_info *info, const char *about)
{
	if (info->device_path == BATCHD_DEVICE_COPY) {
		d->n_copied++;
		doctor_say(d, FINDING_NOTE, about, NULL, "the daemon's batches are copied there by each trainer: %s",
			   info->device_reason);
		return;
	}
	d->n_mapped++;
	doctor_say(d, FINDING_OK, about, NULL, "the daemon's batches lie there in memory that trainers map (%s)",
		   info->device_path == BATCHD_DEVICE_IPC ? "cuda-ipc" : "cuda-vmm-fd");
}

void doctor_loader(struct doctor *d, const struct cuda_driver *driver, int ordinal, struct cuda_stream *stream,
		   const char *about, void *room, size_t n_room)
{
	struct batchd_info info = { .size_bytes = sizeof info };
	struct batchd_loader *l = NULL;
	char err[1024] = "";
	int r;

	if (n_room < ROWS * ROW_BYTES)
		return;
	r = doctor_daemon_open_loader(d, ordinal, &l, err, sizeof err);
	if (r < 0) {
		doctor_say(d, FINDING_PROBLEM, about, NULL, "a loader with its batches there cannot be opened: %s",
			   err);
		return;
	}
	batchd_get_info(l, &info);
	r = look_at_batch(l, driver, stream, room);
	if (r == 0)
		say_path(d, &info, about);
	else if (r == 1)
		doctor_say(d, FINDING_PROBLEM, about, "check the driver",
			   "a batch of the daemon's is not there what it is in host memory");
	else
		doctor_say(d, FINDING_PROBLEM, about, "the daemon's log and `batchctl status` may say more",
			   "no batch of the daemon's comes there: %s",
			   r == -ETIMEDOUT ? "none for 30 seconds" : batchd_error(l));
	batchd_close(l);
}

/* ---- both sides ---- */

enum { NAMESPACES = 3 };

static const char *const kinds[NAMESPACES] = { "pid", "net", "ipc" };
static const char *const kind_names[NAMESPACES] = { "PID", "network", "IPC" };

struct side {
	unsigned uid;
	uint64_t namespaces[NAMESPACES]; /* 0: not known */
	char driver[32];                 /* of CUDA: "13.0"; "": none in use */
};

static struct side side_of_daemon(const json_t *daemon)
{
	const json_t *namespaces = json_object_get(daemon, "namespaces");
	const char *driver = json_string_value(json_object_get(daemon, "cuda_driver"));
	struct side s = { .uid = (unsigned)json_integer_value(json_object_get(daemon, "uid")) };

	if (driver && strcmp(driver, "0.0") != 0)
		snprintf(s.driver, sizeof s.driver, "%s", driver);
	for (unsigned i = 0; i < NAMESPACES; i++)
		s.namespaces[i] = (uint64_t)json_integer_value(json_object_get(namespaces, kinds[i]));
	return s;
}

static struct side side_here(const struct doctor *d)
{
	struct side s = { .uid = geteuid() };

	if (d->driver_version)
		snprintf(s.driver, sizeof s.driver, "%d.%d", d->driver_version / 1000, d->driver_version % 1000 / 10);
	for (unsigned i = 0; i < NAMESPACES; i++)
		s.namespaces[i] = namespace_own(kinds[i]);
	return s;
}

static bool are_alike(const struct side *a, const struct side *b)
{
	return a->uid == b->uid && !memcmp(a->namespaces, b->namespaces, sizeof a->namespaces) &&
	       !strcmp(a->driver, b->driver);
}

/* Numbers of namespaces tell nothing where they are the same. */
static void say_same(struct doctor *d, const struct side *s)
{
	doctor_say(
		d, FINDING_OK, "sides", NULL,
		"the daemon and this command have the same user (%u), the same PID, network and IPC namespaces, and %s%s",
		s->uid, *s->driver ? "CUDA driver " : "no CUDA driver in use", s->driver);
}

static void say_side(struct doctor *d, const char *which, const struct side *s)
{
	doctor_say(d, FINDING_OK, "sides", NULL, "%s: user %u, PID namespace %llu, network %llu, IPC %llu, %s%s", which,
		   s->uid, (unsigned long long)s->namespaces[0], (unsigned long long)s->namespaces[1],
		   (unsigned long long)s->namespaces[2], *s->driver ? "CUDA driver " : "no CUDA driver in use",
		   s->driver);
}

/* A difference is harmless where memory was mapped, a likely reason where it was not, and irrelevant without a GPU. */
static void say_difference(struct doctor *d, const char *about, const char *remedy, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static void say_difference(struct doctor *d, const char *about, const char *remedy, const char *fmt, ...)
{
	const char *meaning = d->n_copied ? "trainers here copy their batches by themselves"
			      : d->n_mapped
				      ? "its memory on a GPU can be mapped here all the same"
				      : "that counts for batches on a GPU only, and there is none here to try it on";
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	doctor_say(d, d->n_copied ? FINDING_NOTE : FINDING_OK, about, d->n_copied ? remedy : NULL, "%s; %s", text,
		   meaning);
}

static void doctor_daemon_compare(struct doctor *d, const struct side *theirs, const struct side *ours)
{
	static const char *const remedies[NAMESPACES] = {
		"run trainers and daemon in one PID namespace: docker run --pid=host, or --pid=container:NAME; in Kubernetes shareProcessNamespace",
		"run trainers and daemon in one network namespace: docker run --network=host, or --network=container:NAME; for the service gpu.conf has PrivateNetwork=no",
		"run trainers and daemon in one IPC namespace: docker run --ipc=host, or --ipc=container:NAME",
	};

	for (unsigned i = 0; i < NAMESPACES; i++)
		if (theirs->namespaces[i] && ours->namespaces[i] && theirs->namespaces[i] != ours->namespaces[i])
			say_difference(d, "namespaces", remedies[i], "the daemon is in another %s namespace",
				       kind_names[i]);
	if (theirs->uid != ours->uid)
		say_difference(
			d, "user",
			"run a daemon as the trainers' user: batchd --socket PATH, and BATCHD_SOCKET=PATH for the trainers",
			"the daemon runs as user %u and you are %u", theirs->uid, ours->uid);
	if (*theirs->driver && *ours->driver && strcmp(theirs->driver, ours->driver) != 0)
		say_difference(d, "driver", "use one release of the driver on both sides, and restart the daemon",
			       "the daemon has CUDA driver %s, and here it is CUDA driver %s", theirs->driver,
			       ours->driver);
}

void doctor_sides(struct doctor *d)
{
	char err[256] = "";
	struct side theirs, ours = side_here(d);
	json_t *daemon;
	int r;

	if (!d->daemon_answers || !(daemon = doctor_daemon_ask(d, "daemon", &r, err, sizeof err)))
		return;
	theirs = side_of_daemon(daemon);
	json_decref(daemon);
	if (are_alike(&theirs, &ours)) {
		say_same(d, &ours);
		return;
	}
	say_side(d, "the daemon", &theirs);
	say_side(d, "here", &ours);
	doctor_daemon_compare(d, &theirs, &ours);
}
