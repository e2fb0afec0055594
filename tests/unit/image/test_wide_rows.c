/* The colours of wide pictures, which vector code makes in pieces, against libjpeg's. (test_scan.c has small ones.) */
#include <check.h>

#include "image/jpeg/scan.h"
#include "support/jpegs.h"
#include "support/suite.h"

static void check_region(struct scan *s, const struct jpeg_in *header, const uint8_t *pixels, struct region_px want,
			 const char *path)
{
	const struct jpeg_source_mgr *src = header->c.src;
	const size_t row = (size_t)want.width * 3;
	struct image out = { .rgb = malloc(row * want.height + 1), .stride_bytes = row };

	out.rgb[row * want.height] = 0xA5;
	ck_assert_int_eq(
		scan_region(s, &header->c, src->next_input_byte, src->bytes_in_buffer, 0, NULL, NULL, want, &out), 0);
	for (uint32_t y = 0; y < want.height; y++)
		ck_assert_msg(memcmp(out.rgb + y * row,
				     pixels + ((size_t)(want.y + y) * header->c.image_width + want.x) * 3, row) == 0,
			      "%s: row %u of %ux%u+%u+%u differs", path, y, want.width, want.height, want.x, want.y);
	ck_assert_msg(out.rgb[row * want.height] == 0xA5, "%s: wrote behind the last row", path);
	free(out.rgb);
}

static void check_picture(struct scan *s, const struct jpeg_recipe *r, uint32_t *seed)
{
	struct jpeg_in header, in;
	size_t n;
	uint8_t *bytes = jpeg_make(r, *seed, &n), *pixels = malloc((size_t)r->width * r->height * 3);

	ck_assert(jpeg_in_open(&header, bytes, n) == 0 && jpeg_in_open(&in, bytes, n) == 0);
	ck_assert_int_eq(jpeg_in_pixels(&in, pixels), 0);
	for (const char *const *path = scan_paths(); *path; path++) {
		ck_assert_int_eq(scan_set_path(s, *path), 0);
		check_region(s, &header, pixels, (struct region_px){ 0, 0, r->width, r->height }, *path);
		for (unsigned i = 0; i < 4; i++) {
			uint32_t x = jpeg_random(seed) % (r->width / 2), y = jpeg_random(seed) % r->height;
			struct region_px want = { x, y, r->width - x, r->height - y };

			if (i % 2)
				want.width = 1 + jpeg_random(seed) % want.width;
			check_region(s, &header, pixels, want, *path);
		}
	}
	jpeg_in_close(&header);
	jpeg_in_close(&in);
	free(pixels);
	free(bytes);
}

START_TEST(test_rows_of_any_width_have_libjpegs_colours)
{
	/* Proves it on every path for both sides of a vector's and a piece's end. */
	static const unsigned widths[] = { 190,  191,  192,  193,  194,  255,  256,  257,  958,  959,  960,  961, 962,
					   1023, 1024, 1025, 1919, 1920, 1921, 1922, 1985, 2047, 2049, 3841, 4000 };
	struct scan *s = scan_create();
	uint32_t seed = 77;

	for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++)
		for (unsigned sampling = 0; sampling < 4; sampling++) {
			struct jpeg_recipe r = { .width = widths[i],
						 .height = 37,
						 .n_components = 3,
						 .h = 1 + (int)(sampling & 1),
						 .v = 1 + (int)(sampling >> 1),
						 .quality = 95,
						 .noise = 200 };

			check_picture(s, &r, &seed);
		}
	scan_destroy(s);
}
END_TEST

SUITE(wide_rows)
{
	Suite *suite = suite_create("wide rows");
	TCase *tc = tcase_create("wide rows");

	tcase_add_test(tc, test_rows_of_any_width_have_libjpegs_colours);
	suite_add_tcase(suite, tc);

	return suite;
}
