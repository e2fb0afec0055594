/* The finishing kernel's arithmetic, run as C from the source that nvcc compiles, against the daemon's own finisher:
 * float32 bit for bit, float16 and bfloat16 rounded to nearest even, every layout and number of channels. tests/gpu
 * runs the same comparison on a GPU. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "finish/convert-plan.h"
#include "image/kernels/convert.h"
#include "support/suite.h"

enum { WIDTH = 37, HEIGHT = 11, PLANE = WIDTH * HEIGHT, N_IMAGES = 3 };

static const float imagenet_mean[3] = { 0.485f, 0.456f, 0.406f }, imagenet_std[3] = { 0.229f, 0.224f, 0.225f };
static const float zero[4], one[4] = { 1, 1, 1, 1 };

/* ---- helpers ---- */

static uint64_t state = 88172645463325252u;

static uint32_t draw(void)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (uint32_t)(state >> 16);
}

/* All 256 values, then random ones. */
static uint8_t *make_pixels(size_t n)
{
	uint8_t *px = malloc(n);

	for (size_t i = 0; i < n; i++)
		px[i] = i < 768 ? (uint8_t)(i / 3) : (uint8_t)draw();
	return px;
}

/* The daemon's results for these pixels. RGB only. */
static void finish(enum convert_type type, bool planar, const float *mean, const float *std, const uint8_t *px,
		   char *out)
{
	struct convert f;

	convert_init(&f, type, planar, 3, WIDTH, HEIGHT, mean, std);
	for (size_t i = 0; i < N_IMAGES; i++)
		for (uint32_t y = 0; y < HEIGHT; y++)
			convert_row(&f, px + (i * PLANE + (size_t)y * WIDTH) * 3, y, out + i * convert_bytes(&f));
}

/* bfloat16 computed another way: the two neighbours in double precision, ties to the even one. */
static uint16_t reference_bfloat16(float value)
{
	union {
		float f;
		uint32_t u;
	} v = { .f = value }, low = { .u = v.u & 0xffff0000 }, high = { .u = low.u + 0x10000 };
	double below = (double)value - (double)low.f, above = (double)high.f - (double)value;

	below = below < 0 ? -below : below;
	above = above < 0 ? -above : above;
	if (below != above)
		return (uint16_t)((below < above ? low.u : high.u) >> 16);
	return (uint16_t)((low.u & 0x10000 ? high.u : low.u) >> 16);
}

/* ---- cases ---- */

static void compare_with_daemon(enum convert_number number, enum convert_type type, bool planar, const float *mean,
				const float *std)
{
	size_t n = (size_t)N_IMAGES * PLANE * 3, n_bytes = n * convert_number_bytes(number);
	char *ours = malloc(n_bytes), *theirs = malloc(n_bytes);
	uint8_t *px = make_pixels(n);
	struct convert_plan p;

	convert_plan_init(&p, number, planar, 3, PLANE, mean, std);
	p.n_px = N_IMAGES * PLANE;
	convert_plan_run(&p, px, ours);
	finish(type, planar, mean, std, px, theirs);
	ck_assert_mem_eq(ours, theirs, n_bytes);
	free(px);
	free(ours);
	free(theirs);
}

START_TEST(test_same_bits_as_the_daemon)
{
	/* With and without Normalize, both layouts, every type that the daemon makes itself. */
	bool planar = _i & 1;
	const float *mean = _i & 2 ? imagenet_mean : zero, *std = _i & 2 ? imagenet_std : one;

	compare_with_daemon(CONVERT_TO_FLOAT32, CONVERT_FLOAT32, planar, mean, std);
	compare_with_daemon(CONVERT_TO_FLOAT16, CONVERT_FLOAT16, planar, mean, std);
	compare_with_daemon(CONVERT_TO_UINT8, CONVERT_UINT8, planar, mean, std);
}
END_TEST

START_TEST(test_any_mean_and_std_gives_the_daemons_bits)
{
	/* Where a reciprocal is inexact in one place, the plan must have detected it and divide. */
	uint32_t n_divides = 0;

	for (int i = 0; i < 100; i++) {
		float mean[3], std[3];
		struct convert_plan p;

		for (int c = 0; c < 3; c++) {
			mean[c] = (float)(draw() % 100000) / 100000.0f;
			std[c] = (float)(draw() % 100000 + 1) / 100000.0f;
		}
		convert_plan_init(&p, CONVERT_TO_FLOAT32, true, 3, PLANE, mean, std);
		n_divides += p.divides;
		compare_with_daemon(CONVERT_TO_FLOAT32, CONVERT_FLOAT32, true, mean, std);
	}
	ck_assert_uint_lt(n_divides, 100); /* the fast path is the usual one */
}
END_TEST

START_TEST(test_divisions_give_what_reciprocals_give)
{
	/* The path for inexact constants, forced. */
	uint8_t px[256 * 3];
	float fast[256 * 3], slow[256 * 3];
	struct convert_plan p;

	for (int i = 0; i < 256 * 3; i++)
		px[i] = (uint8_t)(i / 3);
	convert_plan_init(&p, CONVERT_TO_FLOAT32, 0, 3, 256, imagenet_mean, imagenet_std);
	p.n_px = 256;
	ck_assert_uint_eq(p.divides, 0);
	convert_plan_run(&p, px, fast);
	p.divides = 1;
	convert_plan_run(&p, px, slow);
	ck_assert_mem_eq(fast, slow, sizeof fast);
}
END_TEST

START_TEST(test_every_number_of_channels_and_layout)
{
	/* Against the plainest possible loop. */
	static const float mean[4] = { 0.1f, 0.2f, 0.3f, 0.4f }, std[4] = { 0.5f, 0.25f, 0.3f, 0.7f };
	uint32_t n_channels = (uint32_t)_i + 1;
	size_t n = (size_t)2 * PLANE * n_channels;
	uint8_t *px = make_pixels(n);
	float *made = malloc(n * sizeof *made);
	uint16_t *small = malloc(n * sizeof *small);

	for (int planar = 0; planar < 2; planar++) {
		struct convert_plan p;

		convert_plan_init(&p, CONVERT_TO_FLOAT32, planar, n_channels, PLANE, mean, std);
		p.n_px = 2 * PLANE;
		convert_plan_run(&p, px, made);
		p.number = CONVERT_TO_BFLOAT16;
		convert_plan_run(&p, px, small);
		for (size_t i = 0; i < n; i++) {
			size_t image = i / (PLANE * n_channels), at = i / n_channels % PLANE, c = i % n_channels;
			size_t to = planar ? (image * n_channels + c) * PLANE + at : i;
			volatile float scaled = (float)px[i] / 255.0f, centred = scaled - mean[c],
				       wanted = centred / std[c];

			ck_assert(made[to] == wanted);
			ck_assert_uint_eq(small[to], reference_bfloat16(wanted));
		}
	}
	free(px);
	free(made);
	free(small);
}
END_TEST

START_TEST(test_halves_round_to_nearest_even)
{
	/* A large sample of all floats, subnormals and overflow included, and the exact middle between two. */
	for (uint64_t u = 0; u < (1ull << 32); u += 49999) {
		union {
			uint32_t u;
			float f;
		} v = { .u = (uint32_t)u };

		if ((v.u & 0x7fffffff) >= 0x7f800000)
			continue;
		ck_assert_uint_eq(convert_to_float16(v.f), float_to_half(v.f));
		if ((v.u & 0x7fffffff) < 0x7f7f0000)
			ck_assert_uint_eq(convert_to_bfloat16(v.f), reference_bfloat16(v.f));
	}
	for (uint32_t u = 0x3f800000; u < 0x40800000; u += 0x8000) {
		union {
			uint32_t u;
			float f;
		} v = { .u = u };

		ck_assert_uint_eq(convert_to_bfloat16(v.f), reference_bfloat16(v.f));
	}
	ck_assert_uint_eq(convert_to_float16(1.0f / 0.0f), 0x7c00);
	ck_assert_uint_eq(convert_to_float16(-65520.0f), 0xfc00); /* the smallest that rounds to infinity */
	ck_assert_uint_eq(convert_to_float16(65519.0f), 0x7bff);
	ck_assert_uint_eq(convert_to_bfloat16(-1.0f / 0.0f), 0xff80);
	ck_assert_uint_eq(convert_to_bfloat16(3.4e38f), 0x7f80);
	ck_assert_uint_eq(convert_to_float16(__builtin_nanf("")), 0x7fff);
	ck_assert_uint_eq(convert_to_bfloat16(__builtin_nanf("")), 0x7fff);
}
END_TEST

static void compare_with_division(uint32_t plane)
{
	uint32_t image = draw() % (INT32_MAX / plane), first = image * plane, any = draw() & INT32_MAX;
	struct convert_plan p;

	convert_plan_init(&p, CONVERT_TO_UINT8, 1, 3, plane, NULL, NULL);
	ck_assert_uint_eq(convert_image_of(&p, first), image);
	ck_assert_uint_eq(convert_image_of(&p, first + plane - 1), image);
	ck_assert_uint_eq(convert_image_of(&p, any), any / plane);
	ck_assert_uint_eq(convert_image_of(&p, INT32_MAX), INT32_MAX / plane);
}

START_TEST(test_whose_pixel_it_is)
{
	/* A multiplication in place of the division, at both ends of images and at random; planes of all sizes,
	 * especially near powers of two. */
	for (uint32_t plane = 1; plane < 5000; plane++)
		compare_with_division(plane);
	for (int bits = 13; bits < 31; bits++)
		for (uint32_t i = 0; i < 200; i++) {
			compare_with_division((1u << bits) - 100 + i);
			compare_with_division((1u << bits) + draw() % (1u << bits));
		}
}
END_TEST

START_TEST(test_kernel_and_grid_of_a_plan)
{
	/* Names as convert.cu has them; a block for every piece of work. */
	struct convert_plan p;
	char name[32];

	convert_plan_init(&p, CONVERT_TO_FLOAT16, 1, 3, 224 * 224, NULL, NULL);
	convert_plan_kernel(&p, name);
	ck_assert_str_eq(name, "convert_planar_float16_3");
	p.n_px = 2048;
	ck_assert_uint_eq(convert_plan_blocks(&p), 1);
	p.n_px = 2049;
	ck_assert_uint_eq(convert_plan_blocks(&p), 2);
	p.n_px = 64 * 224 * 224;
	ck_assert_uint_eq(convert_plan_blocks(&p), 1568);
	convert_plan_init(&p, CONVERT_TO_BFLOAT16, 1, 1, 100, NULL, NULL); /* one channel: both layouts are the same */
	convert_plan_kernel(&p, name);
	ck_assert_str_eq(name, "convert_flat_bfloat16_1");
	p.n_px = INT32_MAX;
	ck_assert_uint_eq(convert_plan_blocks(&p), 524288);
}
END_TEST

SUITE(convert_kernel)
{
	Suite *s = suite_create("convert_kernel");
	TCase *t = tcase_create("arithmetic");

	tcase_add_loop_test(t, test_same_bits_as_the_daemon, 0, 4);
	tcase_add_test(t, test_any_mean_and_std_gives_the_daemons_bits);
	tcase_add_test(t, test_divisions_give_what_reciprocals_give);
	tcase_add_loop_test(t, test_every_number_of_channels_and_layout, 0, 4);
	tcase_add_test(t, test_halves_round_to_nearest_even);
	tcase_add_test(t, test_whose_pixel_it_is);
	tcase_add_test(t, test_kernel_and_grid_of_a_plan);
	suite_add_tcase(s, t);
	return s;
}
