/* Indexes that the cache of samples keeps over restarts. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/cache/file.h"
#include "support/caches.h"
#include "support/suite.h"

static const char *kept_path(uint64_t id)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/index-%016llx.cache", folder, (unsigned long long)id);
	return path;
}

static uint64_t kept_bytes(uint64_t id)
{
	struct stat st;

	return stat(kept_path(id), &st) < 0 ? 0 : (uint64_t)st.st_size;
}

/* Puts indexes of n samples with the given text, as one run of a daemon does. */
static void live(unsigned n, const char *text)
{
	struct cache *c = make(10 << 20, folder);
	struct cache_space *s = cache_attach(c, 9, 1000, CACHE_CHECKPOINTS, 0, 1);

	for (uint64_t i = 0; i < n; i++) {
		struct file_bytes b = file_of(i, 100, 0);

		ck_assert_int_eq(cache_put_index(s, i, &b, text, strlen(text) + 1), 0);
		free(b.data);
	}
	cache_detach(s, 1);
	cache_destroy(c);
}

/* How many of the first n indexes another run finds, all with this text. */
static unsigned n_found(unsigned n, const char *text)
{
	struct cache *c = make(10 << 20, folder);
	struct cache_space *s = cache_attach(c, 9, 1000, CACHE_CHECKPOINTS, 0, 1);
	unsigned found = 0;

	for (uint64_t i = 0; i < n; i++) {
		struct file_bytes b = file_of(i, 100, 0);
		struct cache_hit hit;

		b.dev = 99; /* a restart may renumber devices */
		if (cache_lookup_for(s, i, &b, &hit)) {
			ck_assert_str_eq(hit.index, text);
			cache_release(&hit);
			found++;
		}
		free(b.data);
	}
	cache_detach(s, 1);
	cache_destroy(c);
	return found;
}

START_TEST(test_indexes_survive_a_restart)
{
	/* Proves that the next run finds what one run put, that growing replaces, and that nothing is written twice. */
	uint64_t size;

	live(100, "first");
	ck_assert_uint_eq(n_found(100, "first"), 100);
	size = kept_bytes(9);
	ck_assert_uint_gt(size, 100 * 64);
	ck_assert_uint_eq(n_found(200, "first"), 100);
	ck_assert_uint_eq(kept_bytes(9), size);
	live(100, "second, longer");
	ck_assert_uint_eq(n_found(100, "second, longer"), 100);
}
END_TEST

START_TEST(test_sync_writes_what_is_new)
{
	/* Proves that a crash after cache_sync loses nothing that was put before it. */
	struct cache *c = make(10 << 20, folder);
	struct cache_space *s = cache_attach(c, 9, 1000, CACHE_CHECKPOINTS, 0, 1);
	struct file_bytes b = file_of(0, 100, 0);
	uint64_t before, once;

	before = kept_bytes(9);
	ck_assert_int_eq(cache_put_index(s, 0, &b, "x", 2), 0);
	ck_assert_uint_eq(kept_bytes(9), before);
	cache_sync(c);
	once = kept_bytes(9);
	ck_assert_uint_eq(once, before + cache_record_bytes(2));
	cache_sync(c);
	ck_assert_uint_eq(kept_bytes(9), once);
	free(b.data);
	cache_detach(s, 1);
	cache_destroy(c);
}
END_TEST

START_TEST(test_the_kept_file_stays_bounded)
{
	/* Proves that indexes that grow again and again do not let the file grow without end. */
	struct cache *c = make(10 << 20, folder);
	struct cache_space *s = cache_attach(c, 9, 1000, CACHE_CHECKPOINTS, 0, 1);
	struct file_bytes b = file_of(0, 100, 0);
	static char bytes[100000];

	for (int i = 0; i < 100; i++) {
		memset(bytes, i, sizeof(bytes));
		ck_assert_int_eq(cache_put_index(s, (uint64_t)i % 2, &b, bytes, sizeof(bytes)), 0);
		cache_sync(c);
		ck_assert_uint_le(kept_bytes(9), (1 << 20) + 6 * 100000);
	}
	free(b.data);
	cache_detach(s, 1);
	cache_destroy(c);
	ck_assert_int_eq(access(kept_path(9), F_OK), 0);
}
END_TEST

START_TEST(test_damage_costs_the_damaged_records_only)
{
	/* Proves that damage to any single byte loses at most one record and never serves a wrong one, and that a cut
	 * end is harmless. */
	uint64_t size;

	live(20, "text");
	size = kept_bytes(9);
	for (uint64_t at = 0; at < size; at += 13) {
		char byte;
		int fd = open(kept_path(9), O_RDWR);

		ck_assert_int_eq(TEMP_FAILURE_RETRY(pread(fd, &byte, 1, (off_t)at)), 1);
		byte ^= 0x10;
		ck_assert_int_eq(TEMP_FAILURE_RETRY(pwrite(fd, &byte, 1, (off_t)at)), 1);
		close(fd);
		if (at < CACHE_FILE_HEADER_BYTES) {
			ck_assert_uint_eq(n_found(20, "text"), 0); /* not a file of ours: it is started again */
		} else {
			ck_assert_uint_ge(n_found(20, "text"), 19);
		}
		ck_assert_int_eq(unlink(kept_path(9)), 0);
		live(20, "text");
		ck_assert_uint_eq(kept_bytes(9), size);
	}
	for (uint64_t cut = size - 1; cut > size - 100; cut -= 7) {
		ck_assert_int_eq(truncate(kept_path(9), (off_t)cut), 0);
		ck_assert_uint_eq(n_found(20, "text"), 19 - (cut < size - cache_record_bytes(5)));
		ck_assert_int_eq(unlink(kept_path(9)), 0);
		live(20, "text");
	}
}
END_TEST

START_TEST(test_a_second_life_at_the_same_time_only_reads)
{
	/* Proves that two daemons over one directory do not write into each other's records. */
	struct cache *first = make(10 << 20, folder), *second;
	struct cache_space *a = cache_attach(first, 9, 1000, CACHE_CHECKPOINTS, 0, 1), *b;
	struct file_bytes file = file_of(0, 100, 0);
	struct cache_hit hit;
	uint64_t size;

	ck_assert_int_eq(cache_put_index(a, 0, &file, "from first", 11), 0);
	cache_sync(first);
	size = kept_bytes(9);
	second = make(10 << 20, folder);
	b = cache_attach(second, 9, 1000, CACHE_CHECKPOINTS, 0, 1);
	ck_assert(cache_lookup_for(b, 0, &file, &hit));
	cache_release(&hit);
	ck_assert_int_eq(cache_put_index(b, 0, &file, "from second", 12), 0);
	cache_detach(b, 1);
	cache_destroy(second);
	ck_assert_uint_eq(kept_bytes(9), size);
	free(file.data);
	cache_detach(a, 1);
	cache_destroy(first);
}
END_TEST

START_TEST(test_a_directory_that_is_missing_is_no_error)
{
	/* Proves that indexes work even without a folder to keep them in. */
	struct cache *c = make(10 << 20, "/no/such/directory");
	struct cache_space *s = cache_attach(c, 9, 1000, CACHE_CHECKPOINTS, 0, 1);
	struct file_bytes b = file_of(0, 100, 0);
	struct cache_hit hit;

	ck_assert_int_eq(cache_put_index(s, 0, &b, "x", 2), 0);
	cache_sync(c);
	ck_assert(cache_lookup(s, 0, &hit));
	cache_release(&hit);
	free(b.data);
	cache_detach(s, 1);
	cache_destroy(c);
}
END_TEST

SUITE(cache_kept)
{
	Suite *s = suite_create("cache_kept");
	TCase *tc = tcase_create("cache_kept");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_indexes_survive_a_restart);
	tcase_add_test(tc, test_sync_writes_what_is_new);
	tcase_add_test(tc, test_the_kept_file_stays_bounded);
	tcase_add_test(tc, test_damage_costs_the_damaged_records_only);
	tcase_add_test(tc, test_a_second_life_at_the_same_time_only_reads);
	tcase_add_test(tc, test_a_directory_that_is_missing_is_no_error);
	suite_add_tcase(s, tc);
	return s;
}
