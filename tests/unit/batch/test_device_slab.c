/* Streams whose batches are mirrored on GPUs, on the fake driver: a trainer on a GPU is notified of a batch when its
 * bytes are there, other trainers at once; a slot that a GPU still reads is not filled again, whatever happens to its
 * batch. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "support/consumers.h"
#include "batch/loader.h"
#include "batch/device-slab.h"
#include "support/cuda-double.h"
#include "gpu/gpus-impl.h"
#include "base/nodes.h"
#include "support/suite.h"

enum { N_SLOTS = 4, BATCH = 6, N_SAMPLES = 64 };

struct trainer {
	struct consumer c;
	int gpu; /* ordinal; -1: host memory */
	unsigned n, n_released, n_failed;
	struct got {
		uint64_t epoch, step, generation;
		uint32_t slot;
	} got[256];
};

struct fixture {
	uv_loop_t loop;
	struct pool *pool;
	struct loader *loader;
	struct gpus *gpus;
	bool closed, gpus_closed;
	bool breaks; /* the GPU may be lost at any moment: its memory is not read */
	unsigned n_lost;
};
static struct fixture f;
static uint64_t answer_ns; /* see struct gpus_params */

static void *make_thing(void *arg)
{
	(void)arg;
	return calloc(1, sizeof(struct sample_input));
}

static void free_input(void *in)
{
	file_bytes_finish(&((struct sample_input *)in)->bytes);
	free(in);
}

/* Compares what a trainer reads now: data, labels and indices, on its GPU and in the host slab. */
static void assert_same_on_gpu(const struct trainer *t, const struct slot *slot)
{
	const struct slot_layout *l = &slot->slots->layout;
	const struct gpu_slab_work *sw = slab_work_of(t->c.device_slab->slab);
	cuda_ptr base = sw->memory + slot->number * l->slot_bytes;
	uint8_t *got = malloc(l->slot_bytes);
	size_t rows = slot->n_rows * l->first_row_bytes, tail = l->indices_offset + slot->n_rows * 8 - l->rest_offset;
	read_device(t->gpu, base, got, l->slot_bytes);
	ck_assert(memcmp(got, slot_data(slot), rows) == 0);
	ck_assert(memcmp(got + l->rest_offset, slot_data(slot) + l->rest_offset, tail) == 0);
	free(got);
}

static int on_publish(struct consumer *c, const struct slot *slot)
{
	struct trainer *t = (struct trainer *)c;
	ck_assert(slot->state == SLOT_READY);
	if (t->gpu >= 0 && !f.breaks)
		assert_same_on_gpu(t, slot);
	ck_assert_uint_lt(t->n, sizeof(t->got) / sizeof(*t->got));
	t->got[t->n++] = (struct got){ slot->at.epoch, slot->at.step, slot->generation, slot->number };
	return 0;
}

static void on_device_slab_failed(struct consumer *c, const char *why)
{
	ck_assert_uint_gt(strlen(why), 0);
	((struct trainer *)c)->n_failed++;
}

static const struct consumer_ops consumer_ops = {
	.publish = on_publish, .look = consumer_look, .arm = consumer_arm, .device_slab_failed = on_device_slab_failed
};

static void on_failed(struct loader *l)
{
	ck_abort_msg("%s", l->error);
}

static void on_published(struct loader *l, bool waited)
{
	(void)l;
	(void)waited;
}

static void on_closed(struct loader *l)
{
	(void)l;
	f.closed = true;
}

static const struct loader_ops loader_ops = { .failed = on_failed, .published = on_published, .closed = on_closed };

static void on_lost(void *arg, struct gpu *gpu, const char *text)
{
	(void)arg;
	(void)gpu;
	ck_assert_uint_gt(strlen(text), 0);
	f.n_lost++;
}

static struct stream *setup(bool share, uint32_t world_size)
{
	struct pool_params params = { .max_workers = 2,
				      .n_io = 2,
				      .n_tickets = 4,
				      .worker_create = make_thing,
				      .worker_destroy = free,
				      .input_create = make_thing,
				      .input_destroy = free_input };
	struct gpus_params gpu = {
		.memory_bytes = 64 << 20, .pin_limit = 0.99, .answer_ns = answer_ns, .on_lost = on_lost
	};
	struct loader_spec spec = { .job = (char *)"test",
				    .transform = (char *)"",
				    .batch_size = BATCH,
				    .world_size = world_size,
				    .share = share,
				    .dataset = (char *)"random:length=64,shape=1000,dtype=float32",
				    .n_slots = N_SLOTS },
			   copy;
	struct data_access access = { .trusted = true };
	struct dataset_source ds = { .spec = spec.dataset, .access = &access };
	struct recipe recipe = { 0 };
	struct dataset_error err;
	struct slots *slots;
	memset(&f, 0, sizeof(f));
	double_load();
	uv_loop_init(&f.loop);
	ck_assert_int_eq(pool_create(&f.loop, &params, &f.pool), 0);
	ck_assert_int_eq(gpus_create(&f.loop, &gpu, &f.gpus), 0);
	ck_assert_int_eq(dataset_open(&ds, &recipe.dataset, &err), 0);
	ck_assert_int_eq(loader_spec_copy(&spec, &copy), 0);
	ck_assert_int_eq(loader_create(f.pool, &copy, &recipe, 0.01, &loader_ops, &f, &f.loader), 0);
	ck_assert_int_eq(slots_create(&f.loader->layout, N_SLOTS, N_SLOTS, &slots), 0);
	stream_set_slots(loader_stream(f.loader, 0), slots);
	return loader_stream(f.loader, 0);
}

static void turn(void)
{
	pool_drain(f.pool);
	uv_run(&f.loop, UV_RUN_NOWAIT);
}

static void on_gpus_closed(void *arg)
{
	(void)arg;
	f.gpus_closed = true;
}

static void teardown_closing(void)
{
	while (!f.closed)
		uv_run(&f.loop, UV_RUN_ONCE);
	pool_close(f.pool, NULL, NULL);
	gpus_close(f.gpus, on_gpus_closed, NULL);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert(f.gpus_closed);
	ck_assert_int_eq(uv_loop_close(&f.loop), 0);
	if (!f.n_lost)
		double_assert_clean();
}

static void teardown(void)
{
	loader_close(f.loader);
	teardown_closing();
}

static void on_open(void *arg, struct device_slab *m, int result, const char *why)
{
	ck_assert_msg(m && result == 0, "%s", why);
	*(bool *)arg = true;
}

/* gpu: an ordinal, or -1. */
static struct trainer *attach(struct stream *s, uint32_t rank, int gpu)
{
	struct trainer *t = calloc(1, sizeof(*t));
	t->gpu = gpu;
	t->c.ops = &consumer_ops;
	ck_assert_int_eq(loader_attach(f.loader, &t->c, rank), 0);
	if (gpu < 0)
		return t;
	struct cuda_uuid uuid = uuid_of(gpu);
	char why[GPU_REASON_BYTES];
	bool open = device_slab_find(s->slots, uuid.bytes, GPU_SHARE_IPC) != NULL;
	if (!open)
		ck_assert_int_eq(device_slab_open(s->slots, f.gpus, uuid.bytes, GPU_SHARE_IPC, &(struct charge){ 0 },
						  on_open, &open, why),
				 0);
	while (!open)
		uv_run(&f.loop, UV_RUN_ONCE);
	t->c.device_slab = device_slab_find(s->slots, uuid.bytes, GPU_SHARE_IPC);
	return t;
}

static void leave(struct trainer *t)
{
	loader_finish_consumer(&t->c);
	free(t);
}

static void seek_to(struct trainer *t, uint64_t epoch)
{
	struct position to = { .epoch = epoch };
	ck_assert_int_eq(loader_seek(&t->c, ++t->c.seek, &to), 0);
}

static void wait_for(struct trainer *t, unsigned n)
{
	while (t->n < n) {
		unsigned before = t->n;
		consumer_waits(&t->c);
		if (t->n == before)
			uv_run(&f.loop, UV_RUN_ONCE);
	}
}

/* Releases the oldest batch that the trainer holds. */
static void release(struct trainer *t)
{
	ck_assert_uint_lt(t->n_released, t->n);
	const struct got *g = &t->got[t->n_released++];
	ck_assert_int_eq(stream_release(&t->c, g->slot, g->generation), 0);
}

/* Releases all batches held so far: each release may bring more. */
static void release_all(struct trainer *t)
{
	for (unsigned n = t->n; t->n_released < n;)
		release(t);
}

static unsigned n_copying(const struct stream *s)
{
	unsigned n = 0;
	for (uint32_t i = 0; i < s->slots->n; i++)
		n += s->slots->slot[i].n_copying;
	return n;
}

/* ---- cases ---- */

START_TEST(test_workers_know_where_slots_were_moved)
{
	/* Slots that lie on two NUMA nodes in turn, and a GPU near the second, which is this machine's only one. */
	struct nodes *nodes = calloc(1, sizeof(*nodes) + 2 * sizeof(nodes->node[0]));
	nodes->n = nodes->n_memory = 2;
	nodes->node[0].number = 7;
	setenv("FAKECUDA_NUMA", "0", 1);
	struct stream *s = setup(false, 1);
	slot_nodes_init(&s->slots->nodes, nodes, 2 << 20, N_SLOTS); /* as if its slots were that large */
	ck_assert_uint_eq(slot_node(&s->slots->slot[0]), 1);
	ck_assert_uint_eq(slot_node(&s->slots->slot[1]), 2);
	struct trainer *t = attach(s, 0, 0);
	unsigned moved = t->c.device_slab->slab->numa_node == 0 ? 2 : 1;
	if (moved == 1)
		printf("skipped: no NUMA policies here\n");
	ck_assert_uint_eq(slot_node(&s->slots->slot[0]), moved);
	ck_assert_uint_eq(slot_node(&s->slots->slot[1]), 2);
	leave(t);
	teardown();
	free(nodes);
}
END_TEST

START_TEST(test_batches_are_on_the_gpu_when_they_are_told_of)
{
	/* Seven epochs of eleven batches, the last of each short; every one is compared when it is published. */
	struct stream *s = setup(false, 1);
	struct trainer *t = attach(s, 0, 0);
	seek_to(t, 0);
	for (unsigned i = 0; i < 77; i++) {
		wait_for(t, i + 1);
		ck_assert_uint_eq(t->got[i].step, i % 11);
		release(t);
	}
	struct gpu_stats stats;
	ck_assert_uint_eq(gpus_get_stats(f.gpus, &stats, 1), 1);
	ck_assert_uint_eq(stats.n_pageable, 0);
	leave(t);
	teardown();
}
END_TEST

START_TEST(test_trainers_in_host_memory_do_not_wait_for_a_gpu)
{
	/* Share mode: while no copy makes progress, the trainer without a GPU has its batches. The two trainers on one
	 * GPU share one copy of each batch. */
	struct stream *s = setup(true, 3);
	struct trainer *host = attach(s, 0, -1), *a = attach(s, 1, 0), *b = attach(s, 2, 0);
	gpu_double.hold_streams(true);
	seek_to(host, 0);
	seek_to(a, 0);
	seek_to(b, 0);
	for (unsigned i = 1; i <= N_SLOTS; i++) {
		wait_for(host, i);
		release(host);
	}
	turn();
	ck_assert_uint_eq(a->n + b->n, 0);
	gpu_double.hold_streams(false);
	for (unsigned i = 0; i < 30; i++) {
		wait_for(a, i + 1);
		wait_for(b, i + 1);
		ck_assert_uint_eq(a->got[i].step, b->got[i].step);
		if (i >= N_SLOTS) {
			wait_for(host, i + 1);
			release(host);
		}
		release(a);
		release(b);
	}
	ck_assert_uint_le(gpu_double.counter("copies-to-device"), 2 * (30 + N_SLOTS)); /* a short batch takes two */
	leave(host);
	leave(a);
	leave(b);
	teardown();
}
END_TEST

START_TEST(test_how_soon_a_trainer_hears_of_its_copy_is_kept)
{
	/* Latency is counted for each batch that is published at the end of its copy, at least for the first. It is not
	 * counted for a batch that then waits for earlier ones, for a trainer that reaches the batch later, or for one
	 * in host memory. */
	struct stream *s = setup(true, 3);
	struct trainer *host = attach(s, 0, -1), *a = attach(s, 1, 0), *b = attach(s, 2, 0);
	const struct latency *handover = &a->c.device_slab->handover;
	seek_to(host, 0);
	seek_to(a, 0);
	wait_for(a, N_SLOTS);
	wait_for(host, N_SLOTS);
	unsigned n = handover->n;
	ck_assert(n >= 1 && n <= N_SLOTS);
	uint64_t p50 = latency_percentile_ns(handover, 50);
	ck_assert(p50 > 0 && p50 < UINT64_C(300) * 1000000000);
	seek_to(b, 0); /* to batches whose copies were reported */
	wait_for(b, N_SLOTS);
	ck_assert_uint_eq(handover->n, n);
	leave(host);
	leave(a);
	leave(b);
	teardown();
}
END_TEST

START_TEST(test_each_gpu_of_a_shared_job_gets_its_copy)
{
	/* Two GPUs, a trainer on each, one slab. */
	setenv("FAKECUDA_PERSONALITY", "two-gpus", 1);
	struct stream *s = setup(true, 2);
	struct trainer *a = attach(s, 0, 0), *b = attach(s, 1, 1);
	ck_assert_uint_eq(s->slots->n_device_slabs, 2);
	seek_to(a, 0);
	seek_to(b, 0);
	for (unsigned i = 0; i < 30; i++) {
		wait_for(a, i + 1);
		wait_for(b, i + 1);
		release(a);
		release(b);
	}
	leave(a);
	leave(b);
	teardown();
}
END_TEST

START_TEST(test_a_slot_that_a_gpu_still_reads_is_not_made_again)
{
	/* A seek drops batches with copies in progress. Their slots stay unchanged until the copies have ended. */
	struct stream *s = setup(false, 1);
	struct trainer *t = attach(s, 0, 0);
	gpu_double.hold_streams(true);
	seek_to(t, 0);
	while (n_copying(s) < N_SLOTS)
		turn();
	seek_to(t, 5);
	for (unsigned i = 0; i < 200; i++)
		turn();
	for (uint32_t i = 0; i < N_SLOTS; i++) {
		ck_assert_int_eq(s->slots->slot[i].state, SLOT_READY);
		ck_assert_uint_eq(s->slots->slot[i].n_copying, 1);
	}
	gpu_double.hold_streams(false);
	for (unsigned i = 0; i < 20; i++) {
		wait_for(t, i + 1);
		ck_assert_uint_eq(t->got[i].epoch, 5 + i / 11);
		ck_assert_uint_eq(t->got[i].step, i % 11);
		release(t);
	}
	leave(t);
	teardown();
}
END_TEST

START_TEST(test_the_end_waits_for_copies_under_way)
{
	/* Trainer and loader are closed while the GPU reads: the slots, and the loader, stay until the GPU has
	 * finished. */
	struct stream *s = setup(false, 1);
	struct trainer *t = attach(s, 0, 0);
	gpu_double.hold_streams(true);
	seek_to(t, 0);
	while (n_copying(s) < N_SLOTS)
		turn();
	leave(t);
	loader_close(f.loader);
	for (unsigned i = 0; i < 100; i++)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	ck_assert(!f.closed);
	ck_assert_uint_eq(gpu_double.counter("cuMemFree"), 0);
	gpu_double.hold_streams(false);
	while (!f.closed)
		uv_run(&f.loop, UV_RUN_ONCE);
	pool_close(f.pool, NULL, NULL);
	gpus_close(f.gpus, on_gpus_closed, NULL);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(gpu_double.counter("cuMemFree"), 1);
	ck_assert_int_eq(uv_loop_close(&f.loop), 0);
	double_assert_clean();
}
END_TEST

START_TEST(test_a_failed_copy_concerns_those_on_that_gpu_only)
{
	/* A temporary error: the trainer there is told, its device slab is no longer usable, the other trainer
	 * continues; a new device slab works. */
	struct stream *s = setup(true, 2);
	struct trainer *host = attach(s, 0, -1), *t = attach(s, 1, 0);
	ck_assert(gpu_double.inject("cuMemcpyHtoDAsync:3=1"));
	seek_to(host, 0);
	seek_to(t, 0);
	while (!t->n_failed) {
		turn();
		release_all(t);
		release_all(host);
	}
	ck_assert_ptr_null(device_slab_find(s->slots, t->c.device_slab->uuid, GPU_SHARE_IPC));
	leave(t);
	t = attach(s, 1, 0);
	seek_to(t, 3);
	while (t->n < 5) {
		turn();
		release_all(t);
		release_all(host);
	}
	ck_assert_uint_eq(t->n_failed, 0);
	ck_assert_uint_eq(f.n_lost, 0);
	leave(host);
	leave(t);
	teardown();
}
END_TEST

START_TEST(test_a_lost_gpu_gives_its_slots_back)
{
	/* Copies in progress count as ended, so that the other trainers, and the shutdown, do not wait for them. */
	struct stream *s = setup(true, 2);
	struct trainer *host = attach(s, 0, -1), *t = attach(s, 1, 0);
	f.breaks = true;
	ck_assert(gpu_double.inject("run:2=719"));
	seek_to(host, 0);
	seek_to(t, 0);
	while (!f.n_lost || !t->n_failed)
		turn();
	leave(t);
	for (unsigned i = host->n; i < 20; i++) {
		release_all(host);
		wait_for(host, i + 1);
	}
	while (n_copying(s)) /* the copier hands them back in its own time */
		turn();
	ck_assert_uint_eq(f.n_lost, 1);
	leave(host);
	teardown();
}
END_TEST

struct refusal_told {
	bool told;
	int result;
	char why[GPU_REASON_BYTES];
};

static void on_refused(void *arg, struct device_slab *m, int result, const char *why)
{
	struct refusal_told *r = arg;
	ck_assert_ptr_null(m);
	r->told = true;
	r->result = result;
	strcpy(r->why, why);
}

START_TEST(test_slots_outlive_a_driver_that_does_not_answer)
{
	/* The trainer goes on without the GPU. The driver may still read the slots' memory, so that stays, also when
	 * the loader is closed, until the driver returns. */
	answer_ns = 20000000;
	struct stream *s = setup(false, 1);
	struct trainer *t = attach(s, 0, -1);
	struct cuda_uuid uuid = uuid_of(0);
	struct refusal_told r = { .told = false };
	gpu_double.hold_call("cuMemHostRegister", 0);
	ck_assert_int_eq(device_slab_open(s->slots, f.gpus, uuid.bytes, GPU_SHARE_IPC, &(struct charge){ 0 },
					  on_refused, &r, r.why),
			 0);
	while (!r.told)
		uv_run(&f.loop, UV_RUN_ONCE);
	ck_assert_int_eq(r.result, GPU_E_REFUSED);
	ck_assert_ptr_null(device_slab_find(s->slots, uuid.bytes, GPU_SHARE_IPC));
	seek_to(t, 0);
	for (unsigned i = 0; i < 20; i++) {
		wait_for(t, i + 1);
		release(t);
	}
	leave(t);
	struct slots *slots = s->slots;
	loader_close(f.loader);
	while (slots->n_refs > 1)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(slots->n_device_slabs, 1);
	gpu_double.hold_call(NULL, 0);
	teardown_closing();
}
END_TEST

SUITE(device_slab)
{
	Suite *s = suite_create("device slab");
	TCase *t = tcase_create("device slab");
	tcase_add_test(t, test_workers_know_where_slots_were_moved);
	tcase_add_test(t, test_batches_are_on_the_gpu_when_they_are_told_of);
	tcase_add_test(t, test_trainers_in_host_memory_do_not_wait_for_a_gpu);
	tcase_add_test(t, test_how_soon_a_trainer_hears_of_its_copy_is_kept);
	tcase_add_test(t, test_each_gpu_of_a_shared_job_gets_its_copy);
	tcase_add_test(t, test_a_slot_that_a_gpu_still_reads_is_not_made_again);
	tcase_add_test(t, test_the_end_waits_for_copies_under_way);
	tcase_add_test(t, test_a_failed_copy_concerns_those_on_that_gpu_only);
	tcase_add_test(t, test_a_lost_gpu_gives_its_slots_back);
	tcase_add_test(t, test_slots_outlive_a_driver_that_does_not_answer);
	suite_add_tcase(s, t);
	return suite_with_gpus(s);
}
