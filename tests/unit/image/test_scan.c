/* The scan decoder against libjpeg: the same pixels, or SCAN_E_UNSURE.
 *
 * One fixture checks an image on every path of this processor: whole, in random rectangles, without an index, while an
 * index is recorded, with a partial index and with a complete one. */
#include <check.h>
#include <dirent.h>
#include <strings.h>

#include "image/jpeg/huffman.h"
#include "image/jpeg/scan.h"
#include "image/jpeg/stuffing.h"
#include "support/jpegs.h"
#include "support/suite.h"

/* Bytes that end where their allocation ends, so that AddressSanitizer sees every read past the end. */
struct picture {
	uint8_t *bytes;
	size_t n;
	struct jpeg_in header; /* as jpeg_read_header leaves it */
	uint8_t *pixels;       /* libjpeg's */
	uint32_t width, height;
	const char *what;
};

static void picture_init(struct picture *p, uint8_t *bytes, size_t n, const char *what)
{
	struct jpeg_in in;

	*p = (struct picture){ .bytes = bytes, .n = n, .what = what };
	ck_assert_msg(jpeg_in_open(&p->header, bytes, n) == 0, "%s", what);
	p->width = p->header.c.image_width;
	p->height = p->header.c.image_height;
	p->pixels = malloc((size_t)p->width * p->height * 3);
	ck_assert_int_eq(jpeg_in_open(&in, bytes, n), 0);
	ck_assert_msg(jpeg_in_pixels(&in, p->pixels) == 0 && in.errors.num_warnings == 0, "%s", what);
	jpeg_in_close(&in);
}

static void picture_finish(struct picture *p)
{
	jpeg_in_close(&p->header);
	free(p->pixels);
	free(p->bytes);
}

static uint64_t id_of(const struct picture *p)
{
	const struct jpeg_source_mgr *src = p->header.c.src;

	return scan_id(&p->header.c, src->next_input_byte, src->bytes_in_buffer);
}

static int region(struct scan *s, const struct picture *p, const struct checkpoints *in, struct checkpoints *record,
		  struct region_px want, struct image *out)
{
	const struct jpeg_source_mgr *src = p->header.c.src;

	return scan_region(s, &p->header.c, src->next_input_byte, src->bytes_in_buffer, id_of(p), in, record, want,
			   out);
}

/* One rectangle equals libjpeg's, and no byte outside it is written. */
static void check_region(struct scan *s, const struct picture *p, const struct checkpoints *in,
			 struct checkpoints *record, struct region_px want, const char *how)
{
	size_t row = (size_t)want.width * 3, stride = row + 5;
	uint8_t *rgb = malloc(stride * want.height);
	struct image out = { .rgb = rgb, .stride_bytes = stride };

	memset(rgb, 0xA5, stride * want.height); /* five bytes more a row than pixels */
	ck_assert_msg(region(s, p, in, record, want, &out) == 0, "%s %s: unsure", p->what, how);
	ck_assert_uint_eq(out.width, want.width);
	ck_assert_uint_eq(out.height, want.height);
	for (uint32_t y = 0; y < want.height; y++) {
		const uint8_t *expected = p->pixels + ((size_t)(want.y + y) * p->width + want.x) * 3;

		for (size_t i = 0; memcmp(rgb + y * stride, expected, row) && i < row; i++)
			if (rgb[y * stride + i] != expected[i])
				ck_abort_msg("%s, %s: %ux%u+%u+%u of %ux%u: pixel %zu, %u is %u, not %u", p->what, how,
					     want.width, want.height, want.x, want.y, p->width, p->height, i / 3, y,
					     rgb[y * stride + i], expected[i]);
		if (memcmp(rgb + y * stride + row, "\xA5\xA5\xA5\xA5\xA5", stride - row))
			ck_abort_msg("%s, %s: wrote behind row %u", p->what, how, y);
	}
	free(rgb);
}

static struct region_px random_region(const struct picture *p, uint32_t *seed)
{
	uint32_t x = jpeg_random(seed) % p->width, y = jpeg_random(seed) % p->height;

	if (jpeg_random(seed) % 4 == 0)
		x = x / 16 * 16;
	if (jpeg_random(seed) % 4 == 0)
		y = y / 16 * 16;
	return (struct region_px){ x, y, 1 + jpeg_random(seed) % (p->width - x),
				   1 + jpeg_random(seed) % (p->height - y) };
}

static void check_picture(struct scan *s, const struct picture *p, unsigned n_regions, uint32_t seed)
{
	const struct region_px whole = { 0, 0, p->width, p->height };
	size_t n = p->header.c.src->bytes_in_buffer, size = checkpoints_size(&p->header.c, n);
	struct checkpoints *index = malloc(size);

	ck_assert(scan_supported(&p->header.c));
	for (const char *const *path = scan_paths(); *path; path++) {
		ck_assert_int_eq(scan_set_path(s, *path), 0);
		checkpoints_init(index, &p->header.c, n, id_of(p));
		ck_assert(checkpoints_valid(index, size));
		ck_assert_uint_eq(checkpoints_rows_known(index), 0);
		check_region(s, p, NULL, NULL, whole, *path);
		for (unsigned i = 0; i < n_regions; i++)
			check_region(s, p, NULL, NULL, random_region(p, &seed), *path);
		for (unsigned i = 0; i < n_regions; i++)
			check_region(s, p, index, index, random_region(p, &seed), "growing index");
		check_region(s, p, NULL, index, whole, "recording");
		ck_assert_uint_eq(checkpoints_rows_known(index), index->mcu_rows);
		for (unsigned i = 0; i < n_regions; i++)
			check_region(s, p, index, NULL, random_region(p, &seed), "index");
	}
	free(index);
}

static void check_recipe(struct scan *s, const struct jpeg_recipe *r, unsigned n_regions, uint32_t seed)
{
	struct picture p;
	size_t n;
	uint8_t *bytes = jpeg_make(r, seed, &n);
	char what[160];

	snprintf(what, sizeof(what), "%ux%u %d components%s luma %dx%d quality %d%s restart %u noise %u", r->width,
		 r->height, r->n_components, r->rgb ? " RGB" : "", r->h, r->v, r->quality,
		 r->optimize ? " optimized" : "", r->restart, r->noise);
	picture_init(&p, bytes, n, what);
	check_picture(s, &p, n_regions, seed);
	picture_finish(&p);
}

START_TEST(test_every_sampling_and_odd_size_gives_libjpegs_pixels)
{
	/* Upsampling is most error-prone at borders: all sizes around one and two MCUs, all samplings. */
	static const int sampling[][2] = { { 1, 1 }, { 2, 1 }, { 1, 2 }, { 2, 2 } };
	struct scan *s = scan_create();
	uint32_t seed = 7;

	for (unsigned k = 0; k < 4; k++)
		for (unsigned w = 1; w <= 36; w++)
			for (unsigned h = 1; h <= 36; h += 1 + (w > 3)) {
				struct jpeg_recipe r = { .width = w,
							 .height = h,
							 .n_components = 3,
							 .quality = 75,
							 .noise = 60,
							 .h = sampling[k][0],
							 .v = sampling[k][1] };

				if (r.h == 1 || w > 4) /* libjpeg decodes narrower ones */
					check_recipe(s, &r, 2, jpeg_random(&seed));
			}
	scan_destroy(s);
}
END_TEST

START_TEST(test_random_files_give_libjpegs_pixels)
{
	/* Qualities, restart intervals, optimized tables, grey and RGB, smooth and noisy, through one decoder. */
	struct scan *s = scan_create();
	uint32_t seed = 99;

	for (unsigned i = 0; i < 150; i++) {
		struct jpeg_recipe r = {
			.width = 5 + jpeg_random(&seed) % 300,
			.height = 1 + jpeg_random(&seed) % 200,
			.n_components = jpeg_random(&seed) % 6 ? 3 : 1,
			.h = 1 + (int)(jpeg_random(&seed) % 2),
			.v = 1 + (int)(jpeg_random(&seed) % 2),
			.quality = 1 + (int)(jpeg_random(&seed) % 100),
			.optimize = jpeg_random(&seed) % 2,
			.restart = jpeg_random(&seed) % 3 ? 0 : 1 + jpeg_random(&seed) % 40,
			.noise = jpeg_random(&seed) % 256,
		};

		if (jpeg_random(&seed) % 8 == 0)
			r.quality = 100;
		if (r.n_components == 3 && jpeg_random(&seed) % 6 == 0) {
			r.rgb = true;
			r.h = r.v = 1;
		}
		check_recipe(s, &r, 6, jpeg_random(&seed));
	}
	scan_destroy(s);
}
END_TEST

START_TEST(test_long_codes_and_full_blocks_are_decoded)
{
	/* Noise at quality 100 fills blocks up to coefficient 63, and the standard tables then need their 16-bit codes.
	 */
	struct scan *s = scan_create();

	for (int k = 1; k <= 2; k++) {
		struct jpeg_recipe r = {
			.width = 200, .height = 120, .n_components = 3, .h = k, .v = k, .quality = 100, .noise = 255
		};

		check_recipe(s, &r, 10, 3);
		r.quality = 97;
		r.optimize = true;
		check_recipe(s, &r, 10, 4);
	}
	scan_destroy(s);
}
END_TEST

/* A folder of the pictures that tests/run/c names, else of those beside the repository. */
static const char *data_folder(const char *name, char buf[1000])
{
	const char *data = getenv("BATCHD_TEST_DATA");

	snprintf(buf, 1000, "%s/%s", data && *data ? data : "../shared/data", name);
	return buf;
}

/* Calls fn for every JPEG below a folder; false when it is missing. */
static bool each_jpeg(const char *folder, void (*fn)(const char *path, void *arg), void *arg)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	char path[1000];

	while (d && (e = readdir(d))) {
		const char *suffix = strrchr(e->d_name, '.');

		if (e->d_name[0] == '.' ||
		    (size_t)snprintf(path, sizeof(path), "%s/%s", folder, e->d_name) >= sizeof(path))
			continue;
		if (!suffix)
			(void)each_jpeg(path, fn, arg);
		else if (strcasecmp(suffix, ".jpg") == 0 || strcasecmp(suffix, ".jpeg") == 0)
			fn(path, arg);
	}
	if (d)
		closedir(d);
	return d;
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static bool is_cmyk(const uint8_t *bytes, size_t n)
{
	struct jpeg_in in;
	bool cmyk = jpeg_in_open(&in, bytes, n) == 0 &&
		    (in.c.jpeg_color_space == JCS_CMYK || in.c.jpeg_color_space == JCS_YCCK);

	jpeg_in_close(&in);
	return cmyk;
}

static void check_photo(const char *path, void *arg)
{
	static unsigned n_seen;
	struct picture p;
	size_t n;

	if (SANITIZED && n_seen++ % 10) /* each picture takes many times as long then */
		return;
	uint8_t *bytes = jpeg_read_file(path, &n);

	ck_assert_msg(bytes && n, "%s", path);
	if (is_cmyk(bytes, n)) { /* libjpeg makes no RGB of it */
		free(bytes);
		return;
	}
	picture_init(&p, bytes, n, path);
	if (scan_supported(&p.header.c))
		check_picture(arg, &p, 2, (uint32_t)n);
	picture_finish(&p);
}

START_TEST(test_photographs_give_libjpegs_pixels)
{
	/* Files written by cameras and programs of twenty years. */
	struct scan *s = scan_create();
	char folder[1000];

	if (!each_jpeg(data_folder("photos", folder), check_photo, s))
		printf("skipped: no photographs here; make check makes some\n");
	scan_destroy(s);
}
END_TEST

/* Decodes damaged bytes in rectangles; wherever the decoder is sure of the whole image, libjpeg must agree. Returns
 * whether the decoder was sure. */
static bool check_damaged(struct scan *s, const uint8_t *bytes, size_t n, uint32_t *seed)
{
	uint8_t *exact = malloc(n); /* no room after it */
	struct jpeg_in header, in;
	bool sure = false;

	memcpy(exact, bytes, n);
	if (jpeg_in_open(&header, exact, n) == 0 && scan_supported(&header.c) &&
	    (uint64_t)header.c.image_width * header.c.image_height < 1000000) {
		struct picture p = { .bytes = exact,
				     .n = n,
				     .header = header,
				     .width = header.c.image_width,
				     .height = header.c.image_height };
		size_t size = (size_t)p.width * p.height * 3;
		uint8_t *got = malloc(size), *expected = malloc(size);
		struct image out = { .rgb = got, .stride_bytes = (size_t)p.width * 3 };

		sure = region(s, &p, NULL, NULL, (struct region_px){ 0, 0, p.width, p.height }, &out) == 0;
		if (sure) {
			ck_assert_int_eq(jpeg_in_open(&in, exact, n), 0);
			ck_assert_int_eq(jpeg_in_pixels(&in, expected), 0);
			ck_assert_msg(memcmp(got, expected, size) == 0, "damaged file decoded differently");
			jpeg_in_close(&in);
		}
		struct region_px part = random_region(&p, seed);

		out.stride_bytes = (size_t)part.width * 3;
		(void)region(s, &p, NULL, NULL, part, &out);
		free(got);
		free(expected);
	}
	jpeg_in_close(&header);
	free(exact);
	return sure;
}

static void check_odd(const char *path, void *arg)
{
	uint32_t seed = 1;
	size_t n;
	uint8_t *bytes = jpeg_read_file(path, &n);

	ck_assert_msg(bytes && n, "%s", path);
	(void)check_damaged(arg, bytes, n, &seed);
	free(bytes);
}

START_TEST(test_odd_files_are_unsure_or_equal_to_libjpeg)
{
	/* Cut short, with 16-bit quantizers, with false headers. */
	struct scan *s = scan_create();
	char folder[1000];

	if (!each_jpeg(data_folder("odd", folder), check_odd, s))
		printf("skipped: no photographs here; make check makes some\n");
	scan_destroy(s);
}
END_TEST

START_TEST(test_other_kinds_of_jpeg_are_not_supported)
{
	/* Progressive, arithmetic, odd samplings: left to libjpeg, or to the decoder of progressive files. */
	struct jpeg_recipe recipes[] = {
		{ .width = 64, .height = 48, .n_components = 3, .h = 1, .v = 1, .quality = 80, .progressive = true },
		{ .width = 64, .height = 48, .n_components = 3, .h = 1, .v = 1, .quality = 80, .arithmetic = true },
		{ .width = 64, .height = 48, .n_components = 3, .h = 4, .v = 1, .quality = 80 },
		{ .width = 64, .height = 48, .n_components = 3, .h = 2, .v = 2, .quality = 80, .rgb = true },
		{ .width = 4, .height = 48, .n_components = 3, .h = 2, .v = 2, .quality = 80 },
	};

	for (size_t i = 0; i < sizeof(recipes) / sizeof(recipes[0]); i++) {
		struct jpeg_in in;
		size_t n;
		uint8_t *bytes = jpeg_make(&recipes[i], 1, &n);

		ck_assert_int_eq(jpeg_in_open(&in, bytes, n), 0);
		ck_assert_msg(!scan_supported(&in.c), "recipe %zu", i);
		jpeg_in_close(&in);
		free(bytes);
	}
}
END_TEST

START_TEST(test_damaged_files_are_unsure_or_equal_to_libjpeg)
{
	/* Bytes changed anywhere after the first marker: never a crash, never pixels that differ from libjpeg's. */
	struct scan *s = scan_create();
	uint32_t seed = 4242;
	unsigned n_sure = 0;

	for (unsigned round = 0; round < 600; round++) {
		struct jpeg_recipe r = { .width = 5 + jpeg_random(&seed) % 90,
					 .height = 1 + jpeg_random(&seed) % 70,
					 .n_components = 3,
					 .h = 1 + (int)(round % 2),
					 .v = 1 + (int)(round / 2 % 2),
					 .quality = 30 + (int)(round % 71),
					 .restart = round % 3 ? 0 : 1 + round % 7,
					 .noise = round % 200 };
		size_t n;
		uint8_t *bytes = jpeg_make(&r, seed, &n);

		for (unsigned k = 0; k < 1 + round % 3; k++)
			bytes[2 + jpeg_random(&seed) % (n - 2)] = (uint8_t)(jpeg_random(&seed) >> 24);
		n_sure += check_damaged(s, bytes, n, &seed);
		free(bytes);
	}
	ck_assert_uint_gt(n_sure, 50);  /* changes that give another valid picture */
	ck_assert_uint_lt(n_sure, 550); /* changes that give no valid picture */
	scan_destroy(s);
}
END_TEST

#if defined(__x86_64__) /* elsewhere libjpeg-turbo's own paths disagree about these */
START_TEST(test_products_beyond_16_bits_wrap_as_libjpegs_do)
{
	/* Quantizers far too large for the coefficients: only the last bits of the products remain, and they are
	 * equal. */
	struct scan *s = scan_create();
	uint32_t seed = 77;
	unsigned n_sure = 0;

	for (unsigned round = 0; round < 200; round++) {
		struct jpeg_recipe r = { .width = 40,
					 .height = 40,
					 .n_components = 3,
					 .h = 1 + (int)(round % 2),
					 .v = 1,
					 .quality = 100,
					 .noise = 255 };
		size_t n;
		uint8_t *bytes = jpeg_make(&r, seed, &n);

		for (size_t i = 2; i + 68 < n; i++)
			if (bytes[i] == 0xFF && bytes[i + 1] == 0xDB)
				for (unsigned k = 1; k < 64; k++) /* except those of the first row: too large ones make
				                                   * the decoder unsure */
					if (!strchr("\1\5\6\16\17\33\34", (int)k))
						bytes[i + 5 + k] = (uint8_t)(1 + jpeg_random(&seed) % 255);
		n_sure += check_damaged(s, bytes, n, &seed);
		free(bytes);
	}
	ck_assert_uint_gt(n_sure, 100);
	scan_destroy(s);
}
END_TEST
#endif

START_TEST(test_a_file_cut_short_is_unsure_whatever_is_wanted_of_it)
{
	/* Even for the upper left pixel: a sample is good or bad, independent of its crop. */
	struct jpeg_recipe r = {
		.width = 120, .height = 100, .n_components = 3, .h = 2, .v = 2, .quality = 80, .noise = 50
	};
	struct scan *s = scan_create();
	struct picture p;
	size_t n;
	uint8_t *bytes = jpeg_make(&r, 5, &n), rgb[3];
	struct image out = { .rgb = rgb, .stride_bytes = 3 };

	picture_init(&p, bytes, n, "whole");
	size_t all = p.header.c.src->bytes_in_buffer;
	const uint8_t *data = p.header.c.src->next_input_byte;

	ck_assert_int_eq(scan_region(s, &p.header.c, data, all, 0, NULL, NULL, (struct region_px){ 0, 0, 1, 1 }, &out),
			 0);
	for (size_t cut = 0; cut < all; cut++) {
		uint8_t *exact = malloc(cut ? cut : 1);

		memcpy(exact, data, cut);
		ck_assert_int_eq(
			scan_region(s, &p.header.c, exact, cut, 0, NULL, NULL, (struct region_px){ 0, 0, 1, 1 }, &out),
			SCAN_E_UNSURE);
		free(exact);
	}
	picture_finish(&p);
	scan_destroy(s);
}
END_TEST

START_TEST(test_a_forged_index_stays_within_bounds)
{
	/* Random states lead to any pixels or to none, but never to a read outside the data (AddressSanitizer
	 * checks). */
	struct jpeg_recipe r = {
		.width = 150, .height = 110, .n_components = 3, .h = 2, .v = 1, .quality = 90, .noise = 90
	};
	struct scan *s = scan_create();
	struct picture p;
	size_t n;
	uint8_t *bytes = jpeg_make(&r, 5, &n), *rgb = malloc(150 * 110 * 3);
	uint32_t seed = 11;

	picture_init(&p, bytes, n, "indexed");
	size_t all = p.header.c.src->bytes_in_buffer, size = checkpoints_size(&p.header.c, all);
	struct checkpoints *index = malloc(size);

	for (unsigned round = 0; round < 300; round++) {
		struct region_px want = random_region(&p, &seed);
		struct image out = { .rgb = rgb, .stride_bytes = (size_t)want.width * 3 };

		checkpoints_init(index, &p.header.c, all, id_of(&p));
		for (uint64_t *state = index->states; (uint8_t *)state < (uint8_t *)index + size; state++)
			*state = (uint64_t)jpeg_random(&seed) << 32 |
				 jpeg_random(&seed) % (round % 2 ? UINT32_MAX : (uint32_t)all * 8);
		ck_assert(checkpoints_valid(index, size));
		int got = region(s, &p, index, NULL, want, &out);

		ck_assert(got == 0 || got == SCAN_E_UNSURE);
	}
	/* And the index of another image is not used at all. */
	index->scan_id++;
	check_region(s, &p, index, index, (struct region_px){ 0, 0, 150, 110 }, "foreign index");
	free(index);
	free(rgb);
	picture_finish(&p);
	scan_destroy(s);
}
END_TEST

START_TEST(test_an_index_with_a_damaged_header_is_not_valid)
{
	/* Every field of the header is checked against the size. */
	size_t size = checkpoints_bytes(63, 47, 110000);
	struct checkpoints *x = malloc(size);

	checkpoints_clear(x, 63, 47, 110000, 1);
	ck_assert(checkpoints_valid(x, size));
	ck_assert_uint_le(size, 110000 * 3 / 100);
	ck_assert(!checkpoints_valid(x, size - 8));
	ck_assert(!checkpoints_valid(x, size - 1));
	ck_assert(!checkpoints_valid(x, 8));
	struct checkpoints good = *x;

	x->mcu_step = 0;
	ck_assert(!checkpoints_valid(x, size));
	x->mcu_step = (uint16_t)(good.mcus_per_row + 1);
	ck_assert(!checkpoints_valid(x, size));
	*x = good;
	x->mcu_rows = 0x10000000;
	ck_assert(!checkpoints_valid(x, size));
	*x = good;
	x->magic++;
	ck_assert(!checkpoints_valid(x, size));
	free(x);
}
END_TEST

START_TEST(test_an_index_state_survives_packing)
{
	/* Both ends of every range; a value that does not fit is not kept. */
	size_t size = checkpoints_bytes(8, 8, 100000);
	struct checkpoints *x = malloc(size);
	const int32_t low[3] = { -2048, 0, 2047 }, too_large[3] = { 0, 2048, 0 };
	int32_t dc[3];
	uint64_t bit;

	checkpoints_clear(x, 8, 8, 100000, 1);
	ck_assert(!checkpoints_get(x, 0, &bit, dc));
	checkpoints_put(x, 0, 0, low);
	ck_assert(checkpoints_get(x, 0, &bit, dc));
	ck_assert_uint_eq(bit, 0);
	ck_assert_mem_eq(dc, low, sizeof(dc));
	checkpoints_put(x, 1, (1u << 28) - 2, low);
	ck_assert(checkpoints_get(x, 1, &bit, dc) && bit == (1u << 28) - 2);
	checkpoints_put(x, 2, (1u << 28) - 1, low);
	ck_assert(!checkpoints_get(x, 2, &bit, dc));
	checkpoints_put(x, 3, 5, too_large);
	ck_assert(!checkpoints_get(x, 3, &bit, dc));
	free(x);
}
END_TEST

START_TEST(test_unstuffing_takes_out_stuffing_and_markers)
{
	/* At every offset, so that both the wide loop and the tail meet each case. */
	for (unsigned offset = 0; offset < 70; offset++) {
		uint8_t in[128], out[128 + 64];
		uint32_t starts[3];
		size_t n = 0;

		for (unsigned i = 0; i < offset; i++)
			in[n++] = (uint8_t)(i + 1);
		memcpy(in + n, (const uint8_t[]){ 0xFF, 0, 1, 0xFF, 0xFF, 0xD0, 2, 0xFF, 0, 0xFF, 0xD9 }, 11);
		n += 11;
		ck_assert_int_eq(unstuff(in, n, out, starts, 2), 0);
		ck_assert_uint_eq(starts[0], 0);
		ck_assert_uint_eq(starts[1], offset + 2);
		ck_assert_uint_eq(starts[2], offset + 4);
		ck_assert_mem_eq(out, in, offset);
		ck_assert_mem_eq(out + offset, ((const uint8_t[]){ 0xFF, 1, 2, 0xFF }), 4);
		ck_assert_int_lt(unstuff(in, n, out, starts, 1), 0); /* a marker too many */
		in[n - 1] = 0xD1;
		ck_assert_int_lt(unstuff(in, n, out, starts, 2), 0); /* the end is missing */
		in[n - 1] = 0xD9;
		in[offset + 5] = 0xD1;
		ck_assert_int_lt(unstuff(in, n, out, starts, 2), 0); /* the wrong number */
		in[offset + 5] = 0;
		ck_assert_int_lt(unstuff(in, n, out, starts, 2), 0); /* fill bytes before stuffing */
	}
}
END_TEST

START_TEST(test_tables_that_are_none_are_refused)
{
	/* Too many codes for their lengths, a code of all ones, values too large. */
	static struct huff_ac ac;
	static struct huff_dc dc;
	uint8_t bits[17] = { 0 }, values[256] = { 0 };

	bits[1] = 1;
	ck_assert_int_eq(huff_ac_build(&ac, bits, values), 0);
	bits[1] = 2;
	ck_assert_int_lt(huff_ac_build(&ac, bits, values), 0);
	bits[1] = 0;
	bits[2] = 3;
	ck_assert_int_eq(huff_dc_build(&dc, bits, values), 0);
	values[2] = 11;
	ck_assert_int_eq(huff_dc_build(&dc, bits, values), 0);
	ck_assert_int_lt(huff_ac_build(&ac, bits, values), 0);
	values[2] = 12;
	ck_assert_int_lt(huff_dc_build(&dc, bits, values), 0);
	values[2] = 0x1A;
	ck_assert_int_lt(huff_dc_build(&dc, bits, values), 0);
	ck_assert_int_eq(huff_ac_build(&ac, bits, values), 0);
	bits[16] = 255;
	bits[15] = 255;
	ck_assert_int_lt(huff_ac_build(&ac, bits, values), 0);
}
END_TEST

SUITE(scan)
{
	Suite *suite = suite_create("scan");
	TCase *pixels = tcase_create("pixels"), *damage = tcase_create("damage"), *parts = tcase_create("parts");

	tcase_add_test(pixels, test_every_sampling_and_odd_size_gives_libjpegs_pixels);
	tcase_add_test(pixels, test_random_files_give_libjpegs_pixels);
	tcase_add_test(pixels, test_long_codes_and_full_blocks_are_decoded);
	tcase_add_test(pixels, test_photographs_give_libjpegs_pixels);
	tcase_add_test(pixels, test_other_kinds_of_jpeg_are_not_supported);
	suite_add_tcase(suite, pixels);
	tcase_add_test(damage, test_damaged_files_are_unsure_or_equal_to_libjpeg);
#if defined(__x86_64__)
	tcase_add_test(damage, test_products_beyond_16_bits_wrap_as_libjpegs_do);
#endif
	tcase_add_test(damage, test_odd_files_are_unsure_or_equal_to_libjpeg);
	tcase_add_test(damage, test_a_file_cut_short_is_unsure_whatever_is_wanted_of_it);
	tcase_add_test(damage, test_a_forged_index_stays_within_bounds);
	suite_add_tcase(suite, damage);
	tcase_add_test(parts, test_an_index_with_a_damaged_header_is_not_valid);
	tcase_add_test(parts, test_an_index_state_survives_packing);
	tcase_add_test(parts, test_unstuffing_takes_out_stuffing_and_markers);
	tcase_add_test(parts, test_tables_that_are_none_are_refused);
	suite_add_tcase(suite, parts);

	return suite;
}
