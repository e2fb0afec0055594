/* The paths of color_saturation give the same bytes. (tests/system/transforms/test_pixels.py compares with Pillow.) */
#include <check.h>
#include <string.h>

#include "image/kernels/color.h"
#include "image/kernels/processor.h"
#include "support/suite.h"

enum { MOST_PX = 200, GUARD = 64 };

/* Rows of 1 to 200 pixels are made by f as plain C makes them; bytes behind the row stay. */
static void expect_alike(void (*f)(struct image *, float), float factor, enum processor_path path)
{
	static uint32_t state = 7;
	uint8_t plain[MOST_PX * 3 + GUARD], wide[MOST_PX * 3 + GUARD];

	for (uint32_t n = 1; n <= MOST_PX; n++) {
		struct image a = { plain, sizeof plain, n, 1 }, b = { wide, sizeof wide, n, 1 };

		for (size_t i = 0; i < sizeof plain; i++) {
			state = state * 1664525 + 1013904223;
			plain[i] = wide[i] = (uint8_t)(state >> 24);
		}
		processor_limit(PROCESSOR_PLAIN);
		f(&a, factor);
		processor_limit(path);
		f(&b, factor);
		ck_assert_mem_eq(wide, plain, sizeof plain);
	}
}

static const enum processor_path paths[] = { PROCESSOR_AVX2, PROCESSOR_AVX512 };

START_TEST(test_rows_of_every_length_are_saturated_alike)
{
	/* Factors that fade, pass on, stretch, turn, clip, and exceed 32 bits. */
	static const float factors[] = { 0.0f, 0.2f,  0.6000000238f, 0.9999f, 1.0f,  1.4f,
					 7.5f, -1.3f, 9e5f,          1e12f,   -1e12f };

	for (size_t f = 0; f < sizeof factors / sizeof *factors; f++)
		expect_alike(color_saturation, factors[f], paths[_i]);
}
END_TEST

static void grayscale(struct image *i, float unused)
{
	(void)unused;
	color_grayscale(i);
}

START_TEST(test_rows_of_every_length_become_grey_alike)
{
	expect_alike(grayscale, 0.0f, paths[_i]);
}
END_TEST

SUITE(saturation)
{
	Suite *s = suite_create("saturation");
	TCase *t = tcase_create("saturation");

	tcase_add_loop_test(t, test_rows_of_every_length_are_saturated_alike, 0, 2);
	tcase_add_loop_test(t, test_rows_of_every_length_become_grey_alike, 0, 2);
	suite_add_tcase(s, t);
	return s;
}
