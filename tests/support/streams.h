/* Trainers of a loader without sockets, for tests of streams and groups: a real pool and loop, a `random:` data set,
 * and consumers that record the batches they are given. Only the indices beside the rows are checked, because they
 * alone tell which sample a row of such data is. */
#ifndef BATCHD_TESTS_STREAMS_H
#define BATCHD_TESTS_STREAMS_H

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "consumers.h"
#include "batch/loader.h"
#include "batch/plan/plan.h"
#include "suite.h"

enum { MOST = 4096 };

struct got {
	struct position at;
	uint32_t slot, n_rows, n_padding;
	uint64_t generation, seek, n_missed;
	int64_t indices[8];
	bool last;
};

struct trainer {
	struct consumer c;
	struct got got[MOST];
	unsigned n, released;
};

struct fixture {
	uv_loop_t loop;
	struct pool *pool;
	struct loader *loader;
	bool closed, failed;
};

static inline void *make_thing(void *arg)
{
	(void)arg;
	return calloc(1, sizeof(struct sample_input));
}

static inline void free_input(void *in)
{
	file_bytes_finish(&((struct sample_input *)in)->bytes);
	free(in);
}

static inline int on_publish(struct consumer *c, const struct slot *slot)
{
	struct trainer *t = (struct trainer *)c;
	struct got *g = &t->got[t->n++];
	ck_assert_uint_le(t->n, MOST);
	*g = (struct got){ .at = slot->at,
			   .slot = slot->number,
			   .n_rows = slot->n_rows,
			   .n_padding = slot->n_padding,
			   .generation = slot->generation,
			   .seek = c->seek,
			   .n_missed = c->n_missed,
			   .last = slot->last };
	for (uint32_t i = 0; i < slot->n_rows && i < 8; i++)
		g->indices[i] = slot_indices(slot)[i];
	return 0;
}

static const struct consumer_ops consumer_ops = { .publish = on_publish, .look = consumer_look, .arm = consumer_arm };

static inline void on_failed(struct loader *l)
{
	((struct fixture *)l->owner)->failed = true;
}

static inline void on_published(struct loader *l, bool waited)
{
	(void)l, (void)waited;
}

static inline void on_closed(struct loader *l)
{
	((struct fixture *)l->owner)->closed = true;
}

static const struct loader_ops loader_ops = { .failed = on_failed, .published = on_published, .closed = on_closed };

static inline void setup(struct fixture *f, struct loader_spec spec, uint64_t n_samples)
{
	char source[64];
	struct loader_spec copy;
	struct dataset_error err;
	memset(f, 0, sizeof(*f));
	uv_loop_init(&f->loop);
	struct pool_params params = { .max_workers = 2,
				      .n_io = 2,
				      .n_tickets = 4,
				      .worker_create = make_thing,
				      .worker_destroy = free,
				      .input_create = make_thing,
				      .input_destroy = free_input };
	ck_assert_int_eq(pool_create(&f->loop, &params, &f->pool), 0);
	snprintf(source, sizeof(source), "random:length=%llu,shape=4,dtype=float32", (unsigned long long)n_samples);
	spec.job = "test";
	spec.dataset = source;
	spec.transform = "";
	struct data_access access = { .trusted = true };
	struct dataset_source ds = { .spec = source, .access = &access };
	struct recipe recipe = { 0 };
	ck_assert_int_eq(dataset_open(&ds, &recipe.dataset, &err), 0);
	ck_assert_int_eq(loader_spec_copy(&spec, &copy), 0);
	ck_assert_int_eq(loader_create(f->pool, &copy, &recipe, 0.01, &loader_ops, f, &f->loader), 0);
}

static inline struct stream *with_slots(struct fixture *f, uint32_t rank, uint32_t n)
{
	struct slots *slots;
	struct stream *s = loader_stream(f->loader, rank);
	ck_assert_int_eq(slots_create(&f->loader->layout, n, n, &slots), 0);
	stream_set_slots(s, slots);
	return s;
}

static inline struct trainer *attach(struct stream *s, uint32_t rank)
{
	struct trainer *t = calloc(1, sizeof(*t));
	t->c.ops = &consumer_ops;
	ck_assert_int_eq(s->group ? group_attach(s->group, &t->c, rank) : stream_attach(s, &t->c, rank), 0);
	return t;
}

static inline void leave(struct trainer *t)
{
	loader_finish_consumer(&t->c);
	ck_assert_uint_eq(t->c.n_leases, 0);
	free(t);
}

static inline void teardown(struct fixture *f)
{
	loader_close(f->loader);
	while (!f->closed)
		uv_run(&f->loop, UV_RUN_ONCE);
	pool_close(f->pool, NULL, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&f->loop), 0);
}

/* Runs the loop until the trainer has been given n batches in all; the trainer reports that it waits, as the client
 * library does. */
static inline void wait_for(struct fixture *f, struct trainer *t, unsigned n)
{
	while (t->n < n) {
		unsigned before = t->n;
		consumer_waits(&t->c);
		if (t->n == before) /* otherwise it was given a batch at once, and no longer waits */
			uv_run(&f->loop, UV_RUN_ONCE);
	}
}

/* Runs the loop until the trainer has been given n batches in all; each is released as it comes. */
static inline void consume(struct fixture *f, struct trainer *t, unsigned n)
{
	for (; t->released < n; t->released++) {
		const struct got *g = &t->got[t->released];
		wait_for(f, t, t->released + 1);
		ck_assert_int_eq(stream_release(&t->c, g->slot, g->generation), 0);
	}
}

static inline void settle(struct fixture *f, struct trainer *t, unsigned n)
{
	wait_for(f, t, n);
	for (int i = 0; i < 20; i++)
		uv_run(&f->loop, UV_RUN_NOWAIT);
}

#endif
