/* Bands: a decoder hands on its rows while it decodes, and the resampler shrinks them at once. Rows, finished pixels
 * and verdicts are those of the other way, which has the whole rectangle first. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "batch/sample.h"
#include "image/formats/decode.h"
#include "image/kernels/resample/resample.h"
#include "support/jpegs.h"
#include "image/transform/views.h"
#include "support/pipelines.h"
#include "support/suite.h"
#include "base/workspace.h"

enum { MIB = 1 << 20 };

static uint32_t seed = 5;

static uint32_t draw(uint32_t n)
{
	return jpeg_random(&seed) % n;
}

/* ---- the decoder's half ---- */

/* Copies what it gets, and notes a band that is not as promised. */
struct collector {
	struct row_sink sink;
	uint32_t width, height; /* expected */
	uint8_t *rgb;
	uint32_t n_rows;
	bool wrong;
};

static void collect(struct row_sink *sink, const uint8_t *rows, size_t stride_bytes, unsigned n)
{
	struct collector *c = (struct collector *)(void *)sink;
	size_t width = (size_t)c->width * 3;
	volatile uint8_t slack;

	c->wrong |= n < 1 || n > ROW_SINK_BAND || n > c->height - c->n_rows;
	c->wrong |= c->n_rows % ROW_SINK_BAND != 0; /* only the last band is short */
	for (unsigned i = 0; !c->wrong && i < n; i++, c->n_rows++) {
		memcpy(c->rgb + c->n_rows * width, rows + i * stride_bytes, width);
		slack = rows[i * stride_bytes + width + ROW_SINK_SLACK_BYTES - 1];
	}
	(void)slack;
}

static struct region_px any_region(uint32_t width, uint32_t height)
{
	struct region_px r = { .width = 1 + draw(width), .height = 1 + draw(height) };

	r.x = draw(width - r.width + 1);
	r.y = draw(height - r.height + 1);
	return r;
}

struct verdict {
	int outcome;
	char text[192];
};

/* Decodes the same rectangle by rows and as a whole. True when the rows went to the sink. */
static bool check_rows(struct decoder *d, const uint8_t *bytes, size_t n, bool upright, uint32_t draft)
{
	struct verdict whole = { 0 }, by_rows = { 0 };
	struct collector c = { .sink.take = collect };
	struct image out, kept;
	struct image_info info;
	struct image_error err = { "" };
	struct region_px want;

	if (decoder_open(d, bytes, n, upright, &info, &err) != 0)
		return false;
	if (draft)
		decoder_draft(d, draft, draft, &info);
	want = any_region(info.width, info.height);
	whole.outcome = decoder_region(d, want, &out, &err);
	memcpy(whole.text, err.text, sizeof(err.text));
	c.width = want.width;
	c.height = want.height;
	c.rgb = malloc((size_t)want.width * want.height * 3);
	kept.rgb = malloc((size_t)want.width * want.height * 3);
	for (uint32_t y = 0; whole.outcome == 0 && y < want.height; y++)
		memcpy(kept.rgb + (size_t)y * want.width * 3, out.rgb + y * out.stride_bytes, (size_t)want.width * 3);

	err.text[0] = '\0';
	ck_assert_int_eq(decoder_open(d, bytes, n, upright, &info, &err), 0);
	if (draft)
		decoder_draft(d, draft, draft, &info);
	by_rows.outcome = decoder_region_to(d, want, &c.sink, &out, &err);
	memcpy(by_rows.text, err.text, sizeof(err.text));
	ck_assert(!c.wrong);
	ck_assert_int_eq(by_rows.outcome, whole.outcome);
	ck_assert_str_eq(by_rows.text, whole.text);
	bool went = by_rows.outcome == 0 && !out.rgb;
	if (went)
		ck_assert_uint_eq(c.n_rows, want.height);
	for (uint32_t y = 0; by_rows.outcome == 0 && y < want.height; y++)
		ck_assert_mem_eq(kept.rgb + (size_t)y * want.width * 3,
				 out.rgb ? out.rgb + y * out.stride_bytes : c.rgb + (size_t)y * want.width * 3,
				 (size_t)want.width * 3);
	free(kept.rgb);
	free(c.rgb);
	return went;
}

START_TEST(test_a_sink_gets_the_rows_of_the_rectangle)
{
	/* Proves it for every sampling, baseline and progressive, drafts, and pictures that the scan decoder leaves to
	 * libjpeg-turbo, which come as a whole. */
	struct decoder *d = decoder_create(&decode_limits_default);
	unsigned n_went = 0, n_whole = 0;

	for (unsigned i = 0; i < 600; i++) {
		struct jpeg_recipe r = jpeg_random_progressive(&seed);
		size_t n;

		r.progressive = i % 3 == 0;
		r.rgb = r.n_components == 3 && i % 7 == 0;
		r.arithmetic = !r.progressive && i % 11 == 0;
		uint8_t *bytes = jpeg_make(&r, seed, &n);
		bool went = check_rows(d, bytes, n, true, i % 4 ? 0 : 1 + draw(60));

		ck_assert_msg(!(went && r.arithmetic), "libjpeg-turbo hands nothing on");
		n_went += went;
		n_whole += !went;
		free(bytes);
	}
	ck_assert_uint_gt(n_went, 300);
	ck_assert_uint_gt(n_whole, 30);
	decoder_destroy(d);
}
END_TEST

START_TEST(test_damage_behind_some_bands_gives_the_same_verdict)
{
	/* Proves that a sink which has got some rows of a damaged picture does not change its pixels or its error. */
	struct decoder *d = decoder_create(&decode_limits_default);
	unsigned n_went = 0, n_whole = 0;

	for (unsigned i = 0; i < 600; i++) {
		struct jpeg_recipe r = jpeg_random_progressive(&seed);
		size_t n;

		r.progressive = i % 2;
		uint8_t *bytes = jpeg_make(&r, seed, &n);
		bytes[n / 4 + draw((uint32_t)(n - n / 4))] = (uint8_t)draw(256);
		bool went = check_rows(d, bytes, i % 5 ? n : n - draw((uint32_t)n / 3), false, 0);

		n_went += went;
		n_whole += !went;
		free(bytes);
	}
	ck_assert_uint_gt(n_went, 50);
	ck_assert_uint_gt(n_whole, 50);
	decoder_destroy(d);
}
END_TEST

/* ---- other formats ---- */

enum other { OTHER_PNG, OTHER_PPM = 4, OTHER_PGM, OTHER_BMP, N_OTHERS };

static uint8_t *png_of(unsigned kind, uint32_t width, uint32_t height, size_t *n)
{
	static const uint32_t formats[] = { PNG_FORMAT_RGB, PNG_FORMAT_RGBA, PNG_FORMAT_GRAY, PNG_FORMAT_GA };
	png_image image = { .version = PNG_IMAGE_VERSION, .width = width, .height = height, .format = formats[kind] };
	png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(image);
	uint8_t *pixels = malloc(PNG_IMAGE_SIZE(image)), *png = malloc(room);

	for (size_t i = 0; i < PNG_IMAGE_SIZE(image); i++)
		pixels[i] = (uint8_t)(i / width + draw(4));
	ck_assert(png_image_write_to_memory(&image, png, &room, 0, pixels, 0, NULL));
	free(pixels);
	*n = room;
	return png;
}

/* A header and rows of noise: PPM, PGM, or BMP from the bottom up. */
static uint8_t *rows_of(enum other kind, uint32_t width, uint32_t height, size_t *n)
{
	size_t row = kind == OTHER_BMP ? ((size_t)width * 3 + 3) / 4 * 4 : (size_t)width * (kind == OTHER_PPM ? 3 : 1);
	uint8_t *bytes = calloc(1, 64 + row * height);
	size_t at = 54;

	if (kind == OTHER_BMP) {
		const uint32_t head[] = { 54, 40, width, height, 24u << 16 | 1 };

		memcpy(bytes, "BM", 2);
		memcpy(bytes + 10, head, sizeof(head));
	} else {
		at = (size_t)sprintf((char *)bytes, "P%d %u %u 255\n", kind == OTHER_PPM ? 6 : 5, width, height);
	}
	*n = at + row * height;
	for (; at < *n; at++)
		bytes[at] = (uint8_t)draw(256);
	return bytes;
}

static uint8_t *other_make(unsigned kind, uint32_t width, uint32_t height, size_t *n)
{
	return kind < OTHER_PPM ? png_of(kind, width, height, n) : rows_of((enum other)kind, width, height, n);
}

START_TEST(test_a_sink_gets_the_rows_of_other_formats)
{
	/* Proves it for PNG, PNM and BMP; and that damage, which all but PNG cannot see, has the same verdict. */
	struct decoder *d = decoder_create(&decode_limits_default);
	unsigned n_whole = 0;

	for (unsigned i = 0; i < 700; i++) {
		size_t n;
		uint8_t *bytes = other_make(i % N_OTHERS, 1 + draw(150), 1 + draw(90), &n);

		ck_assert_msg(check_rows(d, bytes, n, true, 0), "kind %u", i % N_OTHERS);
		if (i % N_OTHERS < OTHER_PPM)
			bytes[n / 4 + draw((uint32_t)(n - n / 4))] = (uint8_t)draw(256);
		n_whole += !check_rows(d, bytes, i % 5 ? n : n - draw((uint32_t)n / 3), false, 0);
		free(bytes);
	}
	ck_assert_uint_gt(n_whole, 100);
	decoder_destroy(d);
}
END_TEST

/* ---- the resampler's half ---- */

static struct resample_request any_request(uint32_t width, uint32_t height)
{
	static const enum filter filters[] = { FILTER_LANCZOS, FILTER_BILINEAR, FILTER_BICUBIC,
					       FILTER_BOX,     FILTER_HAMMING,  FILTER_NEAREST };
	struct resample_request q = { .filter = filters[draw(6)],
				      .order = (enum pass_order)draw(2),
				      .box = any_region(width, height),
				      .flip = draw(2) };

	q.out_width = draw(8) ? 1 + draw(q.box.width) : q.box.width + draw(30);
	q.out_height = draw(8) ? 1 + draw(90) : q.box.height;
	q.keep = any_region(q.out_width, q.out_height);
	return q;
}

static void give_bands(struct resampler *r, const struct image *src, struct region_px needs)
{
	size_t stride = ((size_t)needs.width * 3 + 63) / 64 * 64;
	uint8_t *band = malloc(stride * ROW_SINK_BAND + ROW_SINK_SLACK_BYTES);

	memset(band, 0xaa, stride * ROW_SINK_BAND + ROW_SINK_SLACK_BYTES);
	for (uint32_t y = 0; y < needs.height; y += ROW_SINK_BAND) {
		unsigned n = needs.height - y < ROW_SINK_BAND ? needs.height - y : ROW_SINK_BAND;

		for (unsigned i = 0; i < n; i++)
			memcpy(band + i * stride,
			       src->rgb + (needs.y + y + i) * src->stride_bytes + (size_t)needs.x * 3,
			       (size_t)needs.width * 3);
		resample_take_band(r, band, stride, n);
	}
	free(band);
}

START_TEST(test_bands_are_resampled_to_the_same_rows)
{
	/* Proves it for every filter and path; requests that need all rows first are refused beforehand. */
	struct resampler *r = resampler_create(), *reference = resampler_create();
	unsigned n_bands = 0, n_refused = 0;

	for (unsigned round = 0; round < 400; round++) {
		const uint32_t width = 1 + draw(300), height = 1 + draw(200);
		struct image src = { malloc((size_t)width * height * 3), (size_t)width * 3, width, height };
		struct resample_request q = any_request(width, height);
		struct region_px all = { 0, 0, width, height };

		for (size_t i = 0; i < (size_t)width * height * 3; i++)
			src.rgb[i] = (uint8_t)draw(256);
		for (const char *const *path = resample_paths(); *path; path++) {
			if (!resample_takes_bands(&q)) {
				n_refused++;
				continue;
			}
			n_bands++;
			ck_assert_int_eq(resampler_set_path(r, *path), 0);
			ck_assert_int_eq(resample_begin_bands(r, &q), 0);
			give_bands(r, &src, resample_needs(&q));
			ck_assert_int_eq(resampler_set_path(reference, "c"), 0);
			ck_assert_int_eq(resample_begin(reference, &q, &src, all), 0);
			for (uint32_t y = 0; y < q.keep.height; y++)
				ck_assert_mem_eq(resample_next_row(r), resample_next_row(reference),
						 (size_t)q.keep.width * 3);
		}
		free(src.rgb);
	}
	ck_assert_uint_gt(n_bands, 200);
	ck_assert_uint_gt(n_refused, 50);
	resampler_destroy(r);
	resampler_destroy(reference);
}
END_TEST

/* ---- both ---- */

/* The picture's row by p: from the file, or from all of its pixels decoded before. */
static uint8_t *row_of(const struct pipeline *p, struct decoder *d, const uint8_t *bytes, size_t n, bool decoded_before,
		       uint64_t index)
{
	struct pipeline_worker *w = pipeline_worker_create();
	uint8_t *row = aligned_alloc(64, (pipeline_row_bytes(p) + 63) / 64 * 64);
	struct sample_key key = { 1, 0, index };
	struct image_error err = { "" };
	struct image_info info;
	struct image all;

	ck_assert_int_eq(decoder_open(d, bytes, n, false, &info, &err), 0);
	if (decoded_before) {
		struct region_px whole = { 0, 0, info.width, info.height };

		ck_assert_int_eq(decoder_region(d, whole, &all, &err), 0);
		ck_assert_int_eq(views_run_image(p, w, &all, false, key, (void *const[]){ row }, &err), 0);
	} else {
		ck_assert_int_eq(views_run(p, w, d, &info, key, (void *const[]){ row }, &err), 0);
	}
	pipeline_worker_destroy(w);
	return row;
}

START_TEST(test_a_row_from_the_file_is_the_row_from_its_pixels)
{
	/* Proves it where a crop and a resize come first, alone, with flips after, and before ops that need pixels. */
	static const char *const texts[] = {
		"train224",
		"val224",
		"[[\"RandomResizedCrop\",32],[\"RandomVerticalFlip\",1.0],[\"RandomHorizontalFlip\",1.0]]",
		"[[\"Resize\",40],[\"CenterCrop\",32],[\"GaussianBlur\",3]]",
		"[[\"Resize\",[20,30]],[\"RandomVerticalFlip\",1.0],[\"ColorJitter\",0.4,0.4,0.4]]",
		"[[\"Resize\",[30,20]],[\"Resize\",[40,50]]]",
	};
	struct decoder *d = decoder_create(&decode_limits_default);

	for (unsigned i = 0; i < 60; i++) {
		struct jpeg_recipe r = jpeg_random_progressive(&seed);
		size_t n;

		r.progressive = i % 2;
		r.width += 100;
		r.height += 100;
		uint8_t *bytes = jpeg_make(&r, seed, &n);
		for (size_t t = 0; t < sizeof(texts) / sizeof(*texts); t++) {
			struct pipeline *p = expect_pipeline(texts[t]);
			uint8_t *direct = row_of(p, d, bytes, n, false, i), *other = row_of(p, d, bytes, n, true, i);

			ck_assert_mem_eq(direct, other, pipeline_row_bytes(p));
			free(direct);
			free(other);
			pipeline_destroy(p);
		}
		free(bytes);
	}
	decoder_destroy(d);
}
END_TEST

static uint8_t *flat_png(uint32_t width, uint32_t height, size_t *n)
{
	png_image image = { .version = PNG_IMAGE_VERSION, .width = width, .height = height, .format = PNG_FORMAT_RGB };
	png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(image);
	uint8_t *pixels = calloc(1, PNG_IMAGE_SIZE(image)), *png = malloc(room);

	ck_assert(png_image_write_to_memory(&image, png, &room, 0, pixels, 0, NULL));
	free(pixels);
	*n = room;
	return png;
}

START_TEST(test_a_large_crop_takes_no_memory_for_its_pixels)
{
	/* Proves that a crop of 36 MB of pixels is made within a limit of 6 MiB, of a JPEG, PNG, PPM and BMP. A PNG's
	 * compressed rows are copied once. */
	struct jpeg_recipe r = { .width = 4000, .height = 3000, .n_components = 3, .h = 2, .v = 2, .quality = 50 };
	struct pipeline *p =
		expect_pipeline("[[\"RandomResizedCrop\",{\"size\":224,\"scale\":[1.0,1.0],\"ratio\":[1.33,1.333]}]]");
	struct decoder *d = decoder_create(&decode_limits_default);
	struct work_memory memory;
	struct workspace ws = { .of = &memory };
	size_t n;
	uint8_t *bytes = _i == 0   ? jpeg_make(&r, 1, &n)
			 : _i == 1 ? flat_png(r.width, r.height, &n)
				   : rows_of(_i == 2 ? OTHER_PPM : OTHER_BMP, r.width, r.height, &n);

	work_memory_init(&memory, 8 * MIB); /* three quarters of which one worker may have */
	workspace_enter(&ws, 1);
	free(row_of(p, d, bytes, n, false, 0));
	ck_assert_uint_eq(ws.refused_bytes, 0);
	decoder_destroy(d);
	workspace_leave(&ws);
	work_memory_finish(&memory);
	pipeline_destroy(p);
	free(bytes);
}
END_TEST

SUITE(bands)
{
	Suite *suite = suite_create("bands");
	TCase *tc = tcase_create("bands");

	tcase_add_test(tc, test_a_sink_gets_the_rows_of_the_rectangle);
	tcase_add_test(tc, test_damage_behind_some_bands_gives_the_same_verdict);
	tcase_add_test(tc, test_a_sink_gets_the_rows_of_other_formats);
	tcase_add_test(tc, test_bands_are_resampled_to_the_same_rows);
	tcase_add_test(tc, test_a_row_from_the_file_is_the_row_from_its_pixels);
	tcase_add_loop_test(tc, test_a_large_crop_takes_no_memory_for_its_pixels, 0, 4);
	suite_add_tcase(suite, tc);

	return suite;
}
