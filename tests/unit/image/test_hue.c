/* The paths of color_hue: every colour gets the same bytes on each. (tests/system/transforms/test_pixels.py compares
 * with Pillow.) */
#include "image/kernels/color.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "image/kernels/processor.h"
#include "support/suite.h"

enum { EDGE = 4096 + 3 }; /* no multiple of a group of pixels */

static uint8_t *all_colours(struct image *i)
{
	uint8_t *rgb = malloc((size_t)EDGE * EDGE * 3);

	*i = (struct image){ rgb, (size_t)EDGE * 3, EDGE, EDGE };
	for (uint32_t k = 0; k < EDGE * EDGE; k++) {
		uint32_t colour = k & 0xffffff;

		rgb[k * 3] = (uint8_t)colour;
		rgb[k * 3 + 1] = (uint8_t)(colour >> 8);
		rgb[k * 3 + 2] = (uint8_t)(colour >> 16);
	}
	return rgb;
}

START_TEST(test_all_colours_turn_alike_on_every_path)
{
	/* Proves that the paths for several pixels at a time give the bytes of the plain one, for every colour, and at
	 * the ends of rows. */
	static const uint8_t steps[] = { 0, 1, 25, 128, 230 };

	for (size_t s = 0; s < sizeof(steps); s++) {
		struct image wide, plain;
		uint8_t *b = all_colours(&plain);

		processor_limit(PROCESSOR_PLAIN);
		color_hue(&plain, steps[s]);
		for (enum processor_path path = PROCESSOR_AVX2; path <= PROCESSOR_AVX512; path++) {
			uint8_t *a = all_colours(&wide);

			processor_limit(path);
			color_hue(&wide, steps[s]);
			ck_assert_int_eq(memcmp(a, b, (size_t)EDGE * EDGE * 3), 0);
			free(a);
		}
		free(b);
	}
}
END_TEST

SUITE(hue)
{
	Suite *s = suite_create("hue");
	TCase *t = tcase_create("hue");

	tcase_add_test(t, test_all_colours_turn_alike_on_every_path);
	suite_add_tcase(s, t);
	return s;
}
