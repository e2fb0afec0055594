/* The finishing pass with a mix: each path gives the reference's bits for every kind of row, layout and dtype, and the GPU's
 * plan in C gives the same. tests/system/transforms/test_mixing.py compares with torchvision and timm. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "finish/mix-plan.h"
#include "finish/finish.h"
#include "finish/mix.h"
#include "support/suite.h"

/* No multiple of a group. */
enum { WIDTH = 97, HEIGHT = 53, PLANE = WIDTH * HEIGHT, N_ROWS = 12 };

static const float mean[4] = { 0.485f, 0.456f, 0.406f, 0.3f }, std[4] = { 0.229f, 0.224f, 0.225f, 0.7f };

static const char *const paths[] = { "avx512", "avx2" };

static const struct batchd_mix_row table[N_ROWS] = {
	{ .partner = 5, .kind = BATCHD_MIX_BLEND, .weight = 0.3f, .partner_weight = 0.7f },
	{ .partner = 0, .kind = BATCHD_MIX_BOX, .top = 3, .bottom = 17, .left = 5, .right = 31 },
	{ .partner = 2, .kind = BATCHD_MIX_NONE, .weight = 1 },
	{ .partner = 1, .kind = BATCHD_MIX_BOX, .bottom = HEIGHT, .right = WIDTH },
	{ .partner = 3, .kind = BATCHD_MIX_BOX, .top = 9, .bottom = 9, .left = 4, .right = 4 },
	{ .partner = 4, .kind = BATCHD_MIX_BLEND, .weight = 1e-7f, .partner_weight = 0.9999999f },
	/* a pair, and rows that follow from each other */
	{ .partner = 11, .kind = BATCHD_MIX_BLEND, .weight = 0.6f, .partner_weight = 0.4f },
	{ .partner = 6, .kind = BATCHD_MIX_BLEND, .weight = 0.9f, .partner_weight = 0.1f },
	{ .partner = 7, .kind = BATCHD_MIX_BLEND, .weight = 0.2f, .partner_weight = 0.8f },
	{ .partner = 8, .kind = BATCHD_MIX_BLEND, .weight = 0.5f, .partner_weight = 0.5f },
	{ .partner = 10, .kind = BATCHD_MIX_BLEND, .weight = 0.7f, .partner_weight = 0.3f },
	{ .partner = 6, .kind = BATCHD_MIX_BLEND, .weight = 0.1f, .partner_weight = 0.9f },
};

static void fill_pixels(uint8_t *px, size_t n)
{
	uint32_t state = 12345;

	for (size_t i = 0; i < n; i++) {
		state = state * 1664525 + 1013904223;
		px[i] = (uint8_t)(state >> 24);
	}
}

START_TEST(test_each_path_gives_the_reference_and_the_gpus_bits)
{
	enum convert_number number = _i & 1 ? CONVERT_TO_FLOAT32 : CONVERT_TO_FLOAT16;
	int planar = _i >> 1 & 1;
	uint32_t n_channels = (uint32_t)(_i >> 2) + 1;
	size_t n = (size_t)N_ROWS * PLANE * n_channels, n_bytes = n * convert_number_bytes(number);
	uint8_t *px = malloc(n), scratch[WIDTH * 4];
	char *ours = malloc(n_bytes), *reference = malloc(n_bytes), *gpus = malloc(n_bytes);
	struct convert_plan plan;
	struct mix_plan mix;
	struct finish f;

	fill_pixels(px, n);
	convert_plan_init(&plan, number, planar, n_channels, PLANE, mean, std);
	finish_init(&f, &plan, HEIGHT, WIDTH, 0);
	ck_assert(finish_set_path(&f, "c"));
	finish_rows(&f, px, table, N_ROWS, scratch, reference);
	for (unsigned k = 0; k < sizeof paths / sizeof *paths; k++) {
		if (!finish_set_path(&f, paths[k])) /* another processor */
			continue;
		memset(ours, 0xff, n_bytes);
		finish_rows(&f, px, table, N_ROWS, scratch, ours);
		ck_assert_msg(memcmp(ours, reference, n_bytes) == 0, "%s differs", paths[k]);
	}
	mix_plan_init(&mix, &plan, WIDTH);
	mix.n_rows = N_ROWS;
	memcpy(mix.row, table, sizeof table);
	mix_plan_run(&mix, px, gpus);
	ck_assert_mem_eq(gpus, reference, n_bytes);
	free(px);
	free(ours);
	free(reference);
	free(gpus);
}
END_TEST

START_TEST(test_floats_of_a_slot_are_mixed_alike)
{
	/* float32 rows that are finished first and mixed then are the rows that are mixed while they are finished. */
	int planar = _i & 1;
	uint32_t n_channels = (uint32_t)(_i >> 1) + 1;
	size_t n = (size_t)N_ROWS * PLANE * n_channels, n_bytes = n * sizeof(float);
	uint8_t *px = malloc(n), scratch[WIDTH * 4];
	char *at_once = malloc(n_bytes), *finished = malloc(n_bytes), *mixed = malloc(n_bytes);
	struct convert_plan plan;
	struct finish f;

	fill_pixels(px, n);
	convert_plan_init(&plan, CONVERT_TO_FLOAT32, planar, n_channels, PLANE, mean, std);
	finish_init(&f, &plan, HEIGHT, WIDTH, 0);
	finish_rows(&f, px, table, N_ROWS, scratch, at_once);
	finish_rows(&f, px, NULL, N_ROWS, scratch, finished);
	finish_init(&f, &plan, HEIGHT, WIDTH, 1);
	ck_assert(finish_set_path(&f, "c"));
	finish_rows(&f, finished, table, N_ROWS, NULL, mixed);
	ck_assert_mem_eq(mixed, at_once, n_bytes);
	for (unsigned k = 0; k < sizeof paths / sizeof *paths; k++) {
		if (!finish_set_path(&f, paths[k]))
			continue;
		memset(mixed, 0xff, n_bytes);
		finish_rows(&f, finished, table, N_ROWS, NULL, mixed);
		ck_assert_msg(memcmp(mixed, at_once, n_bytes) == 0, "%s differs", paths[k]);
	}
	free(px);
	free(at_once);
	free(finished);
	free(mixed);
}
END_TEST

START_TEST(test_records_stay_inside_the_batch_and_the_image)
{
	/* Any description that is accepted, any size down to one row of one pixel. */
	static const char *const texts[] = { "mixup:alpha=0.1",
					     "cutmix:alpha=3",
					     "timm:mixup_alpha=0,cutmix_alpha=1",
					     "timm:cutmix_min=0,cutmix_max=1,mode=elem",
					     "timm:mode=pair,cutmix_alpha=9",
					     "none;cutmix:alpha=1e-300" };
	struct batchd_mix_row rows[34];
	struct mix mix;
	char why[256];

	ck_assert(mix_parse(texts[_i], &mix, why, sizeof why));
	for (uint64_t i = 0; i < 3000; i++) {
		struct mix_place place = { .seed = i, .epoch = UINT64_MAX - i, .position = UINT64_MAX - i * 7 };
		uint32_t n = 1 + (uint32_t)(i % 34), h = 1 + (uint32_t)(i % 5), w = 1 + (uint32_t)(i % 7);

		mix_draw(&mix, &place, n, h, w, rows);
		for (uint32_t k = 0; k < n; k++) {
			ck_assert_uint_lt(rows[k].partner, n);
			ck_assert(rows[k].weight >= 0 && rows[k].weight <= 1);
			ck_assert(fabsf(rows[k].weight + rows[k].partner_weight - 1) < 1e-6f);
			ck_assert(rows[k].top <= rows[k].bottom && rows[k].bottom <= h);
			ck_assert(rows[k].left <= rows[k].right && rows[k].right <= w);
		}
	}
}
END_TEST

START_TEST(test_halves_are_read_as_they_are_written)
{
	/* Every float16 that is a number survives a blend with nothing. */
	const struct batchd_mix_row row = { .weight = 1, .partner_weight = 0 };
	uint16_t *halves = malloc(65536 * 2), *zeros = calloc(65536, 2), *out = malloc(65536 * 2);
	struct convert_plan plan;
	struct finish f;

	for (uint32_t i = 0; i < 65536; i++)
		halves[i] = (uint16_t)i;
	convert_plan_init(&plan, CONVERT_TO_FLOAT16, 1, 1, 16, mean, std);
	finish_init(&f, &plan, 4, 4, 1);
	for (unsigned k = 0; k <= sizeof paths / sizeof *paths; k++) {
		const struct finish_chain chain = { .n = 1, .row = { &row }, .from = { zeros, halves }, .to = { out } };

		if (!finish_set_path(&f, k ? paths[k - 1] : "c"))
			continue;
		f.path->chain_numbers(&f, &chain, 0, 65536);
		for (uint32_t i = 0; i < 65536; i++)
			ck_assert_msg((i & 0x7fff) > 0x7c00 || out[i] == i || (i == 0x8000 && out[i] == 0),
				      "%s: %04x became %04x", f.path->name, i, out[i]);
	}
	free(halves);
	free(zeros);
	free(out);
}
END_TEST

SUITE(mixing)
{
	Suite *s = suite_create("mixing");
	TCase *t = tcase_create("mixing");

	tcase_add_loop_test(t, test_each_path_gives_the_reference_and_the_gpus_bits, 0, 16);
	tcase_add_loop_test(t, test_floats_of_a_slot_are_mixed_alike, 0, 8);
	tcase_add_loop_test(t, test_records_stay_inside_the_batch_and_the_image, 0, 6);
	tcase_add_test(t, test_halves_are_read_as_they_are_written);
	suite_add_tcase(s, t);
	return s;
}
