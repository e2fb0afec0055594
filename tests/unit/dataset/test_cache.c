/* The cache of samples: what stays, what is evicted, and what makes room. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/cache/memory.h"
#include "support/caches.h"
#include "support/suite.h"

START_TEST(test_what_was_put_is_found_with_its_identity)
{
	/* Proves pixels and indexes come back byte for byte, aligned, padded and with the file's identity. */
	static uint8_t pixels[10 * 64], zeros[64];
	struct cache_pixels image = { pixels, 64, 20, 10 };
	struct cache *c = make(10 << 20, NULL);
	struct cache_space *decoded = cache_attach(c, 1, 100, CACHE_DECODED, 5, 1),
			   *indexes = cache_attach(c, 1, 100, CACHE_CHECKPOINTS, 0, 1);
	struct file_bytes b = file_of(42, 1001, 3);
	struct cache_hit hit;

	for (size_t i = 0; i < sizeof(pixels); i++) {
		pixels[i] = (uint8_t)(i % 64 < 60 ? i : 0xee); /* 4 bytes between rows */
	}
	ck_assert(!cache_lookup(decoded, 42, &hit));
	ck_assert_int_eq(cache_put_pixels(decoded, 42, &b, &image, 3), 0);
	ck_assert_int_eq(cache_put_index(indexes, 42, &b, "states", 6), 0);
	ck_assert_int_eq(cache_put_pixels(decoded, 42, &b, &image, 3), CACHE_E_PRESENT);
	ck_assert_int_eq(cache_put_pixels(decoded, 100, &b, &image, 3), CACHE_E_FULL);

	ck_assert(cache_lookup(decoded, 42, &hit));
	ck_assert(hit.file.n_bytes == 1001 && hit.file.mtime_ns == 1003 && hit.file.ino == 42 && hit.file.dev == 7);
	ck_assert(hit.pixels.width == 20 && hit.pixels.height == 10 && hit.pixels.stride_bytes == 60);
	for (int y = 0; y < 10; y++) {
		ck_assert_int_eq(memcmp(hit.pixels.bytes + y * 60, pixels + y * 64, 60), 0);
	}
	ck_assert_int_eq(memcmp(hit.pixels.bytes + 10 * 60, zeros, 64), 0);
	ck_assert_uint_eq((uintptr_t)hit.pixels.bytes % 64, 0);
	cache_release(&hit);
	ck_assert(cache_lookup_for(indexes, 42, &b, &hit));
	ck_assert(hit.n_index_bytes == 6 && !memcmp(hit.index, "states", 6));
	cache_release(&hit);
	free(b.data);
	cache_detach(decoded, 1);
	cache_detach(indexes, 1);
	cache_destroy(c);
}
END_TEST

START_TEST(test_loaders_of_the_same_data_set_share_a_space)
{
	/* Proves that a space is identified by data set, tier and prefix, and that different ones share no entries. */
	struct cache *c = make(10 << 20, NULL);
	struct cache_space *a = cache_attach(c, 1, 100, CACHE_DECODED, 5, 1);
	struct cache_space *same = cache_attach(c, 1, 100, CACHE_DECODED, 5, 1),
			   *other = cache_attach(c, 1, 100, CACHE_DECODED, 6, 1);
	struct cache_space *another = cache_attach(c, 2, 100, CACHE_DECODED, 5, 1),
			   *indexes = cache_attach(c, 1, 100, CACHE_CHECKPOINTS, 5, 1);

	ck_assert_ptr_eq(a, same);
	ck_assert_ptr_ne(a, other);
	ck_assert_ptr_ne(a, another);
	ck_assert_ptr_ne(a, indexes);
	cache_detach(a, 1);
	cache_detach(same, 1);
	cache_detach(other, 1);
	cache_detach(another, 1);
	cache_detach(indexes, 1);
	cache_destroy(c);
}
END_TEST

START_TEST(test_a_full_cache_keeps_what_it_has)
{
	/* Proves that nothing is evicted to insert, memory stays within the budget, and refusals are counted. */
	struct cache *c = make(4 << 20, NULL);
	struct cache_space *s = cache_attach(c, 1, 1000, CACHE_DECODED, 0, 1);
	unsigned n_in = 0, n_refused = 0;
	struct cache_stats stats;
	struct cache_hit hit;

	for (uint64_t i = 0; i < 1000; i++) {
		int r = put(s, i, 10000, 0);

		ck_assert(r == 0 || r == CACHE_E_FULL);
		n_in += r == 0;
		n_refused += r != 0;
	}
	ck_assert_uint_gt(n_in, 350); /* of 417 that would fit without any loss */
	ck_assert(!cache_has_room(s, 10000));
	for (uint64_t i = 0; i < n_in; i++) {
		ck_assert(cache_lookup(s, i, &hit));
		cache_release(&hit);
	}
	ck_assert(!cache_lookup(s, n_in, &hit));
	stats = stats_of(c, CACHE_DECODED);
	ck_assert_uint_le(stats.charged_bytes, 4 << 20);
	ck_assert_uint_ge(stats.charged_bytes, stats.entry_bytes);
	ck_assert_uint_eq(stats.n_entries, n_in);
	ck_assert_uint_eq(stats.entry_bytes, n_in * 10000ull);
	ck_assert_uint_eq(stats.refused, n_refused);
	ck_assert_uint_eq(stats.hits, n_in);
	ck_assert_uint_eq(stats.misses, 1);
	cache_detach(s, 1);
	cache_destroy(c);
}
END_TEST

START_TEST(test_an_unused_data_set_makes_room)
{
	/* Proves that entries of an unused data set stay until another data set needs the memory, and that a held hit
	 * survives even that. */
	struct cache *c = make(4 << 20, NULL);
	struct cache_space *old = cache_attach(c, 1, 1000, CACHE_DECODED, 0, 1), *fresh;
	struct cache_hit held, hit;
	unsigned n_in = 0;

	for (uint64_t i = 0; i < 1000; i++) {
		put(old, i, 10000, 0);
	}
	cache_detach(old, 1);
	old = cache_attach(c, 1, 1000, CACHE_DECODED, 0, 1);
	ck_assert(cache_lookup(old, 5, &held)); /* still there */
	cache_detach(old, 1);
	fresh = cache_attach(c, 2, 1000, CACHE_DECODED, 0, 1);
	ck_assert(cache_has_room(fresh, 10000));
	for (uint64_t i = 0; i < 1000; i++) {
		n_in += put(fresh, i, 10000, 0) == 0;
	}
	for (int i = 0; i < 10000; i++) {
		ck_assert_uint_eq(held.pixels.bytes[i], 5);
	}
	cache_release(&held);
	for (uint64_t i = 0; i < 1000; i++) {
		n_in += put(fresh, i, 10000, 0) == 0;
	}
	ck_assert_uint_gt(n_in, 350);
	old = cache_attach(c, 1, 10, CACHE_DECODED, 0, 1); /* 4 KiB of table may no longer fit */
	ck_assert(!cache_lookup(old, 5, &hit));
	cache_detach(old, 1);
	cache_detach(fresh, 1);
	ck_assert_uint_le(stats_of(c, CACHE_DECODED).charged_bytes, 4 << 20);
	cache_destroy(c);
}
END_TEST

START_TEST(test_memory_is_given_back_by_unused_data_sets_first)
{
	/* The unused one goes as a whole. What is in use loses mappings, but not what is on loan; and all goes where all is
	 * asked for, but for tables. */
	enum { N = 200, BYTES = 50000 };
	struct cache *c = make(64 << 20, NULL);
	struct cache_space *unused = cache_attach(c, 1, N, CACHE_DECODED, 0, 0),
			   *used = cache_attach(c, 2, N, CACHE_DECODED, 0, 0);
	struct cache_stats s;
	struct cache_hit hit;

	for (uint64_t i = 0; i < N; i++) {
		ck_assert_int_eq(put(unused, i, BYTES, 0), 0);
		ck_assert_int_eq(put(used, i, BYTES, 0), 0);
	}
	cache_detach(unused, 0);
	uint64_t before = stats_of(c, CACHE_DECODED).charged_bytes;
	ck_assert_uint_ge(cache_give_back(c, 1), N * BYTES);
	ck_assert_uint_le(stats_of(c, CACHE_DECODED).charged_bytes, before - N * BYTES);
	cache_space_get_stats(used, &s);
	ck_assert_uint_eq(s.n_entries, N);

	ck_assert(cache_lookup(used, 0, &hit));
	ck_assert_uint_ge(cache_give_back(c, 1), 1);
	ck_assert(!cache_lookup(used, 0, &(struct cache_hit){ 0 }));
	ck_assert_int_eq(hit.pixels.bytes[0], 0);
	ck_assert_int_eq(hit.pixels.bytes[BYTES - 1], 0);
	cache_space_get_stats(used, &s);
	ck_assert(s.n_entries > 0 && s.n_entries < N);
	(void)cache_give_back(c, UINT64_MAX);
	cache_space_get_stats(used, &s);
	ck_assert_uint_eq(s.n_entries, 0);
	cache_release(&hit);
	cache_detach(used, 0);
	cache_destroy(c);
}
END_TEST

START_TEST(test_what_is_unused_goes_with_age)
{
	struct cache *c = make(64 << 20, NULL);
	struct cache_space *unused = cache_attach(c, 1, 100, CACHE_DECODED, 0, 0),
			   *used = cache_attach(c, 2, 100, CACHE_DECODED, 0, 0);

	ck_assert_int_eq(put(unused, 1, 100000, 0), 0);
	ck_assert_int_eq(put(used, 1, 100000, 0), 0);
	cache_detach(unused, 0);
	uint64_t both = stats_of(c, CACHE_DECODED).charged_bytes;
	cache_drop_unused(c, UINT64_C(3600) * 1000000000);
	ck_assert_uint_eq(stats_of(c, CACHE_DECODED).charged_bytes, both);
	cache_drop_unused(c, 0);
	ck_assert_uint_lt(stats_of(c, CACHE_DECODED).charged_bytes, both);
	ck_assert_uint_gt(stats_of(c, CACHE_DECODED).charged_bytes, 0);
	cache_detach(used, 0);
	cache_destroy(c);
}
END_TEST

START_TEST(test_large_entries_leave_a_quarter)
{
	/* Proves that there is no ample room left while the tier still takes small entries. */
	struct cache *c = make(8 << 20, NULL);
	struct cache_space *s = cache_attach(c, 1, 10000, CACHE_DECODED, 0, 1);
	uint64_t n = 0;

	ck_assert(!cache_has_ample_room(NULL, 1));
	while (n < 1000 && cache_has_ample_room(s, 20000)) {
		ck_assert_int_eq(put(s, n++, 20000, 0), 0);
	}
	ck_assert_uint_gt(n, 200);
	ck_assert_uint_lt(stats_of(c, CACHE_DECODED).charged_bytes, 7 << 20);
	for (uint64_t i = 0; i < 50; i++) {
		ck_assert_int_eq(put(s, 5000 + i, 1000, 0), 0);
	}
	cache_detach(s, 1);
	cache_destroy(c);
}
END_TEST

START_TEST(test_everything_charged_is_refunded)
{
	/* Proves that memory is accounted for correctly: a budget that one data set after another has used up is still
	 * whole. */
	struct cache *c = make(1 << 20, NULL);

	for (uint64_t set = 0; set < 50; set++) {
		struct cache_space *s = cache_attach(c, set, 10, CACHE_DECODED, 0, 1);

		ck_assert_ptr_nonnull(s);
		for (uint64_t i = 0; i < 10; i++) {
			ck_assert_int_eq(put(s, i, 90000, 0), 0);
		}
		cache_detach(s, 1);
	}
	ck_assert_uint_le(stats_of(c, CACHE_DECODED).charged_bytes, 1 << 20);
	cache_destroy(c);
}
END_TEST

START_TEST(test_a_stale_entry_is_replaced)
{
	/* Proves the three ways in which an entry of another file is detected, and that its memory is used again. */
	struct cache *c = make(1 << 20, NULL);
	struct cache_space *s = cache_attach(c, 1, 10, CACHE_DECODED, 0, 1);
	struct file_bytes now = file_of(3, 50000, 2);
	struct cache_stats stats;
	struct cache_hit hit;

	ck_assert_int_eq(put(s, 3, 50000, 0), 0);
	ck_assert_int_eq(put(s, 3, 50000, 1), 0); /* replaces the entry */
	ck_assert(cache_lookup(s, 3, &hit));
	ck_assert_uint_eq(hit.file.mtime_ns, 1001);
	cache_drop(s, 3, &hit); /* as when dataset_is_current detects it */
	ck_assert(!cache_lookup(s, 3, &hit));
	ck_assert_int_eq(put(s, 3, 50000, 1), 0);
	ck_assert(!cache_lookup_for(s, 3, &now, &hit)); /* as when the caller has the file */
	ck_assert_int_eq(put_file(s, 3, &now), 0);
	ck_assert(cache_lookup_for(s, 3, &now, &hit));
	cache_release(&hit);
	cache_space_get_stats(s, &stats);
	ck_assert_uint_eq(stats.stale, 3);
	ck_assert_uint_eq(stats.n_entries, 1);
	ck_assert_uint_eq(stats.hits, 1);
	for (unsigned version = 3; version < 300; version++) {
		ck_assert_int_eq(put(s, 3, 50000, version), 0); /* 15 MB through 1 MiB */
	}
	free(now.data);
	cache_detach(s, 1);
	cache_destroy(c);
}
END_TEST

START_TEST(test_an_index_grows_in_place_of_the_old_one)
{
	/* Proves that putting an index again replaces it, that holders of the old one keep it, and that growth does not
	 * use up the budget. */
	struct cache *c = make(1 << 20, NULL);
	struct cache_space *s = cache_attach(c, 1, 10, CACHE_CHECKPOINTS, 0, 1);
	struct file_bytes b = file_of(1, 100, 0);
	struct cache_hit old, grown;
	char bytes[2000];

	memset(bytes, 'a', sizeof(bytes));
	ck_assert_int_eq(cache_put_index(s, 1, &b, bytes, sizeof(bytes)), 0);
	ck_assert(cache_lookup(s, 1, &old));
	for (int i = 0; i < 5000; i++) {
		memset(bytes, 'b' + i % 20, sizeof(bytes));
		ck_assert_int_eq(cache_put_index(s, 1, &b, bytes, sizeof(bytes)), 0);
	}
	ck_assert(cache_lookup(s, 1, &grown));
	ck_assert_int_eq(*(const char *)old.index, 'a');
	ck_assert_int_eq(*(const char *)grown.index, 'b' + 4999 % 20);
	cache_release(&old);
	cache_release(&grown);
	ck_assert_uint_le(stats_of(c, CACHE_CHECKPOINTS).charged_bytes, 100000);
	free(b.data);
	cache_detach(s, 1);
	cache_destroy(c);
}
END_TEST

START_TEST(test_a_tier_that_is_off_finds_nothing)
{
	/* Proves that without a budget, or with a budget too small for the table, there is no space, and that all
	 * functions accept that. */
	struct cache *c = make(0, NULL), *small = make(4096, NULL);
	struct cache_space *s = cache_attach(c, 1, 10, CACHE_DECODED, 0, 1);
	struct file_bytes b = file_of(1, 10, 0);
	struct cache_stats stats;
	struct cache_hit hit;

	ck_assert_ptr_null(s);
	ck_assert_ptr_null(cache_attach(small, 1, 1000, CACHE_DECODED, 0, 1));
	ck_assert_uint_eq(stats_of(small, CACHE_DECODED).charged_bytes, 0);
	ck_assert(!cache_lookup(s, 1, &hit));
	ck_assert(!cache_has_room(s, 1));
	ck_assert_int_eq(put_file(s, 1, &b), CACHE_E_FULL);
	cache_space_get_stats(s, &stats);
	ck_assert_uint_eq(stats.misses, 0);
	cache_detach(s, 1);
	free(b.data);
	cache_destroy(c);
	cache_destroy(small);
	cache_destroy(NULL);
}
END_TEST

/* ---- memory ---- */

START_TEST(test_memory_reuses_what_comes_back)
{
	/* Proves by a random trace that blocks never overlap, and that putting and taking without end stays within a
	 * bound. */
	enum { N = 200 };
	struct cache_budget budget = { .limit_bytes = 8 << 20 };
	enum { HEAD = sizeof(struct cache_block) };
	struct {
		struct cache_block *block;
		unsigned char *at;
		size_t n;
		unsigned char mark;
	} blocks[N] = { 0 };
	struct cache_memory m;
	unsigned seed = 1, n_failed = 0;

	cache_memory_init(&m, &budget);
	for (int turn = 0; turn < 20000; turn++) {
		int i = rand_r(&seed) % N;

		if (blocks[i].at) {
			for (size_t k = 0; k < blocks[i].n; k += 61) {
				ck_assert_uint_eq(blocks[i].at[k], blocks[i].mark);
			}
			cache_memory_free(&m, blocks[i].block);
		}
		blocks[i].n = (size_t)rand_r(&seed) % 30000;
		blocks[i].mark = (unsigned char)turn;
		blocks[i].block = cache_memory_alloc(&m, HEAD + blocks[i].n, (uint64_t)turn, true);
		blocks[i].at = blocks[i].block ? (unsigned char *)blocks[i].block + HEAD : NULL;
		n_failed += !blocks[i].at;
		if (blocks[i].at) {
			ck_assert_uint_eq((uintptr_t)blocks[i].block % 64, 0);
			ck_assert_uint_eq(blocks[i].block->tag, (uint64_t)turn);
			ck_assert_uint_ge(blocks[i].block->n_bytes, HEAD + blocks[i].n);
			memset(blocks[i].at, blocks[i].mark, blocks[i].n);
		}
	}
	ck_assert_uint_lt(n_failed, 200); /* 3 MB live on average in 8 MiB */
	ck_assert_uint_le(budget.used_bytes, 8 << 20);
	cache_memory_finish(&m);
	ck_assert_uint_eq(budget.used_bytes, 0);
}
END_TEST

START_TEST(test_a_retired_mapping_goes_with_its_last_block)
{
	/* Whatever the order of its blocks; its freed blocks are given to nobody, and the others stay. */
	enum { N = 64, BYTES = 60000 };
	struct cache_budget budget = { .limit_bytes = 64 << 20 };
	struct cache_memory m;
	struct cache_block *blocks[N];
	uint64_t *tags, before;
	size_t n;

	cache_memory_init(&m, &budget);
	ck_assert(!cache_memory_retire(&m, &tags, &n));
	for (uint64_t i = 0; i < N; i++)
		blocks[i] = cache_memory_alloc(&m, BYTES, i, true);
	before = budget.used_bytes;
	cache_memory_free(&m, blocks[1]);
	ck_assert(cache_memory_retire(&m, &tags, &n));
	ck_assert_uint_ge(n, 8);
	ck_assert(cache_block_is_retired(blocks[0]));
	ck_assert(!cache_block_is_retired(blocks[N - 1]));
	ck_assert_uint_eq(budget.used_bytes, before);
	for (size_t i = 0; i < n; i++) {
		ck_assert_uint_le(tags[i], n);
		ck_assert_uint_ne(tags[i], 1);
		cache_memory_free(&m, blocks[tags[i]]);
	}
	ck_assert_uint_lt(budget.used_bytes, before);
	ck_assert_uint_eq(cache_memory_charged(&m), budget.used_bytes);
	free(tags);
	while (cache_memory_retire(&m, &tags, &n)) {
		for (size_t i = 0; i < n; i++)
			cache_memory_free(&m, blocks[tags[i]]);
		free(tags);
	}
	ck_assert_uint_eq(budget.used_bytes, 0);
	blocks[0] = cache_memory_alloc(&m, BYTES, 0, true);
	ck_assert_ptr_nonnull(blocks[0]);
	ck_assert_ptr_null(cache_memory_alloc(&m, 8 << 20, 0, false));
	cache_memory_free(&m, blocks[0]);
	cache_memory_finish(&m);
	ck_assert_uint_eq(budget.used_bytes, 0);
}
END_TEST

/* ---- threads ---- */

static void *use_everything(void *arg)
{
	struct cache *c = arg;
	unsigned seed = (unsigned)(uintptr_t)&seed;
	uid_t user = (uid_t)rand_r(&seed) % 3;

	for (int round = 0; round < 20; round++) {
		uint64_t set = (uint64_t)rand_r(&seed) % 3;
		struct cache_space *s = cache_attach(c, set, 100, CACHE_DECODED, 0, user),
				   *x = cache_attach(c, set, 100, CACHE_CHECKPOINTS, 0, user);

		for (int turn = 0; turn < 200; turn++) {
			uint64_t i = (uint64_t)rand_r(&seed) % 100;
			unsigned version = (unsigned)rand_r(&seed) % 20 == 0;
			struct file_bytes b = file_of(i, 5000 + i, version);
			struct cache_hit hit;

			if (cache_lookup(s, i, &hit)) {
				for (size_t k = 0; k < hit.pixels.width; k += 97) {
					if (hit.pixels.bytes[k] != i || hit.file.ino != i) {
						return "another sample's bytes";
					}
				}
				if (turn % 50 == 0) {
					cache_drop(s, i, &hit);
				} else {
					cache_release(&hit);
				}
			} else if (cache_has_room(s, b.n_bytes)) {
				put_file(s, i, &b);
			}
			cache_put_index(x, i, &b, b.data, 100);
			if (cache_lookup_for(x, i, &b, &hit)) {
				cache_release(&hit);
			}
			free(b.data);
		}
		if (round % 5 == 0) {
			cache_sync(c);
		}
		cache_detach(s, user);
		cache_detach(x, user);
	}
	return NULL;
}

START_TEST(test_threads_share_the_cache)
{
	/* Proves under load from several threads, with too little room for all data sets, that no hit shows another
	 * sample's bytes. */
	struct cache *c = make(700 << 10, folder);
	pthread_t t[4];

	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_create(&t[i], NULL, use_everything, c), 0);
	}
	for (int i = 0; i < 4; i++) {
		void *what;

		pthread_join(t[i], &what);
		ck_assert_msg(!what, "%s", (char *)what);
	}
	ck_assert_uint_le(stats_of(c, CACHE_DECODED).charged_bytes, 700 << 10);
	cache_destroy(c);
}
END_TEST

SUITE(cache)
{
	Suite *s = suite_create("cache");
	TCase *tc = tcase_create("cache");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_what_was_put_is_found_with_its_identity);
	tcase_add_test(tc, test_loaders_of_the_same_data_set_share_a_space);
	tcase_add_test(tc, test_a_full_cache_keeps_what_it_has);
	tcase_add_test(tc, test_an_unused_data_set_makes_room);
	tcase_add_test(tc, test_memory_is_given_back_by_unused_data_sets_first);
	tcase_add_test(tc, test_what_is_unused_goes_with_age);
	tcase_add_test(tc, test_large_entries_leave_a_quarter);
	tcase_add_test(tc, test_everything_charged_is_refunded);
	tcase_add_test(tc, test_a_stale_entry_is_replaced);
	tcase_add_test(tc, test_an_index_grows_in_place_of_the_old_one);
	tcase_add_test(tc, test_a_tier_that_is_off_finds_nothing);
	tcase_add_test(tc, test_memory_reuses_what_comes_back);
	tcase_add_test(tc, test_a_retired_mapping_goes_with_its_last_block);
	tcase_add_test(tc, test_threads_share_the_cache);
	suite_add_tcase(s, tc);
	return s;
}
