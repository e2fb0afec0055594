/* What a worker may spend on the decoded cache. */
#include "batch/filling.h"
#include "batch/sample.h"
#include "dataset/cache/sample-cache.h"
#include "image/formats/decode.h"
#include "support/jpegs.h"
#include "support/datasets.h" /* after those: its fixture is called f */
#include "support/own-heap.h"

#include <png.h>
#include <sys/syscall.h>
#include <time.h>

enum { N_SAMPLES = 4000, PLAIN_NS = 600000, KEPT_NS = 1000000, HIT_NS = 150000, INTERRUPTED_NS = 20000000 };

static struct filling filling;
static bool cached[N_SAMPLES];
static int cache; /* only its address matters */

static unsigned n_cached(void)
{
	unsigned n = 0;

	for (int i = 0; i < N_SAMPLES; i++)
		n += cached[i];
	return n;
}

/* What the rows of an epoch take. One in `interrupted` of them takes longer, which the sum leaves out; 0: none. */
static uint64_t epoch(bool hurried, int interrupted)
{
	static const uint64_t takes_ns[FILLING_N_ROWS] = { PLAIN_NS, KEPT_NS, HIT_NS };
	uint64_t sum_ns = 0;

	for (int i = 0; i < N_SAMPLES; i++) {
		enum filling_row row = cached[i]                                ? FILLING_HIT
				       : filling_may(&filling, &cache, hurried) ? FILLING_KEPT
										: FILLING_PLAIN;
		bool longer = interrupted && (i * 2654435761U >> 16) % (unsigned)interrupted == 0;

		cached[i] |= row == FILLING_KEPT;
		filling_note(&filling, &cache, row, takes_ns[row] + (longer ? INTERRUPTED_NS : 0),
			     FILLING_PART_DECODED);
		sum_ns += takes_ns[row];
	}
	return sum_ns;
}

START_TEST(test_an_epoch_that_fills_takes_a_quarter_longer_at_most)
{
	/* Proves the limit while trainers wait, that the time is used, and that the next two epochs keep
	 * the rest. */
	uint64_t without_ns = (uint64_t)N_SAMPLES * PLAIN_NS, first_ns = epoch(true, _i);

	ck_assert_uint_le(first_ns, without_ns + without_ns / 4);
	ck_assert_uint_ge(first_ns, without_ns + without_ns / 7);
	ck_assert_uint_ge(n_cached(), N_SAMPLES / 5);
	ck_assert_uint_le(epoch(true, _i), without_ns + without_ns / 4);
	ck_assert_uint_ge(n_cached(), N_SAMPLES - N_SAMPLES / 10);
	(void)epoch(true, _i);
	ck_assert_uint_ge(n_cached(), N_SAMPLES - N_SAMPLES / 100);
}
END_TEST

START_TEST(test_everything_is_kept_while_no_trainer_waits)
{
	/* Proves that the limit is only for the time of trainers: workers that are ahead of them fill the cache. */
	(void)epoch(false, 0);
	ck_assert_uint_eq(n_cached(), N_SAMPLES);
}
END_TEST

START_TEST(test_each_cache_has_an_account_of_its_own)
{
	/* Proves that what rows of one data set take says nothing about another one's, and that more caches than
	 * accounts are no harm. */
	int others[3 * FILLING_ACCOUNTS];

	for (int i = 0; i < 3 * FILLING_ACCOUNTS; i++) {
		ck_assert(!filling_may(&filling, &others[i], true)); /* nothing is known of its rows */
		ck_assert(filling_may(&filling, &others[i], false));
	}
	(void)epoch(true, 0);
	ck_assert_uint_gt(n_cached(), 0);
}
END_TEST

static struct {
	struct recipe recipe;
	struct cache *cache;
	struct sample_worker *w;
} one;

static void put_one(const char *name, const void *bytes, size_t n)
{
	make_dir("pets", 0755);
	make_dir("pets/cat", 0755);
	put_bytes(name, bytes, n, 0644);
}

static void put_jpeg(void)
{
	static const struct jpeg_recipe picture = {
		.width = 64, .height = 48, .n_components = 3, .h = 1, .v = 1, .quality = 90
	};
	size_t n;
	uint8_t *jpeg = jpeg_make(&picture, 5, &n);

	put_one("pets/cat/a.jpg", jpeg, n);
	free(jpeg);
}

/* damaged: a byte after two thirds of them is wrong. */
static void put_png(uint32_t edge, bool damaged)
{
	png_image image = { .version = PNG_IMAGE_VERSION, .width = edge, .height = edge, .format = PNG_FORMAT_RGB };
	png_alloc_size_t n = PNG_IMAGE_PNG_SIZE_MAX(image);
	uint8_t *rgb = malloc(PNG_IMAGE_SIZE(image)), *png = malloc(n);

	ck_assert(rgb && png);
	for (size_t i = 0; i < PNG_IMAGE_SIZE(image); i++)
		rgb[i] = (uint8_t)(i / 5 + i * i % 7);
	ck_assert(png_image_write_to_memory(&image, png, &n, 0, rgb, 0, NULL));
	png[n / 3 * 2] ^= damaged;
	put_one("pets/cat/a.png", png, n);
	free(rgb);
	free(png);
}

/* The folder with one picture, and a decoded cache of so many bytes; 0: none. */
static void open_one(uint64_t budget_bytes, const struct decode_limits *limits)
{
	struct cache_config config = { .budget_bytes = { [CACHE_DECODED] = budget_bytes } };
	struct pipeline_error why;

	one.w = sample_worker_create(limits);
	one.recipe.dataset = open_trusted("imagefolder", in_root("pets"));
	ck_assert_int_eq(
		pipeline_parse("[[\"RandomCrop\", [16, 16]]]", DTYPE_UINT8, LAYOUT_NHWC, &one.recipe.pipeline, &why),
		0);
	ck_assert_int_eq(cache_create(&config, &one.cache), 0);
	ck_assert_int_eq(recipe_attach(&one.recipe, one.cache, budget_bytes, false, limits), 0);
}

enum { ROW_BYTES = 3 * 16 * 16 };

static int try_one(uint64_t epoch, uint8_t row[ROW_BYTES])
{
	struct sample_key key = { .seed = 1, .epoch = epoch };
	struct sample_error err;

	return sample_make(&one.recipe, one.w, key, NULL, true, (void *[]){ row }, &err);
}

static void make_one(void)
{
	uint8_t row[ROW_BYTES];

	ck_assert_int_eq(try_one(0, row), 0);
}

static void close_one(void)
{
	sample_worker_destroy(one.w);
	recipe_finish(&one.recipe);
	cache_destroy(one.cache);
}

START_TEST(test_a_sample_is_kept_unless_a_trainer_waits)
{
	/* Proves that samples ask: the first rows of a worker that is in a hurry are not kept, others are. */
	struct cache_stats stats;

	put_jpeg();
	open_one(1 << 20, &decode_limits_default);
	for (int hurried = 1; hurried >= 0; hurried--) {
		sample_worker_hurry(one.w, hurried);
		make_one();
		cache_get_stats(one.cache, CACHE_DECODED, &stats);
		ck_assert_uint_eq(stats.n_entries, !hurried);
	}
	close_one();
}
END_TEST

START_TEST(test_a_worker_that_always_fills_keeps_the_first_sample)
{
	/* Also while a trainer waits, whether it is told so before or after. */
	struct cache_stats stats;

	put_jpeg();
	open_one(1 << 20, &decode_limits_default);
	sample_worker_hurry(one.w, true);
	sample_worker_fill_always(one.w);
	sample_worker_hurry(one.w, true);
	make_one();
	cache_get_stats(one.cache, CACHE_DECODED, &stats);
	ck_assert_uint_eq(stats.n_entries, 1);
	close_one();
}
END_TEST

enum { EPOCHS = 64 };

/* The outcomes of the picture's rows, and the rows; returns how many there are. */
static unsigned rows_with(uint64_t budget_bytes, const struct decode_limits *limits, int outcomes[EPOCHS],
			  uint8_t rows[EPOCHS][ROW_BYTES])
{
	unsigned n = 0;

	memset(rows, 0, EPOCHS * ROW_BYTES);
	open_one(budget_bytes, limits);
	for (unsigned i = 0; i < EPOCHS; i++) {
		outcomes[i] = try_one(i, rows[i]);
		n += outcomes[i] == 0;
	}
	close_one();
	return n;
}

static unsigned expect_same_rows(const struct decode_limits *limits)
{
	static uint8_t without[EPOCHS][ROW_BYTES], with[EPOCHS][ROW_BYTES];
	int outcomes[2][EPOCHS];
	unsigned n = rows_with(0, limits, outcomes[0], without);

	ck_assert_uint_eq(rows_with(16 << 20, limits, outcomes[1], with), n);
	ck_assert_mem_eq(outcomes[0], outcomes[1], sizeof outcomes[0]);
	ck_assert_mem_eq(without, with, sizeof without);
	return n;
}

START_TEST(test_a_damaged_picture_has_the_rows_that_it_has_without_a_cache)
{
	/* Proves that what is below a crop decides nothing, although a picture is kept as a whole. */
	put_png(64, true);
	unsigned n = expect_same_rows(&decode_limits_default);
	ck_assert_uint_gt(n, 0);
	ck_assert_uint_lt(n, EPOCHS);
}
END_TEST

START_TEST(test_a_picture_too_large_to_keep_has_its_rows)
{
	/* Proves that a picture for whose crops there is memory has them, although there is none for the whole. */
	enum { EDGE = 1024 };
	struct work_memory memory;
	struct decode_limits limits = decode_limits_default;

	work_memory_init(&memory, 3 * EDGE * EDGE + (4 << 19)); /* of which three quarters are for one sample */
	limits.memory = &memory;
	put_png(EDGE, false);
	ck_assert_uint_eq(expect_same_rows(&limits), EPOCHS);
	work_memory_finish(&memory);
}
END_TEST

#if OWN_HEAP /* no sanitizer has replaced the clock */
static unsigned n_looks;

int clock_gettime(clockid_t clock, struct timespec *t)
{
	n_looks++;
	return (int)syscall(SYS_clock_gettime, clock, t);
}

/* At the clock, of rows after the first. */
static unsigned looks_with(uint64_t budget_bytes)
{
	enum { ROWS = 40 };

	open_one(budget_bytes, &decode_limits_default);
	make_one();
	n_looks = 0;
	for (int i = 0; i < ROWS; i++)
		make_one();
	unsigned n = n_looks;
	close_one();
	return n;
}

START_TEST(test_rows_look_at_no_clock_for_a_full_cache)
{
	/* Proves that they look at it as often as rows without a cache, and more often while there is room. */
	put_jpeg();
	unsigned without = looks_with(0);

	ck_assert_uint_eq(looks_with(4096), without);
	ck_assert_uint_gt(looks_with(1 << 20), without);
}
END_TEST
#endif

SUITE(filling)
{
	Suite *s = suite_create("filling");
	TCase *t = tcase_create("filling");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(t, test_an_epoch_that_fills_takes_a_quarter_longer_at_most, 0, 1);
	tcase_add_loop_test(t, test_an_epoch_that_fills_takes_a_quarter_longer_at_most, 4, 8);
	tcase_add_test(t, test_everything_is_kept_while_no_trainer_waits);
	tcase_add_test(t, test_each_cache_has_an_account_of_its_own);
	tcase_add_test(t, test_a_sample_is_kept_unless_a_trainer_waits);
	tcase_add_test(t, test_a_worker_that_always_fills_keeps_the_first_sample);
	tcase_add_test(t, test_a_damaged_picture_has_the_rows_that_it_has_without_a_cache);
	tcase_add_test(t, test_a_picture_too_large_to_keep_has_its_rows);
#if OWN_HEAP
	tcase_add_test(t, test_rows_look_at_no_clock_for_a_full_cache);
#endif
	suite_add_tcase(s, t);
	return s;
}
