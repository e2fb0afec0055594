/* Finding a GPU and entering its context.
 *
 * A process that was forked after its parent had used CUDA cannot use CUDA: every call there fails with
 * CUDA_ERROR_NOT_INITIALIZED, for which the error text has the remedy. */
#include "gpu/gpu.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../daemon/gpu/vmm.h"
#include "batchd.h"
#include "link/process.h"

static struct cuda_driver table;
static int table_result = -1;
static char table_why[256];
static unsigned table_generation; /* process_generation() */

static void gpu_load(void)
{
	table_generation = process_generation();
	table_result = cuda_driver_load(&table, table_why, sizeof table_why);
}

const struct cuda_driver *gpu_driver(struct fault *f)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const char *meaning, *advice;
	int r;

	pthread_once(&once, gpu_load);
	if (table_result < 0) {
		fault_set(f, BATCHD_E_GPU, "%s", table_why);
		return NULL;
	}
	/* If CUDA did not start before the fork either, the driver would return CUDA_ERROR_OPERATING_SYSTEM. */
	r = process_generation() == table_generation ? table.init(0) : CUDA_NOT_INITIALIZED;
	if (r == CUDA_OK)
		return &table;
	meaning = cuda_init_meaning(r, &advice);
	fault_set(f, BATCHD_E_GPU, "no GPU can be used here: %s (cuInit says %s): %s", meaning,
		  cuda_error_name(&table, r), advice);
	return NULL;
}

static int set_fault(const struct gpu *g, int result, struct fault *f, const char *what, bool of_stream)
{
	bool is_misuse = result == CUDA_INVALID_VALUE || result == CUDA_INVALID_HANDLE ||
			 result == CUDA_INVALID_CONTEXT || (of_stream && result == CUDA_CONTEXT_IS_DESTROYED);
	int code = result == CUDA_OUT_OF_MEMORY ? BATCHD_E_NOMEM : is_misuse ? BATCHD_E_INVALID : BATCHD_E_GPU;

	if (result == CUDA_OK)
		return 0;
	return fault_set(
		f, code, "%s: %s on %s; %s", what, cuda_error_name(g->driver, result), g->name,
		of_stream && code == BATCHD_E_INVALID
			? "is the stream one of this GPU's primary context, and still there? `batchctl doctor` tries the GPU"
			: cuda_error_advice(result));
}

int gpu_fault(const struct gpu *g, int result, struct fault *f, const char *what)
{
	return set_fault(g, result, f, what, false);
}

int gpu_fault_on_stream(const struct gpu *g, int result, struct fault *f, const char *what)
{
	return set_fault(g, result, f, what, true);
}

/* ---- choosing ---- */

static int parse_uuid(const char *text, struct cuda_uuid *out)
{
	unsigned n = 0;

	if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
		return -1;
	for (text += 4; *text; text++) {
		char digit[2] = { *text, '\0' };

		if (*text == '-')
			continue;
		if (!isxdigit((unsigned char)*text) || n == 2 * sizeof out->bytes)
			return -1;
		out->bytes[n / 2] = (unsigned char)(out->bytes[n / 2] << 4 | strtoul(digit, NULL, 16));
		n++;
	}
	return n == 2 * sizeof out->bytes ? 0 : -1;
}

static int find_by_uuid(const struct cuda_driver *driver, const struct cuda_uuid *uuid, int n_devices)
{
	for (int i = 0; i < n_devices; i++) {
		struct cuda_uuid found;
		cuda_device device;

		if (driver->device_get(&device, i) == CUDA_OK && driver->device_get_uuid(&found, device) == CUDA_OK &&
		    memcmp(&found, uuid, sizeof found) == 0)
			return i;
	}
	return -1;
}

/* The ordinal of the device that text names, or a code. */
static int gpu_choose(const struct cuda_driver *driver, const char *text, int n_devices, struct fault *f)
{
	struct cuda_uuid uuid = { 0 };
	struct cuda_context *context = NULL;
	cuda_device current;
	char *end;
	long n;

	if (strcmp(text, "cuda") == 0)
		return driver->ctx_get_current(&context) == CUDA_OK && context &&
				       driver->ctx_get_device(&current) == CUDA_OK
			       ? (int)current
			       : 0;
	if (parse_uuid(text, &uuid) == 0) {
		n = find_by_uuid(driver, &uuid, n_devices);
		return n >= 0 ? (int)n
			      : fault_set(f, BATCHD_E_INVALID,
					  "device: this process sees no GPU with the UUID %s (%d others; "
					  "CUDA_VISIBLE_DEVICES decides)",
					  text, n_devices);
	}
	if (strncmp(text, "cuda:", 5) != 0 || !isdigit((unsigned char)text[5]))
		return fault_set(f, BATCHD_E_INVALID, "device: '%s' is none of cpu, cuda, cuda:N, GPU-<uuid>", text);
	n = strtol(text + 5, &end, 10);
	if (*end || n >= n_devices)
		return fault_set(f, BATCHD_E_INVALID, "device: there is no %s; this process sees %d GPU%s", text,
				 n_devices, n_devices == 1 ? "" : "s");
	return (int)n;
}

/* Reads an attribute that a driver may not know yet: then it is 0. A CUDA result after which nothing works, or
 * CUDA_OK. */
static int gpu_look_for(const struct gpu *g, enum cuda_device_attribute a, int *value)
{
	int r = g->driver->device_get_attribute(value, a, g->device);

	return cuda_error_sticky(r) ? r : CUDA_OK;
}

/* Whether GPU memory can come as a descriptor. */
static int look_for_fds(struct gpu *g)
{
	const char *call;
	int r = vmm_look(g->driver, g->device, &g->maps_fds, &call);

	return cuda_error_sticky(r) ? r : CUDA_OK;
}

/* Whether it is in EXCLUSIVE_PROCESS, and this process one of those that MPS has share it. */
static int look_for_mps(struct gpu *g)
{
	int mode = CUDA_COMPUTE_DEFAULT, mps = 0;
	int r = gpu_look_for(g, CUDA_DEVICE_COMPUTE_MODE, &mode);

	if (r == CUDA_OK && mode == CUDA_COMPUTE_EXCLUSIVE_PROCESS)
		r = gpu_look_for(g, CUDA_DEVICE_MPS_ENABLED, &mps);
	g->needs_mps = mps != 0;
	return r;
}

/* In exclusive mode another process has the GPU, in prohibited mode no process may use it; the driver's error is
 * "unavailable", or that it does not know. */
static const char *advice(const struct gpu *g, int result)
{
	int mode = CUDA_COMPUTE_DEFAULT;

	if (gpu_look_for(g, CUDA_DEVICE_COMPUTE_MODE, &mode) != CUDA_OK || mode == CUDA_COMPUTE_DEFAULT)
		return cuda_error_advice(result);
	return mode == CUDA_COMPUTE_PROHIBITED
		       ? "its compute mode is PROHIBITED (nvidia-smi -c DEFAULT changes it)"
		       : "its compute mode is EXCLUSIVE_PROCESS, so one process has it at a time (nvidia-smi -c DEFAULT changes it)";
}

int gpu_open(struct gpu *g, const char *wanted, struct fault *f)
{
	const struct cuda_driver *driver = gpu_driver(f);
	int n_devices = 0, ordinal, r, read_only = 0;
	const char *call;

	*g = (struct gpu){ 0 };
	if (!driver)
		return f->code;
	r = driver->device_get_count(&n_devices);
	if (r != CUDA_OK)
		return fault_set(f, BATCHD_E_GPU, "cannot list this process's GPUs: cuDeviceGetCount says %s; %s",
				 cuda_error_name(driver, r), cuda_error_advice(r));
	if (n_devices < 1)
		return fault_set(f, BATCHD_E_GPU, "this process sees no GPU (is CUDA_VISIBLE_DEVICES empty?)");
	ordinal = gpu_choose(driver, wanted, n_devices, f);
	if (ordinal < 0)
		return ordinal;
	g->driver = driver;
	g->ordinal = ordinal;
	snprintf(g->name, sizeof g->name, "cuda:%d", ordinal);
#define STEP(name, ...) (call = name, r = (__VA_ARGS__))
	if (STEP("cuDeviceGet", driver->device_get(&g->device, ordinal)) ||
	    STEP("cuDeviceGetUuid", driver->device_get_uuid(&g->uuid, g->device)) ||
	    STEP("cuDriverGetVersion", driver->driver_get_version(&g->driver_version)) ||
	    STEP("cuDeviceGetAttribute", gpu_look_for(g, CUDA_DEVICE_READ_ONLY_HOST_REGISTER_SUPPORTED, &read_only)) ||
	    STEP("cuDeviceGetAttribute", look_for_fds(g)) || STEP("cuDeviceGetAttribute", look_for_mps(g)) ||
	    STEP("cuDevicePrimaryCtxRetain", driver->primary_ctx_retain(&g->context, g->device))) {
		g->context = NULL;
		return fault_set(f, BATCHD_E_GPU, "cannot use %s: %s says %s; %s", g->name, call,
				 cuda_error_name(driver, r), advice(g, r));
	}
#undef STEP
	g->registers_read_only = read_only != 0;
	return 0;
}

void gpu_close(struct gpu *g)
{
	if (g->context)
		g->driver->primary_ctx_release(g->device);
	g->context = NULL;
}

/* ---- visits ---- */

int gpu_enter(const struct gpu *g, struct gpu_visit *v)
{
	int r = g->driver->ctx_push_current(g->context);

	v->capture_mode = CUDA_CAPTURE_MODE_RELAXED;
	if (r != CUDA_OK)
		return r;
	r = g->driver->thread_exchange_stream_capture_mode(&v->capture_mode);
	if (r != CUDA_OK) {
		struct cuda_context *ours;

		g->driver->ctx_pop_current(&ours);
	}
	return r;
}

void gpu_leave(const struct gpu *g, const struct gpu_visit *v)
{
	struct cuda_context *ours;
	int mode = v->capture_mode;

	g->driver->thread_exchange_stream_capture_mode(&mode);
	g->driver->ctx_pop_current(&ours);
}
