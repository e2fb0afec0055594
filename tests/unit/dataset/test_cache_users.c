/* The cache of samples with several users: whose parts are whose. */
#include <check.h>
#include <errno.h>

#include "support/caches.h"
#include "support/suite.h"

enum { ALICE = 1, BOB = 2, CAROL = 3, ENTRY = 10000, ENTRIES = 4000, SHARED_BYTES = 24 << 20 };

static void fill(struct cache_space *s)
{
	for (uint64_t i = 0; i < ENTRIES; i++)
		put(s, i, ENTRY, 0);
}

static uint64_t charged(struct cache_space *s)
{
	struct cache_stats stats;

	cache_space_get_stats(s, &stats);
	return stats.charged_bytes;
}

/* The entries that it has are those that were put. */
static void check_entries(struct cache_space *s)
{
	struct cache_hit hit;

	for (uint64_t i = 0; i < ENTRIES; i++) {
		if (!cache_lookup(s, i, &hit))
			continue;
		ck_assert_uint_eq(hit.file.ino, i);
		ck_assert_uint_eq(hit.pixels.bytes[0], i & 0xff);
		ck_assert_uint_eq(hit.pixels.bytes[ENTRY - 1], i & 0xff);
		cache_release(&hit);
	}
}

static void is_about(uint64_t bytes, uint64_t expected)
{
	ck_assert_msg(bytes > expected - expected / 8 && bytes < expected + expected / 8, "%llu where %llu is due",
		      (unsigned long long)bytes, (unsigned long long)expected);
}

START_TEST(test_users_have_equal_parts_of_a_full_cache)
{
	/* The first has all of it until others come, holds no more than its part while they want theirs, and has all
	 * again when they have gone. A hit of an entry that has to go stays whole. */
	struct cache *c = make(SHARED_BYTES, NULL);
	struct cache_space *bobs = cache_attach(c, 1, ENTRIES, CACHE_DECODED, 0, BOB), *alices, *carols;
	struct cache_hit held;

	fill(bobs);
	is_about(charged(bobs), SHARED_BYTES);
	ck_assert(!cache_has_room(bobs, ENTRY));
	ck_assert(cache_lookup(bobs, 0, &held));
	alices = cache_attach(c, 2, ENTRIES, CACHE_DECODED, 0, ALICE);
	ck_assert(cache_has_room(alices, ENTRY));
	for (int i = 0; i < 3; i++) {
		fill(alices);
		fill(bobs);
	}
	is_about(charged(alices), SHARED_BYTES / 2);
	is_about(charged(bobs), SHARED_BYTES / 2);
	ck_assert(!cache_has_room(alices, ENTRY));
	ck_assert(!cache_has_room(bobs, ENTRY));
	carols = cache_attach(c, 3, ENTRIES, CACHE_DECODED, 0, CAROL);
	for (int i = 0; i < 3; i++) {
		fill(bobs);
		fill(carols);
		fill(alices);
	}
	is_about(charged(alices), SHARED_BYTES / 3);
	is_about(charged(bobs), SHARED_BYTES / 3);
	is_about(charged(carols), SHARED_BYTES / 3);
	check_entries(alices);
	check_entries(bobs);
	check_entries(carols);
	for (int i = 0; i < ENTRY; i++)
		ck_assert_uint_eq(held.pixels.bytes[i], 0);
	cache_release(&held);
	cache_detach(alices, ALICE);
	cache_detach(carols, CAROL);
	fill(bobs);
	is_about(charged(bobs), SHARED_BYTES);
	cache_detach(bobs, BOB);
	ck_assert_uint_le(stats_of(c, CACHE_DECODED).charged_bytes, SHARED_BYTES);
	cache_destroy(c);
}
END_TEST

START_TEST(test_what_a_user_does_not_want_stays_another_users)
{
	/* Alice's data set takes an eighth: Bob keeps the rest, and many data sets give him no more than his part. */
	struct cache *c = make(SHARED_BYTES, NULL);
	struct cache_space *bobs[4], *alices;

	for (uint64_t i = 0; i < 4; i++) {
		bobs[i] = cache_attach(c, 10 + i, ENTRIES, CACHE_DECODED, 0, BOB);
		fill(bobs[i]);
	}
	alices = cache_attach(c, 2, ENTRIES, CACHE_DECODED, 0, ALICE);
	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < SHARED_BYTES / 8 / ENTRY; i++)
			put(alices, i, ENTRY, 0);
		for (int i = 0; i < 4; i++)
			fill(bobs[i]);
	}
	ck_assert_uint_ge(charged(bobs[0]) + charged(bobs[1]) + charged(bobs[2]) + charged(bobs[3]),
			  SHARED_BYTES * 3 / 4);
	for (uint64_t i = 0; i < SHARED_BYTES / 8 / ENTRY; i++) {
		struct cache_hit hit;

		ck_assert(cache_lookup(alices, i, &hit));
		cache_release(&hit);
	}
	fill(alices);
	is_about(charged(alices), SHARED_BYTES / 2);
	for (int i = 0; i < 4; i++)
		cache_detach(bobs[i], BOB);
	cache_detach(alices, ALICE);
	cache_destroy(c);
}
END_TEST

START_TEST(test_a_table_is_not_taken)
{
	/* It is most of what Bob has; Alice does not decode again and again for room that there is not. */
	struct cache *c = make(SHARED_BYTES, NULL);
	struct cache_space *bobs = cache_attach(c, 1, SHARED_BYTES / 8 / 6 * 5, CACHE_DECODED, 0, BOB),
			   *alices = cache_attach(c, 2, ENTRIES, CACHE_DECODED, 0, ALICE);

	fill(alices);
	is_about(charged(alices), SHARED_BYTES / 6);
	ck_assert(!cache_has_room(alices, ENTRY));
	cache_detach(alices, ALICE);
	cache_detach(bobs, BOB);
	cache_destroy(c);
}
END_TEST

START_TEST(test_a_data_set_of_two_users_counts_for_each_in_equal_parts)
{
	/* Bob and Carol share a third each, in one space; Alice has hers. */
	struct cache *c = make(SHARED_BYTES, NULL);
	struct cache_space *both = cache_attach(c, 1, ENTRIES, CACHE_DECODED, 0, BOB), *alices;

	ck_assert_ptr_eq(cache_attach(c, 1, ENTRIES, CACHE_DECODED, 0, CAROL), both);
	ck_assert_ptr_eq(cache_attach(c, 1, ENTRIES, CACHE_DECODED, 0, BOB), both); /* another loader of his */
	fill(both);
	alices = cache_attach(c, 2, ENTRIES, CACHE_DECODED, 0, ALICE);
	fill(alices);
	is_about(charged(alices), SHARED_BYTES / 3);
	is_about(charged(both), SHARED_BYTES / 3 * 2);
	cache_detach(both, BOB);
	cache_detach(both, CAROL);
	fill(alices); /* of two users */
	is_about(charged(alices), SHARED_BYTES / 2);
	cache_detach(both, BOB);
	cache_detach(alices, ALICE);
	cache_destroy(c);
}
END_TEST

SUITE(cache_users)
{
	Suite *s = suite_create("cache_users");
	TCase *tc = tcase_create("cache_users");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_users_have_equal_parts_of_a_full_cache);
	tcase_add_test(tc, test_what_a_user_does_not_want_stays_another_users);
	tcase_add_test(tc, test_a_table_is_not_taken);
	tcase_add_test(tc, test_a_data_set_of_two_users_counts_for_each_in_equal_parts);
	suite_add_tcase(s, tc);
	return s;
}
