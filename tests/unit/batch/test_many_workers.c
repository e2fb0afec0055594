/* Many workers on few processors: loaders of several users, pictures and arrays, caches that they share, slots on two
 * NUMA nodes that are made up, rows that have to wait for their files, trainers that come and go. Every batch is
 * compared with what one worker makes without caches. ThreadSanitizer finds in it what a machine of many processors
 * would show. */
#include <check.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/consumers.h"
#include "batch/filling.h"
#include "batch/loader.h"
#include "dataset/cache/sample-cache.h"
#include "image/formats/decode.h"
#include "support/jpegs.h"
#include "support/loaders.h"
#include "base/nodes.h"
#include "base/numa.h"
#include "support/datasets.h" /* after those: its fixture is called f */

enum {
	WORKERS = 32,
	PICTURES = 160,
	WORLD = 2,
	BATCH = 8,
	EPOCHS = 3,
	STEPS = PICTURES / WORLD / BATCH,
	SLOTS = 5,
	N_LOADERS = 5,
	BUDGET = 64 << 20,
};

/* The last two share the decoded pictures of one user; all but the arrays share indexes. */
static const struct {
	const char *dataset, *transform;
	uid_t uid;
	bool decoded;
} kinds[N_LOADERS] = {
	{ "imagefolder", "[[\"RandomResizedCrop\", 24], [\"RandomHorizontalFlip\"]]", 1, false },
	{ "random", "", 2, false },
	{ "imagefolder", "[[\"Resize\", 32], [\"CenterCrop\", 24]]", 2, false },
	{ "imagefolder", "[[\"RandomCrop\", [24, 24]], [\"ColorJitter\", 0.4, 0.4, 0.4, 0.1]]", 3, true },
	{ "imagefolder", "[[\"RandomResizedCrop\", 20]]", 3, true },
};

/* One file in four is not in memory, as far as workers can tell: its row needs a ticket, in every epoch. */
static bool is_away(uint64_t index)
{
	return index % 4 == 1;
}

int __real_numa_place(void *base, size_t n_bytes, unsigned node);
int __wrap_numa_place(void *base, size_t n_bytes, unsigned node);
int __wrap_numa_place(void *base, size_t n_bytes, unsigned node)
{
	(void)base, (void)n_bytes, (void)node;
	return 0;
}

int __real_dataset_read(struct dataset *ds, uint64_t index, enum read_how how, struct file_bytes *out,
			struct dataset_error *err);
int __wrap_dataset_read(struct dataset *ds, uint64_t index, enum read_how how, struct file_bytes *out,
			struct dataset_error *err);
int __wrap_dataset_read(struct dataset *ds, uint64_t index, enum read_how how, struct file_bytes *out,
			struct dataset_error *err)
{
	return how == READ_NOWAIT && is_away(index) ? -EAGAIN : __real_dataset_read(ds, index, how, out, err);
}

int __real_dataset_is_current(struct dataset *ds, uint64_t index, enum read_how how, const struct file_bytes *b);
int __wrap_dataset_is_current(struct dataset *ds, uint64_t index, enum read_how how, const struct file_bytes *b);
int __wrap_dataset_is_current(struct dataset *ds, uint64_t index, enum read_how how, const struct file_bytes *b)
{
	return how == READ_NOWAIT && is_away(index) ? -EAGAIN : __real_dataset_is_current(ds, index, how, b);
}

/* Workers fill caches by how long their rows take (batch/filling.h), so on a busy machine they might never. Here each
 * fills with every second row at least. */
bool __real_filling_may(struct filling *w, const void *cache, bool hurried);
bool __wrap_filling_may(struct filling *w, const void *cache, bool hurried);
bool __wrap_filling_may(struct filling *w, const void *cache, bool hurried)
{
	static _Thread_local unsigned n;
	return __real_filling_may(w, cache, hurried) || n++ % 2 == 0;
}

/* A batch: as one worker has made it. */
struct made {
	uint8_t *bytes; /* NULL: not made yet */
	size_t n_bytes;
	unsigned n_times; /* that many workers have made it */
};
static struct made made[N_LOADERS][WORLD][EPOCHS][STEPS];

/* A rank's place, on which one trainer follows another. */
struct place {
	struct consumer c;
	unsigned kind;
	uint32_t rank;
	struct position next; /* the batch that is to come */
	unsigned n_left;      /* batches until the trainer leaves */
	unsigned n_trainers;
	struct {
		uint32_t slot;
		uint64_t generation;
	} held[SLOTS];
	unsigned n_held;
	bool attached;
};

static struct {
	uv_loop_t loop;
	struct pool *pool;
	struct nodes *nodes;
	struct cache *cache;
	struct loader *loader[N_LOADERS];
	struct place place[N_LOADERS][WORLD];
	unsigned n_closed;
	bool first; /* this run is the one with one worker */
	uint64_t n_rows[N_LOADERS];
	uint32_t random;
} run;

static void make_pictures(void)
{
	make_dir("pets", 0755);
	make_dir("pets/cat", 0755);
	for (uint32_t i = 0; i < PICTURES; i++) {
		struct jpeg_recipe r = {
			.width = 40 + i % 31, .height = 36 + i % 23, .n_components = 3, .h = 2, .v = 2
		};
		char name[64];
		size_t n;
		if (i % 8 == 0) { /* large enough for an index */
			r.width *= 6;
			r.height *= 6;
		}
		r.quality = 75;
		r.noise = i % 3 * 40;
		r.progressive = i % 8 == 4 || i % 16 == 8;
		uint8_t *jpeg = jpeg_make(&r, i, &n);
		snprintf(name, sizeof(name), "pets/cat/%03u.jpg", i);
		put_bytes(name, jpeg, n, 0644);
		free(jpeg);
	}
}

/* libuv opens two descriptors with the first loop, and keeps them. */
static void set_up_all(void)
{
	uv_loop_t loop;
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	set_up();
	make_pictures();
}

static void *create_worker(void *arg)
{
	(void)arg;
	return sample_worker_create(&decode_limits_default);
}

static void destroy_worker(void *worker)
{
	sample_worker_destroy(worker);
}

static void *create_input(void *arg)
{
	(void)arg;
	return sample_input_create(&decode_limits_default);
}

static void drop_input(void *in)
{
	sample_input_drop(in);
}

static void destroy_input(void *in)
{
	sample_input_destroy(in);
}

/* Two nodes, with a processor each if there are two. */
static struct nodes *make_nodes(void)
{
	struct nodes *nodes = calloc(1, sizeof(*nodes) + 2 * sizeof(nodes->node[0]));
	cpu_set_t set;
	nodes->n = nodes->n_memory = 2;
	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	for (unsigned i = 0, at = 0; i < 2; i++) {
		for (unsigned k = 0; k < CPU_SETSIZE; k++) {
			if (CPU_ISSET(k, &set) && (i == 0 || k > at)) {
				at = k;
				break;
			}
		}
		nodes->node[i] = (struct node){ .number = (int)i, .n_processors = 1 };
		nodes->node[i].processors[at / NODES_WORD_BITS] = 1UL << at % NODES_WORD_BITS;
	}
	return nodes;
}

static void check_batch(const struct place *p, const struct slot *slot)
{
	struct made *m = &made[p->kind][p->rank][slot->at.epoch][slot->at.step];
	const struct slot_layout *l = &run.loader[p->kind]->layout;
	size_t n = 0, n_indices = slot->n_rows * sizeof(int64_t);
	uint8_t *bytes = malloc(n_indices + slot->n_rows * l->row_bytes);
	memcpy(bytes, slot_indices(slot), n_indices);
	n += n_indices;
	for (unsigned k = 0; k < l->n_fields; k++) {
		size_t n_field = slot->n_rows * l->field[k].item_bytes;
		ck_assert(!l->field[k].ragged);
		ck_assert_uint_le(n + n_field, n_indices + slot->n_rows * l->row_bytes);
		memcpy(bytes + n, slot_data(slot) + l->field[k].offset, n_field);
		n += n_field;
	}
	if (run.first) {
		ck_assert_ptr_null(m->bytes);
		*m = (struct made){ .bytes = bytes, .n_bytes = n };
		return;
	}
	ck_assert_uint_eq(n, m->n_bytes);
	ck_assert_msg(memcmp(bytes, m->bytes, n) == 0, "%s: batch %llu of rank %u in epoch %llu differs",
		      kinds[p->kind].transform, (unsigned long long)slot->at.step, p->rank,
		      (unsigned long long)slot->at.epoch);
	m->n_times++;
	free(bytes);
}

static int on_publish(struct consumer *c, const struct slot *slot)
{
	struct place *p = (struct place *)c;
	if (p->n_held == SLOTS || p->n_left == 0)
		return -EAGAIN;
	ck_assert_int_eq(position_compare(&slot->at, &p->next), 0);
	ck_assert(!atomic_load(&slot->failed));
	ck_assert_uint_eq(atomic_load(&slot->n_replaced), 0);
	if (slot->at.epoch < EPOCHS) /* batches of the next are made ahead */
		check_batch(p, slot);
	p->next.step++;
	if (slot->last)
		p->next = (struct position){ .epoch = slot->at.epoch + 1 };
	run.n_rows[p->kind] += slot->n_rows;
	p->held[p->n_held].slot = slot->number;
	p->held[p->n_held++].generation = slot->generation;
	p->n_left--;
	return 0;
}

static const struct consumer_ops consumer_ops = { .publish = on_publish, .look = consumer_look, .arm = consumer_arm };

static void on_closed(struct loader *l)
{
	(void)l;
	run.n_closed++;
}

static const struct loader_ops loader_ops = { .failed = loaders_on_failed,
					      .published = loaders_on_published,
					      .closed = on_closed };

static void open_loader(unsigned k)
{
	static const char arrays[] = "length=160,shape=3x5,dtype=float32";
	bool pictures = !strcmp(kinds[k].dataset, "imagefolder");
	struct loader_spec copy, spec = { .job = "test", .dataset = "test", .transform = (char *)kinds[k].transform };
	struct recipe recipe = { .dataset = open_trusted(kinds[k].dataset, pictures ? in_root("pets") : arrays) };
	struct pipeline_error why;
	if (pictures) {
		ck_assert_msg(pipeline_parse(kinds[k].transform, DTYPE_UINT8, LAYOUT_NHWC, &recipe.pipeline, &why) == 0,
			      "%s", why.text);
		ck_assert_int_eq(recipe_attach(&recipe, run.cache, kinds[k].decoded && !run.first ? BUDGET : 0, false,
					       &decode_limits_default),
				 0);
		spec.dtype = DTYPE_UINT8;
	}
	spec.batch_size = BATCH;
	spec.world_size = WORLD;
	spec.seed = 7;
	spec.shuffle = 1;
	spec.uid = kinds[k].uid;
	ck_assert_int_eq(loader_spec_copy(&spec, &copy), 0);
	ck_assert_int_eq(loader_create(run.pool, &copy, &recipe, 0.01, &loader_ops, NULL, &run.loader[k]), 0);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		struct slots *slots;
		run.place[k][rank] = (struct place){ .kind = k, .rank = rank };
		ck_assert_int_eq(slots_create_on(run.nodes, &run.loader[k]->layout, SLOTS, SLOTS, &slots), 0);
		stream_set_slots(loader_stream(run.loader[k], rank), slots);
	}
}

/* A trainer that takes a few batches, some of them again. */
static void arrive(struct place *p)
{
	struct position to = p->next;
	if (!run.first && p->n_trainers++ % 3 == 2)
		to.step = 0;
	p->c = (struct consumer){ .ops = &consumer_ops };
	p->n_left = run.first ? UINT32_MAX : 1 + jpeg_random(&run.random) % (2 * STEPS);
	p->next = to;
	p->attached = true;
	ck_assert_int_eq(loader_attach(run.loader[p->kind], &p->c, p->rank), 0);
	ck_assert_int_eq(loader_seek(&p->c, 1, &to), 0);
}

/* With what it still holds, and with batches of it in work. */
static void go(struct place *p)
{
	loader_finish_consumer(&p->c);
	p->n_held = 0;
	p->attached = false;
}

/* Whether it will take further batches. */
static bool use(struct place *p)
{
	bool over = p->next.epoch >= EPOCHS;
	if (p->attached && (p->n_left == 0 || over))
		go(p);
	if (over)
		return false;
	if (!p->attached)
		arrive(p);
	while (p->n_held && p->n_left) {
		p->n_held--;
		ck_assert_int_eq(stream_release(&p->c, p->held[p->n_held].slot, p->held[p->n_held].generation), 0);
	}
	if (p->n_left)
		consumer_waits(&p->c);
	return true;
}

static void use_all(void)
{
	for (bool any = true; any;) {
		any = false;
		bool at_once = false;
		for (unsigned i = 0; i < N_LOADERS * WORLD; i++) {
			struct place *p = &run.place[i / WORLD][i % WORLD];
			any |= use(p);
			at_once |= p->attached && (p->n_held || p->n_left == 0);
		}
		if (!run.first)
			pool_set_target(run.pool, WORKERS / 2 + jpeg_random(&run.random) % (WORKERS / 2 + 1));
		if (any)
			uv_run(&run.loop, at_once ? UV_RUN_NOWAIT : UV_RUN_ONCE);
	}
}

static void open_all(unsigned workers)
{
	struct cache_config config = { .budget_bytes = { [CACHE_DECODED] = BUDGET, [CACHE_CHECKPOINTS] = BUDGET } };
	struct cache_config none = { 0 };
	memset(&run, 0, sizeof(run));
	run.first = workers == 1;
	run.random = 11;
	run.nodes = run.first ? NULL : make_nodes();
	ck_assert_int_eq(uv_loop_init(&run.loop), 0);
	struct pool_params params = { .max_workers = workers,
				      .n_io = run.first ? 2 : 12,
				      .n_tickets = 24,
				      .worker_create = create_worker,
				      .worker_destroy = destroy_worker,
				      .input_create = create_input,
				      .input_drop = drop_input,
				      .input_destroy = destroy_input,
				      .nodes = run.nodes };
	ck_assert_int_eq(pool_create(&run.loop, &params, &run.pool), 0);
	ck_assert_int_eq(cache_create(run.first ? &none : &config, &run.cache), 0);
	pool_set_target(run.pool, workers);
	for (unsigned k = 0; k < N_LOADERS; k++)
		open_loader(k);
}

static void close_all(void)
{
	for (unsigned k = 0; k < N_LOADERS; k++)
		loader_close(run.loader[k]);
	while (run.n_closed < N_LOADERS)
		uv_run(&run.loop, UV_RUN_ONCE);
	pool_close(run.pool, NULL, NULL);
	uv_run(&run.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&run.loop), 0);
	cache_destroy(run.cache);
	free(run.nodes);
}

/* Each batch once, by one worker. */
static void make_reference(void)
{
	open_all(1);
	use_all();
	close_all();
	for (unsigned i = 0; i < N_LOADERS * WORLD * EPOCHS * STEPS; i++)
		ck_assert_ptr_nonnull((&made[0][0][0][0])[i].bytes);
}

START_TEST(test_many_workers_make_what_one_makes)
{
	/* Proves it for every row of every epoch, and that what the test is about did happen: rows waited for files,
	 * hits in both caches, rows taken by workers of their node, trainers that came again. */
	struct cache_stats decoded, indexes;
	struct pool_stats stats;
	uint64_t n_made = 0;
	make_reference();
	open_all(WORKERS);
	use_all();
	cache_get_stats(run.cache, CACHE_DECODED, &decoded);
	cache_get_stats(run.cache, CACHE_CHECKPOINTS, &indexes);
	for (unsigned k = 0; k < N_LOADERS; k++) {
		uint64_t n = tally_sum(&run.loader[k]->rows.source.sums, SOURCE_ROWS);
		ck_assert_uint_ge(n, run.n_rows[k]);
		ck_assert_uint_ge(run.place[k][0].n_trainers, 2);
		n_made += n;
	}
	pool_get_stats(run.pool, &stats);
	ck_assert_uint_ge(stats.n_rows + WORKERS, n_made); /* rows in work count as made a moment before */
	ck_assert_uint_gt(stats.n_parked, 0);
	ck_assert_uint_gt(stats.n_near, 0);
	ck_assert_uint_gt(decoded.hits, 0);
	ck_assert_uint_gt(indexes.hits, 0);
	ck_assert_uint_eq(decoded.stale + indexes.stale, 0);
	close_all();
	for (unsigned i = 0; i < N_LOADERS * WORLD * EPOCHS * STEPS; i++) {
		struct made *m = &(&made[0][0][0][0])[i];
		ck_assert_uint_ge(m->n_times, 1);
		free(m->bytes);
	}
}
END_TEST

SUITE(many_workers)
{
	Suite *s = suite_create("many workers");
	TCase *t = tcase_create("many workers");
	tcase_add_checked_fixture(t, set_up_all, tear_down);
	tcase_add_test(t, test_many_workers_make_what_one_makes);
	suite_add_tcase(s, t);
	return s;
}
