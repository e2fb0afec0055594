/* The Arrow files that the fuzzer begins with, which pyarrow has written: one of them, read into bytes[0 .. n_bytes). */
#ifndef BATCHD_TESTS_ARROW_SEEDS_H
#define BATCHD_TESTS_ARROW_SEEDS_H

#include "suite.h"

#include <stdio.h>

static uint8_t bytes[8192];
static size_t n_bytes;

static inline void take_seed(const char *name)
{
	char path[100];
	FILE *file;

	snprintf(path, sizeof(path), "tests/fuzz/corpus/arrow/%s", name);
	file = fopen(path, "rb");
	ck_assert_msg(file != NULL, "%s: run from the repository's root", path);
	n_bytes = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	ck_assert_uint_gt(n_bytes, 100);
	ck_assert_uint_lt(n_bytes, sizeof(bytes));
}

#endif
