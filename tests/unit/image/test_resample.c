/* The resampler: every path gives the same as the plain C path, reads only the part that it needs, and keeps no wrong
 * state. (tests/system/transforms/test_pixels.py compares the plain C path with Pillow.) */
#include "image/kernels/resample/resample.h"
#include "support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t seed = 1;

static uint32_t draw(uint32_t n)
{
	seed = seed * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)seed * n >> 32);
}

/* Exactly width * height * 3 bytes, so that a sanitizer sees any read after them. extreme: only 0 and 255, which makes
 * bicubic overshoot. */
static struct image image_new(uint32_t width, uint32_t height, bool extreme)
{
	struct image i = { .stride_bytes = (size_t)width * 3, .width = width, .height = height };

	i.rgb = malloc(i.stride_bytes * height);
	ck_assert_ptr_nonnull(i.rgb);
	for (size_t b = 0; b < i.stride_bytes * height; b++)
		i.rgb[b] = (uint8_t)(extreme ? draw(2) * 255 : draw(256));
	return i;
}

static struct image image_cut(const struct image *from, struct region_px r)
{
	struct image part = image_new(r.width, r.height, false);

	for (uint32_t y = 0; y < r.height; y++)
		memcpy(part.rgb + y * part.stride_bytes, from->rgb + (r.y + y) * from->stride_bytes + (size_t)r.x * 3,
		       part.stride_bytes);
	return part;
}

static struct image resampled(struct resampler *r, const char *path, const struct resample_request *q,
			      const struct image *src, struct region_px origin)
{
	struct image out = image_new(q->keep.width, q->keep.height, false);

	ck_assert_int_eq(resampler_set_path(r, path), 0);
	ck_assert_int_eq(resample(r, q, src, origin, &out), 0);
	return out;
}

static void assert_same(const struct image *a, const struct image *b, const char *what)
{
	ck_assert_uint_eq(a->width, b->width);
	ck_assert_uint_eq(a->height, b->height);
	ck_assert_msg(memcmp(a->rgb, b->rgb, a->stride_bytes * a->height) == 0, "%s: pixels differ", what);
}

static struct resample_request random_request(uint32_t width, uint32_t height)
{
	static const enum filter filters[] = { FILTER_NEAREST, FILTER_LANCZOS, FILTER_BILINEAR,
					       FILTER_BICUBIC, FILTER_BOX,     FILTER_HAMMING };
	static const uint32_t most[] = { 3, 20, 90, 300 };
	struct resample_request q = { .filter = filters[draw(6)], .order = (enum pass_order)draw(2), .flip = draw(2) };

	q.box.width = 1 + draw(width);
	q.box.height = 1 + draw(height);
	q.box.x = draw(width - q.box.width + 1);
	q.box.y = draw(height - q.box.height + 1);
	q.out_width = draw(8) ? 1 + draw(most[draw(4)]) : q.box.width;
	q.out_height = draw(8) ? 1 + draw(most[draw(4)]) : q.box.height;
	q.keep.width = 1 + draw(q.out_width);
	q.keep.height = 1 + draw(q.out_height);
	q.keep.x = draw(q.out_width - q.keep.width + 1);
	q.keep.y = draw(q.out_height - q.keep.height + 1);
	return q;
}

START_TEST(test_every_path_gives_the_same_bytes_from_only_what_it_needs)
{
	/* The reference has the whole image; each path has exactly the part that resample_needs names. */
	struct resampler *r = resampler_create(), *reference = resampler_create();

	for (int round = 0; round < 300; round++) {
		struct image whole = image_new(1 + draw(draw(2) ? 20 : 300), 1 + draw(draw(2) ? 20 : 200), draw(2));
		struct resample_request q = random_request(whole.width, whole.height);
		struct region_px needs = resample_needs(&q);
		struct image want =
			resampled(reference, "c", &q, &whole, (struct region_px){ 0, 0, whole.width, whole.height });
		struct image part = image_cut(&whole, needs);

		for (const char *const *path = resample_paths(); *path; path++) {
			struct image got = resampled(r, *path, &q, &part, needs);

			assert_same(&got, &want, *path);
			free(got.rgb);
		}
		free(part.rgb);
		free(want.rgb);
		free(whole.rgb);
	}
	resampler_destroy(r);
	resampler_destroy(reference);
}
END_TEST

START_TEST(test_kept_part_is_that_part_of_the_whole)
{
	/* Keeping a part gives the pixels that the full result has there, and a flip mirrors them. */
	struct image src = image_new(97, 61, false);
	struct region_px all = { 0, 0, 97, 61 };
	struct resample_request q = {
		.filter = FILTER_BILINEAR, .box = all, .out_width = 50, .out_height = 40, .keep = { 0, 0, 50, 40 }
	};
	struct resampler *r = resampler_create();
	struct image whole = resampled(r, "c", &q, &src, all), part, mirrored;

	q.keep = (struct region_px){ 7, 9, 30, 20 };
	part = resampled(r, "c", &q, &src, all);
	q.flip = true;
	mirrored = resampled(r, "c", &q, &src, all);
	for (uint32_t y = 0; y < 20; y++) {
		for (uint32_t x = 0; x < 30; x++) {
			const uint8_t *want = whole.rgb + (9 + y) * whole.stride_bytes + (7 + x) * 3;

			ck_assert_mem_eq(part.rgb + y * part.stride_bytes + x * 3, want, 3);
			ck_assert_mem_eq(mirrored.rgb + y * mirrored.stride_bytes + (29 - x) * 3, want, 3);
		}
	}
	free(mirrored.rgb);
	free(part.rgb);
	free(whole.rgb);
	free(src.rgb);
	resampler_destroy(r);
}
END_TEST

START_TEST(test_one_colour_stays_that_colour)
{
	/* Weights of every window sum to 1 closely enough, in every filter, path and size. */
	struct resampler *r = resampler_create();

	for (int round = 0; round < 60; round++) {
		struct image src = image_new(1 + draw(300), 1 + draw(200), false);
		struct resample_request q = random_request(src.width, src.height);
		uint8_t value = (uint8_t)draw(256);

		memset(src.rgb, value, src.stride_bytes * src.height);
		for (const char *const *path = resample_paths(); *path; path++) {
			struct image out =
				resampled(r, *path, &q, &src, (struct region_px){ 0, 0, src.width, src.height });

			for (size_t i = 0; i < out.stride_bytes * out.height; i++)
				ck_assert_uint_eq(out.rgb[i], value);
			free(out.rgb);
		}
		free(src.rgb);
	}
	resampler_destroy(r);
}
END_TEST

START_TEST(test_a_resampler_forgets_the_size_before)
{
	/* Weights are kept from call to call: two sizes and two paths in turn give what fresh resamplers give. */
	struct image src = image_new(200, 150, false);
	struct region_px all = { 0, 0, 200, 150 };
	struct resample_request q[2] = {
		{ .filter = FILTER_BICUBIC, .box = all, .out_width = 90, .out_height = 70, .keep = { 0, 0, 90, 70 } },
		{ .filter = FILTER_BICUBIC,
		  .box = all,
		  .out_width = 91,
		  .out_height = 69,
		  .keep = { 1, 1, 80, 60 },
		  .flip = true },
	};
	struct resampler *used = resampler_create();

	for (int round = 0; round < 3; round++) {
		for (const char *const *path = resample_paths(); *path; path++) {
			for (int i = 0; i < 2; i++) {
				struct resampler *fresh = resampler_create();
				struct image want = resampled(fresh, "c", &q[i], &src, all),
					     got = resampled(used, *path, &q[i], &src, all);

				assert_same(&got, &want, *path);
				free(want.rgb);
				free(got.rgb);
				resampler_destroy(fresh);
			}
		}
	}
	free(src.rgb);
	resampler_destroy(used);
}
END_TEST

/* Every path gives the C path's bytes of the whole image. */
static void assert_paths_agree(struct resampler *r, const struct resample_request *q, const struct image *src)
{
	struct region_px all = { 0, 0, src->width, src->height };
	struct image want = resampled(r, "c", q, src, all);

	for (const char *const *path = resample_paths(); *path; path++) {
		struct image got = resampled(r, *path, q, src, all);

		assert_same(&got, &want, *path);
		free(got.rgb);
	}
	free(want.rgb);
}

START_TEST(test_very_large_factors_are_exact_too)
{
	/* Windows of thousands of pixels: sums of many small weights are equal, too. */
	struct resampler *r = resampler_create();
	struct image src = image_new(6000, 3, true);
	struct region_px all = { 0, 0, 6000, 3 };

	for (uint32_t out = 1; out < 60; out += 7) {
		struct resample_request q = { .filter = FILTER_BICUBIC,
					      .box = all,
					      .out_width = out,
					      .out_height = 2,
					      .keep = { 0, 0, out, 2 } };

		assert_paths_agree(r, &q, &src);
	}
	free(src.rgb);
	resampler_destroy(r);
}
END_TEST

START_TEST(test_windows_of_every_height_are_exact)
{
	/* One resampler goes down from windows of hundreds of rows to single ones, and up again: no row outside of a
	 * window counts, whatever lay in the memory of weights before. */
	struct resampler *used = resampler_create();

	for (int step = -120; step <= 120; step++) {
		uint32_t height = 3 + (uint32_t)abs(step);
		struct image src = image_new(50, height, step % 2);
		struct region_px all = { 0, 0, 50, height };
		struct resample_request q = {
			.filter = FILTER_BICUBIC, .box = all, .out_width = 23, .out_height = 7, .keep = { 0, 0, 23, 7 }
		};

		assert_paths_agree(used, &q, &src);
		free(src.rgb);
	}
	resampler_destroy(used);
}
END_TEST

START_TEST(test_rows_that_fill_their_vectors_are_exact)
{
	/* Rows of 64, 128 or 192 pixels fill vectors of 64 bytes: what a pass writes beyond them may not reach the rows
	 * of the ring that are still needed. */
	struct resampler *used = resampler_create();

	for (uint32_t out = 64; out <= 192; out += 64)
		for (uint32_t times = 1; times <= 9; times++) {
			uint32_t width = out * times + 5, height = 31 * times;
			struct image src = image_new(width, height, times % 2);
			struct region_px all = { 0, 0, width, height };
			struct resample_request q = { .filter = FILTER_BILINEAR,
						      .box = all,
						      .out_width = out,
						      .out_height = 16,
						      .keep = { 0, 0, out, 16 } };

			assert_paths_agree(used, &q, &src);
			free(src.rgb);
		}
	resampler_destroy(used);
}
END_TEST

START_TEST(test_unknown_path_is_refused)
{
	/* A name that is not in resample_paths leaves the resampler unchanged. */
	struct resampler *r = resampler_create();

	ck_assert_int_eq(resampler_set_path(r, "mmx"), -ENOENT);
	ck_assert_int_eq(resampler_set_path(r, "c"), 0);
	resampler_destroy(r);
	resampler_destroy(NULL);
}
END_TEST

SUITE(resample)
{
	Suite *s = suite_create("resample");
	TCase *c = tcase_create("resample");

	tcase_add_test(c, test_every_path_gives_the_same_bytes_from_only_what_it_needs);
	tcase_add_test(c, test_kept_part_is_that_part_of_the_whole);
	tcase_add_test(c, test_one_colour_stays_that_colour);
	tcase_add_test(c, test_a_resampler_forgets_the_size_before);
	tcase_add_test(c, test_very_large_factors_are_exact_too);
	tcase_add_test(c, test_windows_of_every_height_are_exact);
	tcase_add_test(c, test_rows_that_fill_their_vectors_are_exact);
	tcase_add_test(c, test_unknown_path_is_refused);
	suite_add_tcase(s, c);
	return s;
}
