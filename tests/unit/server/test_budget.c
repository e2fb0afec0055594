/* How the memory budget is divided among the tiers of the cache. */
#include <check.h>
#include <stdint.h>

#include "server/budget.h"
#include "dataset/cache/sample-cache.h"
#include "support/suite.h"

enum { MIB = 1 << 20 };

/* The division of 160 MiB, of which 40 are working memory's and half of the rest the caches'. */
static struct budget division(const char *jpeg, const char *decoded)
{
	struct config c;
	struct config_error err;
	struct budget b = { 0 };

	ck_assert_int_eq(config_defaults(&c), 0);
	ck_assert_int_eq(config_set(&c, "memory", "160MiB", &err), 0);
	ck_assert_int_eq(config_set(&c, "cache.jpeg", jpeg, &err), 0);
	ck_assert_int_eq(config_set(&c, "cache.decoded", decoded, &err), 0);
	ck_assert_int_eq(budget_init(&b, &c), 0);
	ck_assert_uint_eq(b.total_bytes, 160 * MIB);
	config_finish(&c);
	return b;
}

static void expect_division(const char *jpeg, const char *decoded, uint64_t index_bytes, uint64_t decoded_bytes)
{
	struct budget b = division(jpeg, decoded);

	ck_assert_uint_eq(b.index_bytes, index_bytes);
	ck_assert_uint_eq(b.decoded_bytes, decoded_bytes);
	budget_finish(&b);
}

START_TEST(test_each_setting_sizes_the_tier_that_it_names)
{
	/* cache.jpeg is the memory of indexes, and of nothing else. */
	expect_division("6MiB", "off", 6 * MIB, 0);
	expect_division("off", "7MiB", 0, 7 * MIB);
	expect_division("6MiB", "7MiB", 6 * MIB, 7 * MIB);
	expect_division("off", "off", 0, 0);
}
END_TEST

START_TEST(test_tiers_share_half_of_the_budget)
{
	/* Without a size indexes have an eighth of the half, and decoded samples the rest; sizes that are too large
	 * together are cut, those of indexes last. */
	struct budget b = division("auto", "auto");
	const uint64_t half = b.bytes / 2;

	budget_finish(&b);
	expect_division("auto", "auto", half / 8, half - half / 8);
	expect_division("off", "auto", 0, half);
	expect_division("6MiB", "auto", 6 * MIB, half - 6 * MIB);
	expect_division("1TiB", "auto", half, 0);
	expect_division("6MiB", "1TiB", 6 * MIB, half - 6 * MIB);
}
END_TEST

START_TEST(test_a_squeezed_cache_gets_its_size_back_by_and_by)
{
	/* Empty caches have nothing to give, and get no larger while memory is scarce. */
	struct budget b = division("auto", "auto");
	const uint64_t all = b.bytes / 2;
	struct cache_stats decoded, index;
	uint64_t have, before = 0;

	ck_assert_uint_eq(budget_squeeze(&b), 0);
	for (unsigned n = 0;
	     (cache_get_stats(b.cache, CACHE_DECODED, &decoded), cache_get_stats(b.cache, CACHE_CHECKPOINTS, &index),
	      have = decoded.budget_bytes + index.budget_bytes) < all;
	     n++) {
		ck_assert(n == 0 ? have == 0 : have > before);
		ck_assert_uint_lt(n, 9);
		before = have;
		budget_relax(&b);
	}
	budget_relax(&b);
	cache_get_stats(b.cache, CACHE_DECODED, &decoded);
	ck_assert_uint_eq(decoded.budget_bytes, all - all / 8);
	budget_finish(&b);
}
END_TEST

SUITE(budget)
{
	Suite *s = suite_create("budget");
	TCase *t = tcase_create("budget");
	tcase_add_test(t, test_each_setting_sizes_the_tier_that_it_names);
	tcase_add_test(t, test_tiers_share_half_of_the_budget);
	tcase_add_test(t, test_a_squeezed_cache_gets_its_size_back_by_and_by);
	suite_add_tcase(s, t);
	return s;
}
