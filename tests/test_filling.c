/* What a worker may spend on the decoded cache. */
#include "core/filling.h"
#include "core/sample.h"
#include "data/sample-cache.h"
#include "decode/decode.h"
#include "jpegs.h"
#include "datasets.h" /* after those: its fixture is called f */

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
		filling_note(&filling, &cache, row, takes_ns[row] + (longer ? INTERRUPTED_NS : 0));
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

START_TEST(test_a_sample_is_kept_unless_a_trainer_waits)
{
	/* Proves that samples ask: the first rows of a worker that is in a hurry are not kept, others are. */
	static const struct jpeg_recipe picture = {
		.width = 64, .height = 48, .n_components = 3, .h = 1, .v = 1, .quality = 90
	};
	struct cache_config config = { .budget_bytes = { [CACHE_DECODED] = 1 << 20 } };
	struct recipe recipe = { 0 };
	struct sample_worker *w = sample_worker_create(&decode_limits_default);
	struct pipeline_error why;
	struct sample_error err;
	struct cache_stats stats;
	struct cache *real;
	uint8_t row[3 * 16 * 16];
	size_t n;
	uint8_t *jpeg = jpeg_make(&picture, 5, &n);

	make_dir("pets", 0755);
	make_dir("pets/cat", 0755);
	put_bytes("pets/cat/a.jpg", jpeg, n, 0644);
	free(jpeg);
	recipe.dataset = open_trusted("imagefolder", in_root("pets"));
	ck_assert_int_eq(
		pipeline_parse("[[\"RandomResizedCrop\", [16, 16]]]", DTYPE_UINT8, LAYOUT_NHWC, &recipe.pipeline, &why),
		0);
	ck_assert_int_eq(cache_create(&config, &real), 0);
	ck_assert_int_eq(recipe_attach(&recipe, real, 1 << 20, false, &decode_limits_default), 0);
	for (int hurried = 1; hurried >= 0; hurried--) {
		sample_worker_hurry(w, hurried);
		ck_assert_int_eq(
			sample_make(&recipe, w, (struct sample_key){ .seed = 1 }, NULL, true, (void *[]){ row }, &err),
			0);
		cache_get_stats(real, CACHE_DECODED, &stats);
		ck_assert_uint_eq(stats.n_entries, !hurried);
	}
	sample_worker_destroy(w);
	recipe_finish(&recipe);
	cache_destroy(real);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("filling");
	TCase *t = tcase_create("filling");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(t, test_an_epoch_that_fills_takes_a_quarter_longer_at_most, 0, 1);
	tcase_add_loop_test(t, test_an_epoch_that_fills_takes_a_quarter_longer_at_most, 4, 8);
	tcase_add_test(t, test_everything_is_kept_while_no_trainer_waits);
	tcase_add_test(t, test_each_cache_has_an_account_of_its_own);
	tcase_add_test(t, test_a_sample_is_kept_unless_a_trainer_waits);
	suite_add_tcase(s, t);
	return suite_run(s);
}
