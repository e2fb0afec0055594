/* The finisher: its numbers are torchvision's formula in float32, on every path, in every layout, and it writes nothing
 * outside its output. */
#include "image/kernels/convert.h"
#include "support/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float mean[3] = { 0.485f, 0.456f, 0.406f }, std[3] = { 0.229f, 0.224f, 0.225f };
enum { GUARD = 64, GUARD_BYTE = 0xa5 };

static float half_to_float(uint16_t h)
{
	float magnitude = (h >> 10 & 31) ? ldexpf((float)(1024 + (h & 1023)), (h >> 10 & 31) - 25)
					 : ldexpf((float)(h & 1023), -24);

	return h & 0x8000 ? -magnitude : magnitude;
}

START_TEST(test_halves_are_nearest_and_even)
{
	/* Each finite half converts back to itself; the middle between two neighbours rounds to the even one, and a
	 * value just beside the middle to the nearer one. */
	for (uint32_t h = 0; h < 0x7bff; h++) {
		float here = half_to_float((uint16_t)h), next = half_to_float((uint16_t)(h + 1)),
		      middle = (here + next) / 2;

		ck_assert_uint_eq(float_to_half(here), h);
		ck_assert_uint_eq(float_to_half(-here), h | 0x8000);
		ck_assert_uint_eq(float_to_half(middle), h & 1 ? h + 1 : h);
		ck_assert_uint_eq(float_to_half(nextafterf(middle, here)), h);
		ck_assert_uint_eq(float_to_half(nextafterf(middle, next)), h + 1);
	}
	ck_assert_uint_eq(float_to_half(65504.0f), 0x7bff);
	ck_assert_uint_eq(float_to_half(65536.0f), 0x7c00);
	ck_assert_uint_eq(float_to_half(-INFINITY), 0xfc00);
	ck_assert_uint_eq(float_to_half(NAN) & 0x7e00, 0x7e00);
}
END_TEST

/* The expected result for pixel value v of channel c, as bytes of the type. */
static size_t expected(enum convert_type type, int c, uint8_t v, uint8_t out[4])
{
	/* each rounded to float */
	volatile float scaled = (float)v / 255.0f, centred = scaled - mean[c], number = centred / std[c];
	float value = number;
	uint16_t half = float_to_half(value);

	switch (type) {
	case CONVERT_UINT8:
		out[0] = v;
		return 1;
	case CONVERT_FLOAT16:
		memcpy(out, &half, 2);
		return 2;
	case CONVERT_FLOAT32:
		break;
	}
	memcpy(out, &value, 4);
	return 4;
}

static void check_image(const struct convert *f, const uint8_t *rgb, const uint8_t *out, const char *path)
{
	size_t n = (size_t)f->width * f->height;

	for (size_t px = 0; px < n; px++) {
		for (uint32_t c = 0; c < f->n_channels; c++) {
			uint8_t want[4];
			size_t bytes = expected(f->type, (int)c, rgb[px * 3 + c], want);
			size_t at = (f->planar ? c * n + px : px * f->n_channels + c) * bytes;

			ck_assert_msg(memcmp(out + at, want, bytes) == 0,
				      "path %s, type %d, planar %d, width %u: pixel %zu channel %u", path, f->type,
				      f->planar, f->width, px, c);
		}
	}
}

/* from_gray: from one byte a pixel, which convert_gray_row takes. */
static void check_finish(struct convert *f, const char *path, bool from_gray)
{
	size_t n_bytes = convert_bytes(f), row = (size_t)f->width * 3;
	uint8_t *rgb = malloc(row * f->height), *memory = malloc(n_bytes + 2 * GUARD), *out = memory + GUARD;

	for (size_t i = 0; i < row * f->height; i++)
		rgb[i] = (uint8_t)(i * 7 + i / 256); /* all values in all channels */
	if (f->n_channels == 1)
		for (size_t i = 0; i < row * f->height; i++)
			rgb[i] = rgb[i / 3 * 3];
	memset(memory, GUARD_BYTE, n_bytes + 2 * GUARD);
	for (uint32_t y = 0; y < f->height; y++) {
		uint8_t *gray = malloc(f->width); /* of exactly that size, for sanitizers */

		for (uint32_t x = 0; x < f->width; x++)
			gray[x] = rgb[y * row + (size_t)x * 3];
		if (from_gray)
			convert_gray_row(f, gray, y, out);
		else
			convert_row(f, rgb + y * row, y, out);
		free(gray);
	}
	check_image(f, rgb, out, path);
	for (size_t i = 0; i < GUARD; i++) {
		ck_assert_uint_eq(memory[i], GUARD_BYTE);
		ck_assert_uint_eq(out[n_bytes + i], GUARD_BYTE);
	}
	free(memory);
	free(rgb);
}

START_TEST(test_every_path_writes_the_formula_and_nothing_else)
{
	/* All types, layouts and paths; widths on both sides of every vector length. */
	static const uint32_t widths[] = { 1, 7, 8, 15, 16, 17, 31, 33, 48, 63, 224 };

	for (const char *const *path = convert_paths(); *path; path++) {
		for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
			for (int form = 0; form < 12; form++) {
				struct convert f;

				convert_init(&f, (enum convert_type)(form % 3), form / 3 % 2, form < 6 ? 3 : 1,
					     widths[i], 9, mean, std);
				ck_assert_int_eq(convert_set_path(&f, *path), 0);
				check_finish(&f, *path, false);
				if (f.n_channels == 1)
					check_finish(&f, *path, true);
			}
		}
	}
}
END_TEST

START_TEST(test_any_normalisation_is_exact_on_the_chosen_path)
{
	/* Odd means and deviations: convert_init uses a calculating path only where it reproduces the table. */
	uint8_t rgb[256 * 3];
	float planes[3][256];

	for (int v = 0; v < 256; v++)
		memset(rgb + v * 3, v, 3);
	for (int round = 1; round < 400; round++) {
		float m[3] = { (float)round / 401.0f, -(float)round, 0.0f },
		      s[3] = { (float)round * 0.037f, 1.0f / (float)round, 1e-6f * (float)round };
		struct convert f;

		convert_init(&f, CONVERT_FLOAT32, true, 3, 256, 1, m, s);
		convert_row(&f, rgb, 0, planes);
		for (int c = 0; c < 3; c++) {
			for (int v = 0; v < 256; v++) {
				volatile float scaled = (float)v / 255.0f, centred = scaled - m[c],
					       number = centred / s[c];
				float want = number;

				ck_assert_mem_eq(&planes[c][v], &want, sizeof(want));
			}
		}
	}
}
END_TEST

START_TEST(test_unknown_path_is_refused)
{
	/* A name that is not in convert_paths changes nothing. */
	struct convert f;

	convert_init(&f, CONVERT_FLOAT32, true, 3, 16, 1, mean, std);
	ck_assert_int_eq(convert_set_path(&f, "mmx"), -ENOENT);
	check_finish(&f, "chosen", false);
}
END_TEST

SUITE(convert)
{
	Suite *s = suite_create("finish");
	TCase *c = tcase_create("finish");

	tcase_add_test(c, test_halves_are_nearest_and_even);
	tcase_add_test(c, test_every_path_writes_the_formula_and_nothing_else);
	tcase_add_test(c, test_any_normalisation_is_exact_on_the_chosen_path);
	tcase_add_test(c, test_unknown_path_is_refused);
	suite_add_tcase(s, c);
	return s;
}
