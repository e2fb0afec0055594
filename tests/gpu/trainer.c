/* A trainer without a model: takes batches on a GPU, uses them in all the ways that libbatchd offers, at random, and
 * checks every byte of the results.
 *
 *     trainer --dataset npy:X,Y [--job NAME] [--rank R --world W] [--mode share] [--batch N] [--epochs N]
 *             [--from EPOCH,STEP] [--dtype D] [--nchw] [--transform T] [--check rows|twin|none] [--seed N]
 *             [--delay-us N] [--most N] [--slots N] [--reconnect-ms N]
 *
 * --check rows: row i of the data set is as tests write it (64 words, word j of row i is i * 2654435761 + j); twin: a
 * second loader without a GPU must give the same. For every checked batch it prints "done EPOCH STEP"; at the end "end
 * N batches by PATH".
 *
 * Exit status 0; 1: an error, which is printed; 2: a call failed, with libbatchd's text; 77: no GPU. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../client/batchd.h"
#include "cuda.h"

enum { DEPTH = 3 };

/* The work in progress for one batch. */
struct place {
	bool busy, raw;
	CUdeviceptr out, labels;
	char *host, *host_labels; /* page-locked */
	CUevent done;
	struct batchd_batch batch; /* as it was when taken */
	int64_t *indices;
	char *twin, *twin_labels;
};

static struct batchd_options options;
static struct batchd_loader *loader, *twin;
static struct batchd_info info;
static struct place places[DEPTH];
static CUstream streams[2];
static CUmodule module;
static CUfunction add_kernel;
static enum { CHECK_NONE, CHECK_ROWS, CHECK_TWIN } check = CHECK_ROWS;
static uint64_t chance, n_taken, n_done, most = UINT64_MAX;
static long delay_us;
static size_t row_bytes, stored_bytes, label_bytes;
static char err[1024];
static CUcontext ctx;
static const struct batchd_batch *lent; /* taken, and not given back yet */
static bool ending;

static void end(void);

/* Gives everything back, as a careful program would; errors of that are ignored. */
static void fail(const char *what, const char *text)
{
	fprintf(stderr, "trainer: %s: %s\n", what, text);
	if (!ending) {
		ending = true;
		end();
	}
	exit(2);
}

static void wrong(const struct place *p, const char *what, uint32_t row)
{
	fprintf(stderr, "trainer: wrong %s: epoch %llu step %llu row %u (sample %lld) slot %u generation %llu, %s\n",
		what, (unsigned long long)p->batch.epoch, (unsigned long long)p->batch.step, row,
		(long long)p->indices[row], p->batch.slot, (unsigned long long)p->batch.generation,
		p->raw ? "raw" : "finished");
	exit(1);
}

static void cuda(CUresult r, const char *what)
{
	if (r && !ending)
		fail(what, cuda_name(r));
}
#define CUDA(call) cuda(call, #call)

/* $FAKECUDA_GATED: calls of libbatchd may fail on request, calls of this program do not. */
static int leave(int r)
{
	cuda_gate(false);
	return r;
}
#define LIBRARY(call) (cuda_gate(true), leave(call))

static void batchd(int r, const char *what)
{
	char text[1200];

	snprintf(text, sizeof text, "%s: %s", batchd_code_name(r), loader ? batchd_error(loader) : "");
	if (r < 0)
		fail(what, text);
}

/* batchd_next reports a daemon that is gone. */
static void released(int r, const char *what)
{
	if (r != BATCHD_E_LOST)
		batchd(r, what);
}

static uint64_t draw(uint64_t n)
{
	chance = chance * 6364136223846793005u + 1442695040888963407u;
	return (chance >> 33) % n;
}

static void dawdle(void)
{
	if (delay_us)
		nanosleep(&(struct timespec){ 0, (long)draw((uint64_t)delay_us) * 1000 }, NULL);
}

static size_t bytes_of(enum batchd_dtype type, uint32_t n_dims, const uint32_t *shape)
{
	size_t n = type == BATCHD_FLOAT64 || type == BATCHD_INT64                              ? 8
		   : type == BATCHD_FLOAT32 || type == BATCHD_INT32                            ? 4
		   : type == BATCHD_FLOAT16 || type == BATCHD_BFLOAT16 || type == BATCHD_INT16 ? 2
											       : 1;

	for (uint32_t i = 0; i < n_dims; i++)
		n *= shape[i];
	return n;
}

/* ---- checking ---- */

static void check_rows(const struct place *p)
{
	for (uint32_t r = 0; r < p->batch.n_rows; r++) {
		uint32_t words[64];
		int64_t label;

		memcpy(words, p->host + r * row_bytes, sizeof words);
		for (uint32_t j = 0; j < 64; j++)
			if (words[j] != (uint32_t)p->indices[r] * 2654435761u + j)
				wrong(p, "words", r);
		memcpy(&label, p->host_labels + r * sizeof label, sizeof label);
		if (label != p->indices[r])
			wrong(p, "label", r);
	}
}

static void check_twin(const struct place *p)
{
	for (uint32_t r = 0; r < p->batch.n_rows; r++)
		if (memcmp(p->host + r * row_bytes, p->twin + r * row_bytes, row_bytes))
			wrong(p, "pixels", r);
		else if (memcmp(p->host_labels + r * label_bytes, p->twin_labels + r * label_bytes, label_bytes))
			wrong(p, "label", r);
}

/* Waits for the place's work and checks its results. */
static void settle(struct place *p)
{
	if (!p->busy)
		return;
	CUDA(cu.cuEventSynchronize(p->done));
	if (check == CHECK_ROWS)
		check_rows(p);
	else if (check == CHECK_TWIN && !p->raw)
		check_twin(p);
	p->busy = false;
	n_done++;
	printf("done %llu %llu\n", (unsigned long long)p->batch.epoch, (unsigned long long)p->batch.step);
	fflush(stdout);
}

static void take_twin(struct place *p)
{
	struct batchd_batch b = { .size_bytes = sizeof b };

	batchd(batchd_next(twin, &b, BATCHD_FOREVER), "the twin's next batch");
	if (b.step != p->batch.step || b.epoch != p->batch.epoch ||
	    memcmp(b.indices, p->indices, b.n_rows * sizeof *b.indices))
		wrong(p, "order", 0);
	memcpy(p->twin, b.data, b.n_rows * row_bytes);
	memcpy(p->twin_labels, b.labels, b.n_rows * label_bytes);
	batchd(batchd_release(twin, b.slot, b.generation), "the twin's release");
}

/* ---- a batch ---- */

/* Reads the batch in place, with a kernel of our own. */
static void work_raw(struct place *p, const struct batchd_batch *b, CUstream s)
{
	uint32_t zero = 0, n = (uint32_t)(b->n_rows * stored_bytes / 4);
	CUdeviceptr from = (uintptr_t)b->device_data;

	batchd(LIBRARY(batchd_cuda_wait(loader, b->slot, b->generation, s)), "batchd_cuda_wait");
	CUDA(cu.cuLaunchKernel(add_kernel, 8, 1, 1, 256, 1, 1, 0, s, (void *[]){ &p->out, &from, &zero, &n }, NULL));
	CUDA(cu.cuMemcpyDtoDAsync_v2(p->labels, (uintptr_t)b->device_labels, b->n_rows * label_bytes, s));
}

static void work_finished(struct place *p, const struct batchd_batch *b, CUstream s)
{
	batchd(LIBRARY(batchd_cuda_finish(loader, b, (void *)(uintptr_t)p->out, s)), "batchd_cuda_finish");
	batchd(LIBRARY(batchd_cuda_labels(loader, b, (void *)(uintptr_t)p->labels, s)), "batchd_cuda_labels");
}

static void work(struct place *p, const struct batchd_batch *b)
{
	CUstream s = streams[draw(2)];

	p->batch = *b;
	p->busy = true;
	memcpy(p->indices, b->indices, b->n_rows * sizeof *b->indices);
	if (twin)
		take_twin(p);
	p->raw = info.stored_dtype == info.dtype && stored_bytes == row_bytes && stored_bytes % 4 == 0 && draw(2);
	dawdle();
	if (p->raw)
		work_raw(p, b, s);
	else
		work_finished(p, b, s);
	if (draw(4)) { /* the usual way: without a wait */
		released(LIBRARY(batchd_cuda_release(loader, b->slot, b->generation, s)), "batchd_cuda_release");
	} else {
		CUDA(cu.cuStreamSynchronize(s));
		dawdle();
		released(LIBRARY(batchd_release(loader, b->slot, b->generation)), "batchd_release");
	}
	CUDA(cu.cuMemcpyDtoHAsync_v2(p->host, p->out, b->n_rows * row_bytes, s));
	CUDA(cu.cuMemcpyDtoHAsync_v2(p->host_labels, p->labels, b->n_rows * label_bytes, s));
	CUDA(cu.cuEventRecord(p->done, s));
}

static void epoch(uint64_t number, uint64_t step)
{
	struct batchd_batch b = { .size_bytes = sizeof b };
	unsigned turn = 0;
	int r;

	batchd(LIBRARY(batchd_start(loader, number, 0, step, NULL)), "batchd_start");
	if (twin)
		batchd(batchd_start(twin, number, 0, step, NULL), "the twin's start");
	while ((r = LIBRARY(batchd_next(loader, &b, 60000))) == BATCHD_OK && n_taken < most) {
		struct place *p = &places[turn++ % DEPTH];

		lent = &b;
		settle(p);
		n_taken++;
		work(p, &b);
		lent = NULL;
	}
	if (r == BATCHD_OK)
		released(LIBRARY(batchd_release(loader, b.slot, b.generation)), "batchd_release");
	else if (r == BATCHD_AGAIN)
		fail("batchd_next", "no batch for a minute");
	else if (r != BATCHD_END)
		batchd(r, "batchd_next");
	for (unsigned i = 0; i < DEPTH; i++)
		settle(&places[(turn + i) % DEPTH]);
}

/* ---- set-up ---- */

static void context(void)
{
	const char *why = cuda_load();
	CUresult r;

	if (why)
		exit(77);
	r = cu.cuInit(0);
	if (r) {
		fprintf(stderr, "trainer: cuInit: %s\n", cuda_name(r));
		exit(77);
	}
	CUDA(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	CUDA(cu.cuCtxSetCurrent(ctx));
}

static char *pinned(size_t n)
{
	void *p;

	CUDA(cu.cuMemHostAlloc(&p, n ? n : 1, 0));
	return p;
}

static CUdeviceptr on_gpu(size_t n)
{
	CUdeviceptr a;

	CUDA(cu.cuMemAlloc_v2(&a, n ? n : 1));
	return a;
}

static void set_up(void)
{
	size_t rows;

	info.size_bytes = sizeof info;
	batchd_get_info(loader, &info);
	rows = info.batch_size;
	row_bytes = bytes_of(info.dtype, info.n_dims, info.shape);
	stored_bytes = bytes_of(info.stored_dtype, info.n_dims, info.stored_shape);
	label_bytes = bytes_of(info.label_dtype, info.n_label_dims, info.label_shape);
	if (check == CHECK_ROWS && (row_bytes != 256 || label_bytes != 8))
		fail("--check rows", "the data set has other rows");
	for (int i = 0; i < 2; i++)
		CUDA(cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	CUDA(cu.cuModuleLoadData(&module, cuda_kernels));
	CUDA(cu.cuModuleGetFunction(&add_kernel, module, "conformance_add"));
	for (int i = 0; i < DEPTH; i++) {
		struct place *p = &places[i];

		p->out = on_gpu(rows * (row_bytes > stored_bytes ? row_bytes : stored_bytes));
		p->labels = on_gpu(rows * label_bytes);
		p->host = pinned(rows * row_bytes);
		p->host_labels = pinned(rows * label_bytes);
		p->indices = calloc(rows, sizeof *p->indices);
		p->twin = calloc(rows, row_bytes);
		p->twin_labels = calloc(rows, label_bytes);
		CUDA(cu.cuEventCreate(&p->done, CU_EVENT_DISABLE_TIMING));
	}
}

static void tear_down(void)
{
	CUDA(cu.cuCtxSynchronize());
	for (int i = 0; i < DEPTH; i++) {
		struct place *p = &places[i];

		CUDA(cu.cuMemFree_v2(p->out));
		CUDA(cu.cuMemFree_v2(p->labels));
		if (p->host)
			CUDA(cu.cuMemFreeHost(p->host));
		if (p->host_labels)
			CUDA(cu.cuMemFreeHost(p->host_labels));
		if (p->done)
			CUDA(cu.cuEventDestroy_v2(p->done));
		free(p->indices), free(p->twin), free(p->twin_labels);
	}
	for (int i = 0; i < 2; i++)
		if (streams[i])
			CUDA(cu.cuStreamDestroy_v2(streams[i]));
	if (module)
		CUDA(cu.cuModuleUnload(module));
}

/* Ends everything, however much of it was set up. */
static void end(void)
{
	tear_down();
	batchd_close(twin);
	cuda_gate(true);
	if (lent)
		batchd_release(loader, lent->slot, lent->generation); /* refused, if it is already being given back */
	batchd_close(loader);
	cuda_gate(false);
	CUDA(cu.cuCtxSetCurrent(NULL));
	CUDA(cu.cuDevicePrimaryCtxRelease_v2(0));
}

static enum batchd_dtype dtype_of(const char *name)
{
	static const struct {
		const char *name;
		enum batchd_dtype type;
	} known[] = { { "uint8", BATCHD_UINT8 },
		      { "float16", BATCHD_FLOAT16 },
		      { "bfloat16", BATCHD_BFLOAT16 },
		      { "float32", BATCHD_FLOAT32 } };

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(name, known[i].name))
			return known[i].type;
	fail("--dtype", name);
	return BATCHD_UINT8;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "dataset", 1, NULL, 'd' }, { "job", 1, NULL, 'j' },          { "rank", 1, NULL, 'r' },
		{ "world", 1, NULL, 'w' },   { "mode", 1, NULL, 'm' },         { "batch", 1, NULL, 'b' },
		{ "epochs", 1, NULL, 'e' },  { "from", 1, NULL, 'f' },         { "dtype", 1, NULL, 't' },
		{ "nchw", 0, NULL, 'n' },    { "transform", 1, NULL, 'x' },    { "check", 1, NULL, 'c' },
		{ "seed", 1, NULL, 's' },    { "delay-us", 1, NULL, 'u' },     { "most", 1, NULL, 'o' },
		{ "slots", 1, NULL, 'l' },   { "reconnect-ms", 1, NULL, 'R' }, { NULL, 0, NULL, 0 }
	};
	unsigned long long from_epoch = 0, from_step = 0, n_epochs = 1;
	char twin_job[256];
	int c;

	batchd_options_init(&options);
	options.device = "cuda";
	options.layout = BATCHD_NHWC;
	options.shuffle = 1;
	options.autostart = 0;
	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1)
		switch (c) {
		case 'd':
			options.dataset = optarg;
			break;
		case 'j':
			options.job = optarg;
			break;
		case 'r':
			options.rank = atoi(optarg);
			break;
		case 'w':
			options.world_size = (uint32_t)atoi(optarg);
			break;
		case 'm':
			options.mode = strcmp(optarg, "share") ? BATCHD_SHARD : BATCHD_SHARE;
			break;
		case 'b':
			options.batch_size = (uint32_t)atoi(optarg);
			break;
		case 'e':
			n_epochs = strtoull(optarg, NULL, 10);
			break;
		case 'f':
			sscanf(optarg, "%llu,%llu", &from_epoch, &from_step);
			break;
		case 't':
			options.dtype = dtype_of(optarg);
			break;
		case 'n':
			options.layout = BATCHD_NCHW;
			break;
		case 'x':
			options.transform = optarg;
			break;
		case 'c':
			check = !strcmp(optarg, "rows")   ? CHECK_ROWS
				: !strcmp(optarg, "twin") ? CHECK_TWIN
							  : CHECK_NONE;
			break;
		case 's':
			chance = strtoull(optarg, NULL, 10) * 7919;
			break;
		case 'u':
			delay_us = atol(optarg);
			break;
		case 'l':
			options.n_slots = (uint32_t)atoi(optarg);
			break;
		case 'R':
			options.reconnect_ms = (uint32_t)atol(optarg);
			break;
		case 'o':
			most = strtoull(optarg, NULL, 10);
			break;
		default:
			return 64;
		}
	context();
	if (LIBRARY(batchd_open(&options, &loader, err, sizeof err)) < 0)
		fail("batchd_open", err);
	if (check == CHECK_TWIN) {
		snprintf(twin_job, sizeof twin_job, "%s-twin", options.job ? options.job : "trainer");
		options.job = twin_job;
		options.device = NULL;
		if (batchd_open(&options, &twin, err, sizeof err) < 0)
			fail("the twin's batchd_open", err);
	}
	set_up();
	for (uint64_t e = from_epoch; e < n_epochs && n_taken < most; e++, from_step = 0)
		epoch(e, from_step);
	printf("end %llu batches by %s%s%s\n", (unsigned long long)n_done,
	       info.device_path == BATCHD_DEVICE_IPC      ? "IPC"
	       : info.device_path == BATCHD_DEVICE_VMM_FD ? "VMM"
	       : info.device_path == BATCHD_DEVICE_COPY   ? "copy"
							  : "host",
	       *info.device_reason ? ": " : "", info.device_reason);
	end();
	return 0;
}
