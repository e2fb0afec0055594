/* The speed of one GPU and of batchd's own parts on this machine, without a daemon: measure [--small]
 *
 * One line each, "NAME<tab>VALUE<tab>UNIT". Copies: the driver alone from page-locked memory, the daemon's GPU thread
 * (daemon/gpu/gpus.h) from a memfd slab, and the driver from pageable memory, all of the same size and in this order
 * twice, the better one of each. The finishing kernel against a copy on the device, by bytes read and written. The time
 * from a copy's end to the loop. --small: sizes for the fake driver, where the numbers mean nothing. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <uv.h>

#include "finish/convert-plan.h"
#include "finish/fatbin.h"
#include "batch/slab.h"
#include "cuda.h"
#include "gpu/gpus.h"

enum { N_SLOTS = 8, MB = 1 << 20 };

static bool small;
static size_t slot_bytes = 64 * MB;
static unsigned n_copies = 400;
static CUcontext ctx;
static CUstream stream;

static void say(const char *name, double value, const char *unit)
{
	printf("%s\t%.6g\t%s\n", name, value, unit);
	fflush(stdout);
}

static void must(CUresult r, const char *what)
{
	if (r) {
		fprintf(stderr, "measure: %s: %s\n", what, cuda_name(r));
		exit(1);
	}
}
#define MUST(call) must(call, #call)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double middle(double *values, unsigned n)
{
	qsort(values, n, sizeof *values, by_size);
	return values[n / 2];
}

/* ---- the driver alone ---- */

/* GB/s of n_copies copies from host, one after the other in one stream. */
static double rate_of(const char *host, CUdeviceptr to, bool pageable)
{
	unsigned n = pageable ? n_copies / 8 + 1 : n_copies;
	double began;

	for (unsigned i = 0; i < N_SLOTS; i++)
		MUST(cu.cuMemcpyHtoDAsync_v2(to + i * slot_bytes, host + i * slot_bytes, slot_bytes, stream));
	MUST(cu.cuStreamSynchronize(stream));
	began = now();
	for (unsigned i = 0; i < n; i++)
		MUST(cu.cuMemcpyHtoDAsync_v2(to + i % N_SLOTS * slot_bytes, host + i % N_SLOTS * slot_bytes, slot_bytes,
					     stream));
	MUST(cu.cuStreamSynchronize(stream));
	return (double)n * (double)slot_bytes / (now() - began) * 1e-9;
}

static double driver_rate(bool pageable)
{
	size_t n = N_SLOTS * slot_bytes;
	CUdeviceptr to;
	void *host;
	double rate;

	MUST(cu.cuMemAlloc_v2(&to, n));
	if (pageable)
		host = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	else
		MUST(cu.cuMemHostAlloc(&host, n, 0));
	memset(host, 1, n);
	rate = rate_of(host, to, pageable);
	if (pageable)
		munmap(host, n);
	else
		MUST(cu.cuMemFreeHost(host));
	MUST(cu.cuMemFree_v2(to));
	return rate;
}

/* ---- the daemon's GPU thread ---- */

static struct {
	uv_loop_t loop;
	struct gpus *gpus;
	struct slab host;
	struct gpu_slab *slab;
	bool opened, closed;
	unsigned n_begun, n_done, n_wanted;
	uint64_t bytes;
	struct gpu_copy copies[N_SLOTS];
} d;

static void on_lost(void *arg, struct gpu *gpu, const char *text)
{
	(void)arg, (void)gpu;
	fprintf(stderr, "measure: GPU lost: %s\n", text);
	exit(1);
}

static void on_open(void *arg, struct gpu_slab *slab, int result, const char *why)
{
	(void)arg;
	if (result) {
		fprintf(stderr, "measure: the daemon's GPU thread: %s\n", why);
		exit(1);
	}
	d.slab = slab;
	d.opened = true;
}

static void begin_copy(struct gpu_copy *copy);

static void on_done(struct gpu_copy *copy, int result, const char *why)
{
	if (result)
		on_lost(NULL, NULL, why);
	d.n_done++;
	if (d.n_begun < d.n_wanted)
		begin_copy(copy);
}

static void begin_copy(struct gpu_copy *copy)
{
	size_t slot = (size_t)(copy - d.copies);

	*copy = (struct gpu_copy){ .n_parts = 1, .part = { { slot * slot_bytes, d.bytes } }, .done = on_done };
	d.n_begun++;
	gpu_copy_begin(d.slab, copy);
}

static void copy_many(unsigned n, unsigned at_once, uint64_t bytes)
{
	d.n_begun = d.n_done = 0;
	d.n_wanted = n;
	d.bytes = bytes;
	for (unsigned i = 0; i < at_once && i < n; i++)
		begin_copy(&d.copies[i]);
	while (d.n_done < n)
		uv_run(&d.loop, UV_RUN_ONCE);
}

static void on_slab_closed(void *arg, bool lost)
{
	(void)arg, (void)lost;
	d.closed = true;
}

static void on_gpus_closed(void *arg)
{
	(void)arg;
}

/* GB/s with every slot in flight; and, once, how long a tiny copy takes from the request to the notification, in us. */
static double served_rate(double *tiny_us)
{
	struct gpus_params params = {
		.memory_bytes = 16ull << 30, .pin = GPU_PIN_ON, .pin_limit = 0.9, .on_lost = on_lost
	};
	struct gpu_slab_params slab = { .slot_bytes = slot_bytes, .n_slots = N_SLOTS, .on_open = on_open };
	unsigned n_tiny = small ? 20 : 2000;
	char why[GPU_REASON_BYTES];
	double began, rate, *took = calloc(n_tiny, sizeof *took);

	memset(&d, 0, sizeof d);
	if (uv_loop_init(&d.loop) || gpus_create(&d.loop, &params, &d.gpus) ||
	    slab_init(&d.host, N_SLOTS * slot_bytes, N_SLOTS * slot_bytes) || !took)
		exit(1);
	memset(d.host.base, 1, N_SLOTS * slot_bytes);
	MUST(cu.cuDeviceGetUuid_v2((CUuuid *)slab.uuid, 0));
	slab.host = d.host.base;
	if (gpu_slab_open(d.gpus, &slab, why)) {
		fprintf(stderr, "measure: %s\n", why);
		exit(1);
	}
	began = now();
	while (!d.opened)
		uv_run(&d.loop, UV_RUN_ONCE);
	say("daemon: pin and open a slab of 512 MiB", (now() - began) * 1e3, "ms");
	copy_many(N_SLOTS, N_SLOTS, slot_bytes);
	began = now();
	copy_many(n_copies, N_SLOTS, slot_bytes);
	rate = (double)n_copies * (double)slot_bytes / (now() - began) * 1e-9;
	for (unsigned i = 0; i < n_tiny; i++) {
		began = now();
		copy_many(1, 1, 4096);
		took[i] = (now() - began) * 1e6;
	}
	*tiny_us = middle(took, n_tiny);
	free(took);
	gpu_slab_close(d.slab, on_slab_closed, NULL);
	while (!d.closed)
		uv_run(&d.loop, UV_RUN_ONCE);
	gpus_close(d.gpus, on_gpus_closed, NULL);
	uv_run(&d.loop, UV_RUN_DEFAULT);
	uv_loop_close(&d.loop);
	slab_finish(&d.host);
	return rate;
}

/* The same tiny copy without threads and loop; blocking: asleep, as the daemon waits; otherwise polling. */
static double driver_tiny_us(bool blocking)
{
	unsigned n = small ? 20 : 2000;
	double *took = calloc(n, sizeof *took), us;
	CUdeviceptr to;
	CUevent e;
	void *host;

	MUST(cu.cuMemAlloc_v2(&to, 2 * MB));
	MUST(cu.cuMemHostAlloc(&host, 4096, 0));
	MUST(cu.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING | (blocking ? 1 /* CU_EVENT_BLOCKING_SYNC */ : 0)));
	for (unsigned i = 0; i < n; i++) {
		double began = now();

		MUST(cu.cuMemcpyHtoDAsync_v2(to, host, 4096, stream));
		MUST(cu.cuEventRecord(e, stream));
		if (blocking)
			MUST(cu.cuEventSynchronize(e));
		while (!blocking && cu.cuEventQuery(e) == CUDA_ERROR_NOT_READY)
			;
		took[i] = (now() - began) * 1e6;
	}
	us = middle(took, n);
	free(took);
	MUST(cu.cuEventDestroy_v2(e));
	MUST(cu.cuMemFreeHost(host));
	MUST(cu.cuMemFree_v2(to));
	return us;
}

static void measure_copies(void)
{
	double driver = 0, daemon = 0, pageable = 0, tiny = 0, bare;

	for (int i = 0; i < 2; i++) {
		double rate = driver_rate(false);

		driver = rate > driver ? rate : driver;
		rate = served_rate(&tiny);
		daemon = rate > daemon ? rate : daemon;
		rate = driver_rate(true);
		pageable = rate > pageable ? rate : pageable;
	}
	say("host to device, page-locked, driver alone", driver, "GB/s");
	say("host to device, daemon's GPU thread", daemon, "GB/s");
	say("daemon of driver", daemon / driver * 100, "%");
	say("host to device, pageable, driver alone", pageable, "GB/s");
	bare = driver_tiny_us(false);
	say("4 KiB copied and seen, driver alone", bare, "us");
	say("4 KiB copied and seen by a thread that slept, driver alone", driver_tiny_us(true), "us");
	say("4 KiB copied and the loop told, daemon's GPU thread", tiny, "us");
	say("added by threads and loop", tiny - bare, "us");
}

/* ---- the finishing kernel ---- */

static double event_ms(CUevent from, CUevent to)
{
	float ms = 0;

	MUST(cu.cuEventRecord(to, stream));
	MUST(cu.cuEventSynchronize(to));
	MUST(cu.cuEventElapsedTime(&ms, from, to));
	return ms;
}

static void measure_kernels(void)
{
	static const struct {
		const char *name;
		enum convert_number number;
		uint32_t planar;
	} kinds[] = { { "uint8 NHWC", CONVERT_TO_UINT8, 0 },       { "uint8 NCHW", CONVERT_TO_UINT8, 1 },
		      { "float16 NHWC", CONVERT_TO_FLOAT16, 0 },   { "float16 NCHW", CONVERT_TO_FLOAT16, 1 },
		      { "bfloat16 NCHW", CONVERT_TO_BFLOAT16, 1 }, { "float32 NHWC", CONVERT_TO_FLOAT32, 0 },
		      { "float32 NCHW", CONVERT_TO_FLOAT32, 1 } };
	static const float mean[] = { 0.485f, 0.456f, 0.406f }, std[] = { 0.229f, 0.224f, 0.225f };
	const void *image = convert_image();
	uint32_t plane = 224 * 224, n_images = small ? 4 : 1024; /* 154 MB in, up to 617 MB out: several times the
	                                                          * cache */
	size_t in_bytes = (size_t)n_images * plane * 3, out_bytes = in_bytes * 4;
	unsigned repeats = small ? 2 : 50;
	CUdeviceptr in, out;
	CUevent from, to;
	double copied = 0;
	CUmodule module;

	MUST(cu.cuMemAlloc_v2(&in, out_bytes));
	MUST(cu.cuMemAlloc_v2(&out, out_bytes));
	MUST(cu.cuMemsetD8_v2(in, 77, out_bytes));
	MUST(cu.cuEventCreate(&from, 0));
	MUST(cu.cuEventCreate(&to, 0));
	for (int i = 0; i < 3; i++) { /* the best of three, the first of which warms up */
		MUST(cu.cuEventRecord(from, stream));
		for (unsigned k = 0; k < repeats; k++)
			MUST(cu.cuMemcpyDtoDAsync_v2(out, in, out_bytes, stream));
		double rate = 2.0 * (double)out_bytes * repeats / event_ms(from, to) * 1e-6;

		copied = rate > copied ? rate : copied;
	}
	say("device to device, bytes read and written", copied, "GB/s");
	if (!image) {
		fprintf(stderr, "measure: built without nvcc, so there is no finishing kernel to measure\n");
		return;
	}
	MUST(cu.cuModuleLoadData(&module, image));
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct convert_plan p = { .in = in, .out = out, .n_px = n_images * plane };
		char name[32], line[96];
		double best = 0;
		CUfunction f;

		convert_plan_init(&p, kinds[i].number, (int)kinds[i].planar, 3, plane,
				  kinds[i].number == CONVERT_TO_UINT8 ? NULL : mean,
				  kinds[i].number == CONVERT_TO_UINT8 ? NULL : std);
		p.in = in, p.out = out, p.n_px = n_images * plane;
		convert_plan_kernel(&p, name);
		MUST(cu.cuModuleGetFunction(&f, module, name));
		for (int k = 0; k < 3; k++) {
			MUST(cu.cuEventRecord(from, stream));
			for (unsigned j = 0; j < repeats; j++)
				MUST(cu.cuLaunchKernel(f, convert_plan_blocks(&p), 1, 1, CONVERT_THREADS, 1, 1, 0,
						       stream, (void *[]){ &p }, NULL));
			double bytes =
				(double)in_bytes * (1.0 + (double)convert_number_bytes(kinds[i].number)) * repeats;
			double rate = bytes / event_ms(from, to) * 1e-6;

			best = rate > best ? rate : best;
		}
		snprintf(line, sizeof line, "finishing kernel, %s", kinds[i].name);
		say(line, best, "GB/s");
		snprintf(line, sizeof line, "finishing kernel, %s, of device to device", kinds[i].name);
		say(line, best / copied * 100, "%");
	}
	MUST(cu.cuModuleUnload(module));
	MUST(cu.cuMemFree_v2(in));
	MUST(cu.cuMemFree_v2(out));
	MUST(cu.cuEventDestroy_v2(from));
	MUST(cu.cuEventDestroy_v2(to));
}

int main(int argc, char **argv)
{
	const char *why = cuda_load();
	CUresult r;

	small = argc > 1 && !strcmp(argv[1], "--small");
	if (small)
		slot_bytes = MB, n_copies = 20;
	r = why ? CUDA_ERROR_NO_DEVICE : cu.cuInit(0);
	if (r) {
		fprintf(stderr, "measure: no GPU: %s\n", why ? why : cuda_name(r));
		return 77;
	}
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cu.cuCtxSetCurrent(ctx));
	MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	measure_copies();
	measure_kernels();
	MUST(cu.cuStreamDestroy_v2(stream));
	MUST(cu.cuCtxSetCurrent(NULL));
	MUST(cu.cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}
