/* Lookups: every path gives what indexing gives, for every length and place, and leaves what is beside. */
#include "image/kernels/lookup.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "image/kernels/processor.h"
#include "support/suite.h"

enum { MAX_PX = 131, BYTES = MAX_PX * 3, GUARD = 64 };

static void fill(uint8_t *p, size_t n, uint32_t state)
{
	for (size_t i = 0; i < n; i++) {
		state = state * 1664525 + 1013904223;
		p[i] = (uint8_t)(state >> 24);
	}
}

/* n bytes that begin at pixel `from`, with one table (channels 1) or three. */
static void check_lookup(const uint8_t table[3][256], unsigned channels, size_t n)
{
	uint8_t px[GUARD + BYTES + GUARD], expected[sizeof(px)];

	fill(px, sizeof(px), (uint32_t)n);
	memcpy(expected, px, sizeof(px));
	for (size_t i = 0; i < n; i++)
		expected[GUARD + i] = table[i % channels][px[GUARD + i]];
	if (channels == 1)
		lookup_bytes(table[0], px + GUARD, n);
	else
		lookup_pixels(table, px + GUARD, n / 3);
	ck_assert_mem_eq(px, expected, sizeof(px));
}

START_TEST(test_every_path_looks_up_alike)
{
	/* Proves that no byte takes another table or another place of it, at any length. */
	uint8_t table[3][256];

	fill(&table[0][0], sizeof(table), 99);
	processor_limit((enum processor_path)_i);
	for (size_t n = 0; n <= BYTES; n++) {
		check_lookup((const uint8_t (*)[256])table, 1, n);
		if (n % 3 == 0)
			check_lookup((const uint8_t (*)[256])table, 3, n);
	}
	processor_limit(PROCESSOR_AVX512);
}
END_TEST

SUITE(lookup)
{
	Suite *s = suite_create("lookup");
	TCase *t = tcase_create("lookup");

	tcase_add_loop_test(t, test_every_path_looks_up_alike, PROCESSOR_PLAIN, PROCESSOR_AVX512 + 1);
	suite_add_tcase(s, t);
	return s;
}
