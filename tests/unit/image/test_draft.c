/* The scan decoder's pictures at 1/2, 1/4 and 1/8 of their size, against libjpeg's. */
#include <check.h>

#include "support/draft.h"
#include "support/suite.h"

static enum draft_verdict check_bytes(struct scan *s, const uint8_t *bytes, size_t n, uint32_t times, uint32_t seed,
				      const char *of)
{
	const char *what;
	enum draft_verdict verdict = draft_check(s, bytes, n, times, seed, &what);

	ck_assert_msg(verdict != DRAFT_FAILED, "%s, at 1/%u: %s", of, times, what);
	return verdict;
}

/* Pictures of one kind in every fraction; whether the decoder must be sure of them. */
static void check_recipe(struct scan *s, const struct jpeg_recipe *r, uint32_t seed)
{
	const bool sure = r->n_components == 1 || r->h == r->v;
	char of[120];
	size_t n;
	uint8_t *bytes = jpeg_make(r, seed, &n);

	snprintf(of, sizeof(of), "%ux%u, %d components, luma %dx%d, quality %d, restart %u, noise %u%s", r->width,
		 r->height, r->n_components, r->h, r->v, r->quality, r->restart, r->noise,
		 r->progressive ? ", progressive" : "");
	for (uint32_t times = 2; times <= 8; times *= 2)
		ck_assert_msg(check_bytes(s, bytes, n, times, seed, of) == (sure ? DRAFT_EQUAL : DRAFT_UNSURE),
			      "%s, at 1/%u: %s", of, times, sure ? "unsure" : "not unsure");
	free(bytes);
}

START_TEST(test_every_sampling_and_size_gives_libjpegs_pixels)
{
	struct scan *s = scan_create();
	uint32_t seed = 3;

	for (unsigned i = 0; i < 1200; i++) {
		struct jpeg_recipe r = jpeg_random_progressive(&seed);

		r.progressive = i % 3 == 0;
		if (r.n_components == 1)
			r.h = r.v = 1;
		r.width = i % 2 ? r.width : 5 + i % 40;
		r.height = i % 2 ? r.height : 1 + i / 2 % 40;
		r.quality = 20 + r.quality * 4 / 5;
		check_recipe(s, &r, seed);
	}
	scan_destroy(s);
}
END_TEST

/* Steps of 1 and coefficients without loss: blocks use every frequency. */
START_TEST(test_noise_without_loss)
{
	struct scan *s = scan_create();

	for (unsigned i = 0; i < 60; i++) {
		struct jpeg_recipe r = {
			.width = 100 + i, .height = 90, .n_components = i % 4 ? 3 : 1, .h = 1, .v = 1
		};

		r.h = r.v = r.n_components == 3 ? 1 + (int)(i % 2) : 1;
		r.quality = 100;
		r.noise = 255;
		check_recipe(s, &r, i + 1);
	}
	scan_destroy(s);
}
END_TEST

START_TEST(test_damaged_files_are_unsure_or_equal_to_libjpeg)
{
	struct scan *s = scan_create();
	unsigned n_equal = 0, n_unsure = 0;
	uint32_t seed = 11;

	for (unsigned i = 0; i < 1500; i++) {
		struct jpeg_recipe r = jpeg_random_progressive(&seed);
		struct jpeg_in in;
		size_t n;

		r.h = r.v = r.n_components == 3 ? 1 + (int)(i % 2) : 1;
		r.progressive = i % 2;
		uint8_t *bytes = jpeg_make(&r, seed, &n);
		bool supported = jpeg_in_open(&in, bytes, n) == 0;
		size_t data = n - (supported ? in.c.src->bytes_in_buffer : n);

		jpeg_in_close(&in);
		bytes[data + jpeg_random(&seed) % (n - data)] = (uint8_t)jpeg_random(&seed);
		enum draft_verdict v = check_bytes(s, bytes, n, 2u << i % 3, seed, "a damaged file");
		n_equal += v == DRAFT_EQUAL;
		n_unsure += v == DRAFT_UNSURE;
		free(bytes);
	}
	ck_assert_uint_gt(n_equal, 100);
	ck_assert_uint_gt(n_unsure, 100);
	scan_destroy(s);
}
END_TEST

SUITE(draft)
{
	Suite *suite = suite_create("draft");
	TCase *tc = tcase_create("draft");

	tcase_add_test(tc, test_every_sampling_and_size_gives_libjpegs_pixels);
	tcase_add_test(tc, test_noise_without_loss);
	tcase_add_test(tc, test_damaged_files_are_unsure_or_equal_to_libjpeg);
	suite_add_tcase(suite, tc);

	return suite;
}
