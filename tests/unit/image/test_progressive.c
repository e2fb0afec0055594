/* The decoder of progressive JPEGs against libjpeg: the same pixels or "unsure", whatever the bytes are. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "image/jpeg/scan.h"
#include "support/jpegs.h"
#include "support/suite.h"

enum { MAX_SCANS = 100 };

static int decode_limited(struct scan *s, const struct jpeg_in *in, uint32_t max_scans, struct region_px want,
			  uint8_t *rgb)
{
	struct image out = { .rgb = rgb, .stride_bytes = (size_t)want.width * 3 };
	struct cpu_budget budget;

	cpu_budget_begin(&budget, 0);
	return scan_progressive_region(s, &in->c, in->c.src->next_input_byte, in->c.src->bytes_in_buffer, max_scans,
				       &budget, false, want, &out);
}

static int decode(struct scan *s, const struct jpeg_in *in, struct region_px want, uint8_t *rgb)
{
	return decode_limited(s, in, MAX_SCANS, want, rgb);
}

/* Where the decoder is sure, libjpeg has the same pixels. Returns whether it is sure of the whole picture. */
static bool check_file(struct scan *s, const uint8_t *bytes, size_t n, unsigned n_regions, uint32_t *seed)
{
	struct jpeg_in header, in;
	uint8_t *exact = malloc(n); /* no room after it */
	bool sure = false;

	memcpy(exact, bytes, n);
	if (jpeg_in_open(&header, exact, n) == 0 && scan_supported_progressive(&header.c) &&
	    (uint64_t)header.c.image_width * header.c.image_height < 1000000) {
		const uint32_t width = header.c.image_width, height = header.c.image_height;
		uint8_t *got = malloc((size_t)width * height * 3), *expected = malloc((size_t)width * height * 3);

		sure = decode(s, &header, (struct region_px){ 0, 0, width, height }, got) == 0;
		if (sure) {
			ck_assert_int_eq(jpeg_in_open(&in, exact, n), 0);
			ck_assert_int_eq(jpeg_in_pixels(&in, expected), 0);
			ck_assert_mem_eq(got, expected, (size_t)width * height * 3);
			jpeg_in_close(&in);
		}
		for (unsigned i = 0; i < n_regions; i++) {
			uint32_t x = jpeg_random(seed) % width, y = jpeg_random(seed) % height;
			struct region_px want = { x, y, 1 + jpeg_random(seed) % (width - x),
						  1 + jpeg_random(seed) % (height - y) };

			if (decode(s, &header, want, got) || !sure)
				continue;
			for (uint32_t row = 0; row < want.height; row++)
				ck_assert_mem_eq(got + (size_t)row * want.width * 3,
						 expected + ((size_t)(y + row) * width + x) * 3,
						 (size_t)want.width * 3);
		}
		free(got);
		free(expected);
	}
	jpeg_in_close(&header);
	free(exact);
	return sure;
}

START_TEST(test_progressive_files_give_libjpegs_pixels)
{
	/* Samplings, odd sizes, qualities, restart intervals, grey: through one decoder, which is sure of all. */
	struct scan *s = scan_create();
	uint32_t seed = 31;

	for (unsigned i = 0; i < 120; i++) {
		struct jpeg_recipe r = jpeg_random_progressive(&seed);
		size_t n;
		uint8_t *bytes = jpeg_make(&r, seed, &n);

		ck_assert_int_eq(scan_set_path(s, scan_paths()[i % 2 && scan_paths()[1]]), 0);
		ck_assert(check_file(s, bytes, n, 5, &seed) || (r.n_components == 3 && r.h == 2 && r.width < 5));
		free(bytes);
	}
	scan_destroy(s);
}
END_TEST

START_TEST(test_damaged_progressive_files_are_unsure_or_equal_to_libjpeg)
{
	/* Bytes changed and files cut anywhere after the first marker. */
	struct scan *s = scan_create();
	uint32_t seed = 77;
	unsigned n_sure = 0;

	for (unsigned round = 0; round < 600; round++) {
		struct jpeg_recipe r = jpeg_random_progressive(&seed);
		size_t n;

		r.width = 5 + r.width % 60;
		r.height = 1 + r.height % 50;
		uint8_t *bytes = jpeg_make(&r, seed, &n);
		for (unsigned k = 0; k < 1 + round % 3; k++)
			bytes[2 + jpeg_random(&seed) % (n - 2)] = (uint8_t)(jpeg_random(&seed) >> 24);
		ck_assert_int_eq(scan_set_path(s, scan_paths()[round % 2 && scan_paths()[1]]), 0);
		n_sure += check_file(s, bytes, round % 4 ? n : n / 2 + jpeg_random(&seed) % (n / 2), 2, &seed);
		free(bytes);
	}
	ck_assert_uint_gt(n_sure, 30);
	ck_assert_uint_lt(n_sure, 550);
	scan_destroy(s);
}
END_TEST

/* The offset of scan `number`'s marker, counted from 0; 0: there are fewer. */
static size_t scan_at(const uint8_t *bytes, size_t n, unsigned number)
{
	for (size_t at = 2; at + 1 < n; at++)
		if (bytes[at] == 0xff && bytes[at + 1] == 0xda && number-- == 0)
			return at;
	return 0;
}

START_TEST(test_a_picture_without_its_last_scans_is_unsure)
{
	/* libjpeg smooths what such a file has; one that is complete is decoded, with exactly as many scans as allowed. */
	struct jpeg_recipe r = { .width = 90,
				 .height = 70,
				 .n_components = 3,
				 .h = 2,
				 .v = 2,
				 .quality = 90,
				 .noise = 60,
				 .progressive = true };
	struct region_px all = { 0, 0, 90, 70 };
	struct scan *s = scan_create();
	uint8_t *rgb = malloc(90 * 70 * 3);
	size_t n;
	uint8_t *bytes = jpeg_make(&r, 5, &n);
	unsigned n_scans = 0;

	while (scan_at(bytes, n, n_scans))
		n_scans++;
	ck_assert_uint_ge(n_scans, 8);
	for (unsigned i = 1; i <= n_scans; i++) {
		size_t end = i < n_scans ? scan_at(bytes, n, i) : n - 2;
		uint8_t *cut = malloc(end + 2);
		struct jpeg_in in;

		memcpy(cut, bytes, end);
		memcpy(cut + end, "\xff\xd9", 2);
		ck_assert_int_eq(jpeg_in_open(&in, cut, end + 2), 0);
		ck_assert_int_eq(decode(s, &in, all, rgb), i < n_scans ? SCAN_E_UNSURE : 0);
		ck_assert_int_eq(decode_limited(s, &in, n_scans, all, rgb), i < n_scans ? SCAN_E_UNSURE : 0);
		ck_assert_int_eq(decode_limited(s, &in, n_scans - 1, all, rgb), SCAN_E_UNSURE);
		jpeg_in_close(&in);
		free(cut);
	}
	free(bytes);
	free(rgb);
	scan_destroy(s);
}
END_TEST

SUITE(progressive)
{
	Suite *suite = suite_create("progressive");
	TCase *tc = tcase_create("progressive");

	tcase_add_test(tc, test_progressive_files_give_libjpegs_pixels);
	tcase_add_test(tc, test_damaged_progressive_files_are_unsure_or_equal_to_libjpeg);
	tcase_add_test(tc, test_a_picture_without_its_last_scans_is_unsure);
	suite_add_tcase(suite, tc);

	return suite;
}
