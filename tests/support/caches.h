/* Caches for tests: one in a folder of its own, files of it that are not there, and their samples. */
#ifndef BATCHD_TESTS_CACHES_H
#define BATCHD_TESTS_CACHES_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/cache/sample-cache.h"

static char folder[32];

static inline void set_up(void)
{
	strcpy(folder, "/tmp/test_cache.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static inline void tear_down(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	ck_assert_int_eq(system(command), 0);
}

static inline struct cache *make(uint64_t budget, const char *dir)
{
	struct cache_config config = { .budget_bytes = { budget, budget }, .dir = dir };
	struct cache *c;

	ck_assert_int_eq(cache_create(&config, &c), 0);
	return c;
}

/* A file's bytes: all of them `index`, identity by version. */
static inline struct file_bytes file_of(uint64_t index, size_t n, unsigned version)
{
	struct file_bytes b = { .data = malloc(n), .n_bytes = n, .mtime_ns = 1000 + version, .ino = index, .dev = 7 };

	memset(b.data, (int)(index & 0xff), n);
	return b;
}

/* Puts the file's bytes as the one row of an image of bytes. */
static inline int put_file(struct cache_space *s, uint64_t index, const struct file_bytes *file)
{
	struct cache_pixels row = { file->data, file->n_bytes, (uint32_t)file->n_bytes, 1 };

	return cache_put_pixels(s, index, file, &row, 1);
}

static inline int put(struct cache_space *s, uint64_t index, size_t n, unsigned version)
{
	struct file_bytes b = file_of(index, n, version);
	int r = put_file(s, index, &b);

	free(b.data);
	return r;
}

static inline struct cache_stats stats_of(struct cache *c, enum cache_tier tier)
{
	struct cache_stats stats;

	cache_get_stats(c, tier, &stats);
	return stats;
}

#endif
