/* No allocation per sample in steady state: every call of malloc and its kin in the process is counted during epochs of
 * real decoding. The sanitizers have their own allocators, so under them nothing is counted. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/consumers.h"
#include "batch/loader.h"
#include "dataset/cache/sample-cache.h"
#include "support/jpegs.h"
#include "support/loaders.h"
#include "support/suite.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTED 0
#else
#define COUNTED 1
#endif
#else
#define COUNTED 1
#endif

enum { N_FILES = 24, WARM_EPOCHS = 6, EPOCHS = 10, BATCH = 8 };

#if COUNTED
static atomic_ulong n_calls;
static atomic_bool counting;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static void count(void)
{
	if (atomic_load_explicit(&counting, memory_order_relaxed))
		atomic_fetch_add_explicit(&n_calls, 1, memory_order_relaxed);
}

__attribute__((visibility("default"))) void *malloc(size_t n)
{
	count();
	return __libc_malloc(n);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	count();
	return __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
	count();
	return __libc_realloc(p, n);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t align, size_t n)
{
	count();
	return __libc_memalign(align, n);
}

__attribute__((visibility("default"))) int posix_memalign(void **p, size_t align, size_t n)
{
	count();
	*p = __libc_memalign(align, n);
	return *p ? 0 : 12;
}

/* ---- a loader without sockets ---- */

static char root[64];
static bool loader_closed;

static void write_file(const char *path, const uint8_t *bytes, size_t n)
{
	FILE *f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
	fclose(f);
}

/* Photograph-like noise, all of one size, so that scratch memory stops growing after the first epochs. */
static void make_jpeg(const char *path, unsigned seed)
{
	enum { W = 320, H = 240 };
	static uint8_t rgb[W * H * 3];
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr errors;
	unsigned char *out = NULL;
	unsigned long n = 0;
	for (int i = 0; i < W * H * 3; i++)
		rgb[i] = (uint8_t)(i / 3 % W / 2 + (int)(seed = seed * 1103515245 + 12345) % 32 + 64);
	c.err = jpeg_std_error(&errors);
	jpeg_create_compress(&c);
	jpeg_mem_dest(&c, &out, &n);
	c.image_width = W;
	c.image_height = H;
	c.input_components = 3;
	c.in_color_space = JCS_RGB;
	jpeg_set_defaults(&c);
	jpeg_start_compress(&c, TRUE);
	while (c.next_scanline < H) {
		JSAMPROW row = rgb + (size_t)c.next_scanline * W * 3;
		jpeg_write_scanlines(&c, &row, 1);
	}
	jpeg_finish_compress(&c);
	jpeg_destroy_compress(&c);
	write_file(path, out, n);
	free(out);
}

static void make_tree(void)
{
	char path[160];
	strcpy(root, "/tmp/batchd-allocations-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	for (int i = 0; i < N_FILES; i++) {
		snprintf(path, sizeof(path), "%s/%c", root, 'a' + i % 2);
		mkdir(path, 0755);
		snprintf(path, sizeof(path), "%s/%c/%02d.jpg", root, 'a' + i % 2, i);
		make_jpeg(path, (unsigned)i);
	}
}

static void remove_tree(void)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	ck_assert_int_eq(system(command), 0);
}

static void *make_worker(void *arg)
{
	(void)arg;
	return sample_worker_create(&decode_limits_default);
}

static void free_worker(void *w)
{
	sample_worker_destroy(w);
}

static void *make_input(void *arg)
{
	(void)arg;
	return calloc(1, sizeof(struct sample_input));
}

static void free_input(void *in)
{
	file_bytes_finish(&((struct sample_input *)in)->bytes);
	free(in);
}

struct trainer {
	struct consumer c;
	unsigned n_got, n_pending;
	struct {
		uint32_t slot;
		uint64_t generation;
	} pending[8];
};

static int on_publish(struct consumer *c, const struct slot *slot)
{
	struct trainer *t = (struct trainer *)c;
	t->pending[t->n_pending].slot = slot->number;
	t->pending[t->n_pending++].generation = slot->generation;
	t->n_got++;
	return 0;
}

static const struct consumer_ops consumer_ops = { .publish = on_publish, .look = consumer_look, .arm = consumer_arm };

static void on_closed(struct loader *l)
{
	(void)l;
	loader_closed = true;
}

static const struct loader_ops loader_ops = { .failed = loaders_on_failed,
					      .published = loaders_on_published,
					      .closed = on_closed };

static void read_batches(uv_loop_t *loop, struct trainer *t, unsigned n)
{
	while (t->n_got < n) {
		consumer_waits(&t->c);
		if (t->n_pending == 0)
			uv_run(loop, UV_RUN_ONCE);
		unsigned pending = t->n_pending;
		t->n_pending = 0;
		for (unsigned i = 0; i < pending; i++)
			stream_release(&t->c, t->pending[i].slot, t->pending[i].generation);
	}
}

static unsigned long count_epochs(const char *transform, uint64_t decoded_bytes, uint64_t index_bytes)
{
	uv_loop_t loop;
	struct pool *pool;
	struct cache *cache;
	struct cache_config cc = { .budget_bytes = {
					   [CACHE_DECODED] = decoded_bytes, [CACHE_CHECKPOINTS] = index_bytes } };
	struct pool_params params = { .max_workers = 2,
				      .n_io = 2,
				      .n_tickets = 8,
				      .worker_create = make_worker,
				      .worker_destroy = free_worker,
				      .input_create = make_input,
				      .input_destroy = free_input };
	char source[96];
	struct data_access access = { .trusted = true };
	struct dataset_error err;
	struct pipeline_error pe;
	struct recipe recipe = { 0 };
	uv_loop_init(&loop);
	ck_assert_int_eq(pool_create(&loop, &params, &pool), 0);
	ck_assert_int_eq(cache_create(&cc, &cache), 0);
	snprintf(source, sizeof(source), "imagefolder:%s", root);
	struct dataset_source ds = { .spec = source, .access = &access };
	ck_assert_int_eq(dataset_open(&ds, &recipe.dataset, &err), 0);
	ck_assert_int_eq(pipeline_parse(transform, DTYPE_FLOAT32, LAYOUT_NCHW, &recipe.pipeline, &pe), 0);
	ck_assert_int_eq(recipe_attach(&recipe, cache, decoded_bytes, false, &decode_limits_default), 0);
	struct loader_spec spec = { .job = (char *)"j",
				    .dataset = source,
				    .transform = (char *)transform,
				    .dtype = DTYPE_FLOAT32,
				    .batch_size = BATCH,
				    .world_size = 1,
				    .shuffle = true };
	struct loader_spec copy;
	struct loader *l;
	ck_assert_int_eq(loader_spec_copy(&spec, &copy), 0);
	ck_assert_int_eq(loader_create(pool, &copy, &recipe, 0.01, &loader_ops, NULL, &l), 0);
	struct slots *slots;
	struct trainer t = { .c.ops = &consumer_ops };
	ck_assert_int_eq(slots_create(&l->layout, 4, 4, &slots), 0);
	stream_set_slots(loader_stream(l, 0), slots);
	ck_assert_int_eq(loader_attach(l, &t.c, 0), 0);
	loader_seek(&t.c, 1, &(struct position){ 0 });
	read_batches(&loop, &t, WARM_EPOCHS * N_FILES / BATCH);
	atomic_store(&n_calls, 0);
	atomic_store(&counting, true);
	read_batches(&loop, &t, (WARM_EPOCHS + EPOCHS) * N_FILES / BATCH);
	atomic_store(&counting, false);
	loader_finish_consumer(&t.c);
	loader_closed = false;
	loader_close(l);
	while (!loader_closed)
		uv_run(&loop, UV_RUN_ONCE);
	pool_close(pool, NULL, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_loop_close(&loop);
	cache_destroy(cache);
	return atomic_load(&n_calls);
}

/* A plan is made per epoch: two allocations, not a function of the samples. */
static void check(unsigned long n)
{
	ck_assert_msg(n <= 4 * EPOCHS, "%lu allocations in %d epochs of %d samples", n, EPOCHS, N_FILES);
}

START_TEST(test_random_crops_allocate_nothing_per_sample)
{
	/* train224 directly from files, with every op at work. */
	make_tree();
	check(count_epochs("train224", 0, 0));
	check(count_epochs(
		"[[\"RandomResizedCrop\", 64], \"RandomVerticalFlip\", [\"ColorJitter\", 0.4, 0.4, 0.4, 0.1], \"RandomGrayscale\", [\"Pad\", 2], "
		"\"ToTensor\"]",
		0, 0));
	remove_tree();
}
END_TEST

START_TEST(test_cached_samples_allocate_nothing_either)
{
	/* Indexes that grow in the first epochs and are then complete; decoded pixels. */
	make_tree();
	check(count_epochs("train224", 0, 64 << 20));
	check(count_epochs("train224", 64 << 20, 0));
	check(count_epochs("val224", 64 << 20, 0));
	remove_tree();
}
END_TEST
#endif

START_TEST(test_the_counter_counts)
{
	/* Without this check the other tests could not fail. */
#if COUNTED
	atomic_store(&n_calls, 0);
	atomic_store(&counting, true);
	void *volatile p = malloc(100);
	free(p);
	atomic_store(&counting, false);
	ck_assert_uint_eq(atomic_load(&n_calls), 1);
#else
	printf("skipped: a sanitizer has its own allocator\n");
#endif
}
END_TEST

SUITE(allocations)
{
	Suite *s = suite_create("allocations");
	TCase *t = tcase_create("allocations");
	tcase_add_test(t, test_the_counter_counts);
#if COUNTED
	tcase_add_test(t, test_random_crops_allocate_nothing_per_sample);
	tcase_add_test(t, test_cached_samples_allocate_nothing_either);
#endif
	suite_add_tcase(s, t);
	return s;
}
