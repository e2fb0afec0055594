/* The weights of an axis: each processor's functions give those of plain C. tests/system compares images with
 * Pillow's. */
#include <check.h>
#include <string.h>

#include "image/kernels/processor.h"
#include "image/kernels/taps.h"
#include "support/suite.h"

static uint32_t state = 1;

static uint32_t below(uint32_t n)
{
	state = state * 1664525 + 1013904223;
	return (uint32_t)((uint64_t)(state >> 8) * n >> 24);
}

static struct taps_request any_request(void)
{
	static const enum filter filters[] = { FILTER_BILINEAR, FILTER_BICUBIC, FILTER_BOX, FILTER_LANCZOS };
	struct taps_request q = { .filter = filters[below(4)], .in = 1 + below(700), .out = 1 + below(300) };
	uint32_t first, end;

	q.from = below(q.out);
	q.n = 1 + below(q.out - q.from);
	q.reverse = below(2);
	taps_span(q.filter, q.in, q.out, q.from, q.n, &first, &end);
	q.avail_from = below(first + 1);
	q.n_avail = end + below(q.in - end + 1) - q.avail_from;
	return q;
}

START_TEST(test_weights_of_eight_positions_are_those_of_one)
{
	/* Any request: sizes, windows that are cut at edges, parts, and mirrored ones. */
	struct taps plain = { 0 }, wide = { 0 };
	bool changed;

	for (int i = 0; i < 3000; i++) {
		struct taps_request q = any_request();

		processor_limit(PROCESSOR_PLAIN);
		ck_assert_int_eq(taps_make(&plain, &q, &changed), 0);
		processor_limit(_i ? PROCESSOR_AVX512 : PROCESSOR_AVX2);
		ck_assert_int_eq(taps_make(&wide, &q, &changed), 0);
		ck_assert_uint_eq(wide.width, plain.width);
		ck_assert_mem_eq(wide.first, plain.first, q.n * sizeof *plain.first);
		ck_assert_mem_eq(wide.count, plain.count, q.n * sizeof *plain.count);
		ck_assert_mem_eq(wide.k, plain.k, (size_t)q.n * plain.width * sizeof *plain.k);
	}
	taps_finish(&plain);
	taps_finish(&wide);
}
END_TEST

SUITE(taps)
{
	Suite *s = suite_create("taps");
	TCase *t = tcase_create("taps");

	tcase_add_loop_test(t, test_weights_of_eight_positions_are_those_of_one, 0, 2);
	suite_add_tcase(s, t);
	return s;
}
