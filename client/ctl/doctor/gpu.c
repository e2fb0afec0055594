/* Findings of doctor about the CUDA driver: whether there is one, which GPUs, whether their memory can be shared
 * between processes, whether host memory can be pinned.
 *
 * Sharing is tried as it will be used, between two processes: a child of posix_spawn (never a fork, which CUDA does not
 * survive) exports a buffer, and this process opens and reads it. That shows what the driver does between processes of
 * one user in one place; daemon.c tries it between this process and the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "gpu/driver.h"
#include "ctl/doctor/doctor.h"
#include "base/size.h"

enum { SCRATCH = 2 << 20, PATTERN = 0x5a };

extern char **environ;

struct gpu_trial {
	struct doctor *doctor;
	const struct cuda_driver *driver;
	int ordinal;
	char about[16]; /* "GPU 0" */
	cuda_device device;
	struct cuda_context *context;
	struct cuda_stream *stream;
	char *pinned; /* SCRATCH bytes, registered */
};

static enum finding doctor_gpu_missing(const struct doctor *d)
{
	return d->device_wanted ? FINDING_PROBLEM : FINDING_NOTE;
}

/* ---- the other process ---- */

static void write_handle(const struct cuda_ipc_handle *h)
{
	for (size_t i = 0; i < sizeof h->bytes; i++)
		printf("%02x", h->bytes[i]);
	putchar('\n');
	fflush(stdout);
}

static int doctor_gpu_export(const struct cuda_driver *driver, int ordinal, const char **call)
{
	struct cuda_context *context;
	struct cuda_ipc_handle handle;
	cuda_device device;
	cuda_ptr memory = 0;
	char end;
	int r;

#define STEP(name, ...) (*call = name, r = (__VA_ARGS__))
	if (STEP("cuInit", driver->init(0)) || STEP("cuDeviceGet", driver->device_get(&device, ordinal)) ||
	    STEP("cuDevicePrimaryCtxRetain", driver->primary_ctx_retain(&context, device)))
		return r;
	if (!STEP("cuCtxSetCurrent", driver->ctx_set_current(context)) &&
	    !STEP("cuMemAlloc", driver->mem_alloc(&memory, SCRATCH)) &&
	    !STEP("cuMemsetD8Async", driver->memset_d8_async(memory, PATTERN, SCRATCH, NULL)) &&
	    !STEP("cuStreamSynchronize", driver->stream_synchronize(NULL)) &&
	    !STEP("cuIpcGetMemHandle", driver->ipc_get_mem_handle(&handle, memory))) {
		write_handle(&handle);
		while (read(STDIN_FILENO, &end, 1) > 0)
			;
	}
#undef STEP
	if (memory)
		driver->mem_free(memory);
	driver->ctx_set_current(NULL);
	driver->primary_ctx_release(device);
	return r;
}

/* Exports a buffer on GPU number argv[1], writes its handle to standard output, and waits for the end of standard
 * input. */
int doctor_export_main(int argc, char **argv)
{
	struct cuda_driver driver;
	const char *call = "dlopen";
	char why[512];
	int r;

	if (argc < 2 || cuda_driver_load(&driver, why, sizeof why) < 0)
		return CTL_USAGE;
	r = doctor_gpu_export(&driver, atoi(argv[1]), &call);
	if (r != CUDA_OK)
		printf("! %s says %s\n", call, cuda_error_name(&driver, r));
	return r == CUDA_OK ? CTL_OK : CTL_FAILED;
}

/* ---- sharing ---- */

struct child {
	pid_t pid;
	FILE *out; /* its standard output */
	int in;    /* its standard input; closing this ends it */
};

static int start_child(struct child *c, int ordinal)
{
	char number[16], self[] = "/proc/self/exe", name[] = "doctor-export", zero[] = "batchctl";
	char *argv[] = { zero, name, number, NULL };
	posix_spawn_file_actions_t files;
	int in[2], out[2], r;

	snprintf(number, sizeof number, "%d", ordinal);
	if (pipe2(in, O_CLOEXEC) < 0)
		return errno;
	if (pipe2(out, O_CLOEXEC) < 0) {
		r = errno;
		close(in[0]), close(in[1]);
		return r;
	}
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, in[0], STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
	r = posix_spawn(&c->pid, self, &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	close(in[0]), close(out[1]);
	c->in = in[1];
	c->out = r == 0 ? fdopen(out[0], "r") : NULL;
	if (!c->out)
		close(out[0]);
	return r;
}

static void end_child(struct child *c)
{
	close(c->in);
	if (c->out)
		fclose(c->out);
	if (c->pid > 0)
		while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
			;
}

static bool parse_handle(const char *hex, struct cuda_ipc_handle *h)
{
	unsigned byte;

	for (size_t i = 0; i < sizeof h->bytes; i++) {
		if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
			return false;
		h->bytes[i] = (unsigned char)byte;
	}
	return true;
}

/* Reads the shared buffer through this process's mapping. Returns the call that failed, or NULL; *r: the CUDA
 * result. */
static const char *read_shared(struct gpu_trial *t, const struct cuda_ipc_handle *h, int *r)
{
	const struct cuda_driver *cu = t->driver;
	const char *failed = NULL;
	cuda_ptr mapped;

	*r = cu->ipc_open_mem_handle(&mapped, *h, CUDA_IPC_LAZY_PEER_ACCESS);
	if (*r)
		return "cuIpcOpenMemHandle";
	memset(t->pinned, 0, SCRATCH);
	if ((*r = cu->memcpy_dtoh_async(t->pinned, mapped, SCRATCH, t->stream)) ||
	    (*r = cu->stream_synchronize(t->stream)))
		failed = "copying from the shared memory";
	cu->ipc_close_mem_handle(mapped);
	return failed;
}

static void try_sharing(struct gpu_trial *t)
{
	static const char advice[] =
		"trainers will copy by themselves; on WSL2 and between MIG instances that is all that works, elsewhere see the other lines";
	struct cuda_ipc_handle handle;
	struct child c = { .pid = -1, .in = -1 };
	char line[2 * sizeof handle.bytes + 128] = "";
	const char *failed = NULL;
	int r = start_child(&c, t->ordinal), result = CUDA_OK;

	if (r != 0) {
		doctor_say(t->doctor, FINDING_NOTE, t->about, NULL, "CUDA IPC could not be tried: %s", strerror(r));
		return;
	}
	if (!c.out || !fgets(line, sizeof line, c.out))
		snprintf(line, sizeof line, "! the process that was to share its memory said nothing");
	line[strcspn(line, "\n")] = '\0';
	if (*line == '!' || !parse_handle(line, &handle))
		doctor_say(t->doctor, FINDING_NOTE, t->about, advice, "memory cannot be shared by CUDA IPC: %s",
			   *line == '!' ? line + 2 : "nonsense");
	else if ((failed = read_shared(t, &handle, &result)))
		doctor_say(t->doctor, FINDING_NOTE, t->about, advice, "memory cannot be shared by CUDA IPC: %s says %s",
			   failed, cuda_error_name(t->driver, result));
	else if (t->pinned[0] != PATTERN || t->pinned[SCRATCH - 1] != PATTERN)
		doctor_say(t->doctor, FINDING_PROBLEM, t->about, "check the driver",
			   "memory shared by CUDA IPC does not hold what the other process wrote");
	else
		doctor_say(t->doctor, FINDING_OK, t->about, NULL, "another process's memory can be mapped by CUDA IPC");
	end_child(&c);
}

/* ---- pinning ---- */

/* Pins memory as a trainer without IPC does: memory that is mapped for reading only. */
static void try_pinning(struct gpu_trial *t)
{
	int fd = memfd_create("doctor", MFD_CLOEXEC), r;
	void *memory =
		fd >= 0 && ftruncate(fd, SCRATCH) == 0 ? mmap(NULL, SCRATCH, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (fd >= 0)
		close(fd);
	if (memory == MAP_FAILED)
		return;
	r = t->driver->mem_host_register(memory, SCRATCH, CUDA_HOST_REGISTER_PORTABLE | CUDA_HOST_REGISTER_READ_ONLY);
	if (r == CUDA_OK) {
		t->driver->mem_host_unregister(memory);
		doctor_say(t->doctor, FINDING_OK, t->about, NULL,
			   "memory that is mapped for reading only can be pinned");
	} else {
		doctor_say(
			t->doctor, FINDING_NOTE, t->about, NULL,
			"memory that is mapped for reading only cannot be pinned (%s); where IPC does not work, batches take a "
			"detour through a pinned buffer",
			cuda_error_name(t->driver, r));
	}
	munmap(memory, SCRATCH);
}

/* ---- a GPU ---- */

static int doctor_gpu_attribute(const struct gpu_trial *t, enum cuda_device_attribute a)
{
	int value = 0;

	return t->driver->device_get_attribute(&value, a, t->device) == CUDA_OK ? value : 0;
}

static void doctor_gpu_describe(struct gpu_trial *t)
{
	char name[128] = "?", total[SIZE_TEXT_BYTES], uuid[40] = "";
	struct cuda_uuid u = { 0 };
	size_t n_bytes = 0;

	t->driver->device_get_name(name, sizeof name, t->device);
	t->driver->device_get_uuid(&u, t->device);
	t->driver->device_total_mem(&n_bytes, t->device);
	size_format(n_bytes, total, sizeof total);
	for (unsigned i = 0; i < sizeof u.bytes; i++)
		sprintf(uuid + strlen(uuid), "%02x%s", u.bytes[i], i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
	doctor_say(t->doctor, FINDING_OK, t->about, NULL, "%s, %s, compute capability %d.%d, GPU-%s", name, total,
		   doctor_gpu_attribute(t, CUDA_DEVICE_COMPUTE_MAJOR),
		   doctor_gpu_attribute(t, CUDA_DEVICE_COMPUTE_MINOR), uuid);
	if (strstr(name, "MIG"))
		doctor_say(t->doctor, FINDING_NOTE, t->about,
			   "give daemon and trainers the same instance, or let trainers copy",
			   "it is a MIG instance; CUDA IPC "
			   "does not work between instances");
	if (doctor_gpu_attribute(t, CUDA_DEVICE_MPS_ENABLED))
		doctor_say(t->doctor, FINDING_OK, t->about, NULL, "MPS is on, which works and is not needed");
}

/* Whether several processes may use the GPU. */
static bool check_mode(struct gpu_trial *t)
{
	int mode = doctor_gpu_attribute(t, CUDA_DEVICE_COMPUTE_MODE);

	if (mode == CUDA_COMPUTE_DEFAULT ||
	    (mode == CUDA_COMPUTE_EXCLUSIVE_PROCESS && doctor_gpu_attribute(t, CUDA_DEVICE_MPS_ENABLED)))
		return true;
	doctor_say(t->doctor, FINDING_PROBLEM, t->about, "as root: nvidia-smi --compute-mode=DEFAULT (or -c 0)",
		   "its compute mode is %s: %s", mode == CUDA_COMPUTE_EXCLUSIVE_PROCESS ? "exclusive" : "prohibited",
		   mode == CUDA_COMPUTE_EXCLUSIVE_PROCESS ? "daemon and trainer cannot use it together"
							  : "no process can use it");
	return false;
}

static int doctor_gpu_begin(struct gpu_trial *t, const char **call)
{
	const struct cuda_driver *cu = t->driver;
	int r;

	*call = "cuDevicePrimaryCtxRetain";
	r = cu->primary_ctx_retain(&t->context, t->device);
	if (r != CUDA_OK)
		return r;
	*call = "cuStreamCreate";
	r = cu->ctx_set_current(t->context);
	if (r == CUDA_OK)
		r = cu->stream_create_with_priority(&t->stream, CUDA_STREAM_NON_BLOCKING, 0);
	*call = "cuMemHostRegister";
	if (r == CUDA_OK)
		r = cu->mem_host_register(t->pinned, SCRATCH, CUDA_HOST_REGISTER_PORTABLE);
	return r;
}

static void check_gpu(struct doctor *d, const struct cuda_driver *driver, int ordinal)
{
	struct gpu_trial t = { .doctor = d, .driver = driver, .ordinal = ordinal };
	void *memory = mmap(NULL, SCRATCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *call = "cuDeviceGet";
	int r = driver->device_get(&t.device, ordinal);

	snprintf(t.about, sizeof t.about, "GPU %d", ordinal);
	if (memory == MAP_FAILED)
		return;
	t.pinned = memory;
	if (r == CUDA_OK)
		doctor_gpu_describe(&t);
	if (r == CUDA_OK && check_mode(&t))
		r = doctor_gpu_begin(&t, &call);
	if (r != CUDA_OK)
		doctor_say(
			d, FINDING_PROBLEM, t.about,
			r == CUDA_OUT_OF_MEMORY
				? "a process needs some 500 MB on it before the first batch; nvidia-smi says who has it"
				: "nvidia-smi and dmesg may say more",
			"it cannot be used: %s says %s", call, cuda_error_name(driver, r));
	else if (t.context) {
		try_pinning(&t);
		try_sharing(&t);
		if (d->daemon_answers)
			doctor_loader(d, driver, ordinal, t.stream, t.about, t.pinned, SCRATCH);
		driver->mem_host_unregister(t.pinned);
	}
	if (t.stream)
		driver->stream_destroy(t.stream);
	if (t.context) {
		driver->ctx_set_current(NULL);
		driver->primary_ctx_release(t.device);
	}
	munmap(memory, SCRATCH);
}

void doctor_gpu(struct doctor *d)
{
	const char *meaning, *advice, *call = "cuInit";
	struct cuda_driver driver;
	char why[512];
	int r = cuda_driver_load(&driver, why, sizeof why), version = 0, n = 0;

	if (r < 0) {
		doctor_say(d, doctor_gpu_missing(d), "driver",
			   r == -ENOSYS ? "install NVIDIA driver 470 or newer"
					: "install NVIDIA's driver; in a container: docker run --gpus all",
			   "%s", why);
		return;
	}
	driver.driver_get_version(&version);
	d->driver_version = version;
	r = driver.init(0);
	if (r == CUDA_OK && ((r = driver.device_get_count(&n)) != CUDA_OK || n == 0)) {
		call = "cuDeviceGetCount";
		r = r == CUDA_OK ? CUDA_NO_DEVICE : r;
	}
	if (r != CUDA_OK) {
		meaning = cuda_init_meaning(r, &advice);
		doctor_say(d, r == CUDA_NO_DEVICE ? doctor_gpu_missing(d) : FINDING_PROBLEM, "driver", advice,
			   "CUDA %d.%d is installed, but %s: %s says %s", version / 1000, version % 1000 / 10, meaning,
			   call, cuda_error_name(&driver, r));
		return;
	}
	doctor_say(d, FINDING_OK, "driver", NULL, "CUDA %d.%d, %d GPU%s", version / 1000, version % 1000 / 10, n,
		   n == 1 ? "" : "s");
	d->n_gpus = (unsigned)n;
	for (int i = 0; i < n; i++)
		check_gpu(d, &driver, i);
}
