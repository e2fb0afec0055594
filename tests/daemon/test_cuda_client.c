/* libbatchd's path to a GPU, on the fake driver, with a whole daemon in another process: every number equals the CPU
 * path's, slots come back when the trainer's work is complete and not before, tensors outlive their loader, and errors
 * say what is not possible. */
#include <check.h>
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../client/batchd.h"
#include "loader/dlpack.h"
#include "finish/convert-plan.h"
#include "gpu/driver.h"
#include "fake/cuda/fakecuda.h"
#include "support/jpegs.h"
#include "support/packets.h"
#include "support/suite.h"

enum {
	N_IMAGES = 10,
	BATCH = 4,
	SIDE = 24,
	N_BATCHES = 3,
	WINDOW = 3,
	IMAGE = 3 * SIDE * SIDE,
	TENSOR = BATCH * IMAGE * 4
};
#define TRANSFORM \
	"[[\"CenterCrop\", 24], \"RandomHorizontalFlip\", \"ToTensor\", [\"Normalize\", {\"mean\": [0.485, 0.456, 0.406], \"std\": [0.229, 0.224, 0.225]}]]"
#define PLAIN "[[\"CenterCrop\", 24], \"RandomHorizontalFlip\", \"ToTensor\"]"

static struct batchd_options options;
static struct batchd_loader *loader;
static struct batchd_info info;
static struct batchd_batch batch;
static char err[4096], pictures[128], reason[1024];

/* ---- the fake driver, as the trainer's own CUDA ---- */

static struct cuda_driver cu;
static struct cuda_context *context;
static struct cuda_stream *stream;
static cuda_ptr tensor, label_tensor;
static char *host; /* pinned */
static void *library;

static void *double_function(const char *name)
{
	void *f = dlsym(library, name);

	ck_assert_msg(f != NULL, "%s", name);
	return f;
}

static uint64_t counter(const char *name)
{
	uint64_t (*f)(const char *);
	void *found = double_function("fakecuda_counter");

	memcpy(&f, &found, sizeof f);
	return f(name);
}

static unsigned alive(void)
{
	unsigned (*f)(void);
	void *found = double_function("fakecuda_alive");

	memcpy(&f, &found, sizeof f);
	return f();
}

static void hold_streams(bool hold)
{
	void (*f)(bool);
	void *found = double_function("fakecuda_hold_streams");

	memcpy(&f, &found, sizeof f);
	f(hold);
}

static void inject(const char *spec)
{
	bool (*f)(const char *);
	void *found = double_function("fakecuda_fail");

	memcpy(&f, &found, sizeof f);
	ck_assert(f(spec));
}

#define OK(call) ck_assert_int_eq(call, CUDA_OK)

/* What torch would have done before: a context, a stream, memory. */
static void begin_cuda(void)
{
	const char *driver = getenv("BATCHD_LIBCUDA");
	char why[256];

	ck_assert_msg(cuda_driver_load(&cu, why, sizeof why) == 0, "%s", why);
	library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
	OK(cu.init(0));
	OK(cu.primary_ctx_retain(&context, 0));
	OK(cu.ctx_set_current(context));
	OK(cu.stream_create_with_priority(&stream, CUDA_STREAM_NON_BLOCKING, 0));
	OK(cu.mem_alloc(&tensor, TENSOR));
	OK(cu.mem_alloc(&label_tensor, 4096));
	host = mmap(NULL, TENSOR, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	OK(cu.mem_host_register(host, TENSOR, CUDA_HOST_REGISTER_PORTABLE));
}

static uint64_t expected_violations; /* a test's own mistakes */

/* Nothing of ours may be left, and no violation that a real driver would have tolerated. */
static void end_cuda(void)
{
	OK(cu.mem_host_unregister(host));
	munmap(host, TENSOR);
	OK(cu.mem_free(tensor));
	OK(cu.mem_free(label_tensor));
	OK(cu.stream_destroy(stream));
	OK(cu.ctx_set_current(NULL));
	OK(cu.primary_ctx_release(0));
	ck_assert_uint_eq(alive(), 0);
	ck_assert_uint_eq(counter("violations"), expected_violations);
}

/* The stream's memory, as the trainer sees it. */
static const void *fetch(cuda_ptr from, size_t n)
{
	OK(cu.memcpy_dtoh_async(host, from, n, stream));
	OK(cu.stream_synchronize(stream));
	return host;
}

/* ---- fixture ---- */

static void make_pictures(void)
{
	char name[300];

	snprintf(pictures, sizeof pictures, "%s-pictures", dir);
	mkdir(pictures, 0700);
	for (unsigned i = 0; i < N_IMAGES; i++) {
		struct jpeg_recipe r = {
			.width = 40 + i, .height = 33, .n_components = 3, .h = 2, .v = 2, .quality = 90, .noise = 90
		};
		uint8_t *bytes;
		size_t n;
		FILE *f;

		snprintf(name, sizeof name, "%s/%u", pictures, i % 2);
		mkdir(name, 0700);
		snprintf(name, sizeof name, "%s/%u/%u.jpg", pictures, i % 2, i);
		bytes = jpeg_make(&r, i + 1, &n);
		f = fopen(name, "w");
		fwrite(bytes, n, 1, f);
		fclose(f);
		free(bytes);
	}
}

static void setup_as(const char *personality)
{
	static char dataset[160], driver[4200];

	snprintf(driver, sizeof driver, "%s/libfakecuda.so", getenv("BATCHD_BUILD") ? getenv("BATCHD_BUILD") : "build");
	setenv("BATCHD_LIBCUDA", driver, 1);
	if (personality)
		setenv("FAKECUDA_PERSONALITY", personality, 1);
	start_daemon();
	make_pictures();
	batchd_options_init(&options);
	snprintf(dataset, sizeof dataset, "imagefolder:%s", pictures);
	options.socket = path;
	options.dataset = dataset;
	options.transform = TRANSFORM;
	options.batch_size = BATCH;
	options.n_slots = WINDOW;
	options.device = "cuda";
	options.seed = 7;
	options.reconnect_ms = 0;
	loader = NULL;
	batch = (struct batchd_batch){ .size_bytes = sizeof batch };
	info = (struct batchd_info){ .size_bytes = sizeof info };
	begin_cuda();
}

static void setup(void)
{
	setup_as(NULL);
}

static void remove_pictures(void)
{
	char command[200];

	snprintf(command, sizeof command, "rm -rf '%s'", pictures);
	ck_assert_int_eq(system(command), 0);
}

static void teardown(void)
{
	batchd_close(loader);
	end_cuda();
	stop_daemon();
	remove_pictures();
}

static void open_loader(void)
{
	int r = batchd_open(&options, &loader, err, sizeof err);

	ck_assert_msg(r == 0, "%s", err);
	batchd_get_info(loader, &info);
	snprintf(reason, sizeof reason, "%s", info.device_reason); /* the loader's text is freed with it */
}

static void start(uint64_t epoch)
{
	ck_assert_int_eq(batchd_start(loader, epoch, 0, 0, NULL), 0);
}

static void ok(int r)
{
	ck_assert_msg(r == 0, "%s: %s", batchd_code_name(r), batchd_error(loader));
}

static void take(void)
{
	ok(batchd_next(loader, &batch, BATCHD_FOREVER));
}

static void *target(void)
{
	return (void *)(uintptr_t)tensor;
}

/* Every call finds and leaves the trainer's context, or none. */
static void context_is(const struct cuda_context *wanted)
{
	struct cuda_context *now;

	OK(cu.ctx_get_current(&now));
	ck_assert_ptr_eq(now, wanted);
}

/* An epoch of the CPU path, which the GPU's must equal. labels: of all rows, one after the other. */
static unsigned epoch_on_cpu(enum batchd_dtype dtype, enum batchd_layout layout, char *images, int64_t *labels)
{
	struct batchd_options o = options;
	struct batchd_loader *l;
	struct batchd_batch b = { .size_bytes = sizeof b };
	size_t bytes = IMAGE * (dtype == BATCHD_FLOAT32 ? 4u : dtype == BATCHD_FLOAT16 ? 2u : 1u);
	unsigned n = 0;

	o.device = NULL;
	o.dtype = dtype;
	o.layout = layout;
	ck_assert_msg(batchd_open(&o, &l, err, sizeof err) == 0, "%s", err);
	ck_assert_int_eq(batchd_start(l, 1, 0, 0, NULL), 0);
	while (batchd_next(l, &b, BATCHD_FOREVER) == BATCHD_OK) {
		memcpy(images + n * bytes, b.data, b.n_rows * bytes);
		memcpy(labels + n, b.labels, b.n_rows * sizeof *labels);
		n += b.n_rows;
		batchd_release(l, b.slot, b.generation);
	}
	batchd_close(l);
	return n;
}

/* The same epoch through the GPU, compared byte for byte. */
static void compare_epoch(enum batchd_dtype dtype, enum batchd_layout layout)
{
	bool rounds = dtype == BATCHD_BFLOAT16; /* the CPU path does not make this type: compared with its float32 */
	size_t bytes = IMAGE * (dtype == BATCHD_FLOAT32 ? 4u : dtype == BATCHD_UINT8 ? 1u : 2u);
	char *images = malloc((size_t)N_IMAGES * IMAGE * 4);
	int64_t labels[N_IMAGES];
	unsigned n = 0, total = epoch_on_cpu(rounds ? BATCHD_FLOAT32 : dtype, layout, images, labels);

	ck_assert_uint_eq(total, N_IMAGES);
	for (size_t i = 0; rounds && i < (size_t)N_IMAGES * IMAGE; i++)
		((uint16_t *)(void *)images)[i] = convert_to_bfloat16(((float *)(void *)images)[i]);
	options.dtype = dtype;
	options.layout = layout;
	open_loader();
	ck_assert_int_eq(info.dtype, dtype);
	ck_assert_int_eq(info.layout, layout);
	ck_assert_uint_eq(info.shape[layout == BATCHD_NCHW ? 0 : 2], 3);
	ck_assert_uint_eq(info.stored_shape[2], 3);
	ck_assert_str_eq(info.device, "cuda:0");
	start(1);
	while (batchd_next(loader, &batch, BATCHD_FOREVER) == BATCHD_OK) {
		ok(batchd_cuda_finish(loader, &batch, target(), stream));
		ok(batchd_cuda_labels(loader, &batch, (void *)(uintptr_t)label_tensor, stream));
		ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
		ck_assert_mem_eq(fetch(tensor, batch.n_rows * bytes), images + n * bytes, batch.n_rows * bytes);
		ck_assert_mem_eq(fetch(label_tensor, batch.n_rows * 8), labels + n, batch.n_rows * 8);
		n += batch.n_rows;
	}
	ck_assert_uint_eq(n, total);
	batchd_close(loader);
	loader = NULL;
	free(images);
}

static bool has_kernel(void)
{
	open_loader();
	batchd_close(loader);
	loader = NULL;
	return info.can_finish;
}

static const struct {
	enum batchd_dtype dtype;
	enum batchd_layout layout;
} wishes[] = {
	{ BATCHD_FLOAT32, BATCHD_NCHW },  { BATCHD_FLOAT16, BATCHD_NCHW }, { BATCHD_BFLOAT16, BATCHD_NCHW },
	{ BATCHD_UINT8, BATCHD_NCHW },    { BATCHD_FLOAT32, BATCHD_NHWC }, { BATCHD_FLOAT16, BATCHD_NHWC },
	{ BATCHD_BFLOAT16, BATCHD_NHWC }, { BATCHD_UINT8, BATCHD_NHWC },
};
enum { N_WISHES = sizeof wishes / sizeof *wishes };

/* ---- numbers ---- */

START_TEST(test_gpu_gives_the_numbers_of_the_cpu)
{
	/* Every dtype and layout, mapped by IPC: the same bits, images and labels, and no copy by this process from
	 * host memory. */
	if (has_kernel() || wishes[_i].dtype == BATCHD_UINT8) {
		if (info.can_finish || wishes[_i].layout == BATCHD_NHWC)
			compare_epoch(wishes[_i].dtype, wishes[_i].layout);
	}
	ck_assert_int_eq(info.device_path, BATCHD_DEVICE_IPC);
	ck_assert_str_eq(reason, "");
	ck_assert_uint_eq(counter("copies-to-device"), 0);
	ck_assert_uint_eq(counter("pageable"), 0);
}
END_TEST

/* ---- mixing ---- */

enum { N_CLASSES = 2, N_STEPS = 2 };

/* What a batch is by the CPU's path: its images and soft targets, and how many rows are mixed. */
struct mixed {
	float images[BATCH * IMAGE], targets[BATCH * N_CLASSES];
	unsigned n_mixed;
};

/* Off for the first batch, on again for the second. */
static int is_on(unsigned step)
{
	return step == 1;
}

static void switch_mixing(struct batchd_loader *l, unsigned step)
{
	ck_assert_int_eq(batchd_mixing(l, is_on(step)), 0);
}

static unsigned count_mixed(struct batchd_loader *l, const struct batchd_batch *b)
{
	struct batchd_mix_row rows[BATCH];
	unsigned n = 0;

	ck_assert_int_eq(batchd_mix_table(l, b, rows), 0);
	for (unsigned i = 0; i < b->n_rows; i++)
		n += rows[i].kind != BATCHD_MIX_NONE;
	return n;
}

static void mix_on_cpu(struct mixed *out)
{
	struct batchd_options o = options;
	struct batchd_loader *l;
	struct batchd_batch b = { .size_bytes = sizeof b };

	o.device = NULL;
	ck_assert_msg(batchd_open(&o, &l, err, sizeof err) == 0, "%s", err);
	ck_assert_int_eq(batchd_start(l, 1, 0, 0, NULL), 0);
	for (unsigned k = 0; k < N_STEPS; k++) {
		ck_assert_int_eq(batchd_next(l, &b, BATCHD_FOREVER), 0);
		switch_mixing(l, k);
		ck_assert_int_eq(batchd_finish(l, &b, out[k].images), 0);
		ck_assert_int_eq(batchd_targets(l, &b, out[k].targets), 0);
		out[k].n_mixed = count_mixed(l, &b);
		batchd_release(l, b.slot, b.generation);
	}
	batchd_close(l);
}

START_TEST(test_mixing_is_switched_for_the_gpu_as_for_the_cpu)
{
	/* Proves that batchd_mixing counts for batches that are finished after it, of either path, that what it turns off
	 * is the images without a mix, with targets that stay soft, and that a loader without a mix has none to turn. */
	struct mixed *cpu = calloc(N_STEPS, sizeof *cpu);
	char *clean = malloc((size_t)N_IMAGES * IMAGE * 4);
	int64_t labels[N_IMAGES];

	epoch_on_cpu(BATCHD_FLOAT32, BATCHD_NCHW, clean, labels);
	open_loader();
	ck_assert_int_eq(batchd_mixing(loader, 0), BATCHD_E_INVALID);
	ck_assert_msg(strstr(batchd_error(loader), "without option mix"), "%s", batchd_error(loader));
	batchd_close(loader);
	options.mix = "targets:classes=2;mixup:alpha=1";
	mix_on_cpu(cpu);
	open_loader();
	start(1);
	for (unsigned k = 0; info.can_finish && k < N_STEPS; k++) {
		size_t n = BATCH * sizeof(float);

		take();
		switch_mixing(loader, k);
		ck_assert_uint_eq(count_mixed(loader, &batch), is_on(k) ? BATCH : 0);
		ck_assert_uint_eq(cpu[k].n_mixed, is_on(k) ? BATCH : 0);
		ok(batchd_cuda_finish(loader, &batch, target(), stream));
		ok(batchd_cuda_targets(loader, &batch, (void *)(uintptr_t)label_tensor, stream));
		ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
		ck_assert_mem_eq(fetch(tensor, n * IMAGE), cpu[k].images, n * IMAGE);
		ck_assert_mem_eq(fetch(label_tensor, n * N_CLASSES), cpu[k].targets, n * N_CLASSES);
		ck_assert_int_eq(memcmp(cpu[k].images, clean + k * n * IMAGE, n * IMAGE) == 0, !is_on(k));
		for (unsigned i = 0; !is_on(k) && i < BATCH; i++)
			ck_assert(cpu[k].targets[N_CLASSES * i + labels[BATCH * k + i]] == 1);
	}
	free(clean);
	free(cpu);
}
END_TEST

START_TEST(test_without_normalize)
{
	/* ToTensor alone: mean 0, std 1. */
	options.transform = PLAIN;
	if (has_kernel())
		compare_epoch(BATCHD_FLOAT32, BATCHD_NCHW);
}
END_TEST

static void setup_driver_470(void)
{
	setenv("FAKECUDA_VERSION", "11040", 1);
	setup_as(NULL);
}

static void setup_no_ipc(void)
{
	setup_as("no-ipc");
}

static void setup_direct(void)
{
	setup_as("no-ipc,read-only-register");
}

static void setup_pageable(void)
{
	setenv("FAKECUDA_FAIL", "cuMemHostAlloc:*=801", 1); /* as in confidential-computing mode */
	setup_as("no-ipc");
}

START_TEST(test_without_ipc_the_client_copies)
{
	/* The same numbers; the reason is reported; everything is copied by DMA from pinned memory. */
	if (has_kernel()) {
		compare_epoch(BATCHD_FLOAT32, BATCHD_NCHW);
		compare_epoch(BATCHD_BFLOAT16, BATCHD_NHWC);
	}
	compare_epoch(BATCHD_UINT8, BATCHD_NHWC);
	ck_assert_int_eq(info.device_path, BATCHD_DEVICE_COPY);
	ck_assert_uint_gt(strlen(reason), 10);
	ck_assert_uint_ge(counter("copies-to-device"), 2 * N_BATCHES);
	ck_assert_uint_eq(counter("pageable"), 0);
}
END_TEST

START_TEST(test_where_nothing_can_be_pinned_batches_still_come)
{
	/* The driver copies from pageable memory, and the reason says that this is slow. */
	if (has_kernel())
		compare_epoch(BATCHD_FLOAT32, BATCHD_NCHW);
	compare_epoch(BATCHD_UINT8, BATCHD_NHWC);
	ck_assert_int_eq(info.device_path, BATCHD_DEVICE_COPY);
	ck_assert_msg(strstr(reason, "no memory can be pinned") != NULL, "%s", reason);
	ck_assert_uint_ge(counter("pageable"), N_BATCHES);
}
END_TEST

static uint64_t thread_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

START_TEST(test_the_trainers_thread_copies_nothing)
{
	/* Taking a batch costs the trainer's thread a small part of the processor time of copying the batch: another
	 * thread makes the copy. */
	enum { ROW_BYTES = 1 << 20, ROWS = 12, ROUNDS = 8 };
	char *to = malloc(ROW_BYTES * ROWS);
	uint64_t next_ns = 0, copy_ns = 0;

	options.dataset = "random:length=960,shape=1024x1024,dtype=uint8";
	options.transform = NULL;
	options.dtype = BATCHD_UINT8;
	options.batch_size = ROWS;
	open_loader();
	ck_assert_int_eq(info.device_path, BATCHD_DEVICE_COPY);
	start(0);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t began = thread_cpu_ns();

		take();
		next_ns += thread_cpu_ns() - began;
		began = thread_cpu_ns();
		memcpy(to, batch.data, ROW_BYTES * ROWS);
		ck_assert_mem_eq(to + ROW_BYTES * ROWS - 64, (const char *)batch.data + ROW_BYTES * ROWS - 64, 64);
		copy_ns += thread_cpu_ns() - began;
		ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	}
	free(to);
	ck_assert_in_time(next_ns < copy_ns / 2, "%llu us for taking, %llu us for copying",
			  (unsigned long long)next_ns / 1000, (unsigned long long)copy_ns / 1000);
}
END_TEST

START_TEST(test_arrays_arrive_as_they_are)
{
	/* Their own dtype and shape, whatever was requested. */
	float *rows = malloc(BATCH * 6 * sizeof *rows);
	struct batchd_options o;
	struct batchd_loader *cpu;
	struct batchd_batch b = { .size_bytes = sizeof b };

	options.dataset = "random:length=8,shape=2x3,dtype=float32";
	options.transform = NULL;
	options.dtype = BATCHD_BFLOAT16;
	o = options;
	o.device = NULL;
	o.dtype = BATCHD_FLOAT32;
	ck_assert_msg(batchd_open(&o, &cpu, err, sizeof err) == 0, "%s", err);
	ck_assert_int_eq(batchd_start(cpu, 0, 0, 0, NULL), 0);
	ck_assert_int_eq(batchd_next(cpu, &b, BATCHD_FOREVER), BATCHD_OK);
	memcpy(rows, b.data, BATCH * 6 * sizeof *rows);
	batchd_release(cpu, b.slot, b.generation);
	batchd_close(cpu);
	open_loader();
	ck_assert_int_eq(info.dtype, BATCHD_FLOAT32);
	ck_assert_int_eq(info.layout, BATCHD_AS_STORED);
	ck_assert_int_eq(info.can_finish, 1);
	start(0);
	take();
	ok(batchd_cuda_finish(loader, &batch, target(), stream));
	ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	ck_assert_mem_eq(fetch(tensor, BATCH * 24), rows, BATCH * 24);
	free(rows);
}
END_TEST

/* ---- places of a trainer that copies ---- */

enum { LARGE = 1000000, MANY = 12, PLACES = 6 };

static void open_large(void)
{
	options.dataset = "random:length=160,shape=1000000,dtype=uint8";
	options.transform = NULL;
	options.dtype = BATCHD_UINT8;
	options.layout = BATCHD_NHWC;
	options.n_slots = MANY;
	open_loader();
	ck_assert_int_eq(info.device_path, BATCHD_DEVICE_COPY);
	ck_assert_uint_eq(info.window, MANY);
}

static size_t free_on_gpu(void)
{
	size_t n, total;

	OK(cu.mem_get_info(&n, &total));
	return n;
}

static void compare(const struct batchd_batch *b)
{
	static char room[BATCH * LARGE];

	ok(batchd_cuda_wait(loader, b->slot, b->generation, stream));
	OK(cu.memcpy_dtoh_async(room, (cuda_ptr)(uintptr_t)b->device_data, sizeof room, stream));
	OK(cu.stream_synchronize(stream));
	ck_assert_mem_eq(room, b->data, sizeof room);
}

static void release_all(struct batchd_batch *held, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		compare(&held[i]);
		ok(batchd_cuda_release(loader, held[i].slot, held[i].generation, stream));
	}
}

START_TEST(test_few_places_serve_many_slots)
{
	/* The memory is the trainer's. There are few places until the trainer itself holds more batches; each batch is
	 * in its place, also after others were made ahead for another position. */
	struct batchd_batch held[MANY - 1];
	size_t before = free_on_gpu();

	open_large();
	ck_assert_uint_le(before - free_on_gpu(), (PLACES + 1) * (size_t)BATCH * LARGE);
	start(1);
	for (unsigned i = 0; i < 40; i++) {
		take();
		release_all(&batch, 1);
	}
	ck_assert_uint_le(before - free_on_gpu(), (PLACES + 1) * (size_t)BATCH * LARGE);
	for (unsigned epoch = 2; epoch < 12; epoch++) {
		start(epoch);
		take();
		release_all(&batch, 1);
	}
	start(12);
	for (unsigned i = 0; i < MANY - 1; i++) {
		take();
		held[i] = batch;
		compare(&batch);
	}
	ck_assert_uint_le(before - free_on_gpu(), (MANY + 2) * (size_t)BATCH * LARGE);
	release_all(held, MANY - 1);
	for (unsigned i = MANY - 1; i < 40; i++) {
		take();
		release_all(&batch, 1);
	}
}
END_TEST

START_TEST(test_a_full_gpu_is_told_with_what_is_wanted)
{
	/* No room for one more batch than there are places: the error says how many are held, and batches that are
	 * given back make room. */
	struct batchd_batch held[MANY];
	cuda_ptr taken[8192];
	unsigned n = 0, n_held = 0;
	int r;

	open_large();
	start(1);
	while (n < 8192 && cu.mem_alloc(&taken[n], 2 << 20) == CUDA_OK)
		n++;
	ck_assert_uint_lt(n, 8192);
	while ((r = batchd_next(loader, &batch, BATCHD_FOREVER)) == BATCHD_OK)
		held[n_held++] = batch;
	ck_assert_int_eq(r, BATCHD_E_NOMEM);
	ck_assert_msg(strstr(batchd_error(loader), "all 6 places") && strstr(batchd_error(loader), "of 4.0 MB"), "%s",
		      batchd_error(loader));
	ck_assert_uint_eq(n_held, PLACES);
	release_all(held, n_held);
	take();
	ck_assert_uint_eq(batch.step, PLACES); /* the error cost no batch */
	release_all(&batch, 1);
	while (n)
		OK(cu.mem_free(taken[--n]));
}
END_TEST

START_TEST(test_a_batch_waits_for_a_place_that_the_gpu_still_reads)
{
	/* Batches that the trainer has given back take no more memory, however far its own thread is ahead. */
	size_t before;

	open_large();
	start(1);
	before = free_on_gpu();
	hold_streams(true);
	for (unsigned i = 0; i < PLACES; i++) {
		take();
		ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	}
	ck_assert_int_eq(batchd_next(loader, &batch, 20), BATCHD_AGAIN);
	ck_assert_int_eq(batchd_try_next(loader, &batch), BATCHD_AGAIN);
	ck_assert_uint_eq(free_on_gpu(), before);
	hold_streams(false);
	take();
	ck_assert_uint_eq(batch.step, PLACES);
	release_all(&batch, 1);
}
END_TEST

/* ---- slots ---- */

static void *let_go(void *arg)
{
	usleep(50000);
	hold_streams(false);
	return arg;
}

START_TEST(test_slot_goes_back_when_the_stream_has_come_that_far)
{
	/* While the GPU is stuck no slot comes back, however long the trainer waits; as soon as it continues, a trainer
	 * that waits already gets its batch. */
	pthread_t thread;

	options.dtype = BATCHD_UINT8;
	options.layout = BATCHD_NHWC;
	open_loader();
	start(1);
	hold_streams(true);
	for (unsigned i = 0; i < WINDOW; i++) {
		take();
		ok(batchd_cuda_finish(loader, &batch, target(), stream));
		ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
		ck_assert_uint_eq(batchd_n_leased(loader), 0); /* the trainer holds none */
		ck_assert_int_eq(batchd_cuda_release(loader, batch.slot, batch.generation, stream), BATCHD_E_INVALID);
		ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation), BATCHD_E_INVALID);
	}
	start(2);
	ck_assert_int_eq(batchd_try_next(loader, &batch), BATCHD_AGAIN);
	ck_assert_int_eq(batchd_next(loader, &batch, 30), BATCHD_AGAIN);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_UNTIL_SIGNAL), BATCHD_AGAIN);
	pthread_create(&thread, NULL, let_go, NULL);
	take();
	ck_assert_uint_eq(batch.epoch, 2);
	pthread_join(thread, NULL);
	ok(batchd_release(loader, batch.slot, batch.generation)); /* no work of ours reads it */
}
END_TEST

START_TEST(test_context_is_left_as_it_was)
{
	/* A trainer with another context, or none, current in its thread. */
	OK(cu.ctx_set_current(NULL));
	open_loader();
	context_is(NULL);
	start(1);
	take();
	context_is(NULL);
	ok(batchd_cuda_wait(loader, batch.slot, batch.generation, stream));
	ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	context_is(NULL);
	batchd_close(loader);
	loader = NULL;
	context_is(NULL);
	OK(cu.ctx_set_current(context));
}
END_TEST

START_TEST(test_misuse_is_told_and_harmless)
{
	/* Detected before it could become a fault on the GPU, which would end everything. */
	options.dtype = BATCHD_UINT8;
	options.layout = BATCHD_NHWC;
	open_loader();
	start(1);
	take();
	ck_assert_int_eq(batchd_cuda_finish(loader, &batch, host, stream), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "no memory of the loader's GPU"));
	ck_assert_int_eq(batchd_cuda_finish(loader, &batch, NULL, stream), BATCHD_E_INVALID);
	batch.generation++;
	ck_assert_int_eq(batchd_cuda_finish(loader, &batch, target(), stream), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_cuda_labels(loader, &batch, target(), stream), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_cuda_wait(loader, batch.slot, batch.generation, stream), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_cuda_release(loader, batch.slot, batch.generation, stream), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "batchd_cuda_release: this batch is no longer on loan"));
	ck_assert_int_eq(batchd_cuda_array(loader, &batch, &(struct batchd_array){ .data = batch.data, .n_bytes = 8 },
					   target(), stream),
			 BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "no longer on loan"));
	ck_assert_int_eq(batchd_cuda_add_stream(loader, UINT32_MAX, batch.generation, stream), BATCHD_E_INVALID);
	batch.generation--;
	inject("cuEventRecord:@1=1"); /* not a call by the thread that copies batches meanwhile */
	ck_assert_int_eq(batchd_cuda_release(loader, batch.slot, batch.generation, stream), BATCHD_E_GPU);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "CUDA_ERROR_INVALID_VALUE on cuda:0"));
	inject("cuCtxPushCurrent:@1=2");
	ck_assert_int_eq(batchd_cuda_release(loader, batch.slot, batch.generation, stream), BATCHD_E_GPU);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "CUDA_ERROR_OUT_OF_MEMORY on cuda:0"));
	inject(NULL);
	ok(batchd_cuda_finish(loader, &batch, target(), stream));
	ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
}
END_TEST

START_TEST(test_cpu_loader_has_no_gpu)
{
	/* The calls return an error; nothing else changes. */
	options.device = "cpu";
	open_loader();
	ck_assert_str_eq(info.device, "cpu");
	ck_assert_int_eq(info.device_path, BATCHD_DEVICE_NONE);
	start(1);
	take();
	ck_assert_ptr_null(batch.device_data);
	ck_assert_int_eq(batchd_cuda_finish(loader, &batch, target(), stream), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_cuda_release(loader, batch.slot, batch.generation, stream), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "delivers to no GPU"));
	ok(batchd_release(loader, batch.slot, batch.generation));
}
END_TEST

START_TEST(test_without_the_kernel_one_is_told)
{
	/* Built without a CUDA compiler: everything but finishing works. */
	open_loader();
	start(1);
	take();
	if (!info.can_finish) {
		ck_assert_int_eq(batchd_cuda_finish(loader, &batch, target(), stream), BATCHD_E_INVALID);
		ck_assert_ptr_nonnull(strstr(batchd_error(loader), "without CUDA's compiler"));
	}
	ck_assert_ptr_nonnull(batch.device_data);
	ok(batchd_cuda_labels(loader, &batch, target(), stream));
	ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
}
END_TEST

START_TEST(test_kernel_that_this_driver_cannot_run_is_as_none)
{
	/* A driver older than the toolkit that built the library. Does nothing where no kernel is built in. */
	if (has_kernel()) {
		inject(_i ? "cuModuleGetFunction:*=209" : "cuModuleLoadData:*=222");
		open_loader();
		inject(NULL);
		ck_assert_int_eq(info.can_finish, 0);
		ck_assert_msg(strstr(info.finish_reason, "neither as machine code"), "%s", info.finish_reason);
		start(1);
		take();
		ck_assert_int_eq(batchd_cuda_finish(loader, &batch, target(), stream), BATCHD_E_INVALID);
		ck_assert_msg(strstr(batchd_error(loader),
				     _i ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
			      "%s", batchd_error(loader));
		ok(batchd_cuda_labels(loader, &batch, target(), stream));
		ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	}
}
END_TEST

START_TEST(test_kernel_whose_machine_code_is_refused_is_compiled_by_the_driver)
{
	/* Proves that the kernel is loaded as PTX by a driver that is older than the toolkit, down to 470 (CUDA 11.4),
	 * and for a GPU that the toolkit did not know: the finished numbers are those of the CPU, and nothing of the
	 * first try is left. */
	static const char *const refusals[] = { "cuModuleLoadData:1=200", "cuModuleLoadData:1=209",
						"cuModuleGetFunction:1=209" };

	if (!has_kernel())
		return;
	inject(refusals[_i]);
	compare_epoch(BATCHD_FLOAT32, BATCHD_NCHW);
	inject(NULL);
	ck_assert_int_eq(info.can_finish, 1);
}
END_TEST

/* ---- tensors for other libraries ---- */

static void *delete_plain(void *m)
{
	((struct dl_managed *)m)->deleter(m);
	return NULL;
}

static struct dl_managed *export_batch(void)
{
	void *m;

	ok(batchd_cuda_dlpack(loader, &batch, 0, stream, &m));
	return m;
}

START_TEST(test_tensor_describes_the_batch)
{
	/* Both forms of DLPack, with the consumer's own device number; each capsule can be taken only once. */
	struct dl_managed_versioned *v;
	struct dl_managed *m;
	void *again;

	open_loader();
	start(1);
	take();
	m = export_batch();
	ck_assert_ptr_eq(m->tensor.data, batch.device_data);
	ck_assert_int_eq(m->tensor.device_type, 2);
	ck_assert_int_eq(m->tensor.device_id, 0);
	ck_assert_int_eq(m->tensor.n_dims, 4);
	ck_assert_int_eq(m->tensor.type_code, 1);
	ck_assert_int_eq(m->tensor.type_bits, 8);
	ck_assert_int_eq(m->tensor.shape[0], BATCH);
	ck_assert_int_eq(m->tensor.shape[3], 3);
	ck_assert_int_eq(m->tensor.strides[0], IMAGE);
	ck_assert_int_eq(m->tensor.strides[3], 1);
	ck_assert_uint_eq(m->tensor.byte_offset, 0);
	ck_assert_int_eq(batchd_cuda_dlpack(loader, &batch, 0, stream, &again), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation), BATCHD_E_INVALID); /* now the tensor
	                                                                                           * holds the batch */
	ck_assert_int_eq(batchd_cuda_add_stream(loader, batch.slot, batch.generation, NULL), 0);
	ck_assert_uint_eq(batchd_n_leased(loader), 1);
	m->deleter(m);
	ck_assert_uint_eq(batchd_n_leased(loader), 0);
	take();
	ok(batchd_cuda_dlpack(loader, &batch, 1, stream, (void **)&v));
	ck_assert_uint_eq(v->major, 1);
	ck_assert_uint_eq(v->flags, DL_FLAG_READ_ONLY);
	ck_assert_int_eq(v->tensor.shape[1], SIDE);
	v->deleter(v);
}
END_TEST

START_TEST(test_tensor_gives_its_slot_back_from_any_thread)
{
	/* The deleter makes no CUDA call, even while the GPU is stuck, and the slot comes back after the stream's
	 * work. */
	struct dl_managed *m[WINDOW];
	pthread_t thread[WINDOW], helper;
	uint64_t calls;

	open_loader();
	start(1);
	for (unsigned i = 0; i < WINDOW; i++) {
		take();
		ck_assert_uint_eq(batch.n_leased, i + 1);
		m[i] = export_batch();
	}
	ck_assert_int_eq(batchd_n_leased(loader), WINDOW);
	start(2);
	ck_assert_int_eq(batchd_next(loader, &batch, 20), BATCHD_AGAIN);
	hold_streams(true);
	OK(cu.memset_d8_async(tensor, 1, 1024, stream)); /* work that is not complete */
	calls = counter("cuEventRecord") + counter("cuEventQuery") + counter("cuCtxPushCurrent_v2");
	for (unsigned i = 0; i < WINDOW; i++)
		pthread_create(&thread[i], NULL, delete_plain, m[i]);
	for (unsigned i = 0; i < WINDOW; i++)
		pthread_join(thread[i], NULL);
	ck_assert_uint_eq(counter("cuEventRecord") + counter("cuEventQuery") + counter("cuCtxPushCurrent_v2"), calls);
	ck_assert_int_eq(batchd_next(loader, &batch, 20), BATCHD_AGAIN);
	pthread_create(&helper, NULL, let_go, NULL);
	take();
	pthread_join(helper, NULL);
	ok(batchd_release(loader, batch.slot, batch.generation));
}
END_TEST

START_TEST(test_tensor_in_a_forked_child_takes_nothing)
{
	/* A DataLoader worker inherits the tensor, the loader and the socket, and ends. */
	struct dl_managed *m;
	int status;
	pid_t child;

	open_loader();
	start(1);
	take();
	m = export_batch();
	child = fork();
	if (child == 0) {
		m->deleter(m);
		_exit(batchd_n_leased(loader) != 0 ||
		      batchd_cuda_release(loader, batch.slot, batch.generation, stream) != BATCHD_E_FORKED ||
		      batchd_next(loader, &batch, 0) != BATCHD_E_FORKED);
	}
	waitpid(child, &status, 0);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(batchd_n_leased(loader), 1);
	m->deleter(m);
	take();
	ok(batchd_release(loader, batch.slot, batch.generation));
}
END_TEST

START_TEST(test_a_forked_child_opens_nothing)
{
	/* CUDA does not survive a fork: a clear error, without a CUDA call. */
	int status;
	pid_t child;

	open_loader();
	child = fork();
	if (child == 0) {
		struct batchd_loader *l;
		int r = batchd_open(&options, &l, err, sizeof err);

		if (r != BATCHD_E_GPU || !strstr(err, "forked") || !strstr(err, "spawn") || counter("violations"))
			_exit((fprintf(stderr, "%d: %s\n", r, err), 1));
		_exit(0);
	}
	waitpid(child, &status, 0);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(test_tensor_outlives_its_loader)
{
	/* The memory stays mapped and lent until the last tensor is freed; calls for another loader clean up. */
	uint64_t closes;
	struct dl_managed *m;

	open_loader();
	start(1);
	take();
	m = export_batch();
	closes = counter("cuIpcCloseMemHandle");
	batchd_close(loader);
	ck_assert_uint_eq(counter("cuIpcCloseMemHandle"), closes);
	fetch((cuda_ptr)(uintptr_t)m->tensor.data, IMAGE); /* still there */
	open_loader();
	start(1);
	m->deleter(m);
	ck_assert_uint_eq(counter("cuIpcCloseMemHandle"), closes);
	for (unsigned i = 0; i < N_BATCHES && counter("cuIpcCloseMemHandle") == closes; i++) {
		take();
		OK(cu.stream_synchronize(stream));
		ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	}
	if (counter("cuIpcCloseMemHandle") == closes)
		ck_assert_int_eq(batchd_next(loader, &batch, 0), BATCHD_END);
	ck_assert_uint_eq(counter("cuIpcCloseMemHandle"), closes + 1);
}
END_TEST

START_TEST(test_close_waits_for_the_streams_work)
{
	/* Unmapping memory that a kernel still reads would be a fault. */
	pthread_t thread;

	options.dtype = BATCHD_UINT8;
	options.layout = BATCHD_NHWC;
	open_loader();
	start(1);
	take();
	hold_streams(true);
	ok(batchd_cuda_finish(loader, &batch, target(), stream));
	ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	pthread_create(&thread, NULL, let_go, NULL);
	batchd_close(loader);
	loader = NULL;
	pthread_join(thread, NULL);
	OK(cu.stream_synchronize(stream));
}
END_TEST

static void *wait_in_vain(void *told)
{
	struct batchd_batch next = { .size_bytes = sizeof next };

	*(int *)told = batchd_next(loader, &next, BATCHD_FOREVER);
	return NULL;
}

START_TEST(test_one_thread_finishes_while_another_waits_and_the_loader_is_closed)
{
	/* All slots are lent, so the thread in batchd_next waits. Finishing a lent batch does not wait for that thread,
	 * and the thread gets the error of the close. The memory stays mapped until the last batch is back. */
	struct batchd_batch held[WINDOW];
	uint64_t closes = counter("cuIpcCloseMemHandle");
	pthread_t waiter;
	int told = 0;

	options.dtype = BATCHD_UINT8;
	options.layout = BATCHD_NHWC;
	open_loader();
	start(1);
	for (unsigned i = 0; i < WINDOW; i++) {
		take();
		held[i] = batch;
	}
	start(2);
	pthread_create(&waiter, NULL, wait_in_vain, &told);
	for (unsigned i = 0; i < 100; i++)
		ok(batchd_cuda_finish(loader, &held[0], target(), stream));
	batchd_close(loader);
	pthread_join(waiter, NULL);
	ck_assert_int_eq(told, BATCHD_E_CLOSED);
	ck_assert_uint_eq(counter("cuIpcCloseMemHandle"), closes);
	for (unsigned i = 0; i < WINDOW; i++)
		ok(batchd_release(loader, held[i].slot, held[i].generation));
	loader = NULL;
	ck_assert_uint_eq(counter("cuIpcCloseMemHandle"), closes + 1);
}
END_TEST

/* ---- streams of a special kind ---- */

enum { GLOBAL, THREAD_LOCAL, RELAXED };

static int begin_capture(struct cuda_stream *s, int mode)
{
	int (*f)(struct cuda_stream *, int);
	void *found = double_function("cuStreamBeginCapture_v2");

	memcpy(&f, &found, sizeof f);
	return f(s, mode);
}

/* Whether the capture is still valid. */
static int end_capture(struct cuda_stream *s)
{
	int (*f)(struct cuda_stream *, void **), (*destroy)(void *), r;
	void *found = double_function("cuStreamEndCapture"), *graph;

	memcpy(&f, &found, sizeof f);
	found = double_function("cuGraphDestroy");
	memcpy(&destroy, &found, sizeof destroy);
	r = f(s, &graph);
	OK(destroy(graph));
	return r;
}

/* Takes a batch and gives it back after work on s. */
static void take_on(struct cuda_stream *s)
{
	take();
	ok(batchd_cuda_wait(loader, batch.slot, batch.generation, s));
	ok(batchd_cuda_release(loader, batch.slot, batch.generation, s));
}

START_TEST(test_batches_do_not_become_part_of_a_graph)
{
	/* A replay would read the slot again long after it has gone back: every call that queues work is refused, and
	 * the refusal does not invalidate the capture. */
	void *m;

	open_loader();
	start(1);
	for (int mode = GLOBAL; mode <= RELAXED; mode++) {
		take();
		OK(begin_capture(stream, mode));
		ck_assert_int_eq(batchd_cuda_finish(loader, &batch, target(), stream), BATCHD_E_INVALID);
		ck_assert_ptr_nonnull(strstr(batchd_error(loader), "CUDA graph"));
		ck_assert_int_eq(batchd_cuda_labels(loader, &batch, (void *)(uintptr_t)label_tensor, stream),
				 BATCHD_E_INVALID);
		ck_assert_int_eq(batchd_cuda_wait(loader, batch.slot, batch.generation, stream), BATCHD_E_INVALID);
		ck_assert_int_eq(batchd_cuda_dlpack(loader, &batch, 0, stream, &m), BATCHD_E_INVALID);
		ck_assert_int_eq(batchd_cuda_add_stream(loader, batch.slot, batch.generation, stream),
				 BATCHD_E_INVALID);
		ck_assert_ptr_nonnull(strstr(batchd_error(loader), "CUDA graph"));
		ck_assert_int_eq(batchd_cuda_release(loader, batch.slot, batch.generation, stream), BATCHD_E_INVALID);
		OK(end_capture(stream));
		ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	}
}
END_TEST

static void *train_beside_a_capture(void *arg)
{
	struct batchd_loader *others;
	struct cuda_stream *s;

	(void)arg;
	OK(cu.ctx_set_current(context));
	OK(cu.stream_create_with_priority(&s, CUDA_STREAM_NON_BLOCKING, 0));
	ck_assert_msg(batchd_open(&options, &others, err, sizeof err) == 0, "%s", err);
	batchd_close(others);
	for (unsigned i = 0; i < 2 * WINDOW; i++) {
		if (i == N_BATCHES)
			start(2);
		take_on(s);
	}
	OK(cu.stream_destroy(s));
	OK(cu.ctx_set_current(NULL));
	return NULL;
}

START_TEST(test_a_capture_in_another_thread_goes_undisturbed)
{
	/* In the strictest mode, a thread's allocation or event query invalidates the captures of all threads: none of
	 * our calls does that, opening and closing included. */
	pthread_t thread;

	options.job = "beside a capture";
	open_loader();
	options.job = "another one";
	start(1);
	OK(begin_capture(stream, GLOBAL));
	pthread_create(&thread, NULL, train_beside_a_capture, NULL);
	pthread_join(thread, NULL);
	OK(end_capture(stream));
}
END_TEST

START_TEST(test_tensor_that_ends_while_its_stream_captures)
{
	/* The event that reports the work's end would become part of the graph. So it is recorded afterwards, and the
	 * slot comes back then. */
	struct dl_managed *m[WINDOW];

	open_loader();
	start(1);
	for (unsigned i = 0; i < WINDOW; i++) {
		take();
		m[i] = export_batch();
	}
	start(2);
	OK(begin_capture(stream, GLOBAL));
	for (unsigned i = 0; i < WINDOW; i++)
		m[i]->deleter(m[i]);
	ck_assert_int_eq(batchd_next(loader, &batch, 20), BATCHD_AGAIN);
	OK(end_capture(stream));
	take();
	ok(batchd_release(loader, batch.slot, batch.generation));
}
END_TEST

static void export_all_on(struct cuda_stream *s, void **m)
{
	for (unsigned i = 0; i < WINDOW; i++) {
		take();
		ok(batchd_cuda_dlpack(loader, &batch, 0, s, &m[i]));
	}
}

static void end_tensors(void **m)
{
	for (unsigned i = 0; i < WINDOW; i++)
		((struct dl_managed *)m[i])->deleter(m[i]);
}

/* The errors of drivers for a stream or an event that they cannot use, and single failures. */
static const char *const useless[] = { "cuEventRecord:1=400", "cuEventRecord:1=201", "cuStreamIsCapturing:1=400",
				       "cuEventRecord:1=709", "cuEventCreate:1=2",   "cuEventQuery:1=400",
				       "cuEventRecord:1=999" };

START_TEST(test_an_error_of_one_stream_costs_one_wait)
{
	/* No event can be recorded for one of the leases: that one is waited for, the others go back by their
	 * events. */
	void *m[WINDOW];
	uint64_t waits = counter("cuCtxSynchronize");

	open_loader();
	start(1);
	export_all_on(stream, m);
	inject(useless[_i]);
	end_tensors(m);
	start(2);
	for (unsigned i = 0; i < N_BATCHES; i++) {
		take();
		ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	}
	ck_assert_uint_eq(counter("cuCtxSynchronize"), waits + 1);
}
END_TEST

/* Of the second stream that is asked about, and of the second event. */
static const char *const useless_second[] = { "cuStreamIsCapturing:2=400", "cuStreamIsCapturing:2=709",
					      "cuEventRecord:1=709" };

START_TEST(test_a_release_on_a_good_stream_behind_a_useless_one)
{
	/* The batch was used on both streams: the release does not mention the one that the driver knows no more, and
	 * the slot comes back. */
	struct cuda_stream *own;

	open_loader();
	start(1);
	OK(cu.stream_create_with_priority(&own, CUDA_STREAM_NON_BLOCKING, 0));
	for (unsigned i = 0; i < N_BATCHES; i++) {
		take();
		if (i == 0) {
			ok(batchd_cuda_wait(loader, batch.slot, batch.generation, own));
			inject(useless_second[_i]);
		}
		ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	}
	ck_assert_int_eq(batchd_n_leased(loader), 0);
	OK(cu.stream_destroy(own));
}
END_TEST

static const char *const stream_calls[] = { "cuStreamIsCapturing", "cuLaunchKernel", "cuMemcpyDtoDAsync" };

START_TEST(test_a_destroyed_stream_is_no_destroyed_context)
{
	/* Drivers say CONTEXT_IS_DESTROYED of a stream that is gone, too. While the context is there, that is the
	 * caller's mistake, and the loader goes on. */
	char rule[64];

	options.dtype = BATCHD_UINT8;
	options.layout = BATCHD_NHWC;
	if (_i == 1) {
		options.dtype = BATCHD_FLOAT32;
		if (!has_kernel())
			return;
	}
	open_loader();
	start(1);
	take();
	snprintf(rule, sizeof rule, "%s:1=709", stream_calls[_i]);
	inject(rule);
	ck_assert_int_eq(batchd_cuda_finish(loader, &batch, target(), stream), BATCHD_E_INVALID);
	ck_assert_msg(strstr(batchd_error(loader), "is the stream one of this GPU's primary context"), "%s",
		      batchd_error(loader));
	inject("cuStreamIsCapturing:1=709");
	ck_assert_int_eq(batchd_cuda_release(loader, batch.slot, batch.generation, stream), BATCHD_E_GPU);
	ok(batchd_cuda_finish(loader, &batch, target(), stream));
	ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	take();
	ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
}
END_TEST

START_TEST(test_a_destroyed_context_ends_the_loader)
{
	/* The context says so itself. */
	open_loader();
	start(1);
	take();
	inject("cuStreamIsCapturing:1=709,cuCtxSynchronize:*=709");
	ck_assert_int_eq(batchd_cuda_release(loader, batch.slot, batch.generation, stream), BATCHD_E_GPU);
	ck_assert_msg(strstr(batchd_error(loader), "this process can use the GPU no more"), "%s", batchd_error(loader));
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_GPU);
	inject(NULL);
	batchd_release(loader, batch.slot, batch.generation);
}
END_TEST

START_TEST(test_while_something_captures_a_useless_stream_is_not_waited_for)
{
	/* Waiting for the whole GPU would invalidate the capture: the slots come back when it has ended. */
	void *m[WINDOW];
	struct cuda_stream *blocking;

	open_loader();
	start(1);
	export_all_on(stream, m);
	OK(cu.stream_create_with_priority(&blocking, 0, 0));
	OK(begin_capture(blocking, GLOBAL));
	inject("cuEventRecord:*=400");
	end_tensors(m);
	start(2);
	ck_assert_int_eq(batchd_next(loader, &batch, 20), BATCHD_AGAIN);
	OK(end_capture(blocking));
	take();
	inject(NULL);
	ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	OK(cu.stream_destroy(blocking));
}
END_TEST

START_TEST(test_the_copies_stream_goes_before_the_trainers)
{
	/* With the highest priority, so that copies do not queue after the trainer's kernels in a hardware queue. */
	unsigned (*n_streams)(int priority);
	void *found = double_function("fakecuda_n_streams");
	int least, greatest;

	memcpy(&n_streams, &found, sizeof n_streams);
	OK(cu.ctx_get_stream_priority_range(&least, &greatest));
	ck_assert_int_lt(greatest, least);
	open_loader();
	ck_assert_int_eq(info.device_path, BATCHD_DEVICE_COPY);
	ck_assert_uint_eq(n_streams(greatest), 1);
}
END_TEST

static pthread_barrier_t gate;

static void wait_at_gate(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&gate);
}

/* Tensors of all slots, read on this thread's own default stream after work that does not end before the gate opens. */
static void *read_on_own_stream(void *arg)
{
	int (*launch)(struct cuda_stream *, void (*)(void *), void *);
	void *found = double_function("cuLaunchHostFunc"), **m = arg;

	memcpy(&launch, &found, sizeof launch);
	OK(cu.ctx_set_current(context));
	OK(launch(CUDA_STREAM_PER_THREAD, wait_at_gate, NULL));
	for (unsigned i = 0; i < WINDOW; i++) {
		take();
		ok(batchd_cuda_dlpack(loader, &batch, 0, CUDA_STREAM_PER_THREAD, &m[i]));
	}
	OK(cu.ctx_set_current(NULL));
	return NULL;
}

START_TEST(test_another_threads_default_stream)
{
	/* Its number means a different stream in each thread; a slot comes back after the work of the intended
	 * stream. */
	void *m[WINDOW];
	pthread_t thread;

	pthread_barrier_init(&gate, NULL, 2);
	open_loader();
	start(1);
	pthread_create(&thread, NULL, read_on_own_stream, m);
	pthread_join(thread, NULL);
	start(2);
	for (unsigned i = 0; i < WINDOW; i++)
		((struct dl_managed *)m[i])->deleter(m[i]);
	ck_assert_int_eq(batchd_next(loader, &batch, 100), BATCHD_AGAIN);
	pthread_barrier_wait(&gate);
	take();
	ok(batchd_release(loader, batch.slot, batch.generation));
	pthread_barrier_destroy(&gate);
}
END_TEST

/* ---- share mode ---- */

START_TEST(test_slices_of_the_groups_batch)
{
	/* Two slices of one slot, given back in every combination of ways: each has its own rows, and the slot goes
	 * back once, after both. A tensor of the first slice is laid out as DLPack wants it, that of the second begins
	 * at its rows, with no offset that a consumer might ignore. */
	char *images = malloc((size_t)N_IMAGES * IMAGE * 4);
	int64_t labels[N_IMAGES];
	struct dl_managed *m;
	unsigned n = 0, way = (unsigned)_i;

	options.dtype = BATCHD_UINT8;
	options.layout = BATCHD_NHWC;
	epoch_on_cpu(BATCHD_UINT8, BATCHD_NHWC, images, labels);
	options.mode = BATCHD_SHARE;
	options.batch_size = BATCH / 2;
	options.group_batch_size = BATCH;
	open_loader();
	for (uint64_t epoch = 1; epoch < 4; epoch++, n = 0) {
		start(epoch);
		while (batchd_next(loader, &batch, BATCHD_FOREVER) == BATCHD_OK) {
			ok(batchd_cuda_finish(loader, &batch, target(), stream));
			ok(batchd_cuda_labels(loader, &batch, (void *)(uintptr_t)label_tensor, stream));
			if (epoch == 1) {
				ck_assert_mem_eq(fetch(tensor, batch.n_rows * IMAGE), images + n * IMAGE,
						 batch.n_rows * IMAGE);
				ck_assert_mem_eq(fetch(label_tensor, batch.n_rows * 8), labels + n, batch.n_rows * 8);
			}
			n += batch.n_rows;
			switch ((batch.row ? way / 3 : way % 3)) {
			case 0:
				OK(cu.stream_synchronize(stream));
				ok(batchd_release(loader, batch.slot, batch.generation));
				break;
			case 1:
				ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
				break;
			default:
				m = export_batch();
				ck_assert_int_eq(m->tensor.shape[0], batch.n_rows);
				ck_assert_mem_eq(fetch((cuda_ptr)(uintptr_t)m->tensor.data, IMAGE), batch.data, IMAGE);
				ck_assert_uint_eq(m->tensor.byte_offset, 0);
				ck_assert_uint_eq((uintptr_t)m->tensor.data % 256, batch.row * IMAGE % 256);
				m->deleter(m);
			}
		}
		ck_assert_uint_eq(n, N_IMAGES);
	}
	ck_assert_uint_eq(batchd_n_leased(loader), 0);
	free(images);
}
END_TEST

/* Takes batch after batch, until the loader is closed. */
static void *read_for_ever(void *arg)
{
	struct batchd_batch b = { .size_bytes = sizeof b };
	uint64_t epoch = 1;

	ck_assert_int_eq(batchd_start(arg, epoch, 0, 0, NULL), 0);
	for (;;) {
		int r = batchd_next(arg, &b, BATCHD_FOREVER);

		if (r == BATCHD_OK)
			batchd_release(arg, b.slot, b.generation);
		else if (r != BATCHD_END || batchd_start(arg, ++epoch, 0, 0, NULL) < 0)
			return NULL;
	}
}

START_TEST(test_the_group_waits_while_a_rank_opens_another_way)
{
	/* The second rank cannot use the handle that it gets, and opens again to have a descriptor, while the first takes
	 * what there is. */
	struct batchd_options o;
	struct batchd_loader *first;
	pthread_t reader;

	options.job = "together";
	options.mode = BATCHD_SHARE;
	options.world_size = 2;
	options.rank = 1;
	o = options;
	o.rank = 0;
	o.device = NULL;
	o.dtype = BATCHD_UINT8;
	o.layout = BATCHD_NHWC;
	ck_assert_msg(batchd_open(&o, &first, err, sizeof err) == 0, "%s", err);
	ck_assert_int_eq(pthread_create(&reader, NULL, read_for_ever, first), 0);
	inject("cuIpcOpenMemHandle:*=1");
	open_loader();
	inject(NULL);
	for (uint64_t epoch = 1; epoch < 3; epoch++) {
		start(epoch);
		for (unsigned i = 0; i < N_BATCHES; i++) {
			take();
			ck_assert_uint_eq(batch.epoch, epoch);
			ck_assert_uint_eq(batch.step, i);
			ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
		}
		ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
	}
	batchd_close(first);
	pthread_join(reader, NULL);
}
END_TEST

/* What says nothing of another loader, and what does. */
static const struct {
	const char *rule;
	enum batchd_device_path first, later;
} ipc_failures[] = {
	{ "cuIpcOpenMemHandle:1=2", BATCHD_DEVICE_VMM_FD, BATCHD_DEVICE_IPC },   /* no memory left */
	{ "cuIpcOpenMemHandle:1=208", BATCHD_DEVICE_VMM_FD, BATCHD_DEVICE_IPC }, /* a daemon that is gone, and others */
	{ "cuIpcOpenMemHandle:1=201", BATCHD_DEVICE_VMM_FD, BATCHD_DEVICE_IPC },
	{ "cuIpcOpenMemHandle:1=1", BATCHD_DEVICE_VMM_FD, BATCHD_DEVICE_VMM_FD },
	{ "cuIpcOpenMemHandle:1=801", BATCHD_DEVICE_VMM_FD, BATCHD_DEVICE_VMM_FD },
	{ "cuIpcOpenMemHandle:*=2", BATCHD_DEVICE_VMM_FD, BATCHD_DEVICE_VMM_FD }, /* each time */
};

START_TEST(test_one_failure_to_open_a_handle_is_not_the_machines)
{
	/* The loader takes a descriptor in its place. Later loaders try CUDA IPC, unless the machine refuses it. */
	inject(ipc_failures[_i].rule);
	open_loader();
	ck_assert_int_eq(info.device_path, ipc_failures[_i].first);
	batchd_close(loader);
	options.job = "later";
	open_loader();
	ck_assert_int_eq(info.device_path, ipc_failures[_i].later);
	inject(NULL);
}
END_TEST

/* ---- a new daemon ---- */

/* A crash and a new daemon; a program of its own, because this process has used CUDA and must not fork another process
 * that uses it. */
static void replace_daemon(void)
{
	char program[4200];
	char *argv[] = { program, (char *)"--log-level", (char *)"error", (char *)"--socket", path, NULL };

	snprintf(program, sizeof program, "%s/batchd", getenv("BATCHD_BUILD") ? getenv("BATCHD_BUILD") : "build");
	kill(daemon_pid, SIGKILL);
	waitpid(daemon_pid, NULL, 0);
	unlink(path);
	ck_assert_int_eq(posix_spawn(&daemon_pid, program, NULL, NULL, argv, environ), 0);
}

START_TEST(test_loader_goes_on_with_another_daemon)
{
	/* In mid-epoch, with a tensor, a lent batch and a batch that the GPU still works on: the next batch is the
	 * right one, and each of the old ones still ends well. */
	char *images = malloc((size_t)N_IMAGES * IMAGE);
	struct batchd_batch lent;
	struct dl_managed *m;
	int64_t labels[N_IMAGES];
	uint64_t closes;

	epoch_on_cpu(BATCHD_UINT8, BATCHD_NHWC, images, labels);
	options.dtype = BATCHD_UINT8;
	options.layout = BATCHD_NHWC;
	options.reconnect_ms = 60000;
	options.n_slots = 2; /* so that the third batch is not made yet */
	open_loader();
	start(1);
	take();
	m = export_batch();
	take();
	lent = batch;
	closes = counter("cuIpcCloseMemHandle");
	replace_daemon();
	take();
	ck_assert_uint_eq(batch.step, 2);
	ok(batchd_cuda_finish(loader, &batch, target(), stream));
	ck_assert_mem_eq(fetch(tensor, batch.n_rows * IMAGE), images + 2 * BATCH * IMAGE, batch.n_rows * IMAGE);
	ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
	/* its memory belonged to the old daemon */
	ck_assert_int_eq(batchd_cuda_finish(loader, &lent, target(), stream), BATCHD_E_INVALID);
	/* in host memory it was kept */
	ck_assert_mem_eq(lent.data, images + BATCH * IMAGE, IMAGE);
	ck_assert_uint_eq(counter("cuIpcCloseMemHandle"), closes);
	if (_i)
		ok(batchd_cuda_release(loader, lent.slot, lent.generation, stream));
	else
		ok(batchd_release(loader, lent.slot, lent.generation));
	ck_assert_int_eq(batchd_cuda_release(loader, lent.slot, lent.generation, stream), BATCHD_E_INVALID);
	m->deleter(m);
	for (uint64_t epoch = 2; counter("cuIpcCloseMemHandle") == closes; epoch++) {
		start(epoch);
		take();
		ok(batchd_release(loader, batch.slot, batch.generation));
	}
	ck_assert_str_eq(info.device, "cuda:0"); /* strings of the first connection's info live as long as the loader */
	free(images);
}
END_TEST

/* ---- impossible wishes ---- */

static void refused(const char *device, int code, const char *text)
{
	options.device = device;
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), code);
	ck_assert_msg(strstr(err, text) != NULL, "'%s' is not in '%s'", text, err);
}

START_TEST(test_devices_by_name)
{
	/* Ordinals and UUIDs that exist are accepted; the error names every other device. */
	struct cuda_uuid uuid;
	char text[64] = "GPU-";

	refused("cuda:1", BATCHD_E_INVALID, "there is no cuda:1; this process sees 1 GPU");
	refused("cuda:-1", BATCHD_E_INVALID, "'cuda:-1'");
	refused("cuda:0x", BATCHD_E_INVALID, "cuda:0x");
	refused("gpu", BATCHD_E_INVALID, "'gpu'");
	refused("GPU-00000000-0000-0000-0000-000000000000", BATCHD_E_INVALID, "no GPU with the UUID");
	refused("GPU-12", BATCHD_E_INVALID, "'GPU-12'");
	OK(cu.device_get_uuid(&uuid, 0));
	for (unsigned i = 0; i < 16; i++)
		sprintf(text + strlen(text), "%02x%s", uuid.bytes[i], i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
	options.device = text;
	open_loader();
	ck_assert_mem_eq(info.device_uuid, uuid.bytes, 16);
}
END_TEST

START_TEST(test_odd_types_are_refused)
{
	/* On the GPU the types that the kernel makes, on the CPU no bfloat16. */
	options.dtype = BATCHD_INT64;
	refused("cuda", BATCHD_E_INVALID, "dtype");
	options.dtype = BATCHD_BFLOAT16;
	refused("cpu", BATCHD_E_INVALID, "bfloat16");
	options.dtype = BATCHD_FLOAT16;
	options.transform = "[[\"CenterCrop\", 24]]";
	refused("cuda", BATCHD_E_INVALID, "ToTensor"); /* as on the CPU */
	refused("cpu", BATCHD_E_INVALID, "ToTensor");
	options.dtype = BATCHD_UINT8;
	options.device = "cuda";
	open_loader();
}
END_TEST

START_TEST(test_fault_on_the_gpu_ends_the_loader_clearly)
{
	/* For example after a fault of a trainer's own kernel: the next call says that the GPU is lost, and closing
	 * works. */
	setup();
	options.dtype = BATCHD_UINT8;
	options.layout = BATCHD_NHWC;
	open_loader();
	start(1);
	take();
	inject("run:*=700");
	ok(batchd_cuda_finish(loader, &batch, target(), stream));
	int released = batchd_cuda_release(loader, batch.slot, batch.generation, stream);
	ck_assert(released == 0 || released == BATCHD_E_GPU); /* the GPU may have reached it already */
	for (int r = BATCHD_OK; r != BATCHD_E_GPU;) {
		r = batchd_next(loader, &batch, 1);
		ck_assert_msg(r >= 0 || r == BATCHD_E_GPU, "%s", batchd_code_name(r));
		if (r == BATCHD_OK)
			batchd_release(loader, batch.slot, batch.generation);
		usleep(1000); /* the fault is found when the GPU reaches it */
	}
	ck_assert_msg(strstr(batchd_error(loader), "CUDA_ERROR_ILLEGAL_ADDRESS") &&
			      strstr(batchd_error(loader), "no more"),
		      "%s", batchd_error(loader));
	ck_assert_int_eq(batchd_cuda_finish(loader, &batch, target(), stream), BATCHD_E_GPU);
	batchd_close(loader);
	stop_daemon();
	remove_pictures();
}
END_TEST

START_TEST(test_no_driver_is_no_gpu)
{
	/* On a machine without CUDA: the error says so; the CPU path works. Runs before any CUDA library is loaded. */
	struct batchd_options o;
	struct batchd_loader *l;

	setenv("BATCHD_LIBCUDA", "/nowhere/libcuda.so.1", 1);
	start_daemon();
	batchd_options_init(&o);
	o.socket = path;
	o.dataset = "random:length=10,shape=3";
	o.device = "cuda";
	ck_assert_int_eq(batchd_open(&o, &l, err, sizeof err), BATCHD_E_GPU);
	ck_assert_ptr_nonnull(strstr(err, "no NVIDIA driver"));
	o.device = "cpu";
	ck_assert_msg(batchd_open(&o, &l, err, sizeof err) == 0, "%s", err);
	batchd_close(l);
	stop_daemon();
}
END_TEST

static const char *const failing_calls[] = {
	"cuDevicePrimaryCtxRetain",   "cuIpcOpenMemHandle",
	"cuMemHostRegister",          "cuMemAlloc",
	"cuStreamCreateWithPriority", "cuEventCreate",
	"cuModuleLoadData",           "cuModuleGetFunction",
	"cuCtxPushCurrent",           "cuThreadExchangeStreamCaptureMode",
};
enum { N_FAILING = sizeof failing_calls / sizeof *failing_calls };

START_TEST(test_each_call_of_opening_may_fail)
{
	/* A clear message or another way, nothing left behind, and the next attempt works. */
	char spec[96];
	int r;

	for (int times = 0; times < 2; times++) { /* the first of its kind, then all of them */
		snprintf(spec, sizeof spec, times ? "%s:*=2" : "%s:1=2", failing_calls[_i]);
		inject(spec);
		r = batchd_open(&options, &loader, err, sizeof err);
		inject(NULL);
		if (r < 0)
			ck_assert_msg((r == BATCHD_E_NOMEM || r == BATCHD_E_GPU) &&
					      strstr(err, "CUDA_ERROR_OUT_OF_MEMORY"),
				      "%s: %s", spec, err);
		batchd_close(loader);
		loader = NULL;
	}
	open_loader();
	start(1);
	take();
	ok(batchd_cuda_release(loader, batch.slot, batch.generation, stream));
}
END_TEST

SUITE(cuda_client)
{
	Suite *s = suite_create("cuda_client");
	TCase *t = tcase_create("ipc");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, test_gpu_gives_the_numbers_of_the_cpu, 0, N_WISHES);
	tcase_add_test(t, test_mixing_is_switched_for_the_gpu_as_for_the_cpu);
	tcase_add_test(t, test_without_normalize);
	tcase_add_test(t, test_arrays_arrive_as_they_are);
	tcase_add_test(t, test_slot_goes_back_when_the_stream_has_come_that_far);
	tcase_add_test(t, test_context_is_left_as_it_was);
	tcase_add_test(t, test_misuse_is_told_and_harmless);
	tcase_add_test(t, test_cpu_loader_has_no_gpu);
	tcase_add_test(t, test_without_the_kernel_one_is_told);
	tcase_add_loop_test(t, test_kernel_that_this_driver_cannot_run_is_as_none, 0, 2);
	tcase_add_test(t, test_tensor_describes_the_batch);
	tcase_add_test(t, test_tensor_gives_its_slot_back_from_any_thread);
	tcase_add_test(t, test_tensor_in_a_forked_child_takes_nothing);
	tcase_add_test(t, test_a_forked_child_opens_nothing);
	tcase_add_test(t, test_tensor_outlives_its_loader);
	tcase_add_test(t, test_close_waits_for_the_streams_work);
	tcase_add_test(t, test_one_thread_finishes_while_another_waits_and_the_loader_is_closed);
	tcase_add_test(t, test_batches_do_not_become_part_of_a_graph);
	tcase_add_test(t, test_a_capture_in_another_thread_goes_undisturbed);
	tcase_add_test(t, test_tensor_that_ends_while_its_stream_captures);
	tcase_add_loop_test(t, test_an_error_of_one_stream_costs_one_wait, 0, sizeof useless / sizeof *useless);
	tcase_add_loop_test(t, test_a_release_on_a_good_stream_behind_a_useless_one, 0,
			    sizeof useless_second / sizeof *useless_second);
	tcase_add_loop_test(t, test_one_failure_to_open_a_handle_is_not_the_machines, 0,
			    sizeof ipc_failures / sizeof *ipc_failures);
	tcase_add_loop_test(t, test_a_destroyed_stream_is_no_destroyed_context, 0,
			    sizeof stream_calls / sizeof *stream_calls);
	tcase_add_test(t, test_a_destroyed_context_ends_the_loader);
	tcase_add_test(t, test_while_something_captures_a_useless_stream_is_not_waited_for);
	tcase_add_test(t, test_another_threads_default_stream);
	tcase_add_loop_test(t, test_slices_of_the_groups_batch, 0, 9);
	tcase_add_test(t, test_the_group_waits_while_a_rank_opens_another_way);
	tcase_add_loop_test(t, test_loader_goes_on_with_another_daemon, 0, 2);
	tcase_add_test(t, test_devices_by_name);
	tcase_add_test(t, test_odd_types_are_refused);
	tcase_add_loop_test(t, test_each_call_of_opening_may_fail, 0, N_FAILING);
	suite_add_tcase(s, t);

	t = tcase_create("driver 470");
	tcase_add_checked_fixture(t, setup_driver_470, teardown);
	tcase_add_loop_test(t, test_kernel_whose_machine_code_is_refused_is_compiled_by_the_driver, 0, 3);
	suite_add_tcase(s, t);

	t = tcase_create("direct");
	tcase_add_checked_fixture(t, setup_direct, teardown);
	tcase_add_test(t, test_without_ipc_the_client_copies);
	tcase_add_test(t, test_few_places_serve_many_slots);
	tcase_add_test(t, test_a_full_gpu_is_told_with_what_is_wanted);
	tcase_add_test(t, test_a_batch_waits_for_a_place_that_the_gpu_still_reads);
	tcase_add_test(t, test_slot_goes_back_when_the_stream_has_come_that_far);
	tcase_add_test(t, test_tensor_gives_its_slot_back_from_any_thread);
	tcase_add_test(t, test_misuse_is_told_and_harmless);
	tcase_add_test(t, test_batches_do_not_become_part_of_a_graph);
	tcase_add_test(t, test_a_capture_in_another_thread_goes_undisturbed);
	tcase_add_test(t, test_tensor_that_ends_while_its_stream_captures);
	tcase_add_loop_test(t, test_slices_of_the_groups_batch, 0, 9);
	suite_add_tcase(s, t);

	t = tcase_create("staged");
	tcase_add_checked_fixture(t, setup_no_ipc, teardown);
	tcase_add_test(t, test_without_ipc_the_client_copies);
	tcase_add_test(t, test_few_places_serve_many_slots);
	tcase_add_test(t, test_a_full_gpu_is_told_with_what_is_wanted);
	tcase_add_test(t, test_the_copies_stream_goes_before_the_trainers);
	tcase_add_test(t, test_tensor_gives_its_slot_back_from_any_thread);
	tcase_add_test(t, test_misuse_is_told_and_harmless);
	tcase_add_test(t, test_batches_do_not_become_part_of_a_graph);
	tcase_add_test(t, test_a_capture_in_another_thread_goes_undisturbed);
	tcase_add_test(t, test_tensor_that_ends_while_its_stream_captures);
	tcase_add_loop_test(t, test_slices_of_the_groups_batch, 0, 9);
	suite_add_tcase(s, t);

	t = tcase_create("pageable");
	tcase_add_checked_fixture(t, setup_pageable, teardown);
	tcase_add_test(t, test_where_nothing_can_be_pinned_batches_still_come);
	suite_add_tcase(s, t);

	t = tcase_create("broken");
	tcase_add_test(t, test_fault_on_the_gpu_ends_the_loader_clearly);
	tcase_add_test(t, test_no_driver_is_no_gpu);
	suite_add_tcase(s, t);
	TCase *timing = suite_timing();
	tcase_add_checked_fixture(timing, setup_no_ipc, teardown);
	tcase_add_test(timing, test_the_trainers_thread_copies_nothing);
	suite_add_tcase(s, timing);
	return suite_with_gpus(s);
}
