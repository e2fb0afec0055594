/* The fake driver in a test's own process: loads it, reads its counters and violations, and runs a thread that may
 * use CUDA beside batchd's own threads, to read device memory. */
#ifndef BATCHD_TESTS_CUDA_DOUBLE_H
#define BATCHD_TESTS_CUDA_DOUBLE_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/driver.h"
#include "fake/cuda/fakecuda.h"
#include "suite.h"

static struct {
	struct cuda_driver cu;
	__typeof__(&fakecuda_fail) inject;
	__typeof__(&fakecuda_counter) counter;
	__typeof__(&fakecuda_alive) alive;
	__typeof__(&fakecuda_last_violation) last_violation;
	__typeof__(&fakecuda_hold_streams) hold_streams;
	__typeof__(&fakecuda_hold_call) hold_call;
	__typeof__(&fakecuda_n_held) n_held;
} gpu_double __attribute__((unused));

static inline const char *double_path(const char *file)
{
	static char path[4096];
	snprintf(path, sizeof(path), "%s/%s", getenv("BATCHD_BUILD") ? getenv("BATCHD_BUILD") : "build", file);
	return path;
}

static inline void double_find(void *library, void *member, const char *name)
{
	void *fn = dlsym(library, name);
	ck_assert_msg(fn != NULL, "the fake driver has no %s", name);
	memcpy(member, &fn, sizeof(fn));
}

/* Call this before any use of CUDA. Only batchd's GPU threads and the reader thread may call CUDA. */
static inline void double_load(void)
{
	char why[256];
	setenv("BATCHD_LIBCUDA", double_path("libfakecuda.so"), 1);
	setenv("FAKECUDA_ALLOW_THREADS", "batchd-gpu*,reader", 1);
	setenv("FAKECUDA_QUIET", "1", 0);
	ck_assert_msg(cuda_driver_load(&gpu_double.cu, why, sizeof(why)) == 0, "%s", why);
	void *library = dlopen(double_path("libfakecuda.so"), RTLD_NOW | RTLD_LOCAL);
	double_find(library, &gpu_double.inject, "fakecuda_fail");
	double_find(library, &gpu_double.counter, "fakecuda_counter");
	double_find(library, &gpu_double.alive, "fakecuda_alive");
	double_find(library, &gpu_double.last_violation, "fakecuda_last_violation");
	double_find(library, &gpu_double.hold_streams, "fakecuda_hold_streams");
	double_find(library, &gpu_double.hold_call, "fakecuda_hold_call");
	double_find(library, &gpu_double.n_held, "fakecuda_n_held");
}

static inline void double_assert_clean(void)
{
	ck_assert_msg(gpu_double.counter("violations") == 0, "%s", gpu_double.last_violation());
	ck_assert_uint_eq(gpu_double.alive(), 0);
}

/* ---- the reader ---- */

struct reading {
	void (*run)(struct reading *r);
	int ordinal;
	struct cuda_uuid uuid;
	cuda_ptr from;
	void *to;
	size_t n_bytes;
};

static inline void *reader_thread(void *arg)
{
	struct reading *r = arg;
	pthread_setname_np(pthread_self(), "reader");
	r->run(r);
	return NULL;
}

static inline void on_reader(struct reading *r)
{
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, reader_thread, r), 0);
	pthread_join(thread, NULL);
}

#define CU(call) ck_assert_int_eq(gpu_double.cu.call, CUDA_OK)

static inline void run_uuid(struct reading *r)
{
	cuda_device device;
	CU(init(0));
	CU(device_get(&device, r->ordinal));
	CU(device_get_uuid(&r->uuid, device));
}

static inline void run_read(struct reading *r)
{
	struct cuda_context *context;
	cuda_device device;
	CU(device_get(&device, r->ordinal));
	CU(primary_ctx_retain(&context, device));
	CU(ctx_set_current(context));
	CU(memcpy_dtoh_async(r->to, r->from, r->n_bytes, NULL));
	CU(stream_synchronize(NULL));
	CU(ctx_set_current(NULL));
	CU(primary_ctx_release(device));
}

static inline struct cuda_uuid uuid_of(int ordinal)
{
	struct reading r = { .run = run_uuid, .ordinal = ordinal };
	on_reader(&r);
	return r.uuid;
}

/* Device memory of GPU `ordinal`, with its present content. */
static inline void read_device(int ordinal, cuda_ptr from, void *to, size_t n_bytes)
{
	struct reading r = { .run = run_read, .ordinal = ordinal, .from = from, .to = to, .n_bytes = n_bytes };
	on_reader(&r);
}

#endif
