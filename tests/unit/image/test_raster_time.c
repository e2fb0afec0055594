/* Files of formats that are only unpacked, and that take long for what they give: the limit on processor time holds for
 * them too. */
#include "image/formats/decode.h"

#include <stdlib.h>
#include <string.h>

#include "support/jpegs.h"
#include "support/suite.h"

static uint8_t *bytes;
static size_t n_bytes;

/* A file that begins with `head` and goes on with the byte. */
static void make(const void *head, size_t n_head, size_t n, int fill)
{
	bytes = malloc(n);
	n_bytes = n;
	ck_assert_ptr_nonnull(bytes);
	memset(bytes, fill, n);
	memcpy(bytes, head, n_head);
}

/* Codes of one bit that clear the table, again and again. */
static void make_gif(void)
{
	static const char head[] = "GIF89a\x10\0\x10\0\0\0\0,\0\0\0\0\x10\0\x10\0\0\0";

	make(head, sizeof(head) - 1, 3 << 20, 0xff);
}

static void make_pnm(void)
{
	static const char head[] = "P3 1000 1000 255\n";

	make(head, sizeof(head) - 1, 12 << 20, '#');
	for (size_t i = sizeof(head); i < n_bytes; i += 2)
		bytes[i] = '\n';
}

/* Run lengths that end lines of no pixels. */
static void make_bmp(void)
{
	static const uint8_t head[54] = {
		'B', 'M', [10] = 54, [14] = 40, [18] = 16, [22] = 16, [26] = 1, [28] = 8, [30] = 1
	};

	make(head, sizeof(head), 20 << 20, 0);
}

static void make_graymap(void)
{
	static const char head[] = "P5 3000 3000 100\n";

	make(head, sizeof(head) - 1, sizeof(head) - 1 + 3000 * 3000, 7);
}

static uint8_t *put16(uint8_t *at, unsigned v)
{
	at[0] = (uint8_t)v;
	at[1] = (uint8_t)(v >> 8);
	return at + 2;
}

static uint8_t *put32(uint8_t *at, size_t v)
{
	return put16(put16(at, v & 0xffff), (unsigned)(v >> 16));
}

static uint8_t *put_tag(uint8_t *at, unsigned tag, unsigned type, size_t n, size_t v)
{
	return put32(put32(put16(put16(at, tag), type), n), v);
}

/* A TIFF with many strips, all of them the same small JPEG, and tables that are read again for each: quantization tables,
 * one after the other. They are the file's, or stand in the JPEGs of the second plane and the third. */
static void make_tiff_tables(bool planes)
{
	enum { STRIPS = 64, ROWS = 8, TAGS = 11, TABLE = 69, N_TABLES = 4000, LISTS = 8 + 2 + 12 * TAGS + 4 };
	const struct jpeg_recipe r = { .width = 8, .height = ROWS, .n_components = 1, .h = 1, .v = 1, .quality = 80 };
	const unsigned n_planes = planes ? 3 : 1, n = STRIPS * n_planes;
	size_t n_jpeg, bits = LISTS + 2 * 4 * n, tables = bits + 2 * 3, n_tables = 2 + TABLE * N_TABLES;
	uint8_t *jpeg = jpeg_make(&r, 1, &n_jpeg), *at;
	size_t small = tables + n_tables + n_jpeg;

	make("II*", 4, small + n_jpeg, 1);
	at = put16(put32(bytes + 4, 8), TAGS);
	at = put_tag(at, 256, 3, 1, r.width);
	at = put_tag(at, 257, 3, 1, STRIPS * ROWS);
	at = put_tag(at, 258, 3, n_planes, planes ? bits : 8);
	at = put_tag(at, 259, 3, 1, 7);
	at = put_tag(at, 262, 3, 1, planes ? 2 : 1);
	at = put_tag(at, 273, 4, n, LISTS);
	at = put_tag(at, 277, 3, 1, n_planes);
	at = put_tag(at, 278, 3, 1, ROWS);
	at = put_tag(at, 279, 4, n, LISTS + 4 * n);
	at = put_tag(at, 284, 3, 1, planes ? 2 : 1);
	at = put_tag(at, planes ? 60000 : 347, 7, n_tables + 2, tables);
	at = put32(at, 0);
	for (unsigned i = 0; i < n; i++)
		at = put32(at, i < STRIPS ? small : tables);
	for (unsigned i = 0; i < n; i++)
		at = put32(at, i < STRIPS ? n_jpeg : n_tables + n_jpeg - 2);
	for (unsigned i = 0; i < 3; i++)
		at = put16(at, 8);
	at = put16(at, 0xd8ff);
	for (unsigned i = 0; i < N_TABLES; i++, at += TABLE)
		memcpy(at, (uint8_t[]){ 0xff, 0xdb, 0, TABLE - 2, 0 }, 5);
	if (planes)
		memcpy(at, jpeg + 2, n_jpeg - 2);
	else
		put16(at, 0xd9ff);
	memcpy(bytes + small, jpeg, n_jpeg);
	free(jpeg);
}

static void make_tiff_tables_of_file(void)
{
	make_tiff_tables(false);
}

static void make_tiff_tables_of_planes(void)
{
	make_tiff_tables(true);
}

static int decode(uint64_t max_ns, struct image_error *err)
{
	struct decode_limits limits = decode_limits_default;
	struct decoder *d;
	struct image_info info;
	struct image out;
	int r;

	limits.max_ns = max_ns;
	d = decoder_create(&limits);
	ck_assert_ptr_nonnull(d);
	memset(err, 0, sizeof(*err));
	r = decoder_open(d, bytes, n_bytes, true, &info, err);
	ck_assert_msg(r == 0, "%s", err->text);
	r = decoder_region(d, (struct region_px){ 0, 0, info.width, info.height }, &out, err);
	decoder_destroy(d);
	return r;
}

START_TEST(test_a_file_that_takes_too_long_is_refused)
{
	/* With the smallest limit, the second look at the clock is beyond it. Under the usual one, the file ends first. */
	static const struct {
		void (*make)(void);
		int whole;
	} files[] = {
		{ make_gif, IMAGE_E_CORRUPT }, { make_pnm, IMAGE_E_CORRUPT },   { make_bmp, IMAGE_E_CORRUPT },
		{ make_graymap, 0 },           { make_tiff_tables_of_file, 0 }, { make_tiff_tables_of_planes, 0 }
	};
	struct image_error err;

	files[_i].make();
	ck_assert_int_eq(decode(1, &err), IMAGE_E_TIME);
	ck_assert_msg(strstr(err.text, "limits.image_time") != NULL, "%s", err.text);
	ck_assert_int_eq(decode(decode_limits_default.max_ns, &err), files[_i].whole);
	free(bytes);
}
END_TEST

SUITE(raster_time)
{
	TCase *c = tcase_create("raster time");
	Suite *s = suite_create("raster time");

	tcase_add_loop_test(c, test_a_file_that_takes_too_long_is_refused, 0, 6);
	suite_add_tcase(s, c);
	return s;
}
