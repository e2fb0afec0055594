/* The decoder of plain PNG rows: inflating against zlib, rows and rectangles against libpng. Every kind of PNG is
 * compared with Pillow in tests/system/decode/test_decode.py. */
#include "image/formats/png-rows.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>
#include <zlib.h>

#include "image/formats/inflate.h"
#include "image/formats/png-filters.h"
#include "support/suite.h"

enum { N_BYTES = 300000, WIDTH = 301, HEIGHT = 97 };

static uint32_t random_next(uint32_t *seed)
{
	return *seed = *seed * 1664525u + 1013904223u;
}

/* Bytes with structure: noise of few values, repeats from near and far, runs. */
static void make_bytes(uint8_t *to, size_t n)
{
	uint32_t seed = 7;

	for (size_t i = 0; i < n;) {
		uint32_t kind = random_next(&seed) >> 28, length = 1 + (random_next(&seed) >> 22);
		uint32_t back = 1 + (random_next(&seed) >> (kind & 1 ? 17 : 27));

		for (; length > 0 && i < n; length--, i++)
			to[i] = (uint8_t)(kind < 8 || back > i ? random_next(&seed) >> (24 + kind % 4) : to[i - back]);
	}
}

static size_t deflated(const uint8_t *from, size_t n, int level, int strategy, uint8_t *to, size_t room)
{
	z_stream z = { .next_in = (z_const Bytef *)from, .avail_in = (uInt)n, .next_out = to, .avail_out = (uInt)room };

	ck_assert_int_eq(deflateInit2(&z, level, Z_DEFLATED, 15, 8, strategy), Z_OK);
	ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
	size_t done = room - z.avail_out;
	deflateEnd(&z);
	return done;
}

/* In parts of `part` bytes, keeping no less than the window between them. */
static void check_inflated(const uint8_t *stream, size_t n, const uint8_t *expected, size_t n_expected, size_t part,
			   bool plain)
{
	static uint8_t window[INFLATE_WINDOW + 70000 + INFLATE_SLACK];
	struct inflate *s = malloc(sizeof(*s));
	uint8_t *end = window;
	size_t done = 0;
	enum inflate_outcome r = inflate_begin(s, stream, n);

	s->plain = plain;
	while (r == INFLATE_MORE) {
		/* Moved only where room is short: sanitizers move byte by byte. */
		if ((size_t)(window + sizeof(window) - end) < part + INFLATE_SLACK) {
			memmove(window, end - INFLATE_WINDOW, INFLATE_WINDOW);
			end = window + INFLATE_WINDOW;
		}
		uint8_t *begin = end;
		r = inflate_run(s, &end, begin + part);
		ck_assert_uint_le(done + (size_t)(end - begin), n_expected);
		ck_assert_mem_eq(begin, expected + done, (size_t)(end - begin));
		done += (size_t)(end - begin);
	}
	ck_assert_int_eq(r, INFLATE_END);
	ck_assert_uint_eq(done, n_expected);
	uint32_t adler = (uint32_t)adler32(1, expected, (uInt)n_expected);
	ck_assert(inflate_checksum_is(s, adler));
	ck_assert(!inflate_checksum_is(s, adler ^ 1));
	free(s);
}

START_TEST(test_inflate_gives_what_was_deflated)
{
	/* Proves it for stored, fixed and dynamic blocks, long codes, parts of any size, and both compilations. */
	static const size_t parts[] = { 1, 3, 1000, 65536 };
	uint8_t *bytes = malloc(N_BYTES), *stream = calloc(2 * N_BYTES, 1);

	make_bytes(bytes, N_BYTES);
	for (int level = 0; level <= 9; level += 3)
		for (int strategy = Z_DEFAULT_STRATEGY; strategy <= Z_FIXED; strategy++) {
			memset(stream, 0, 2 * N_BYTES);
			size_t n = deflated(bytes, N_BYTES, level, strategy, stream, 2 * N_BYTES - INFLATE_PAD_BYTES);

			for (int plain = 0; plain < 2; plain++)
				check_inflated(stream, n, bytes, N_BYTES, parts[(level / 3 + strategy) % 4], plain);
		}
	free(bytes);
	free(stream);
}
END_TEST

START_TEST(test_inflate_of_a_cut_stream_is_unsure)
{
	/* Proves that no byte beyond the end counts. */
	static uint8_t bytes[5000], stream[6000 + INFLATE_PAD_BYTES], cut[6000 + INFLATE_PAD_BYTES];
	static uint8_t out[sizeof(bytes) + 300 + INFLATE_SLACK];
	struct inflate *s = malloc(sizeof(*s));

	make_bytes(bytes, sizeof(bytes));
	size_t n = deflated(bytes, sizeof(bytes), 9, Z_DEFAULT_STRATEGY, stream, 6000);
	for (size_t left = 0; left + 4 < n; left++) {
		uint8_t *end = out;
		enum inflate_outcome r;

		memset(cut, 0, sizeof(cut));
		memcpy(cut, stream, left);
		r = inflate_begin(s, cut, left);
		if (r == INFLATE_MORE)
			r = inflate_run(s, &end, out + sizeof(bytes) + 1);
		ck_assert_int_eq(r, INFLATE_UNSURE);
	}
	free(s);
}
END_TEST

/* The filter as the PNG specification has it (section 9, Filter types). */
static void unfilter_by_the_book(unsigned filter, const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n,
				 size_t pixel_bytes)
{
	for (size_t i = 0; i < n; i++) {
		int a = i < pixel_bytes ? 0 : row[i - pixel_bytes], b = above[i];
		int c = i < pixel_bytes ? 0 : above[i - pixel_bytes], p = a + b - c;
		int pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
		int predicted[PNG_N_FILTERS] = { 0, a, b, (a + b) / 2, pa <= pb && pa <= pc ? a : pb <= pc ? b : c };

		row[i] = (uint8_t)(in[i] + predicted[filter]);
	}
}

START_TEST(test_filters_are_undone_by_the_book)
{
	/* Any bytes, sizes of pixels and lengths of rows: both compilations, and nothing after the margin is touched. */
	enum { LONGEST = 200 };
	uint8_t in[LONGEST + PNG_ROW_MARGIN], above[sizeof(in)], expected[sizeof(in)];
	uint32_t seed = 11;

	for (unsigned round = 0; round < 6000; round++) {
		static const unsigned sizes[] = { 1, 2, 3, 4, 6, 8 };
		unsigned pixel_bytes = sizes[round % 6], filter = round / 6 % PNG_N_FILTERS;
		size_t n = (1 + (random_next(&seed) >> 16) % (LONGEST / pixel_bytes)) * pixel_bytes;
		uint8_t *row = malloc(n + PNG_ROW_MARGIN), *plain = malloc(n + PNG_ROW_MARGIN);

		for (size_t i = 0; i < sizeof(in); i++) {
			in[i] = (uint8_t)(random_next(&seed) >> (round % 2 ? 24 : 30));
			above[i] = (uint8_t)(random_next(&seed) >> (round % 3 ? 24 : 29));
		}
		unfilter_by_the_book(filter, in, above, expected, n, pixel_bytes);
		png_unfilter(filter, in, above, row, n, pixel_bytes);
		png_unfilter_plain(filter, in, above, plain, n, pixel_bytes);
		ck_assert_mem_eq(row, expected, n);
		ck_assert_mem_eq(plain, expected, n);
		free(row);
		free(plain);
	}
}
END_TEST

/* A PNG by libpng, whose rows have all filters. */
static uint8_t *make_png(uint32_t format, size_t *n)
{
	static uint8_t pixels[WIDTH * HEIGHT * 8];
	uint32_t channels = PNG_IMAGE_SAMPLE_CHANNELS(format);
	png_image image = { .version = PNG_IMAGE_VERSION, .width = WIDTH, .height = HEIGHT, .format = format };
	png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(image);
	uint8_t *png = malloc(room);
	uint32_t seed = format + 1;

	for (uint32_t y = 0; y < HEIGHT; y++)
		for (uint32_t x = 0; x < WIDTH * channels; x++)
			pixels[y * WIDTH * channels + x] = (uint8_t)(x / channels * (y / 16 + x % channels) / 3 +
								     y * 2 + (random_next(&seed) >> 30 << y / 40));
	ck_assert(png_image_write_to_memory(&image, png, &room, 0, pixels, 0, NULL));
	*n = room;
	return png;
}

START_TEST(test_a_stream_of_empty_blocks_is_left_to_zlib)
{
	/* Proves that a stream cannot spend more time on tables of codes than its bytes are worth: of blocks that follow
	 * each other without a byte, each of 10 bits, only the first ones are read. */
	enum { N = 1 << 20 };
	uint8_t *stream = calloc(1, N + INFLATE_PAD_BYTES), out[1024 + INFLATE_SLACK], *at = out;
	struct inflate *s = malloc(sizeof(*s));

	stream[0] = 0x78;
	stream[1] = 0x9c;
	for (size_t bit = 17; bit < N * 8; bit += 10)
		stream[bit / 8] |= (uint8_t)(1u << bit % 8);
	ck_assert_int_eq(inflate_begin(s, stream, N), INFLATE_MORE);
	ck_assert_int_eq(inflate_run(s, &at, out + 1024), INFLATE_UNSURE);
	ck_assert_ptr_eq(at, out);
	ck_assert_uint_lt((size_t)(s->next - stream), 4096);
	free(s);
	free(stream);
}
END_TEST

static void check_png(uint32_t format)
{
	static const struct region_px wants[] = {
		{ 0, 0, WIDTH, HEIGHT }, { 17, 20, 100, 30 }, { 300, 96, 1, 1 }, { 0, 0, 1, 1 }, { 5, 96, 200, 1 }
	};
	size_t n;
	uint8_t *png = make_png(format, &n), *whole = malloc(WIDTH * HEIGHT * 3), *part = malloc(WIDTH * HEIGHT * 3);
	png_image image = { .version = PNG_IMAGE_VERSION };
	static struct png_rows rows;
	struct arena arena = { 0 };
	struct png_layout layout;
	struct image_error err;

	ck_assert(png_image_begin_read_from_memory(&image, png, n));
	image.format = PNG_FORMAT_RGBA;
	uint8_t *rgba = malloc(PNG_IMAGE_SIZE(image));
	ck_assert(png_image_finish_read(&image, NULL, rgba, 0, NULL));
	for (size_t i = 0; i < WIDTH * HEIGHT; i++)
		memcpy(whole + i * 3, rgba + i * 4, 3);
	ck_assert_int_eq(png_layout_read(png, n, &arena, &layout, &err), 0);
	for (size_t i = 0; i < sizeof(wants) / sizeof(*wants); i++) {
		struct region_px w = wants[i];
		struct image out = { part, (size_t)w.width * 3, w.width, w.height };
		struct cpu_budget budget;

		cpu_budget_begin(&budget, 0);
		ck_assert_int_eq(png_rows_read(&rows, &layout, png, n, w, NULL, &out, &budget), 0);
		for (uint32_t y = 0; y < w.height; y++)
			ck_assert_mem_eq(part + y * out.stride_bytes, whole + ((w.y + y) * (size_t)WIDTH + w.x) * 3,
					 out.stride_bytes);
	}
	png_rows_finish(&rows);
	arena_finish(&arena);
	free(png);
	free(whole);
	free(part);
	free(rgba);
}

START_TEST(test_rows_of_a_plain_png_do_not_need_libpng)
{
	/* Proves that rectangles of ordinary pictures are decoded here, and as libpng decodes the whole. */
	check_png(PNG_FORMAT_RGB);
	check_png(PNG_FORMAT_RGBA);
	check_png(PNG_FORMAT_GRAY);
	check_png(PNG_FORMAT_GA);
}
END_TEST

SUITE(png_rows)
{
	Suite *suite = suite_create("png_rows");
	TCase *tc = tcase_create("png_rows");

	tcase_add_test(tc, test_inflate_gives_what_was_deflated);
	tcase_add_test(tc, test_inflate_of_a_cut_stream_is_unsure);
	tcase_add_test(tc, test_a_stream_of_empty_blocks_is_left_to_zlib);
	tcase_add_test(tc, test_filters_are_undone_by_the_book);
	tcase_add_test(tc, test_rows_of_a_plain_png_do_not_need_libpng);
	suite_add_tcase(suite, tc);

	return suite;
}
