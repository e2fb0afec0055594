/* GPUs, on the fake driver: copied bytes arrive, errors are explained in words, and whatever call fails, nothing is
 * left behind. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "batch/slab.h"
#include "support/cuda-double.h"
#include "gpu/gpus-impl.h"
#include "support/suite.h"

/* Where a new process takes a second to start. */
#if defined(__SANITIZE_THREAD__)
enum { SLOW = 1 };
#else
enum { SLOW = 0 };
#endif

enum { N_SLOTS = 4, SLOT_BYTES = 300 * 1024, ROW = 1000 };

struct copying {
	struct gpu_copy copy; /* first */
	int result;
	bool done;
	char why[GPU_REASON_BYTES];
};

struct opening {
	struct gpu_slab *slab;
	int result;
	bool called;
	char why[GPU_REASON_BYTES];
};

struct fixture {
	uv_loop_t loop;
	struct gpus *g;
	struct slab host;
	unsigned n_lost, n_closed;
	bool closed, lost_at_close, late;
	char lost_text[GPU_REASON_BYTES];
};
static struct fixture f;
static enum gpu_share share; /* of the slabs that are opened */

static void on_lost(void *arg, struct gpu *gpu, const char *text)
{
	(void)arg;
	(void)gpu;
	f.n_lost++;
	strcpy(f.lost_text, text);
}

static void setup_with(struct gpus_params params)
{
	memset(&f, 0, sizeof(f));
	params.on_lost = on_lost;
	ck_assert_int_eq(uv_loop_init(&f.loop), 0);
	ck_assert_int_eq(gpus_create(&f.loop, &params, &f.g), 0);
	ck_assert_int_eq(slab_init(&f.host, N_SLOTS * SLOT_BYTES, N_SLOTS * SLOT_BYTES), 0);
}

static const struct gpus_params usual = { .memory_bytes = 64 << 20, .pin_limit = 0.99 };

static void on_gpus_closed(void *arg)
{
	(void)arg;
	f.closed = true;
}

static void teardown(void)
{
	gpus_close(f.g, on_gpus_closed, NULL);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert(f.closed);
	ck_assert_int_eq(uv_loop_close(&f.loop), 0);
	if (!f.n_lost) /* a lost GPU may still read it */
		slab_finish(&f.host);
}

static void on_open(void *arg, struct gpu_slab *slab, int result, const char *why)
{
	struct opening *o = arg;
	ck_assert(!o->called);
	*o = (struct opening){ .slab = slab, .result = result, .called = true };
	strcpy(o->why, why);
}

static void on_late(void *arg, bool lost)
{
	(void)arg;
	ck_assert(!f.late && !lost);
	f.late = true;
}

static struct gpu_slab_params params_for(struct cuda_uuid uuid, struct opening *o)
{
	struct gpu_slab_params p = { .share = share,
				     .host = f.host.base,
				     .slot_bytes = SLOT_BYTES,
				     .n_slots = N_SLOTS,
				     .on_open = on_open,
				     .on_late = on_late,
				     .arg = o };
	memcpy(p.uuid, uuid.bytes, sizeof(p.uuid));
	return p;
}

static void run_until(const bool *flag)
{
	while (!*flag)
		uv_run(&f.loop, UV_RUN_ONCE);
}

static struct opening open_with(struct gpu_slab_params p)
{
	struct opening o = { .called = false };
	p.arg = &o;
	int r = gpu_slab_open(f.g, &p, o.why);
	if (r)
		o.result = r;
	else
		run_until(&o.called);
	return o;
}

static struct opening open_on(int ordinal)
{
	return open_with(params_for(uuid_of(ordinal), NULL));
}

static void on_copied(struct gpu_copy *copy, int result, const char *why)
{
	struct copying *c = (struct copying *)copy;
	ck_assert(!c->done);
	c->result = result;
	c->done = true;
	strcpy(c->why, why);
}

static void begin_copy(struct gpu_slab *slab, struct copying *c, uint32_t slot, uint64_t bytes)
{
	*c = (struct copying){
		.copy = { .n_parts = 1, .part = { { (uint64_t)slot * SLOT_BYTES, bytes } }, .done = on_copied }
	};
	gpu_copy_begin(slab, &c->copy);
}

static void on_slab_closed(void *arg, bool lost)
{
	(void)arg;
	f.lost_at_close |= lost;
	f.n_closed++;
}

static void close_slab(struct gpu_slab *slab)
{
	unsigned before = f.n_closed;
	gpu_slab_close(slab, on_slab_closed, NULL);
	while (f.n_closed == before)
		uv_run(&f.loop, UV_RUN_ONCE);
}

static void fill(uint32_t slot, unsigned seed)
{
	for (size_t i = 0; i < SLOT_BYTES; i++)
		f.host.base[slot * (size_t)SLOT_BYTES + i] = (uint8_t)(seed * 31 + i * 7 + i / 256);
}

static void assert_there(int ordinal, struct gpu_slab *slab, uint32_t slot, uint64_t bytes)
{
	static uint8_t got[SLOT_BYTES];
	read_device(ordinal, slab_work_of(slab)->memory + slot * (uint64_t)SLOT_BYTES, got, bytes);
	ck_assert(memcmp(got, f.host.base + slot * (size_t)SLOT_BYTES, bytes) == 0);
}

static struct gpu_stats stats_of(void)
{
	struct gpu_stats s;
	ck_assert_uint_eq(gpus_get_stats(f.g, &s, 1), 1);
	return s;
}

/* As a trainer would, on the reader's thread. */
struct importing {
	struct reading reading; /* first */
	int fd;
	uint64_t n_bytes;
	struct vmm *vmm;
};

static void run_import(struct reading *r)
{
	struct importing *i = (struct importing *)(void *)r;
	const char *call = "";
	ck_assert_msg(vmm_import(&gpu_double.cu, 0, i->fd, i->n_bytes, i->vmm, &call) == CUDA_OK, "%s", call);
}

static void run_let_go(struct reading *r)
{
	struct importing *i = (struct importing *)(void *)r;
	const char *call = "";
	ck_assert_msg(vmm_close(&gpu_double.cu, i->vmm, &call) == CUDA_OK, "%s", call);
}

/* ---- working GPUs ---- */

START_TEST(test_without_a_request_nothing_is_loaded)
{
	/* A daemon without GPU users calls nothing of the driver. */
	double_load();
	setup_with(usual);
	struct gpu_stats s;
	ck_assert_uint_eq(gpus_get_stats(f.g, &s, 1), 0);
	ck_assert_uint_eq(gpus_oldest_busy_ns(f.g), 0);
	teardown();
	ck_assert_uint_eq(gpu_double.counter("cuInit"), 0);
	double_assert_clean();
}
END_TEST

START_TEST(test_copies_are_told_of_when_every_byte_is_there)
{
	/* 200 batches through four slots; the fake driver reads sources late and scribbles over destinations first. A slot
	 * is overwritten only after its copy. */
	struct copying c[N_SLOTS] = { 0 };
	share = (enum gpu_share)_i;
	double_load();
	setup_with(usual);
	struct opening o = open_on(0);
	ck_assert_msg(o.slab != NULL, "%s", o.why);
	ck_assert_uint_eq(o.slab->bytes, 2 << 20);
	ck_assert(o.slab->pinned);
	for (unsigned i = 0; i < 200; i++) {
		uint32_t slot = i % N_SLOTS;
		uint64_t bytes = i % 3 ? SLOT_BYTES : ROW * (i % 100 + 1);
		if (i >= N_SLOTS) {
			run_until(&c[slot].done);
			ck_assert_int_eq(c[slot].result, 0);
			assert_there(0, o.slab, slot, c[slot].copy.part[0].bytes);
		}
		fill(slot, i);
		begin_copy(o.slab, &c[slot], slot, bytes);
	}
	for (unsigned i = 0; i < N_SLOTS; i++)
		run_until(&c[i].done);
	struct gpu_stats s = stats_of();
	uint64_t n = 0;
	for (unsigned i = 0; i < GPU_SIZE_CLASSES; i++)
		n += s.copies[i].n;
	ck_assert_uint_eq(n, 200);
	ck_assert(s.copies[0].n > 0 && s.copies[1].n > 0 && s.copies[2].n == 0);
	ck_assert_uint_eq(s.n_pageable, 0);
	ck_assert_uint_eq(gpu_double.counter("pageable"), 200 - N_SLOTS); /* the reader's */
	ck_assert_uint_eq(s.n_errors, 0);
	ck_assert(s.context && s.n_slabs == 1 && s.slab_bytes == 2 << 20 && s.pinned_bytes == N_SLOTS * SLOT_BYTES);
	close_slab(o.slab);
	s = stats_of();
	ck_assert(!s.context && s.n_slabs == 0 && s.slab_bytes == 0 && s.pinned_bytes == 0);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_two_parts_leave_the_gap_between_them_alone)
{
	/* A short batch: rows, then labels and indices further on. */
	struct copying c = { .copy = { .n_parts = 2,
				       .part = { { SLOT_BYTES, 5 * ROW }, { SLOT_BYTES + 20000, 640 } },
				       .done = on_copied } },
		       whole;
	uint8_t got[21000];
	double_load();
	setup_with(usual);
	struct opening o = open_on(0);
	memset(f.host.base, 1, f.host.bytes);
	begin_copy(o.slab, &whole, 1, SLOT_BYTES);
	run_until(&whole.done);
	memset(f.host.base, 2, f.host.bytes);
	gpu_copy_begin(o.slab, &c.copy);
	run_until(&c.done);
	read_device(0, slab_work_of(o.slab)->memory + SLOT_BYTES, got, sizeof(got));
	for (size_t i = 0; i < sizeof(got); i++)
		ck_assert_uint_eq(got[i], i < 5 * ROW || (i >= 20000 && i < 20640) ? 2 : 1);
	close_slab(o.slab);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_two_gpus_share_one_registration)
{
	/* Both are requested at once; the pages are registered once, and unregistered when the last of the two closes,
	 * whichever it is. */
	setenv("FAKECUDA_PERSONALITY", "two-gpus", 1);
	double_load();
	for (int first = 0; first < 2; first++) {
		struct opening o[2] = { 0 };
		struct copying c[2];
		setup_with(usual);
		for (int i = 0; i < 2; i++) {
			struct gpu_slab_params p = params_for(uuid_of(i), &o[i]);
			ck_assert_int_eq(gpu_slab_open(f.g, &p, o[i].why), 0);
		}
		uint64_t registered = gpu_double.counter("cuMemHostRegister");
		fill(0, 5);
		for (int i = 0; i < 2; i++) {
			run_until(&o[i].called);
			ck_assert_msg(o[i].slab && o[i].slab->pinned, "%s", o[i].why);
			begin_copy(o[i].slab, &c[i], 0, SLOT_BYTES);
		}
		ck_assert_uint_le(gpu_double.counter("cuMemHostRegister") - registered, 1);
		for (int i = 0; i < 2; i++) {
			run_until(&c[i].done);
			assert_there(i, o[i].slab, 0, SLOT_BYTES);
		}
		close_slab(o[first].slab);
		close_slab(o[!first].slab);
		teardown();
		double_assert_clean();
	}
	ck_assert_uint_eq(gpu_double.counter("cuMemHostRegister"), 2);
}
END_TEST

/* A host slab of large slots; only the pages in use take memory. */
static struct opening open_large(size_t slot_bytes, uint32_t n, uint8_t **host)
{
	*host = mmap(NULL, n * slot_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(*host, MAP_FAILED);
	struct gpu_slab_params p = params_for(uuid_of(0), NULL);
	p.host = *host;
	p.slot_bytes = slot_bytes;
	p.n_slots = n;
	return open_with(p);
}

static const struct gpus_params roomy = { .memory_bytes = UINT64_C(4) << 30, .pin_limit = 1 };

static const struct {
	uint32_t slot_mib, n_slots, n_pieces;
} large[] = {
	{ 30, 8, 4 }, /* two at a time */
	{ 64, 3, 3 },
	{ 300, 8, 38 }, /* larger than a piece, so pieces begin anywhere in a slot */
};

START_TEST(test_large_slabs_are_registered_in_small_pieces)
{
	/* At most 64 MiB at a time, because the driver makes other processes wait meanwhile; whole slots where they
	 * fit. */
	size_t slot = (size_t)large[_i].slot_mib << 20;
	uint8_t *host;
	double_load();
	setup_with(roomy);
	struct opening o = open_large(slot, large[_i].n_slots, &host);
	ck_assert_msg(o.slab != NULL, "%s", o.why);
	ck_assert_uint_eq(gpu_double.counter("cuMemHostRegister"), large[_i].n_pieces);
	close_slab(o.slab);
	ck_assert_uint_eq(gpu_double.counter("cuMemHostUnregister"), large[_i].n_pieces);
	munmap(host, large[_i].n_slots * slot);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_a_copy_from_two_pieces_is_cut_between_them)
{
	/* The fake driver refuses a source that lies in two registrations, as drivers may. */
	enum { PIECE = 64 << 20, AROUND = 8192 };
	size_t slot = 300u << 20;
	struct copying c = { .copy = { .n_parts = 1, .part = { { PIECE - AROUND / 2, AROUND } }, .done = on_copied } };
	uint8_t *host, got[AROUND];
	double_load();
	setup_with(roomy);
	struct opening o = open_large(slot, 2, &host);
	ck_assert_msg(o.slab && o.slab->pinned, "%s", o.why);
	for (size_t i = 0; i < AROUND; i++)
		host[PIECE - AROUND / 2 + i] = (uint8_t)(i * 7 + i / 256);
	gpu_copy_begin(o.slab, &c.copy);
	run_until(&c.done);
	ck_assert_msg(c.result == 0, "%s", c.why);
	read_device(0, slab_work_of(o.slab)->memory + PIECE - AROUND / 2, got, AROUND);
	ck_assert_mem_eq(got, host + PIECE - AROUND / 2, AROUND);
	ck_assert_uint_eq(stats_of().n_pageable, 0);
	ck_assert_uint_eq(stats_of().copies[0].n, 1);
	close_slab(o.slab);
	munmap(host, 2 * slot);
	teardown();
	double_assert_clean();
}
END_TEST

/* ---- while another slab is opened or closed ---- */

static void copy_some(struct gpu_slab *slab, unsigned n)
{
	struct copying c;
	for (unsigned i = 0; i < n; i++) {
		begin_copy(slab, &c, i % N_SLOTS, SLOT_BYTES);
		run_until(&c.done);
		ck_assert_msg(c.result == 0, "%s", c.why);
	}
}

static void wait_for_held_call(void)
{
	while (!gpu_double.n_held())
		uv_run(&f.loop, UV_RUN_NOWAIT);
}

static const char *const slow_to_open[] = { "cuDeviceGetCount", "cuMemAlloc", "cuIpcGetMemHandle",
					    "cuMemHostRegister" };

START_TEST(test_copies_go_on_while_another_slab_is_opened)
{
	/* The driver does not return from a call that opens the second slab until 50 copies of the first are done. */
	struct slab second;
	struct opening o = { .called = false };
	double_load();
	setup_with(usual);
	struct opening first = open_on(0);
	ck_assert_msg(first.slab && first.slab->pinned, "%s", first.why);
	ck_assert_int_eq(slab_init(&second, N_SLOTS * SLOT_BYTES, N_SLOTS * SLOT_BYTES), 0);
	struct gpu_slab_params p = params_for(uuid_of(0), &o);
	p.host = second.base;
	gpu_double.hold_call(slow_to_open[_i], 0);
	ck_assert_int_eq(gpu_slab_open(f.g, &p, o.why), 0);
	wait_for_held_call();
	copy_some(first.slab, 50);
	ck_assert(!o.called);
	ck_assert_uint_eq(gpu_double.n_held(), 1);
	gpu_double.hold_call(NULL, 0);
	run_until(&o.called);
	ck_assert_msg(o.slab && o.slab->pinned, "%s", o.why);
	copy_some(o.slab, 4);
	close_slab(o.slab);
	close_slab(first.slab);
	slab_finish(&second);
	teardown();
	double_assert_clean();
}
END_TEST

static const char *const slow_to_close[] = { "cuMemFree", "cuMemHostUnregister" };

/* Work that keeps a stream busy until a gate opens; queued by the reader's thread. */
struct blocking {
	struct reading reading; /* first */
	struct cuda_stream *stream;
	sem_t gate;
};

static void wait_at_gate(void *arg)
{
	while (sem_wait(arg) && errno == EINTR)
		;
}

static void run_block(struct reading *r)
{
	struct blocking *b = (struct blocking *)(void *)r;
	int (*launch)(struct cuda_stream *, void (*)(void *), void *);
	void *library = dlopen(double_path("libfakecuda.so"), RTLD_NOW | RTLD_LOCAL);
	struct cuda_context *context;
	double_find(library, &launch, "cuLaunchHostFunc");
	CU(primary_ctx_retain(&context, 0));
	CU(ctx_set_current(context));
	ck_assert_int_eq(launch(b->stream, wait_at_gate, &b->gate), CUDA_OK);
	CU(ctx_set_current(NULL));
	CU(primary_ctx_release(0));
}

START_TEST(test_a_slab_is_opened_beside_copies_that_are_queued)
{
	/* Clearing memory waits for no copy of the daemon's. */
	struct copying c;
	double_load();
	setup_with(usual);
	struct opening first = open_on(0);
	struct blocking b = { .reading = { .run = run_block }, .stream = first.slab->gpu->copies.stream };
	sem_init(&b.gate, 0, 0);
	on_reader(&b.reading);
	begin_copy(first.slab, &c, 0, SLOT_BYTES);
	share = GPU_SHARE_FD;
	struct opening second = open_on(0);
	ck_assert_msg(second.slab != NULL, "%s", second.why);
	ck_assert(!c.done);
	sem_post(&b.gate);
	run_until(&c.done);
	ck_assert_int_eq(c.result, 0);
	close_slab(first.slab);
	close_slab(second.slab);
	sem_destroy(&b.gate);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_copies_go_on_while_another_slab_is_closed)
{
	struct slab second;
	double_load();
	setup_with(usual);
	struct opening first = open_on(0), o;
	ck_assert_int_eq(slab_init(&second, N_SLOTS * SLOT_BYTES, N_SLOTS * SLOT_BYTES), 0);
	struct gpu_slab_params p = params_for(uuid_of(0), NULL);
	p.host = second.base;
	o = open_with(p);
	ck_assert(first.slab && o.slab);
	gpu_double.hold_call(slow_to_close[_i], 0);
	gpu_slab_close(o.slab, on_slab_closed, NULL);
	wait_for_held_call();
	copy_some(first.slab, 50);
	ck_assert_uint_eq(f.n_closed, 0);
	gpu_double.hold_call(NULL, 0);
	while (!f.n_closed)
		uv_run(&f.loop, UV_RUN_ONCE);
	close_slab(first.slab);
	slab_finish(&second);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_a_copy_that_loses_the_gpu_ends_an_opening_under_way)
{
	/* The opener is inside the driver, between two pieces; after that call returns no other call is made. */
	struct opening o = { .called = false };
	struct copying c;
	uint8_t *host =
		mmap(NULL, 4u << 27, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	double_load();
	setup_with(roomy);
	struct opening first = open_on(0);
	ck_assert_msg(first.slab != NULL, "%s", first.why);
	struct gpu_slab_params p = params_for(uuid_of(0), &o);
	p.host = host;
	p.slot_bytes = 1 << 26; /* a piece each */
	p.n_slots = 4;
	gpu_double.hold_call("cuMemHostRegister", 1);
	ck_assert_int_eq(gpu_slab_open(f.g, &p, o.why), 0);
	wait_for_held_call();
	uint64_t calls = gpu_double.counter("cuMemHostRegister");
	ck_assert(gpu_double.inject("run:1=700"));
	begin_copy(first.slab, &c, 0, SLOT_BYTES);
	run_until(&c.done);
	ck_assert_int_eq(c.result, GPU_E_LOST);
	gpu_double.hold_call(NULL, 0);
	run_until(&o.called);
	ck_assert_int_eq(o.result, GPU_E_LOST);
	ck_assert_msg(strstr(o.why, "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL, "%s", o.why);
	ck_assert_uint_eq(gpu_double.counter("cuMemHostRegister"), calls);
	ck_assert_uint_eq(gpu_double.counter("cuMemHostUnregister"), 0);
	close_slab(first.slab);
	ck_assert(f.lost_at_close);
	teardown();
	ck_assert_uint_eq(f.n_lost, 1);
}
END_TEST

static uint64_t opening_since_ns(void)
{
	pthread_mutex_lock(&f.g->lock);
	uint64_t ns = f.g->list->opener.busy_since_ns;
	pthread_mutex_unlock(&f.g->lock);
	return ns;
}

START_TEST(test_the_watchdog_hears_of_each_piece_that_is_pinned)
{
	/* Pinning hundreds of GiB takes minutes: the time-out applies to each piece, also when pieces are unpinned. */
	enum { N = 5 };
	uint8_t *host =
		mmap(NULL, (size_t)N << 26, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct opening o = { .called = false };
	uint64_t before = 0;
	double_load();
	setup_with(roomy);
	struct gpu_slab_params p = params_for(uuid_of(0), &o);
	p.host = host;
	p.slot_bytes = 1 << 26; /* a piece each */
	p.n_slots = N;
	gpu_double.hold_call("cuMemHostRegister", 0);
	ck_assert_int_eq(gpu_slab_open(f.g, &p, o.why), 0);
	for (unsigned i = 1; i <= N; i++) {
		while (gpu_double.counter("cuMemHostRegister") < i || !gpu_double.n_held())
			uv_run(&f.loop, UV_RUN_NOWAIT);
		ck_assert_uint_gt(opening_since_ns(), before);
		before = opening_since_ns();
		gpu_double.hold_call("cuMemHostRegister", 1);
	}
	run_until(&o.called);
	ck_assert_msg(o.slab && o.slab->pinned, "%s", o.why);
	gpu_double.hold_call("cuMemHostUnregister", 0);
	gpu_slab_close(o.slab, on_slab_closed, NULL);
	for (unsigned i = 1; i <= N; i++) {
		while (gpu_double.counter("cuMemHostUnregister") < i || !gpu_double.n_held())
			uv_run(&f.loop, UV_RUN_NOWAIT);
		ck_assert_uint_gt(opening_since_ns(), before);
		before = opening_since_ns();
		gpu_double.hold_call("cuMemHostUnregister", 1);
	}
	gpu_double.hold_call(NULL, 0);
	while (!f.n_closed)
		uv_run(&f.loop, UV_RUN_ONCE);
	munmap(host, (size_t)N << 26);
	teardown();
	double_assert_clean();
}
END_TEST

/* ---- pinning ---- */

static void setup_near(const char *node, const char *fail, const char *root)
{
	setenv("FAKECUDA_NUMA", node, 1);
	setenv("FAKECUDA_FAIL", fail, 1);
	double_load();
	setup_with((struct gpus_params){ .memory_bytes = 64 << 20, .pin_limit = 1, .root = root });
}

/* The kernel's policy for making pages there: "default", "prefer:0" ...; false: the kernel does not report it. */
static bool policy_at(const void *base, char *policy, size_t n)
{
	char line[512], begin[32];
	FILE *maps = fopen("/proc/self/numa_maps", "re");
	snprintf(begin, sizeof(begin), "%lx ", (unsigned long)(uintptr_t)base);
	*policy = 0;
	while (maps && !*policy && fgets(line, sizeof(line), maps)) {
		if (!strncmp(line, begin, strlen(begin)))
			snprintf(policy, n, "%.*s", (int)strcspn(line + strlen(begin), " \n"), line + strlen(begin));
	}
	if (maps)
		fclose(maps);
	return *policy;
}

START_TEST(test_what_is_pinned_lies_near_its_gpu)
{
	char policy[64];
	setup_near("0", "", NULL);
	struct opening o = open_on(0);
	ck_assert_msg(o.slab && o.slab->pinned, "%s", o.why);
	ck_assert_int_eq(stats_of().numa_node, 0);
	ck_assert_int_eq(o.slab->numa_node, stats_of().numa_error ? -1 : 0);
	if (stats_of().numa_error == 0 && policy_at(f.host.base, policy, sizeof(policy)))
		ck_assert_msg(strstr(policy, "prefer") && strstr(policy, ":0"),
			      "pages are made as the kernel likes: %s", policy);
	else
		printf("skipped: no NUMA policies here: %s\n", strerror(stats_of().numa_error));
	close_slab(o.slab);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_an_older_drivers_node_is_that_of_the_pci_device)
{
	/* The double's GPU is 0000:01:00.0. */
	static const struct {
		const char *text;
		int tells;
	} cases[] = { { "0\n", 0 }, { "1023\n", 1023 }, { "-1\n", -1 }, { "x\n", -1 }, { "1024\n", -1 } };
	char root[] = "/tmp/batchd-pci-XXXXXX", command[256];
	ck_assert_ptr_nonnull(mkdtemp(root));
	snprintf(command, sizeof(command),
		 "d=%s/sys/bus/pci/devices/0000:01:00.0 && mkdir -p $d && printf -- '%s' >$d/numa_node", root,
		 cases[_i].text);
	ck_assert_int_eq(system(command), 0);
	setup_near("5", "cuDeviceGetAttribute:3=1", root); /* CUDA_ERROR_INVALID_VALUE */
	struct opening o = open_on(0);
	ck_assert_msg(o.slab && o.slab->pinned, "%s", o.why);
	ck_assert_int_eq(stats_of().numa_node, cases[_i].tells);
	close_slab(o.slab);
	teardown();
	double_assert_clean();
	snprintf(command, sizeof(command), "rm -r %s", root);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(test_a_gpu_without_pci_numbers_is_used_all_the_same)
{
	/* The node near a GPU only makes copies faster: whichever question about it fails, the GPU is used. */
	static const char *const fails[] = { "cuDeviceGetAttribute:3=1,cuDeviceGetAttribute:4=801",
					     "cuDeviceGetAttribute:3=1,cuDeviceGetAttribute:5=1",
					     "cuDeviceGetAttribute:3=1,cuDeviceGetAttribute:6=999",
					     "cuDeviceGetAttribute:3=801,cuDeviceGetAttribute:4=801" };
	setup_near("0", fails[_i], NULL);
	struct opening o = open_on(0);
	ck_assert_msg(o.slab && o.slab->pinned, "%s", o.why);
	ck_assert_int_eq(stats_of().numa_node, -1);
	ck_assert_int_eq(o.slab->numa_node, -1);
	ck_assert_uint_eq(f.n_lost, 0);
	close_slab(o.slab);
	teardown();
}
END_TEST

START_TEST(test_a_gpu_that_is_lost_when_its_node_is_asked_for_stays_lost)
{
	/* The third attribute of a second opening is the node: an error that ends the context is no missing answer. */
	setup_near("0", "", NULL);
	struct opening a = open_on(0);
	ck_assert_msg(a.slab, "%s", a.why);
	ck_assert(gpu_double.inject("cuDeviceGetAttribute:3=700"));
	struct opening b = open_on(0);
	ck_assert_int_eq(b.result, GPU_E_LOST);
	while (!f.n_lost)
		uv_run(&f.loop, UV_RUN_ONCE);
	ck_assert_uint_eq(f.n_lost, 1);
	close_slab(a.slab);
	teardown();
}
END_TEST

START_TEST(test_what_cannot_be_moved_is_pinned_where_it_is)
{
	static const struct {
		const char *node, *fail;
		int tells;
		bool error;
	} cases[] = {
		{ "1023", "", 1023, true },                     /* the machine has no such node */
		{ "0", "cuDeviceGetAttribute:3=1", -1, false }, /* a driver that does not know the attribute */
		{ "-1", "", -1, false },
	};
	setup_near(cases[_i].node, cases[_i].fail, "/nonexistent");
	struct opening o = open_on(0);
	ck_assert_msg(o.slab && o.slab->pinned, "%s", o.why);
	ck_assert_int_eq(stats_of().numa_node, cases[_i].tells);
	ck_assert_int_eq(stats_of().numa_error != 0, cases[_i].error);
	close_slab(o.slab);
	teardown();
}
END_TEST

START_TEST(test_pinning_is_refused_beyond_its_share_and_the_reason_is_kept)
{
	/* A limit of nothing: `auto` continues with counted slow copies, `on` refuses. `off` does not try. */
	struct copying c;
	double_load();
	setup_with((struct gpus_params){ .memory_bytes = 64 << 20, .pin_limit = 0 });
	struct opening o = open_on(0);
	ck_assert_msg(o.slab && !o.slab->pinned, "%s", o.why);
	ck_assert_msg(strstr(stats_of().pin_note, "pin_limit") != NULL, "%s", stats_of().pin_note);
	begin_copy(o.slab, &c, 0, SLOT_BYTES);
	run_until(&c.done);
	ck_assert_uint_eq(stats_of().n_pageable, 1);
	close_slab(o.slab);
	teardown();

	setup_with((struct gpus_params){ .memory_bytes = 64 << 20, .pin_limit = 0, .pin = GPU_PIN_ON });
	o = open_on(0);
	ck_assert_int_eq(o.result, GPU_E_UNPINNED);
	ck_assert_msg(strstr(o.why, "pin_limit") && strstr(o.why, "pin_memory is on"), "%s", o.why);
	teardown();

	setup_with((struct gpus_params){ .memory_bytes = 64 << 20, .pin_limit = 1, .pin = GPU_PIN_OFF });
	o = open_on(0);
	ck_assert(o.slab && !o.slab->pinned);
	close_slab(o.slab);
	teardown();
	ck_assert_uint_eq(gpu_double.counter("cuMemHostRegister"), 0);
	double_assert_clean();
}
END_TEST

START_TEST(test_a_small_machine_pins_only_when_told_to)
{
	/* On both sides of 8 GiB; `on` pins everywhere. */
	static const struct {
		uint64_t machine_bytes;
		enum gpu_pin pin;
		bool pinned;
	} cases[] = {
		{ (UINT64_C(8) << 30) - 1, GPU_PIN_AUTO, false },
		{ UINT64_C(8) << 30, GPU_PIN_AUTO, true },
		{ (UINT64_C(8) << 30) - 1, GPU_PIN_ON, true },
		{ 0, GPU_PIN_AUTO, true }, /* not known */
	};
	double_load();
	setup_with((struct gpus_params){ .memory_bytes = 64 << 20,
					 .pin_limit = 0.99,
					 .machine_bytes = cases[_i].machine_bytes,
					 .pin = cases[_i].pin });
	struct opening o = open_on(0);
	ck_assert_msg(o.slab && o.slab->pinned == cases[_i].pinned, "%s", o.why);
	ck_assert_int_eq(strstr(stats_of().pin_note, "below 8 GiB") != NULL, !cases[_i].pinned);
	close_slab(o.slab);
	teardown();
	double_assert_clean();
}
END_TEST

/* ---- obstacles ---- */

static const struct obstacle {
	const char *personality, *library;
	uint64_t memory_bytes;
	const char *says;
} obstacles[] = {
	{ "", "nowhere.so", 64 << 20, "no NVIDIA driver" },
	{ "", "libfakecuda-old.so", 64 << 20, "too old" },
	{ "no-device", NULL, 64 << 20, "CUDA_ERROR_NO_DEVICE" },
	{ "mismatch", NULL, 64 << 20, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" },
	{ "no-ipc", NULL, 64 << 20, "cannot be shared between processes" },
	{ "exclusive", NULL, 64 << 20, "EXCLUSIVE_PROCESS" },
	{ "prohibited", NULL, 64 << 20, "PROHIBITED" },
	{ "little-memory", NULL, UINT64_C(1) << 40, "left for this trainer's batches" },
	{ "", NULL, 1 << 20, "gpu_memory" },
	{ "", NULL, 0, "gpu_memory is off" },
	{ "no-vmm", NULL, 64 << 20, "cannot be shared by a descriptor" },
};

START_TEST(test_each_obstacle_is_said_in_words)
{
	/* Refused, with a text that names the obstacle, and nothing left behind. */
	const struct obstacle *obstacle = &obstacles[_i];
	static const struct cuda_uuid some = { { 1 } };
	setenv("FAKECUDA_PERSONALITY", obstacle->personality, 1);
	share = strcmp(obstacle->personality, "no-vmm") ? GPU_SHARE_IPC : GPU_SHARE_FD;
	double_load();
	if (obstacle->library)
		setenv("BATCHD_LIBCUDA", double_path(obstacle->library), 1);
	setup_with((struct gpus_params){ .memory_bytes = obstacle->memory_bytes, .pin_limit = 1 });
	bool starts = !obstacle->library && strncmp(obstacle->personality, "no-device", 9) &&
		      strcmp(obstacle->personality, "mismatch");
	struct gpu_slab_params p = params_for(starts ? uuid_of(0) : some, NULL);
	if (!strcmp(obstacle->personality, "little-memory")) {
		p.slot_bytes = 100 << 20; /* 640 MiB in all, 500 of them taken by the context */
		p.n_slots = 2;
	}
	struct opening o = open_with(p);
	ck_assert_int_eq(o.result, GPU_E_REFUSED);
	ck_assert_msg(strstr(o.why, obstacle->says) != NULL, "expected '%s' in: %s", obstacle->says, o.why);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_unknown_gpus_cost_nothing_for_long)
{
	/* A client may name any UUID, as often as it likes. */
	double_load();
	setup_with(usual);
	for (unsigned i = 0; i < 100; i++) {
		struct cuda_uuid made_up = { { (unsigned char)i, 99 } };
		struct opening o = open_with(params_for(made_up, NULL));
		ck_assert_int_eq(o.result, GPU_E_REFUSED);
		ck_assert_msg(strstr(o.why, "GPU-") && strstr(o.why, "sees no"), "%s", o.why);
	}
	while (f.g->list)
		uv_run(&f.loop, UV_RUN_ONCE);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_the_budget_counts_what_is_open)
{
	/* 4 MiB hold two slabs of 2, and again after one is closed. */
	double_load();
	setup_with((struct gpus_params){ .memory_bytes = 4 << 20, .pin_limit = 1 });
	struct opening a = open_on(0), b = open_on(0), c = open_on(0);
	ck_assert(a.slab && b.slab);
	ck_assert_int_eq(c.result, GPU_E_REFUSED);
	ck_assert_msg(strstr(c.why, "4.0 MiB") != NULL, "%s", c.why);
	close_slab(a.slab);
	c = open_on(0);
	ck_assert_msg(c.slab != NULL, "%s", c.why);
	close_slab(b.slab);
	close_slab(c.slab);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_memory_by_descriptor_is_clear_and_outlives_its_slab)
{
	/* Another process can map it through the descriptor. It sees zeros before the first copy, not old content, then
	 * the copied bytes. When the slab is closed the daemon has neither the descriptor nor the memory, and the other
	 * process still reads. */
	uint8_t got[SLOT_BYTES], zero[SLOT_BYTES] = { 0 };
	struct vmm theirs;
	struct copying c;
	double_load();
	setup_with(usual);
	share = GPU_SHARE_FD;
	struct opening o = open_on(0);
	ck_assert_msg(o.slab && o.slab->fd >= 0, "%s", o.why);
	int flags = fcntl(o.slab->fd, F_GETFD), fd = o.slab->fd;
	ck_assert_msg(flags >= 0 && (flags & FD_CLOEXEC), "a process that this one starts would inherit it");
	struct importing i = { .reading = { .run = run_import }, .fd = fd, .n_bytes = o.slab->bytes, .vmm = &theirs };
	on_reader(&i.reading);
	read_device(0, theirs.address, got, SLOT_BYTES);
	ck_assert(memcmp(got, zero, SLOT_BYTES) == 0);
	fill(0, 1);
	begin_copy(o.slab, &c, 0, SLOT_BYTES);
	run_until(&c.done);
	close_slab(o.slab);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert_uint_eq(stats_of().slab_bytes, 0);
	read_device(0, theirs.address, got, SLOT_BYTES);
	ck_assert(memcmp(got, f.host.base, SLOT_BYTES) == 0);
	i.reading.run = run_let_go;
	on_reader(&i.reading);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_a_way_that_is_refused_leaves_the_other_open)
{
	/* The cached refusal, which is repeated for a minute, applies to one way of sharing. */
	setenv("FAKECUDA_PERSONALITY", "no-legacy-ipc", 1);
	double_load();
	setup_with(usual);
	struct opening o = open_on(0);
	ck_assert_int_eq(o.result, GPU_E_REFUSED);
	share = GPU_SHARE_FD;
	o = open_on(0);
	ck_assert_msg(o.slab != NULL, "%s", o.why);
	close_slab(o.slab);
	teardown();
	double_assert_clean();
}
END_TEST

/* The UUID, learnt in another process: in this one the driver is not started yet. */
static struct cuda_uuid known_uuid(int ordinal)
{
	struct cuda_uuid uuid;
	int ends[2], status;
	ck_assert_int_eq(pipe(ends), 0);
	pid_t child = fork();
	if (!child) {
		setenv("FAKECUDA_PERSONALITY", "", 1);
		uuid = uuid_of(ordinal);
		_exit(write(ends[1], &uuid, sizeof(uuid)) != sizeof(uuid));
	}
	ck_assert(read(ends[0], &uuid, sizeof(uuid)) == sizeof(uuid) && waitpid(child, &status, 0) == child);
	close(ends[0]);
	close(ends[1]);
	return uuid;
}

START_TEST(test_exclusive_mode_is_no_obstacle_under_mps)
{
	/* NVIDIA's own way to set MPS up: the mode applies to MPS's server, and its clients share the GPU. */
	setenv("FAKECUDA_PERSONALITY", "exclusive,mps", 1);
	double_load();
	setup_with(usual);
	gpus_use_mps(f.g);
	struct opening o = open_with(params_for(known_uuid(0), NULL));
	ck_assert_msg(o.slab != NULL, "%s", o.why);
	close_slab(o.slab);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_a_daemon_is_no_client_of_mps_that_serves_another_user)
{
	/* As its client it would wait in cuInit until that user's processes have ended, which wait for the daemon. */
	setenv("FAKECUDA_PERSONALITY", "mps-other-user", 1);
	double_load();
	setup_with(usual);
	struct opening o = open_with(params_for(known_uuid(0), NULL));
	ck_assert_msg(o.slab != NULL, "%s", o.why);
	close_slab(o.slab);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_in_exclusive_mode_a_daemon_without_mps_says_so)
{
	setenv("FAKECUDA_PERSONALITY", "exclusive,mps", 1);
	double_load();
	setup_with(usual);
	struct opening o = open_with(params_for(known_uuid(0), NULL));
	ck_assert_int_eq(o.result, GPU_E_REFUSED);
	ck_assert_msg(strstr(o.why, "MPS's clients, of which this daemon is none") != NULL, "%s", o.why);
	teardown();
	double_assert_clean();
}
END_TEST

/* ---- failures ---- */

static const char *const call_names[] = {
#define X(member, symbol, parameters) #symbol,
	CUDA_CALLS(X)
#undef X
};

/* "cuMemAlloc" of "cuMemAlloc_v2": the fake driver's names of calls. */
static void short_name(const char *symbol, char out[64])
{
	snprintf(out, 64, "%s", symbol);
	char *version = strstr(out, "_v");
	if (version)
		*version = '\0';
}

/* Calls that free a resource; when such a call fails the resource stays, and no call can free it. */
static bool gives_back(const char *name)
{
	return strstr(name, "Destroy") || strstr(name, "Free") || strstr(name, "Unregister") ||
	       strstr(name, "Release") || strstr(name, "Unmap");
}

/* Opens, copies, closes. Returns whether the GPU was lost in between. */
static bool whole_life(struct cuda_uuid uuid)
{
	struct copying c[6];
	setup_with(usual);
	struct opening o = open_with(params_for(uuid, NULL));
	ck_assert_msg(o.slab || o.why[0], "refused without a reason");
	for (unsigned i = 0; o.slab && i < 6; i++)
		begin_copy(o.slab, &c[i], i % N_SLOTS, SLOT_BYTES);
	for (unsigned i = 0; o.slab && i < 6; i++) {
		run_until(&c[i].done);
		ck_assert_msg((c[i].result == 0) == (c[i].why[0] == '\0'), "result %d: %s", c[i].result, c[i].why);
	}
	if (o.slab)
		close_slab(o.slab);
	teardown();
	ck_assert_uint_le(f.n_lost, 1);
	bool told = o.result == GPU_E_LOST || strstr(o.why, "new process");
	ck_assert_msg(f.n_lost ? told || f.lost_at_close : !told,
		      "lost, and nobody was told, or told without being lost");
	bool written_off = strstr(o.why, "restart the daemon") != NULL;
	ck_assert_msg(!written_off || (o.result == GPU_E_REFUSED && !f.n_lost), "%s", o.why);
	return f.n_lost > 0 || written_off;
}

enum outcome { NOT_REACHED = 10, FINE, LOST };

/* A whole life in which the n-th call of that name fails. */
static enum outcome run_case(struct cuda_uuid uuid, const char *name, unsigned nth, int error)
{
	char rule[96];
	uint64_t calls = gpu_double.counter(name), violations = gpu_double.counter("violations");
	unsigned alive = gpu_double.alive();
	snprintf(rule, sizeof(rule), "%s:%u=%d", name, nth, error);
	ck_assert(gpu_double.inject(rule));
	bool lost = whole_life(uuid);
	gpu_double.inject(NULL);
	if (!gives_back(name))
		ck_assert_msg(gpu_double.counter("violations") == violations, "%s: %s", rule,
			      gpu_double.last_violation());
	if (!lost && !gives_back(name))
		ck_assert_msg(gpu_double.alive() == alive, "%s: %u things are left", rule, gpu_double.alive() - alive);
	return gpu_double.counter(name) - calls < nth ? NOT_REACHED : lost ? LOST : FINE;
}

/* "run" is an operation of the stream. */
static void name_of(size_t i, char name[64])
{
	strcpy(name, "run");
	if (i < sizeof(call_names) / sizeof(*call_names))
		short_name(call_names[i], name);
}

START_TEST(test_every_call_may_fail_once)
{
	/* Every call of each function ends in a temporary error, of each kind: the answer has a reason, every copy
	 * comes back, and everything that can be freed is freed. */
	static const int kinds[] = { CUDA_OUT_OF_MEMORY, CUDA_INVALID_VALUE, CUDA_NOT_SUPPORTED };
	int error = kinds[_i % 3];
	unsigned n_reached = 0;
	share = (enum gpu_share)(_i / 3);
	double_load();
	struct cuda_uuid uuid = uuid_of(0);
	for (size_t i = 0; i <= sizeof(call_names) / sizeof(*call_names); i++) {
		enum outcome outcome = FINE;
		char name[64];
		name_of(i, name);
		if (gives_back(name) || !strcmp(name, "run")) /* leftovers would disturb the next case; see below */
			continue;
		for (unsigned nth = 1; outcome != NOT_REACHED; nth++) {
			outcome = run_case(uuid, name, nth, error);
			ck_assert_int_ne(outcome, LOST);
			n_reached += outcome == FINE;
		}
	}
	ck_assert_uint_ge(n_reached, 50);
}
END_TEST

START_TEST(test_every_call_may_lose_the_gpu)
{
	/* The same with fatal errors, each in a process of its own, because CUDA is unusable in it afterwards. */
	static const int kinds[] = { CUDA_LAUNCH_FAILED, CUDA_ILLEGAL_ADDRESS, CUDA_ECC_UNCORRECTABLE };
	unsigned n_lost = 0;
	share = (enum gpu_share)_i;
	for (size_t i = 0; i <= sizeof(call_names) / sizeof(*call_names); i++) {
		int status = NOT_REACHED << 8;
		char name[64];
		name_of(i, name);
		if (SLOW && strcmp(name, "run") && strcmp(name, "cuMemcpyHtoDAsync") &&
		    strcmp(name, "cuMemHostRegister"))
			continue;
		for (unsigned nth = 1; nth <= (SLOW ? 4 : UINT_MAX); nth++) {
			fflush(NULL);
			pid_t child = fork();
			if (child == 0) {
				double_load();
				if (gives_back(name) && !SLOW)
					(void)run_case(uuid_of(0), name, nth, CUDA_OUT_OF_MEMORY);
				_exit((int)run_case(uuid_of(0), name, nth, kinds[nth % 3]));
			}
			ck_assert_int_eq(waitpid(child, &status, 0), child);
			ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) >= NOT_REACHED, "%s:%u ends with %x",
				      name, nth, status);
			n_lost += WEXITSTATUS(status) == LOST;
			if (WEXITSTATUS(status) == NOT_REACHED)
				break;
		}
	}
	ck_assert_uint_ge(n_lost, SLOW ? 4 : 40);
}
END_TEST

static const char *const opening_calls[] = { "cuStreamCreateWithPriority", "cuEventCreate", "cuMemAlloc",
					     "cuIpcGetMemHandle", "cuMemHostRegister",
					     /* from here on calls for memory that is shared by a descriptor */
					     "cuMemGetAllocationGranularity", "cuMemCreate", "cuMemAddressReserve",
					     "cuMemMap", "cuMemSetAccess", "cuMemsetD8Async",
					     "cuMemExportToShareableHandle" };

START_TEST(test_unknown_error_while_opening_ends_nothing)
{
	/* Drivers return "unknown error" for unsupported requests. A GPU that answers the probe is kept: the slab is
	 * refused with the reason (or opened unpinned), and the next request within a minute costs no call. */
	const char *name = opening_calls[_i];
	char rule[64];
	share = _i < 5 ? GPU_SHARE_IPC : GPU_SHARE_FD;
	double_load();
	setup_with(usual);
	snprintf(rule, sizeof(rule), "%s:1=999", name);
	ck_assert(gpu_double.inject(rule));
	struct opening o = open_on(0);
	ck_assert_uint_eq(f.n_lost, 0);
	if (!strcmp(name, "cuMemHostRegister")) {
		ck_assert_msg(o.slab && !o.slab->pinned, "%s", o.why);
		close_slab(o.slab);
	} else {
		ck_assert_int_eq(o.result, GPU_E_REFUSED);
		ck_assert_msg(strstr(o.why, "CUDA_ERROR_UNKNOWN") && strstr(o.why, name), "%s", o.why);
		uint64_t calls = gpu_double.counter("cuDevicePrimaryCtxRetain");
		o = open_on(0);
		ck_assert_int_eq(o.result, GPU_E_REFUSED);
		ck_assert_msg(strstr(o.why, "tries again in a minute") && strstr(o.why, name), "%s", o.why);
		ck_assert_uint_eq(gpu_double.counter("cuDevicePrimaryCtxRetain"), calls);
	}
	ck_assert_uint_eq(f.n_lost, 0);
	gpu_double.inject(NULL);
	teardown();
	double_assert_clean();
}
END_TEST

static const char *const closing_calls[] = { "cuMemFree", "cuMemHostUnregister", "cuMemAddressFree", "cuEventDestroy" };

START_TEST(test_unknown_error_while_closing_ends_nothing)
{
	/* The GPU works: its trainers keep their daemon. Memory that CUDA may still have registered stays mapped. If the
	 * probe fails, too, the GPU is lost. */
	char rule[80];
	bool fails = _i % 2;
	const char *name = closing_calls[_i / 2];
	share = strcmp(name, "cuMemAddressFree") ? GPU_SHARE_IPC : GPU_SHARE_FD;
	double_load();
	setup_with(usual);
	struct opening o = open_on(0);
	ck_assert_msg(o.slab != NULL, "%s", o.why);
	snprintf(rule, sizeof(rule), "%s:1=999%s", name, fails ? ",cuMemAlloc:*=999" : "");
	ck_assert(gpu_double.inject(rule));
	close_slab(o.slab);
	if (fails && strcmp(name, "cuEventDestroy")) {
		while (!f.n_lost)
			uv_run(&f.loop, UV_RUN_ONCE);
		teardown();
		return;
	}
	ck_assert_int_eq(f.lost_at_close, !strcmp(name, "cuMemHostUnregister"));
	ck_assert_uint_eq(f.n_lost, 0);
	gpu_double.inject(NULL);
	o = open_on(0);
	ck_assert_msg(o.slab != NULL, "%s", o.why);
	close_slab(o.slab);
	ck_assert_uint_eq(f.n_lost, 0);
	f.n_lost = f.lost_at_close; /* its memory stays */
	teardown();
}
END_TEST

START_TEST(test_a_gpu_that_never_worked_is_written_off)
{
	/* Nothing depends on the GPU, so the daemon continues: one announcement, and each later request is refused with
	 * the reason and without a call. */
	double_load();
	setup_with(usual);
	ck_assert(gpu_double.inject(_i ? "cuMemAlloc:*=719" : "cuMemAlloc:*=999"));
	for (int i = 0; i < 2; i++) {
		uint64_t calls = gpu_double.counter("cuMemAlloc");
		struct opening o = open_on(0);
		ck_assert_int_eq(o.result, GPU_E_REFUSED);
		ck_assert_msg(strstr(o.why, "restart the daemon") && strstr(o.why, "cuMemAlloc"), "%s", o.why);
		ck_assert(!i || gpu_double.counter("cuMemAlloc") == calls);
	}
	ck_assert_uint_eq(f.n_lost, 0);
	teardown();
}
END_TEST

START_TEST(test_a_gpu_that_worked_and_fails_the_probe_is_lost)
{
	/* With a slab open on it, an "unknown error" that the probe gets as well means that the GPU is lost. */
	double_load();
	setup_with(usual);
	struct opening a = open_on(0);
	ck_assert(a.slab != NULL);
	ck_assert(gpu_double.inject("cuMemAlloc:*=999"));
	struct opening b = open_on(0);
	ck_assert_int_eq(b.result, GPU_E_LOST);
	while (!f.n_lost)
		uv_run(&f.loop, UV_RUN_ONCE);
	ck_assert_uint_eq(f.n_lost, 1);
	close_slab(a.slab);
	teardown();
}
END_TEST

START_TEST(test_what_cuda_does_not_let_go_stays_mapped)
{
	/* Memory that is unmapped while still registered, and mapped again at its address, could never be pinned
	 * again. */
	double_load();
	setup_with(usual);
	struct opening o = open_on(0);
	ck_assert(o.slab && o.slab->pinned);
	ck_assert(gpu_double.inject("cuMemHostUnregister:1=1"));
	close_slab(o.slab);
	ck_assert_uint_eq(f.n_lost, 0);
	ck_assert(f.lost_at_close);
	gpu_double.inject(NULL);
	teardown();
}
END_TEST

START_TEST(test_a_lost_gpu_ends_everything_once)
{
	/* A sticky error in the middle of copies: one announcement, every copy comes back as lost, no further call is
	 * made, and closing says that the memory must stay. */
	struct copying c[3], late;
	double_load();
	setup_with(usual);
	struct opening o = open_on(0);
	ck_assert(gpu_double.inject("run:2=700"));
	for (unsigned i = 0; i < 3; i++)
		begin_copy(o.slab, &c[i], i, SLOT_BYTES);
	for (unsigned i = 0; i < 3; i++)
		run_until(&c[i].done);
	ck_assert_uint_eq(f.n_lost, 1);
	ck_assert_msg(strstr(f.lost_text, "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL, "%s", f.lost_text);
	ck_assert_int_eq(c[2].result, GPU_E_LOST);
	ck_assert_str_eq(c[2].why, f.lost_text);
	uint64_t calls = gpu_double.counter("cuMemcpyHtoDAsync");
	begin_copy(o.slab, &late, 0, SLOT_BYTES);
	run_until(&late.done);
	ck_assert_int_eq(late.result, GPU_E_LOST);
	ck_assert_uint_eq(gpu_double.counter("cuMemcpyHtoDAsync"), calls);
	struct opening again = open_on(0);
	ck_assert_int_eq(again.result, GPU_E_LOST);
	ck_assert(stats_of().lost);
	close_slab(o.slab);
	ck_assert(f.lost_at_close);
	ck_assert_uint_eq(gpu_double.counter("cuMemFree"), 0);
	teardown();
	ck_assert_uint_eq(f.n_lost, 1);
}
END_TEST

START_TEST(test_a_driver_that_does_not_return_is_seen)
{
	/* The watchdog asks how long the oldest call has been in progress. */
	struct copying c;
	double_load();
	setup_with(usual);
	struct opening o = open_on(0);
	gpu_double.hold_streams(true);
	begin_copy(o.slab, &c, 0, SLOT_BYTES);
	while (gpus_oldest_busy_ns(f.g) < 20 * 1000000)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	ck_assert(!c.done);
	ck_assert_uint_le(stats_of().in_flight, 1);
	gpu_double.hold_streams(false);
	run_until(&c.done);
	close_slab(o.slab);
	while (gpus_oldest_busy_ns(f.g) > 0) /* the thread goes back to sleep */
		uv_run(&f.loop, UV_RUN_NOWAIT);
	teardown();
	double_assert_clean();
}
END_TEST

static const char *const silent_calls[] = { "cuInit", "cuDevicePrimaryCtxRetain", "cuMemHostRegister" };

START_TEST(test_a_gpu_that_never_answers_costs_only_its_askers)
{
	/* One GPU of several hangs in the driver before it has ever worked: the watchdog hears nothing of it, so the
	 * trainers of the others and of the CPU keep their daemon, and its askers are refused. The host slab is in use
	 * until the driver returns; the GPU works then. */
	double_load();
	setup_with((struct gpus_params){ .memory_bytes = 64 << 20, .pin_limit = 0.99, .answer_ns = 20000000 });
	struct gpu_slab_params p = params_for(uuid_of(0), NULL);
	gpu_double.hold_call(silent_calls[_i], 0);
	struct opening o = open_with(p);
	ck_assert_int_eq(o.result, GPU_E_LATE);
	ck_assert_msg(strstr(o.why, "has not answered for") != NULL, "%s", o.why);
	o = open_with(p);
	ck_assert_int_eq(o.result, GPU_E_REFUSED);
	ck_assert(!o.called && strstr(o.why, "has not answered for"));
	ck_assert_uint_eq(gpus_oldest_busy_ns(f.g), 0);
	ck_assert(!f.late);
	gpu_double.hold_call(NULL, 0);
	run_until(&f.late);
	o = open_with(p);
	ck_assert_msg(o.slab && o.slab->pinned, "%s", o.why);
	close_slab(o.slab);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_a_slab_that_is_opened_while_its_pages_are_unpinned_pins_again)
{
	/* The last slab of a host slab is closed, and another one opened meanwhile: its pages are registered. */
	struct opening o = { .called = false };
	double_load();
	setup_with(usual);
	struct opening first = open_on(0);
	struct gpu_slab_params p = params_for(uuid_of(0), &o);
	gpu_double.hold_call("cuMemHostUnregister", 0);
	gpu_slab_close(first.slab, on_slab_closed, NULL);
	while (!gpu_double.n_held())
		uv_run(&f.loop, UV_RUN_NOWAIT);
	ck_assert_int_eq(gpu_slab_open(f.g, &p, o.why), 0);
	gpu_double.hold_call(NULL, 0);
	run_until(&o.called);
	ck_assert_msg(o.slab && o.slab->pinned, "%s", o.why);
	ck_assert_uint_eq(stats_of().pinned_bytes, N_SLOTS * SLOT_BYTES);
	ck_assert_uint_eq(gpu_double.counter("cuMemHostRegister"), 2);
	close_slab(o.slab);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_a_refused_slab_that_is_the_last_one_leaves_nothing_pinned)
{
	/* It was to be opened on a host slab that is pinned; the slab that pinned it was closed meanwhile. */
	struct opening o = { .called = false };
	setenv("FAKECUDA_PERSONALITY", "no-vmm", 1);
	double_load();
	setup_with(usual);
	struct opening first = open_on(0);
	ck_assert_msg(first.slab && first.slab->pinned, "%s", first.why);
	share = GPU_SHARE_FD;
	struct gpu_slab_params p = params_for(uuid_of(0), &o);
	gpu_slab_close(first.slab, on_slab_closed, NULL);
	ck_assert_int_eq(gpu_slab_open(f.g, &p, o.why), 0);
	run_until(&o.called);
	ck_assert_int_eq(o.result, GPU_E_LATE);
	ck_assert_msg(strstr(o.why, "cannot be shared by a descriptor") != NULL, "%s", o.why);
	run_until(&f.late);
	ck_assert_uint_eq(stats_of().pinned_bytes, 0);
	teardown();
	double_assert_clean();
}
END_TEST

START_TEST(test_uuids_are_written_as_nvidia_smi_does)
{
	/* So that the text of one can be pasted where the other is expected. */
	static const unsigned char uuid[16] = { 0x8a, 0x1b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 255 };
	char text[GPU_UUID_TEXT_BYTES];
	gpu_uuid_format(uuid, text);
	ck_assert_str_eq(text, "GPU-8a1b0001-0203-0405-0607-08090a0b0cff");
}
END_TEST

SUITE(gpus)
{
	Suite *s = suite_create("gpus");
	TCase *t = tcase_create("copies");
	tcase_add_test(t, test_without_a_request_nothing_is_loaded);
	tcase_add_loop_test(t, test_copies_are_told_of_when_every_byte_is_there, 0, GPU_N_SHARES);
	tcase_add_test(t, test_memory_by_descriptor_is_clear_and_outlives_its_slab);
	tcase_add_test(t, test_two_parts_leave_the_gap_between_them_alone);
	tcase_add_test(t, test_two_gpus_share_one_registration);
	tcase_add_loop_test(t, test_large_slabs_are_registered_in_small_pieces, 0, sizeof(large) / sizeof(*large));
	tcase_add_test(t, test_a_copy_from_two_pieces_is_cut_between_them);
	tcase_add_test(t, test_pinning_is_refused_beyond_its_share_and_the_reason_is_kept);
	tcase_add_loop_test(t, test_a_small_machine_pins_only_when_told_to, 0, 4);
	tcase_add_test(t, test_what_is_pinned_lies_near_its_gpu);
	tcase_add_loop_test(t, test_an_older_drivers_node_is_that_of_the_pci_device, 0, 5);
	tcase_add_loop_test(t, test_a_gpu_without_pci_numbers_is_used_all_the_same, 0, 4);
	tcase_add_test(t, test_a_gpu_that_is_lost_when_its_node_is_asked_for_stays_lost);
	tcase_add_loop_test(t, test_what_cannot_be_moved_is_pinned_where_it_is, 0, 3);
	tcase_add_test(t, test_uuids_are_written_as_nvidia_smi_does);
	suite_add_tcase(s, t);
	TCase *meanwhile = tcase_create("meanwhile");
	tcase_add_loop_test(meanwhile, test_copies_go_on_while_another_slab_is_opened, 0,
			    sizeof(slow_to_open) / sizeof(*slow_to_open));
	tcase_add_loop_test(meanwhile, test_copies_go_on_while_another_slab_is_closed, 0,
			    sizeof(slow_to_close) / sizeof(*slow_to_close));
	tcase_add_test(meanwhile, test_a_slab_is_opened_beside_copies_that_are_queued);
	tcase_add_test(meanwhile, test_a_slab_that_is_opened_while_its_pages_are_unpinned_pins_again);
	tcase_add_test(meanwhile, test_a_refused_slab_that_is_the_last_one_leaves_nothing_pinned);
	tcase_add_test(meanwhile, test_a_copy_that_loses_the_gpu_ends_an_opening_under_way);
	tcase_add_test(meanwhile, test_the_watchdog_hears_of_each_piece_that_is_pinned);
	suite_add_tcase(s, meanwhile);
	TCase *obstacle = tcase_create("obstacles");
	tcase_add_loop_test(obstacle, test_each_obstacle_is_said_in_words, 0, sizeof(obstacles) / sizeof(*obstacles));
	tcase_add_test(obstacle, test_unknown_gpus_cost_nothing_for_long);
	tcase_add_test(obstacle, test_the_budget_counts_what_is_open);
	tcase_add_test(obstacle, test_exclusive_mode_is_no_obstacle_under_mps);
	tcase_add_test(obstacle, test_a_daemon_is_no_client_of_mps_that_serves_another_user);
	tcase_add_test(obstacle, test_in_exclusive_mode_a_daemon_without_mps_says_so);
	tcase_add_test(obstacle, test_a_way_that_is_refused_leaves_the_other_open);
	suite_add_tcase(s, obstacle);
	TCase *broken = tcase_create("broken");
	tcase_add_loop_test(broken, test_every_call_may_fail_once, 0, 3 * GPU_N_SHARES);
	tcase_add_loop_test(broken, test_every_call_may_lose_the_gpu, 0, GPU_N_SHARES);
	tcase_add_loop_test(broken, test_unknown_error_while_opening_ends_nothing, 0,
			    sizeof(opening_calls) / sizeof(*opening_calls));
	tcase_add_loop_test(broken, test_unknown_error_while_closing_ends_nothing, 0,
			    2 * sizeof(closing_calls) / sizeof(*closing_calls));
	tcase_add_loop_test(broken, test_a_gpu_that_never_worked_is_written_off, 0, 2);
	tcase_add_test(broken, test_a_gpu_that_worked_and_fails_the_probe_is_lost);
	tcase_add_test(broken, test_what_cuda_does_not_let_go_stays_mapped);
	tcase_add_test(broken, test_a_lost_gpu_ends_everything_once);
	tcase_add_test(broken, test_a_driver_that_does_not_return_is_seen);
	tcase_add_loop_test(broken, test_a_gpu_that_never_answers_costs_only_its_askers, 0,
			    sizeof(silent_calls) / sizeof(*silent_calls));
	suite_add_tcase(s, broken);
	return suite_with_gpus(s);
}
