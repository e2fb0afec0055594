/* The decoder: regions against whole pictures, limits, damage, memory. The comparison with Pillow is
 * tests/system/decode/test_decode.py. */
#include "image/formats/decode.h"

#include <check.h>
#include <errno.h>

#include <png.h>
#include <webp/encode.h>

#include "support/jpegs.h"
#include "support/suite.h"

/* ---- memory, counted ---- Sanitizers have their own allocator; with them nothing is counted and the tests that need
 * counts are left out. */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define COUNTED 0
#endif
#endif
#if !defined(COUNTED) && defined(__GLIBC__)
#define COUNTED 1
#endif

#if COUNTED
static long n_allocations; /* so far, by this thread's program */
static long fail_at = -1;  /* the allocation that fails, with all later ones; -1: none */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static bool may_allocate(void)
{
	return fail_at < 0 || n_allocations < fail_at ? (n_allocations++, true) : (errno = ENOMEM, false);
}

void *malloc(size_t n)
{
	return may_allocate() ? __libc_malloc(n) : NULL;
}

void *calloc(size_t n, size_t size)
{
	return may_allocate() ? __libc_calloc(n, size) : NULL;
}

void *realloc(void *p, size_t n)
{
	return may_allocate() ? __libc_realloc(p, n) : NULL;
}

void *aligned_alloc(size_t align, size_t n)
{
	return may_allocate() ? __libc_memalign(align, n) : NULL;
}
#endif

/* ---- pictures ---- */

struct picture {
	uint8_t *bytes; /* compressed */
	size_t n_bytes;
	uint8_t *rgb; /* what it must decode to; width * 3 a row */
	uint32_t width, height;
};

static void picture_finish(struct picture *p)
{
	free(p->bytes);
	free(p->rgb);
}

static struct picture jpeg_picture(const struct jpeg_recipe *recipe, uint32_t seed)
{
	struct picture p = { .width = recipe->width, .height = recipe->height };
	struct jpeg_in in;

	p.bytes = jpeg_make(recipe, seed, &p.n_bytes);
	p.rgb = malloc((size_t)p.width * p.height * 3);
	ck_assert_int_eq(jpeg_in_open(&in, p.bytes, p.n_bytes), 0);
	ck_assert_int_eq(jpeg_in_pixels(&in, p.rgb), 0);
	jpeg_in_close(&in);
	return p;
}

static void paint(struct picture *p, uint32_t seed)
{
	p->rgb = malloc((size_t)p->width * p->height * 3);
	for (size_t i = 0; i < (size_t)p->width * p->height * 3; i++)
		p->rgb[i] = (uint8_t)(i / 5 + (jpeg_random(&seed) >> 28));
}

static struct picture png_picture(uint32_t width, uint32_t height, uint32_t seed)
{
	struct picture p = { .width = width, .height = height };
	png_image image = { .version = PNG_IMAGE_VERSION, .width = width, .height = height, .format = PNG_FORMAT_RGB };
	png_alloc_size_t n = 0;

	paint(&p, seed);
	ck_assert(png_image_write_to_memory(&image, NULL, &n, 0, p.rgb, 0, NULL));
	p.bytes = malloc(n);
	ck_assert(png_image_write_to_memory(&image, p.bytes, &n, 0, p.rgb, 0, NULL));
	p.n_bytes = n;
	return p;
}

static struct picture webp_picture(uint32_t width, uint32_t height, uint32_t seed)
{
	struct picture p = { .width = width, .height = height };
	uint8_t *bytes;

	paint(&p, seed);
	p.n_bytes = WebPEncodeLosslessRGB(p.rgb, (int)width, (int)height, (int)width * 3, &bytes);
	ck_assert_uint_gt(p.n_bytes, 0);
	p.bytes = malloc(p.n_bytes);
	memcpy(p.bytes, bytes, p.n_bytes);
	WebPFree(bytes);
	return p;
}

/* ---- helpers ---- */

static struct decoder *decoder;

static void setup(void)
{
	decoder = decoder_create(&decode_limits_default);
	ck_assert_ptr_nonnull(decoder);
}

static void teardown(void)
{
	decoder_destroy(decoder);
}

static int decode(const uint8_t *bytes, size_t n, struct region_px want, struct image *out, struct image_error *err)
{
	struct image_info info;
	int outcome = decoder_open(decoder, bytes, n, false, &info, err);

	if (outcome)
		return outcome;
	if (want.width == 0)
		want = (struct region_px){ 0, 0, info.width, info.height };
	return decoder_region(decoder, want, out, err);
}

static void expect_pixels(const struct picture *p, struct region_px r, const char *what)
{
	struct image out;
	struct image_error err = { "" };
	int outcome = decode(p->bytes, p->n_bytes, r, &out, &err);

	ck_assert_msg(outcome == 0, "%s: %d %s", what, outcome, err.text);
	ck_assert_uint_eq(out.width, r.width);
	ck_assert_uint_eq(out.height, r.height);
	for (uint32_t y = 0; y < r.height; y++)
		ck_assert_msg(memcmp(out.rgb + y * out.stride_bytes, p->rgb + ((size_t)(r.y + y) * p->width + r.x) * 3,
				     (size_t)r.width * 3) == 0,
			      "%s: region %ux%u at %u,%u differs in row %u", what, r.width, r.height, r.x, r.y, y);
}

static struct region_px random_region(uint32_t width, uint32_t height, uint32_t *seed)
{
	struct region_px r = { .width = 1 + jpeg_random(seed) % width, .height = 1 + jpeg_random(seed) % height };

	r.x = jpeg_random(seed) % (width - r.width + 1);
	r.y = jpeg_random(seed) % (height - r.height + 1);
	return r;
}

static void expect_regions(struct picture p, int n, const char *what)
{
	uint32_t seed = 17;

	expect_pixels(&p, (struct region_px){ 0, 0, p.width, p.height }, what);
	for (int i = 0; i < n; i++)
		expect_pixels(&p, random_region(p.width, p.height, &seed), what);
	picture_finish(&p);
}

/* ---- pixels ---- */

/* Luma sampling factors, chroma 1x1: 4:4:4, 4:2:2, 4:4:0, 4:2:0, 4:1:1, and rarer ones. */
static const int samplings[][2] = { { 1, 1 }, { 2, 1 }, { 1, 2 }, { 2, 2 }, { 4, 1 },
				    { 1, 4 }, { 4, 2 }, { 2, 4 }, { 3, 1 } };

START_TEST(test_jpeg_regions_equal_the_full_decode)
{
	/* Proves that no pixel of a region depends on where it was cut: all samplings, sizes about the MCU's,
	 * baseline, progressive, arithmetic, with and without restart markers. */
	static const unsigned sizes[][2] = { { 1, 1 }, { 16, 16 }, { 17, 33 }, { 97, 64 }, { 200, 31 }, { 150, 131 } };

	for (size_t s = 0; s < sizeof(samplings) / sizeof(*samplings); s++) {
		for (size_t z = 0; z < sizeof(sizes) / sizeof(*sizes); z++) {
			for (int kind = 0; kind < 8; kind++) {
				struct jpeg_recipe r = { .width = sizes[z][0],
							 .height = sizes[z][1],
							 .n_components = 3,
							 .noise = 60,
							 .h = samplings[s][0],
							 .v = samplings[s][1],
							 .quality = 75 };
				char what[64];

				r.progressive = kind & 1;
				r.restart = kind & 2 ? 3 : 0;
				r.arithmetic = kind & 4;
				snprintf(what, sizeof(what), "%dx%d %ux%u kind %d", r.h, r.v, r.width, r.height, kind);
				expect_regions(jpeg_picture(&r, (uint32_t)(s * 100 + z)), 25, what);
			}
		}
	}
}
END_TEST

START_TEST(test_grey_jpeg_regions_equal_the_full_decode)
{
	/* Proves the same for grey pictures, whose MCU is one block whatever their sampling factors are. */
	for (int h = 1; h <= 2; h++) {
		struct jpeg_recipe r = {
			.width = 131, .height = 77, .n_components = 1, .h = h, .v = h, .quality = 90, .noise = 90
		};

		expect_regions(jpeg_picture(&r, 5), 60, "grey");
		r.progressive = true;
		expect_regions(jpeg_picture(&r, 6), 60, "grey progressive");
	}
}
END_TEST

START_TEST(test_regions_of_a_progressive_jpeg_that_ends_early)
{
	/* Proves the same where scans are missing and libjpeg smooths the coarse blocks: after every scan but the
	 * last. */
	struct jpeg_recipe r = {
		.width = 150, .height = 131, .n_components = 3, .quality = 75, .noise = 30, .progressive = true
	};

	for (size_t s = 0; s < 4; s++) {
		r.h = samplings[s][0];
		r.v = samplings[s][1];
		struct picture whole = jpeg_picture(&r, 3);
		int n_scans = 0;

		for (size_t at = 0; at + 1 < whole.n_bytes; at++) {
			if (whole.bytes[at] != 0xff || whole.bytes[at + 1] != 0xda || n_scans++ == 0)
				continue;
			struct picture early = { malloc(at + 2), at + 2, malloc((size_t)r.width * r.height * 3),
						 r.width, r.height };
			struct jpeg_in in;

			memcpy(early.bytes, whole.bytes, at);
			memcpy(early.bytes + at, "\xff\xd9", 2);
			ck_assert_int_eq(jpeg_in_open(&in, early.bytes, early.n_bytes), 0);
			ck_assert_int_eq(jpeg_in_pixels(&in, early.rgb), 0);
			jpeg_in_close(&in);
			expect_regions(early, 40, "early end");
		}
		ck_assert_int_gt(n_scans, 3);
		picture_finish(&whole);
	}
}
END_TEST

START_TEST(test_every_region_of_a_small_jpeg)
{
	/* Proves every region: each of the 90,000 rectangles of a 4:2:0 picture of 24x24 pixels. */
	struct jpeg_recipe r = {
		.width = 24, .height = 24, .n_components = 3, .h = 2, .v = 2, .quality = 80, .noise = 100
	};
	struct picture p = jpeg_picture(&r, 9);

	for (uint32_t y = 0; y < 24; y++)
		for (uint32_t x = 0; x < 24; x++)
			for (uint32_t h = 1; h <= 24 - y; h++)
				for (uint32_t w = 1; w <= 24 - x; w++)
					expect_pixels(&p, (struct region_px){ x, y, w, h }, "4:2:0");
	picture_finish(&p);
}
END_TEST

START_TEST(test_png_and_webp_regions_equal_the_picture)
{
	/* Proves that losslessly stored pixels come back, in any rectangle. */
	for (uint32_t i = 0; i < 6; i++) {
		expect_regions(png_picture(1 + 31 * i, 1 + 17 * i, i + 1), 40, "PNG");
		expect_regions(webp_picture(1 + 31 * i, 1 + 17 * i, i + 1), 40, "WebP");
	}
}
END_TEST

START_TEST(test_one_decoder_takes_formats_in_turn)
{
	/* Proves that no image, whether intact or broken, half read or unread, affects the next. */
	struct jpeg_recipe big = {
		.width = 300, .height = 200, .n_components = 3, .h = 2, .v = 2, .quality = 80, .noise = 90
	};
	struct jpeg_recipe progressive = big;

	progressive.progressive = true;
	struct picture p[] = { jpeg_picture(&big, 1), png_picture(60, 50, 2), jpeg_picture(&progressive, 3),
			       webp_picture(40, 30, 4) };
	uint32_t seed = 99;

	for (int i = 0; i < 400; i++) {
		struct picture *q = &p[jpeg_random(&seed) % 4];
		struct image_info info;
		struct image_error err;
		struct image out;

		switch (jpeg_random(&seed) % 4) {
		case 0:
			(void)decode(q->bytes, q->n_bytes / 2, (struct region_px){ 0 }, &out, &err);
			break;
		case 1:
			ck_assert_int_eq(decoder_open(decoder, q->bytes, q->n_bytes, false, &info, &err), 0);
			break;
		default:
			expect_pixels(q, random_region(q->width, q->height, &seed), "in turn");
		}
	}
	for (int i = 0; i < 4; i++)
		picture_finish(&p[i]);
}
END_TEST

/* Takes the segments with that marker out of a JPEG's header. */
static void drop_segments(struct picture *p, uint8_t marker)
{
	for (size_t at = 2; p->bytes[at + 1] != 0xda;) {
		size_t size = 2 + ((size_t)p->bytes[at + 2] << 8 | p->bytes[at + 3]);

		if (p->bytes[at + 1] == marker) {
			p->n_bytes -= size;
			memmove(p->bytes + at, p->bytes + at + size, p->n_bytes - at);
		} else {
			at += size;
		}
	}
}

START_TEST(test_a_jpeg_is_not_decoded_with_the_tables_of_the_one_before)
{
	/* Proves that a file without quantization tables is refused also after one that had them, and that one without
	 * Huffman tables gets the standard ones whatever picture came before. */
	struct jpeg_recipe r = {
		.width = 40, .height = 30, .n_components = 3, .h = 2, .v = 2, .quality = 80, .noise = 50
	};
	struct picture before, p = jpeg_picture(&r, 2);
	struct image out;
	struct image_error err;

	r.optimize = true;
	before = jpeg_picture(&r, 1);
	drop_segments(&p, 0xc4);
	expect_pixels(&before, (struct region_px){ 0, 0, 40, 30 }, "before");
	expect_pixels(&p, (struct region_px){ 0, 0, 40, 30 }, "standard tables");
	drop_segments(&p, 0xdb);
	expect_pixels(&before, (struct region_px){ 0, 0, 40, 30 }, "before");
	ck_assert_int_eq(decode(p.bytes, p.n_bytes, (struct region_px){ 0 }, &out, &err), IMAGE_E_CORRUPT);
	picture_finish(&before);
	picture_finish(&p);
}
END_TEST

START_TEST(test_tables_in_a_stream_of_their_own_serve_the_picture_behind)
{
	/* Proves that an abbreviated stream of tables in front of the picture's own stream is used, as by libjpeg and
	 * Pillow. */
	struct jpeg_recipe r = {
		.width = 40, .height = 30, .n_components = 3, .h = 2, .v = 2, .quality = 60, .noise = 50
	};
	struct picture p = jpeg_picture(&r, 2);
	size_t first = 2, size = 0;

	while (p.bytes[first + 1] != 0xdb)
		first += 2 + ((size_t)p.bytes[first + 2] << 8 | p.bytes[first + 3]);
	for (size_t at = first; p.bytes[at + 1] == 0xdb; at = first + size)
		size += 2 + ((size_t)p.bytes[at + 2] << 8 | p.bytes[at + 3]);

	/* SOI tables EOI SOI the rest */
	uint8_t *joined = malloc(p.n_bytes + 4);
	memcpy(joined, "\xff\xd8", 2);
	memcpy(joined + 2, p.bytes + first, size);
	memcpy(joined + 2 + size, "\xff\xd9", 2);
	drop_segments(&p, 0xdb);
	memcpy(joined + 4 + size, p.bytes, p.n_bytes);
	free(p.bytes);
	p.bytes = joined;
	p.n_bytes += 4 + size;
	expect_regions(p, 20, "tables in front");
}
END_TEST

START_TEST(test_a_region_outside_is_the_callers_mistake)
{
	/* Proves both sides of each edge: the last pixel is returned, the pixel after it is -EINVAL, and so is an empty
	 * region. */
	struct picture p = png_picture(30, 20, 1);
	struct image out;
	struct image_error err;
	static const struct region_px bad[] = { { 0, 0, 31, 20 },        { 0, 0, 30, 21 },        { 30, 0, 1, 1 },
						{ 0, 20, 1, 1 },         { 1, 0, 30, 1 },         { 0, 1, 1, 20 },
						{ UINT32_MAX, 0, 2, 1 }, { 0, UINT32_MAX, 1, 2 }, { 3, 3, 4, 0 } };

	expect_pixels(&p, (struct region_px){ 29, 19, 1, 1 }, "corner");
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_int_eq(decode(p.bytes, p.n_bytes, bad[i], &out, &err), -EINVAL);
	decoder_close(decoder);
	ck_assert_int_eq(decoder_region(decoder, bad[0], &out, &err), -EINVAL);
	picture_finish(&p);
}
END_TEST

/* ---- limits and damage ---- */

static void expect_outcome(const struct picture *p, const struct decode_limits *limits, int want)
{
	struct image out;
	struct image_error err = { "" };

	decoder_destroy(decoder);
	decoder = decoder_create(limits);
	int outcome = decode(p->bytes, p->n_bytes, (struct region_px){ 0 }, &out, &err);

	ck_assert_msg(outcome == want, "got %d %s, not %d", outcome, err.text, want);
	ck_assert(want == 0 || (err.text[0] && !strchr(err.text, '\n')));
}

START_TEST(test_pixel_and_byte_limits_hold_on_both_sides)
{
	/* Proves that an image of exactly the limit is decoded and a larger one is refused, in all three formats. */
	struct jpeg_recipe r = { .width = 64, .height = 48, .n_components = 3, .h = 2, .v = 2, .quality = 80 };
	struct picture p[] = { jpeg_picture(&r, 1), png_picture(64, 48, 2), webp_picture(64, 48, 3) };

	for (int i = 0; i < 3; i++) {
		struct decode_limits limits = decode_limits_default;

		limits.max_px = 64 * 48;
		limits.max_bytes = p[i].n_bytes;
		expect_outcome(&p[i], &limits, 0);
		limits.max_px--;
		expect_outcome(&p[i], &limits, IMAGE_E_LIMIT);
		limits.max_px++;
		limits.max_bytes--;
		expect_outcome(&p[i], &limits, IMAGE_E_LIMIT);
		picture_finish(&p[i]);
	}
}
END_TEST

START_TEST(test_scan_limit_holds_on_both_sides)
{
	/* Proves that a progressive JPEG of n scans is decoded under a limit of n and refused under n - 1. */
	struct jpeg_recipe r = {
		.width = 64, .height = 48, .n_components = 3, .h = 2, .v = 2, .quality = 80, .progressive = true
	};
	struct picture p = jpeg_picture(&r, 1);
	struct decode_limits limits = decode_limits_default;

	limits.max_scans = 0;
	for (size_t i = 0; i + 1 < p.n_bytes; i++)
		limits.max_scans += p.bytes[i] == 0xff && p.bytes[i + 1] == 0xda;
	ck_assert_uint_gt(limits.max_scans, 2);
	expect_outcome(&p, &limits, 0);
	limits.max_scans--;
	expect_outcome(&p, &limits, IMAGE_E_LIMIT);
	picture_finish(&p);
}
END_TEST

START_TEST(test_an_image_that_takes_too_long_is_refused)
{
	/* Proves for JPEG and PNG that the limit on processor time ends a large image, with a text that names the
	 * limit, and that a small image is never measured. With the smallest limit, the second look at the clock is
	 * beyond it. */
	struct jpeg_recipe large = {
		.width = 1600, .height = 1600, .n_components = 3, .h = 1, .v = 1, .quality = 10, .progressive = true
	};
	struct jpeg_recipe small = {
		.width = 64, .height = 48, .n_components = 3, .h = 2, .v = 2, .quality = 80, .progressive = true
	};
	struct picture p[] = { jpeg_picture(&large, 1), png_picture(2100, 4100, 2), jpeg_picture(&small, 3),
			       png_picture(64, 48, 2) };
	struct decode_limits limits = decode_limits_default;

	for (int i = 0; i < 4; i++) {
		limits.max_ns = 1;
		expect_outcome(&p[i], &limits, i < 2 ? IMAGE_E_TIME : 0);
		limits.max_ns = decode_limits_default.max_ns;
		expect_outcome(&p[i], &limits, 0);
		picture_finish(&p[i]);
	}
}
END_TEST

/* A JPEG of `width` x `height` whose single scan is empty; SOF10 is progressive and arithmetic. */
static struct picture hollow_jpeg(uint8_t sof, uint32_t width, uint32_t height)
{
	uint8_t bytes[] = { 0xff,
			    0xd8,
			    0xff,
			    sof,
			    0,
			    11,
			    8,
			    (uint8_t)(height >> 8),
			    (uint8_t)height,
			    (uint8_t)(width >> 8),
			    (uint8_t)width,
			    1,
			    1,
			    0x11,
			    0,
			    0xff,
			    0xda,
			    0,
			    8,
			    1,
			    1,
			    0,
			    0,
			    63,
			    0,
			    0xff,
			    0xd9 };
	struct picture p = { .n_bytes = sizeof(bytes), .bytes = malloc(sizeof(bytes)) };

	memcpy(p.bytes, bytes, sizeof(bytes));
	return p;
}

static void expect_words(struct picture p, const char *words, bool said)
{
	struct image_info info;
	struct image_error err = { "" };

	(void)decoder_open(decoder, p.bytes, p.n_bytes, false, &info, &err);
	ck_assert_msg((strstr(err.text, words) != NULL) == said, "%s", err.text);
	picture_finish(&p);
}

START_TEST(test_pixels_that_no_bytes_stand_for_are_refused_where_they_are_many)
{
	/* Proves that the rule applies to arithmetic coding, too, and to no picture of up to 16 Mpx, where even an
	 * empty scan costs little. */
	expect_words(hollow_jpeg(0xca, 13370, 13370), "pixels in only", true);
	expect_words(hollow_jpeg(0xc9, 4097, 4096), "pixels in only", true);
	expect_words(hollow_jpeg(0xc9, 4096, 4096), "pixels in only", false);
	expect_words(hollow_jpeg(0xc2, 13370, 13370), "pixels in only", true);
	expect_words(hollow_jpeg(0xc2, 32544, 255), "pixels in only", false);
}
END_TEST

START_TEST(test_a_lossless_jpeg_is_named)
{
	/* Proves that the text says what kind of file it is and what to do, rather than giving a number. */
	expect_words(hollow_jpeg(0xc3, 64, 64), "lossless JPEG (SOF3), which this libjpeg-turbo (", true);
	expect_words(hollow_jpeg(0xc5, 64, 64), "hierarchical JPEG (SOF5)", true);
}
END_TEST

/* Decodes a copy of exactly n bytes, so that a sanitizer sees a read past the end. Any outcome is accepted except a
 * crash or an unknown outcome number. */
static void expect_some_outcome(const uint8_t *bytes, size_t n, struct region_px want)
{
	uint8_t *copy = malloc(n + !n);
	struct image out;
	struct image_error err = { "" };

	memcpy(copy, bytes, n);
	int outcome = decode(copy, n, want, &out, &err);

	ck_assert_msg(outcome == 0 || outcome == -EINVAL ||
			      (outcome >= IMAGE_E_FORMAT && outcome <= IMAGE_E_LIMIT && err.text[0]),
		      "%d %s", outcome, err.text);
	decoder_close(decoder);
	free(copy);
}

START_TEST(test_cut_and_damaged_files_end_in_an_outcome)
{
	/* Proves that every cut and 2,000 random changes of each format neither crash nor read outside, whole and in
	 * a region. */
	struct jpeg_recipe baseline = {
		.width = 40, .height = 30, .n_components = 3, .h = 2, .v = 2, .quality = 60, .noise = 50, .restart = 2
	};
	struct jpeg_recipe progressive = baseline;

	progressive.progressive = true;
	struct picture p[] = { jpeg_picture(&baseline, 1), jpeg_picture(&progressive, 2), png_picture(30, 20, 3),
			       webp_picture(30, 20, 4) };
	uint32_t seed = 7;

	for (int i = 0; i < 4; i++) {
		for (size_t n = 0; n < p[i].n_bytes; n++)
			expect_some_outcome(p[i].bytes, n, (struct region_px){ 0 });
		for (int k = 0; k < 2000; k++) {
			size_t at = jpeg_random(&seed) % p[i].n_bytes;
			uint8_t before = p[i].bytes[at];

			p[i].bytes[at] = (uint8_t)jpeg_random(&seed);
			expect_some_outcome(p[i].bytes, p[i].n_bytes,
					    k & 1 ? (struct region_px){ 5, 6, 9, 8 } : (struct region_px){ 0 });
			p[i].bytes[at] = before;
		}
		picture_finish(&p[i]);
	}
}
END_TEST

START_TEST(test_a_region_of_a_cut_jpeg_fails_like_the_whole)
{
	/* Proves that whether a file counts as intact does not depend on the requested part. */
	struct jpeg_recipe r = {
		.width = 80, .height = 64, .n_components = 3, .h = 2, .v = 2, .quality = 70, .noise = 50
	};

	for (int kind = 0; kind < 2; kind++) {
		r.progressive = kind;
		struct picture p = jpeg_picture(&r, 1);

		for (size_t n = p.n_bytes / 4; n < p.n_bytes; n += 3) {
			struct image out;
			struct image_error err;
			int whole = decode(p.bytes, n, (struct region_px){ 0 }, &out, &err);

			ck_assert_int_eq(decode(p.bytes, n, (struct region_px){ 0, 0, 8, 8 }, &out, &err), whole);
			ck_assert_int_eq(decode(p.bytes, n, (struct region_px){ 30, 20, 10, 10 }, &out, &err), whole);
		}
		picture_finish(&p);
	}
}
END_TEST

START_TEST(test_other_formats_are_named)
{
	/* Proves that a file of another kind is refused with the name of that kind or its first bytes. */
	static const struct {
		const char *bytes, *text;
	} cases[] = { { "GIF88a..........", "47 49 46 38" },
		      { "<svg xmlns='http", "text" },
		      { "abcdefghijklmnop", "61 62 63 64" },
		      { "ab", "2 bytes" },
		      { "", "0 bytes" } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct image_info info;
		struct image_error err = { "" };

		ck_assert_int_eq(decoder_open(decoder, (const uint8_t *)cases[i].bytes, strlen(cases[i].bytes), false,
					      &info, &err),
				 IMAGE_E_FORMAT);
		ck_assert_msg(strstr(err.text, cases[i].text), "%s", err.text);
	}
}
END_TEST

/* ---- memory ---- */

#if COUNTED
/* Decodes and returns the number of allocations, without Check's own. */
static long count_allocations(const struct picture *p, size_t n_bytes, struct region_px want, int outcome)
{
	struct image out;
	struct image_error err;
	long before = n_allocations;
	int got = decode(p->bytes, n_bytes, want, &out, &err);
	long n = n_allocations - before;

	ck_assert_int_eq(got, outcome);
	return n;
}

START_TEST(test_jpeg_and_png_allocate_nothing_in_steady_state)
{
	/* Proves that after each image has been decoded once, decoding any part of them allocates nothing, progressive
	 * images and errors included. */
	struct jpeg_recipe r = {
		.width = 300, .height = 200, .n_components = 3, .h = 2, .v = 2, .quality = 80, .noise = 60
	};
	struct jpeg_recipe progressive = r;

	progressive.progressive = true;
	struct picture p[] = { jpeg_picture(&r, 1), jpeg_picture(&progressive, 2), png_picture(200, 300, 3) };
	uint32_t seed = 5;

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 3; i++) {
			struct region_px part = random_region(p[i].width, p[i].height, &seed);
			long n = count_allocations(&p[i], p[i].n_bytes, (struct region_px){ 0 }, 0);

			n += count_allocations(&p[i], p[i].n_bytes, part, 0);
			n += count_allocations(&p[i], p[i].n_bytes / 2, part, IMAGE_E_CORRUPT);
			ck_assert_msg(round < 3 || n == 0, "image %d: %ld allocations", i, n);
			ck_assert_msg(round > 0 || n > 0, "nothing is counted");
		}
	}
	for (int i = 0; i < 3; i++)
		picture_finish(&p[i]);
}
END_TEST

START_TEST(test_short_memory_is_an_error_and_nothing_else)
{
	/* Proves that whichever allocation fails, the answer is -ENOMEM (or the allocation was optional) and the
	 * decoder works again once there is memory. Not with WebP: libwebp 1.2.4 itself crashes when an allocation
	 * fails. */
	struct jpeg_recipe r = {
		.width = 90, .height = 70, .n_components = 3, .h = 2, .v = 2, .quality = 80, .noise = 60
	};
	struct jpeg_recipe progressive = r;

	progressive.progressive = true;
	struct picture p[] = { jpeg_picture(&r, 1), jpeg_picture(&progressive, 2), png_picture(90, 70, 3) };

	for (int i = 0; i < 3; i++) {
		int outcome = -ENOMEM;

		for (long n = 0; outcome != 0; n++) {
			struct image out;
			struct image_error err = { "" };

			decoder_destroy(decoder);
			decoder = NULL;
			fail_at = n_allocations + n;
			decoder = decoder_create(&decode_limits_default);
			outcome = decoder ? decode(p[i].bytes, p[i].n_bytes, (struct region_px){ 0 }, &out, &err)
					  : -ENOMEM;
			fail_at = -1;
			ck_assert_msg(outcome == 0 || outcome == -ENOMEM, "%d %s", outcome, err.text);
			if (decoder)
				expect_pixels(&p[i], (struct region_px){ 3, 4, 50, 60 }, "memory back");
			ck_assert_int_lt(n, 1000);
		}
		picture_finish(&p[i]);
	}
}
END_TEST
#endif

SUITE(decode)
{
	Suite *suite = suite_create("decode");
	TCase *tc = tcase_create("decode");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_jpeg_regions_equal_the_full_decode);
	tcase_add_test(tc, test_grey_jpeg_regions_equal_the_full_decode);
	tcase_add_test(tc, test_regions_of_a_progressive_jpeg_that_ends_early);
	tcase_add_test(tc, test_every_region_of_a_small_jpeg);
	tcase_add_test(tc, test_png_and_webp_regions_equal_the_picture);
	tcase_add_test(tc, test_one_decoder_takes_formats_in_turn);
	tcase_add_test(tc, test_a_jpeg_is_not_decoded_with_the_tables_of_the_one_before);
	tcase_add_test(tc, test_tables_in_a_stream_of_their_own_serve_the_picture_behind);
	tcase_add_test(tc, test_a_region_outside_is_the_callers_mistake);
	tcase_add_test(tc, test_pixel_and_byte_limits_hold_on_both_sides);
	tcase_add_test(tc, test_scan_limit_holds_on_both_sides);
	tcase_add_test(tc, test_an_image_that_takes_too_long_is_refused);
	tcase_add_test(tc, test_pixels_that_no_bytes_stand_for_are_refused_where_they_are_many);
	tcase_add_test(tc, test_a_lossless_jpeg_is_named);
	tcase_add_test(tc, test_cut_and_damaged_files_end_in_an_outcome);
	tcase_add_test(tc, test_a_region_of_a_cut_jpeg_fails_like_the_whole);
	tcase_add_test(tc, test_other_formats_are_named);
#if COUNTED
	tcase_add_test(tc, test_jpeg_and_png_allocate_nothing_in_steady_state);
	tcase_add_test(tc, test_short_memory_is_an_error_and_nothing_else);
#endif
	suite_add_tcase(suite, tc);

	return suite;
}
