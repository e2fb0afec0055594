/* A trainer whose step is one kernel: step [--dataset D] [--job NAME] [--rank R --world W] [--mode share] [--batch N]
 * [--slots N] [--warm N] [--steps N] [--ms MS] [--kernel arithmetic|memory] [--rounds N]
 *
 * Measures the time of its steps, by CUDA's own clock, without a loader (no --dataset) or with one: it takes a batch,
 * finishes it into a tensor and gives it back, then runs the kernel, calibrated to MS milliseconds alone (0: none, as
 * fast as batches come). The kernel does only arithmetic, or only reads and writes memory. Lines
 * "NAME<tab>VALUE<tab>UNIT". */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../client/batchd.h"
#include "cuda.h"

enum { AHEAD = 3, MEMORY_BYTES = 512 << 20 };

static struct batchd_loader *loader;
static struct batchd_info info = { .size_bytes = sizeof info };
static CUstream stream;
static CUfunction fma_kernel, copy_kernel;
static CUdeviceptr scratch, tensor, labels;
static bool by_memory;
static size_t memory_bytes = MEMORY_BYTES; /* several times a GPU's cache */
static CUdeviceptr memory_to, memory_from;
static uint32_t rounds;
static unsigned blocks, warm = 10; /* steps before those that count; a second of steps raises the clocks */

static void say(const char *name, double value, const char *unit)
{
	printf("%s\t%.6g\t%s\n", name, value, unit);
	fflush(stdout);
}

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "step: %s: %s\n", what, why);
	exit(1);
}

static void must(CUresult r, const char *what)
{
	if (r)
		fail(what, cuda_name(r));
}
#define MUST(call) must(call, #call)

static void batchd(int r, const char *what)
{
	if (r < 0)
		fail(what, *batchd_error(loader) ? batchd_error(loader) : batchd_code_name(r));
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- values of which the distribution counts ---- */

struct values {
	double *at;
	size_t n, room;
};

static struct values kernel_ms, step_ms, next_ms, next_cpu_us;

static void note(struct values *v, double value)
{
	if (v->n == v->room) {
		v->room = v->room ? 2 * v->room : 1024;
		v->at = realloc(v->at, v->room * sizeof *v->at);
		if (!v->at)
			fail("realloc", "no memory");
	}
	v->at[v->n++] = value;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The share of the sorted values above 1.2 times their median: what takes turns with another process shows there. */
static double outliers_percent(const struct values *v)
{
	size_t n = 0;

	while (n < v->n && v->at[v->n - 1 - n] > 1.2 * v->at[v->n / 2])
		n++;
	return (double)n / (double)v->n * 100;
}

static void say_spread(const char *name, struct values *v, const char *unit)
{
	char text[96];

	if (!v->n)
		return;
	qsort(v->at, v->n, sizeof *v->at, by_size);
	snprintf(text, sizeof text, "%s, middle", name);
	say(text, v->at[v->n / 2], unit);
	snprintf(text, sizeof text, "%s, 99th percentile", name);
	say(text, v->at[v->n * 99 / 100], unit);
	snprintf(text, sizeof text, "%s, worst", name);
	say(text, v->at[v->n - 1], unit);
	snprintf(text, sizeof text, "%s, above 1.2 x the middle", name);
	say(text, outliers_percent(v), "%");
}

static CUevent event_new(void)
{
	CUevent e;

	MUST(cu.cuEventCreate(&e, 0));
	return e;
}

static void compute(void)
{
	uint32_t n = (uint32_t)(memory_bytes / 16);

	if (rounds && by_memory)
		MUST(cu.cuLaunchKernel(copy_kernel, blocks, 1, 1, 256, 1, 1, 0, stream,
				       (void *[]){ &memory_to, &memory_from, &n, &rounds }, NULL));
	else if (rounds)
		MUST(cu.cuLaunchKernel(fma_kernel, blocks, 1, 1, 256, 1, 1, 0, stream, (void *[]){ &scratch, &rounds },
				       NULL));
}

static float ms_between(CUevent from, CUevent to)
{
	float ms = 0;

	MUST(cu.cuEventSynchronize(to));
	MUST(cu.cuEventElapsedTime(&ms, from, to));
	return ms;
}

/* Finds the number of rounds that takes this time. */
static void calibrate(double ms)
{
	CUevent from = event_new(), to = event_new();
	uint32_t least = by_memory ? 1 : 100;

	rounds = 10 * least;
	for (int i = 0; i < 6 && ms > 0; i++) {
		double took;

		compute();
		MUST(cu.cuEventRecord(from, stream));
		compute();
		MUST(cu.cuEventRecord(to, stream));
		took = ms_between(from, to);
		double wanted = (double)rounds * ms / (took > 0.001 ? took : 0.001);
		rounds = wanted < least ? least : wanted > 1e9 ? 1000000000 : (uint32_t)wanted;
	}
	if (ms <= 0)
		rounds = 0;
	MUST(cu.cuEventDestroy_v2(from));
	MUST(cu.cuEventDestroy_v2(to));
}

/* False: the epoch is over. */
static bool take_batch(double *waited)
{
	static uint64_t epoch;
	struct batchd_batch b = { .size_bytes = sizeof b };
	double wall = now(), cpu = cpu_now();
	int r = batchd_next(loader, &b, 60000);

	while (r == BATCHD_END) {
		batchd(batchd_start(loader, ++epoch, 0, 0, NULL), "batchd_start");
		r = batchd_next(loader, &b, 60000);
	}
	note(&next_ms, (now() - wall) * 1e3);
	note(&next_cpu_us, (cpu_now() - cpu) * 1e6);
	batchd(r, "batchd_next");
	if (r != BATCHD_OK)
		fail("batchd_next", "no batch for a minute");
	*waited += (double)b.wait_ns * 1e-9;
	batchd(batchd_cuda_finish(loader, &b, (void *)(uintptr_t)tensor, stream), "batchd_cuda_finish");
	batchd(batchd_cuda_labels(loader, &b, (void *)(uintptr_t)labels, stream), "batchd_cuda_labels");
	batchd(batchd_cuda_release(loader, b.slot, b.generation, stream), "batchd_cuda_release");
	return true;
}

static void attach(struct batchd_options *o)
{
	char err[1024];
	double began = now(), waited = 0;
	size_t n = 1;

	if (batchd_open(o, &loader, err, sizeof err) < 0)
		fail("batchd_open", err);
	say("attach", (now() - began) * 1e3, "ms");
	batchd_get_info(loader, &info);
	for (uint32_t i = 0; i < info.n_dims; i++)
		n *= info.shape[i];
	MUST(cu.cuMemAlloc_v2(&tensor, n * 8 * info.batch_size));
	MUST(cu.cuMemAlloc_v2(&labels, 64ul * info.batch_size));
	batchd(batchd_start(loader, 0, 0, 0, NULL), "batchd_start");
	take_batch(&waited);
	MUST(cu.cuStreamSynchronize(stream));
	say("attach and first batch finished", (now() - began) * 1e3, "ms");
	say(info.device_path == BATCHD_DEVICE_IPC      ? "path: CUDA IPC"
	    : info.device_path == BATCHD_DEVICE_VMM_FD ? "path: CUDA VMM, by descriptor"
						       : "path: copied by the trainer",
	    1, "");
}

static void run(unsigned n_steps)
{
	CUevent from[AHEAD], to[AHEAD], first = event_new(), last = event_new();
	double waited = 0, began = 0, last_step = 0;

	for (int i = 0; i < AHEAD; i++)
		from[i] = event_new(), to[i] = event_new();
	for (unsigned i = 0; i < n_steps + warm; i++) {
		unsigned k = i % AHEAD;

		if (i >= AHEAD) {
			float ms = ms_between(from[k], to[k]);

			if (i - AHEAD >= warm)
				note(&kernel_ms, (double)ms);
		}
		if (i == warm) {
			MUST(cu.cuEventRecord(first, stream));
			began = last_step = now();
			waited = 0;
			next_ms.n = next_cpu_us.n = 0;
		}
		if (i > warm) {
			note(&step_ms, (now() - last_step) * 1e3);
			last_step = now();
		}
		if (loader)
			take_batch(&waited);
		MUST(cu.cuEventRecord(from[k], stream));
		compute();
		MUST(cu.cuEventRecord(to[k], stream));
	}
	MUST(cu.cuEventRecord(last, stream));
	say("step", (double)ms_between(first, last) / n_steps, "ms");
	say_spread("kernel of a step", &kernel_ms, "ms");
	say_spread("from step to step", &step_ms, "ms");
	double took = now() - began;
	if (loader) {
		say("rows", (double)n_steps * info.batch_size / took, "rows/s");
		say("waited for batches", waited / took * 100, "% of the time");
		say_spread("in batchd_next", &next_ms, "ms");
		say_spread("processor time of batchd_next", &next_cpu_us, "us");
	}
}

int main(int argc, char **argv)
{
	static const struct option known[] = { { "dataset", 1, NULL, 'd' }, { "job", 1, NULL, 'j' },
					       { "rank", 1, NULL, 'r' },    { "world", 1, NULL, 'w' },
					       { "mode", 1, NULL, 'm' },    { "batch", 1, NULL, 'b' },
					       { "steps", 1, NULL, 's' },   { "ms", 1, NULL, 't' },
					       { "rounds", 1, NULL, 'o' },  { "kernel", 1, NULL, 'k' },
					       { "warm", 1, NULL, 'W' },    { "slots", 1, NULL, 'S' },
					       { NULL, 0, NULL, 0 } };
	struct batchd_options o;
	unsigned n_steps = 200;
	const char *why;
	CUmodule module;
	CUcontext ctx;
	double ms = 5;
	int c, n_sms = 1;

	batchd_options_init(&o);
	o.device = "cuda";
	o.autostart = 0;
	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1)
		switch (c) {
		case 'd':
			o.dataset = optarg;
			break;
		case 'j':
			o.job = optarg;
			break;
		case 'r':
			o.rank = atoi(optarg);
			break;
		case 'w':
			o.world_size = (uint32_t)atoi(optarg);
			break;
		case 'm':
			o.mode = strcmp(optarg, "share") ? BATCHD_SHARD : BATCHD_SHARE;
			break;
		case 'b':
			o.batch_size = (uint32_t)atoi(optarg);
			break;
		case 's':
			n_steps = (unsigned)atoi(optarg);
			break;
		case 't':
			ms = atof(optarg);
			break;
		case 'k':
			by_memory = !strcmp(optarg, "memory");
			break;
		case 'S':
			o.n_slots = (uint32_t)atoi(optarg);
			break;
		case 'W':
			warm = (unsigned)atoi(optarg);
			break;
		case 'o':
			rounds = (uint32_t)atoi(optarg);
			break;
		default:
			return 64;
		}
	why = cuda_load();
	if (why || cu.cuInit(0)) {
		fprintf(stderr, "step: no GPU%s%s\n", why ? ": " : "", why ? why : "");
		return 77;
	}
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cu.cuCtxSetCurrent(ctx));
	MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cu.cuModuleLoadData(&module, cuda_kernels));
	MUST(cu.cuModuleGetFunction(&fma_kernel, module, "conformance_fma"));
	MUST(cu.cuModuleGetFunction(&copy_kernel, module, "conformance_copy"));
	MUST(cu.cuMemAlloc_v2(&scratch, 2 << 20));
	if (getenv("BATCHD_LIBCUDA")) /* the fake driver: see bench.py */
		memory_bytes = 4 << 20;
	if (by_memory) {
		MUST(cu.cuMemAlloc_v2(&memory_to, memory_bytes));
		MUST(cu.cuMemAlloc_v2(&memory_from, memory_bytes));
	}
	cu.cuDeviceGetAttribute(&n_sms, 16, 0);
	blocks = 8 * (unsigned)n_sms;
	if (!rounds)
		calibrate(ms);
	say("rounds", rounds, "");
	if (o.dataset)
		attach(&o);
	run(n_steps);
	MUST(cu.cuCtxSynchronize());
	batchd_close(loader);
	return 0;
}
