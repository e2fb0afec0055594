/* Packed blocks of JPEGs: the pixels of libjpeg, from whatever part was packed, and never out of bounds. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "image/formats/decode.h"
#include "image/jpeg/checkpoints.h"
#include "image/jpeg/scan.h"
#include "support/jpegs.h"
#include "support/suite.h"

enum { MAX_SCANS = 100, ROOMY = 1 << 22 };

struct picture {
	uint8_t *bytes, *rgb; /* rgb: libjpeg's */
	size_t n;
	uint32_t width, height;
	struct jpeg_in in; /* its header */
};

static struct picture picture_make(const struct jpeg_recipe *recipe, uint32_t seed)
{
	struct picture p = { .width = recipe->width, .height = recipe->height };
	struct jpeg_in all;

	p.bytes = jpeg_make(recipe, seed, &p.n);
	p.rgb = malloc((size_t)p.width * p.height * 3);
	ck_assert_int_eq(jpeg_in_open(&all, p.bytes, p.n), 0);
	ck_assert_int_eq(jpeg_in_pixels(&all, p.rgb), 0);
	jpeg_in_close(&all);
	ck_assert_int_eq(jpeg_in_open(&p.in, p.bytes, p.n), 0);
	return p;
}

static void picture_free(struct picture *p)
{
	jpeg_in_close(&p->in);
	free(p->rgb);
	free(p->bytes);
}

static struct region_px random_region(const struct picture *p, uint32_t *seed)
{
	uint32_t x = jpeg_random(seed) % p->width, y = jpeg_random(seed) % p->height;

	return (struct region_px){ x, y, 1 + jpeg_random(seed) % (p->width - x),
				   1 + jpeg_random(seed) % (p->height - y) };
}

static void expect_pixels(const struct picture *p, struct region_px want, const struct image *got)
{
	for (uint32_t row = 0; row < want.height; row++)
		ck_assert_mem_eq(got->rgb + row * got->stride_bytes,
				 p->rgb + ((size_t)(want.y + row) * p->width + want.x) * 3, (size_t)want.width * 3);
}

static int decode_scans(struct scan *s, const struct picture *p, bool all_rows, struct region_px want, uint8_t *rgb)
{
	struct image out = { .rgb = rgb, .stride_bytes = (size_t)want.width * 3 };
	struct cpu_budget budget;

	cpu_budget_begin(&budget, 0);
	return scan_progressive_region(s, &p->in.c, p->in.c.src->next_input_byte, p->in.c.src->bytes_in_buffer,
				       MAX_SCANS, &budget, all_rows, want, &out);
}

/* A copy of exactly the pack's size, so that AddressSanitizer sees every read beyond it. */
static struct block_pack *pack_copy(struct scan *s)
{
	struct scratch to = { 0 };
	size_t n = scan_pack(s, 1, ROOMY, &to);

	ck_assert_uint_gt(n, 0);
	struct block_pack *copy = aligned_alloc(64, (n + 63) / 64 * 64);
	memcpy(copy, to.data, n);
	ck_assert(block_pack_valid(copy, n));
	scratch_finish(&to);
	return copy;
}

START_TEST(test_a_pack_gives_libjpegs_pixels)
{
	/* Samplings, odd sizes, qualities, restart intervals, grey: any rectangle above the last row that was decoded;
	 * one that reaches lower is unsure. */
	struct scan *s = scan_create();
	uint32_t seed = 5;
	unsigned n_beyond = 0;

	for (unsigned i = 0; i < 120; i++) {
		struct jpeg_recipe recipe = jpeg_random_progressive(&seed);
		struct picture p = picture_make(&recipe, seed);
		uint8_t *rgb = malloc((size_t)p.width * p.height * 3);
		bool all_rows = i % 2;

		ck_assert_int_eq(decode_scans(s, &p, all_rows, random_region(&p, &seed), rgb), 0);
		struct block_pack *pack = pack_copy(s);
		for (unsigned k = 0; k < 8; k++) {
			struct region_px want = random_region(&p, &seed);
			struct image out = { .rgb = rgb, .stride_bytes = (size_t)want.width * 3 };
			int r = scan_packed_region(s, &p.in.c, pack, want, &out);

			ck_assert_int_eq(scan_set_path(s, scan_paths()[k % 2 && scan_paths()[1]]), 0);
			if (r == 0)
				expect_pixels(&p, want, &out);
			else
				ck_assert(r == SCAN_E_UNSURE && pack->n_rows < pack->mcu_rows);
			n_beyond += r != 0;
		}
		free(pack);
		free(rgb);
		picture_free(&p);
	}
	ck_assert_uint_gt(n_beyond, 20);
	ck_assert_uint_lt(n_beyond, 400);
	scan_destroy(s);
}
END_TEST

START_TEST(test_a_baseline_picture_is_packed_as_well)
{
	/* Decoded as a whole on any path, and then from its pack, any rectangle has libjpeg's pixels. */
	struct scan *s = scan_create();
	uint32_t seed = 77;

	for (unsigned i = 0; i < 150; i++) {
		struct jpeg_recipe recipe = jpeg_random_progressive(&seed);
		recipe.progressive = false;
		recipe.optimize = i % 3 == 0;
		struct picture p = picture_make(&recipe, seed);
		uint8_t *rgb = malloc((size_t)p.width * p.height * 3);

		for (const char *const *path = scan_paths(); *path; path++) {
			struct region_px want = random_region(&p, &seed);
			struct image out = { .rgb = rgb, .stride_bytes = (size_t)want.width * 3 };

			ck_assert_int_eq(scan_set_path(s, *path), 0);
			ck_assert_int_eq(scan_whole_region(s, &p.in.c, p.in.c.src->next_input_byte,
							   p.in.c.src->bytes_in_buffer, want, &out),
					 0);
			expect_pixels(&p, want, &out);
		}
		struct block_pack *pack = pack_copy(s);
		for (unsigned k = 0; k < 8; k++) {
			struct region_px want = random_region(&p, &seed);
			struct image out = { .rgb = rgb, .stride_bytes = (size_t)want.width * 3 };

			ck_assert_int_eq(scan_set_path(s, scan_paths()[k % 2 && scan_paths()[1]]), 0);
			ck_assert_int_eq(scan_packed_region(s, &p.in.c, pack, want, &out), 0);
			expect_pixels(&p, want, &out);
		}
		free(pack);
		free(rgb);
		picture_free(&p);
	}
	scan_destroy(s);
}
END_TEST

START_TEST(test_a_forged_pack_reads_nothing_outside)
{
	/* Any bytes changed, header included: valid or not, the decoder returns, and a later picture is decoded. */
	struct jpeg_recipe recipe = { .width = 120,
				      .height = 90,
				      .n_components = 3,
				      .h = 2,
				      .v = 2,
				      .quality = 85,
				      .noise = 90,
				      .progressive = true };
	struct picture p = picture_make(&recipe, 3);
	struct scan *s = scan_create();
	uint8_t *rgb = malloc((size_t)p.width * p.height * 3);
	struct region_px all = { 0, 0, p.width, p.height };
	struct image out = { .rgb = rgb, .stride_bytes = (size_t)p.width * 3 };
	uint32_t seed = 9;
	unsigned n_valid = 0;

	ck_assert_int_eq(decode_scans(s, &p, true, all, rgb), 0);
	struct block_pack *good = pack_copy(s);
	size_t n = good->n_bytes, head = (const uint8_t *)good->starts - (const uint8_t *)good;
	for (unsigned round = 0; round < 4000; round++) {
		size_t n_cut = round % 5 ? n : jpeg_random(&seed) % n;
		uint8_t *bytes = aligned_alloc(8, (n_cut + 7) / 8 * 8 + 8);

		memcpy(bytes, good, n_cut);
		for (unsigned k = 0; n_cut && k < 1 + round % 4; k++)
			bytes[(round % 3 ? head : 0) % n_cut +
			      jpeg_random(&seed) % (n_cut - (round % 3 ? head : 0) % n_cut)] =
				(uint8_t)(jpeg_random(&seed) >> 24);
		if (block_pack_valid((const struct block_pack *)(const void *)bytes, n_cut)) {
			n_valid++;
			struct region_px want = random_region(&p, &seed);
			struct image part = { .rgb = rgb, .stride_bytes = (size_t)want.width * 3 };
			(void)scan_packed_region(s, &p.in.c, (const struct block_pack *)(const void *)bytes, want,
						 &part);
		}
		free(bytes);
	}
	ck_assert_uint_gt(n_valid, 500);
	ck_assert_int_eq(scan_packed_region(s, &p.in.c, good, all, &out), 0);
	expect_pixels(&p, all, &out);
	free(good);
	free(rgb);
	picture_free(&p);
	scan_destroy(s);
}
END_TEST

START_TEST(test_a_pack_keeps_to_its_limit)
{
	/* The pack is made in no more bytes than allowed, or not at all. */
	struct jpeg_recipe recipe = { .width = 200,
				      .height = 160,
				      .n_components = 3,
				      .h = 1,
				      .v = 1,
				      .quality = 100,
				      .noise = 255,
				      .progressive = true };
	struct picture p = picture_make(&recipe, 4);
	struct scan *s = scan_create();
	uint8_t *rgb = malloc((size_t)p.width * p.height * 3);
	struct scratch to = { 0 };

	ck_assert_int_eq(decode_scans(s, &p, true, (struct region_px){ 0, 0, p.width, p.height }, rgb), 0);
	size_t n = scan_pack(s, 1, ROOMY, &to);
	ck_assert_uint_gt(n, 0);
	for (size_t limit = 0; limit < n; limit += 1 + limit / 8)
		ck_assert_uint_eq(scan_pack(s, 1, limit, &to), 0);
	ck_assert_uint_eq(scan_pack(s, 1, n + 256, &to), n);
	scratch_finish(&to);
	free(rgb);
	picture_free(&p);
	scan_destroy(s);
}
END_TEST

START_TEST(test_a_pack_takes_no_memory_for_what_lies_behind_the_picture)
{
	/* The limit is some times the data's size, which may be a hundred megabytes of something else. */
	struct jpeg_recipe recipe = { .width = 64,
				      .height = 64,
				      .n_components = 3,
				      .h = 1,
				      .v = 1,
				      .quality = 90,
				      .noise = 255,
				      .progressive = true };
	struct picture p = picture_make(&recipe, 3);
	struct scan *s = scan_create();
	uint8_t *rgb = malloc((size_t)p.width * p.height * 3);
	struct scratch to = { 0 };

	ck_assert_int_eq(decode_scans(s, &p, true, (struct region_px){ 0, 0, 64, 64 }, rgb), 0);
	ck_assert_uint_gt(scan_pack(s, 1, (size_t)300 << 20, &to), 0);
	ck_assert_uint_lt(to.size_bytes, 3 * 64 * 64 * 4);
	ck_assert_uint_gt(scan_pack(s, 1, (size_t)3 << 30, &to), 0);
	scratch_finish(&to);
	scan_destroy(s);
	free(rgb);
	picture_free(&p);
}
END_TEST

/* Decodes the rectangle with a reader's own means; the caller frees *index. */
static enum index_use decode_once(struct decoder *d, const struct picture *p, struct region_px want, const void *known,
				  size_t n_known, enum index_effort most, void **index, size_t *n_index)
{
	struct image_error err;
	struct image_info info;
	struct image out;

	ck_assert_int_eq(decoder_open(d, p->bytes, p->n, false, &info, &err), 0);
	decoder_want_index(d, known, n_known, most);
	ck_assert_int_eq(decoder_region(d, want, &out, &err), 0);
	expect_pixels(p, want, &out);
	const void *learnt = decoder_index(d, n_index);
	*index = learnt ? aligned_alloc(64, (*n_index + 63) / 64 * 64) : NULL;
	if (learnt)
		memcpy(*index, learnt, *n_index);
	enum index_use use = decoder_index_use(d);
	decoder_close(d);
	return use;
}

START_TEST(test_an_index_grows_once_and_then_suffices)
{
	/* The first crop packs its rows, the first one that reaches lower all of them, and no later one learns more. An
	 * index of another file of the same shape is not used. */
	struct jpeg_recipe recipe = { .width = 160,
				      .height = 200,
				      .n_components = 3,
				      .h = 2,
				      .v = 2,
				      .quality = 90,
				      .noise = 40,
				      .progressive = true };
	struct picture p = picture_make(&recipe, 6), other = picture_make(&recipe, 106);
	struct decoder *d = decoder_create(&decode_limits_default);
	struct region_px top = { 3, 5, 60, 40 }, low = { 20, 60, 100, 110 }, last = { 0, 199, 160, 1 };
	void *first, *second, *none;
	size_t n_first, n_second, n_none;

	decode_once(d, &p, top, NULL, 0, INDEX_SMALL, &none, &n_none);
	ck_assert_msg(!none, "an index was made for which there is no room");
	decode_once(d, &p, top, NULL, 0, INDEX_LARGE, &first, &n_first);
	ck_assert(first);
	decode_once(d, &p, top, first, n_first, INDEX_LARGE, &none, &n_none);
	ck_assert_msg(!none, "the index was not used, or made again");
	decode_once(d, &p, low, first, n_first, INDEX_SMALL, &none, &n_none);
	ck_assert(!none);
	decode_once(d, &p, low, first, n_first, INDEX_LARGE, &second, &n_second);
	ck_assert(second && n_second > n_first);
	decode_once(d, &p, last, second, n_second, INDEX_LARGE, &none, &n_none);
	ck_assert_msg(!none, "an index of all rows was not enough");
	decode_once(d, &other, last, second, n_second, INDEX_LARGE, &none, &n_none);
	ck_assert_msg(none, "the foreign index was kept");
	free(none);
	free(first);
	free(second);
	decoder_destroy(d);
	picture_free(&other);
	picture_free(&p);
}
END_TEST

START_TEST(test_rows_that_no_index_can_hold_are_not_decoded)
{
	/* Of a coarse picture an index of all rows would take more than three times the file and is not kept. So a crop
	 * that reaches lower than the index makes one of its own rows. */
	struct jpeg_recipe recipe = {
		.width = 640, .height = 1600, .n_components = 3, .h = 1, .v = 1, .quality = 1, .progressive = true
	};
	struct picture p = picture_make(&recipe, 8);
	struct decoder *d = decoder_create(&decode_limits_default);
	struct region_px top = { 3, 5, 60, 40 }, low = { 20, 60, 100, 110 };
	void *first, *second;
	size_t n_first, n_second;

	decode_once(d, &p, top, NULL, 0, INDEX_LARGE, &first, &n_first);
	ck_assert(first);
	ck_assert_uint_gt(n_first * ((const struct block_pack *)first)->mcu_rows /
				  ((const struct block_pack *)first)->n_rows,
			  3 * p.n);
	decode_once(d, &p, low, first, n_first, INDEX_LARGE, &second, &n_second);
	ck_assert_msg(second, "all rows were decoded for an index that is not kept");
	ck_assert_uint_lt(((const struct block_pack *)second)->n_rows, 30);
	free(first);
	free(second);
	decoder_destroy(d);
	picture_free(&p);
}
END_TEST

START_TEST(test_a_baseline_picture_is_packed_once_it_has_an_index)
{
	/* The first crop notes states, as every picture shall have these; a later one makes the pack, if it may cost as
	 * much as the picture; and then none learns more. A pack of another file is not used. */
	struct jpeg_recipe recipe = {
		.width = 200, .height = 160, .n_components = 3, .h = 2, .v = 2, .quality = 95, .noise = 150
	};
	struct picture p = picture_make(&recipe, 6), other = picture_make(&recipe, 106);
	struct decoder *d = decoder_create(&decode_limits_default);
	enum index_use use;
	struct region_px top = { 3, 5, 60, 40 }, low = { 20, 60, 100, 90 }, last = { 0, 159, 200, 1 };
	void *states, *pack, *none;
	size_t n_states, n_pack, n_none;

	use = decode_once(d, &p, top, NULL, 0, INDEX_DEAR, &states, &n_states);
	ck_assert(states && n_states < p.n / 10);
	ck_assert_int_eq(use, INDEX_OTHER);
	use = decode_once(d, &p, top, states, n_states, INDEX_LARGE, &none, &n_none);
	ck_assert_msg(!none, "a pack was made that was too dear");
	ck_assert_int_eq(use, INDEX_MISSING);
	use = decode_once(d, &p, top, states, n_states, INDEX_DEAR, &pack, &n_pack);
	ck_assert(pack && block_pack_valid(pack, n_pack) && n_pack <= 3 * p.n);
	ck_assert_int_eq(use, INDEX_MADE);
	use = decode_once(d, &p, low, pack, n_pack, INDEX_DEAR, &none, &n_none);
	ck_assert_msg(!none, "the pack was made again");
	ck_assert_int_eq(use, INDEX_USED);
	use = decode_once(d, &p, last, pack, n_pack, INDEX_SMALL, &none, &n_none);
	ck_assert(!none && use == INDEX_USED);
	use = decode_once(d, &other, low, pack, n_pack, INDEX_DEAR, &none, &n_none);
	ck_assert_msg(none && n_none < other.n / 10, "the foreign pack was kept");
	ck_assert_int_eq(use, INDEX_OTHER);
	free(none);
	free(states);
	free(pack);
	decoder_destroy(d);
	picture_free(&other);
	picture_free(&p);
}
END_TEST

START_TEST(test_damage_below_a_crop_stays_as_it_is)
{
	/* What the crop needs is whole: with or without leave to pack it decodes the same, and there is no pack. The
	 * time for it is spent all the same, so it counts as made; and no later epoch spends it again. */
	struct jpeg_recipe recipe = {
		.width = 200, .height = 160, .n_components = 3, .h = 2, .v = 2, .quality = 95, .noise = 150
	};
	struct picture p = picture_make(&recipe, 6);
	struct decoder *d = decoder_create(&decode_limits_default);
	enum index_use use;
	struct region_px top = { 3, 5, 60, 40 };
	void *states, *index, *again;
	size_t n_states, n_index, n_again;

	for (size_t i = p.n * 3 / 4; i < p.n - 200; i++) /* bits that lead too far in their interval */
		p.bytes[i] = 0xFE;
	use = decode_once(d, &p, top, NULL, 0, INDEX_SMALL, &states, &n_states);
	ck_assert(states && use == INDEX_OTHER);
	use = decode_once(d, &p, top, states, n_states, INDEX_DEAR, &index, &n_index);
	ck_assert_msg(index && !block_pack_valid(index, n_index), "a damaged picture was packed");
	ck_assert_int_eq(use, INDEX_MADE);
	use = decode_once(d, &p, top, index, n_index, INDEX_DEAR, &again, &n_again);
	ck_assert_msg(!again && use == INDEX_MISSING, "the damaged picture was tried again");
	free(states);
	free(index);
	decoder_destroy(d);
	picture_free(&p);
}
END_TEST

START_TEST(test_a_pack_that_is_too_large_is_tried_once)
{
	/* A file of mostly short codes is large enough to be tried, but its pack takes more than three times the file.
	 * The index keeps its states and remembers that; a later crop adds to the states and tries no pack. */
	struct jpeg_recipe recipe = { .width = 200,
				      .height = 160,
				      .n_components = 3,
				      .h = 1,
				      .v = 1,
				      .quality = 16,
				      .optimize = true,
				      .noise = 255 };
	struct picture p = picture_make(&recipe, 6);
	struct decoder *d = decoder_create(&decode_limits_default);
	struct region_px top = { 3, 5, 60, 40 }, low = { 20, 60, 100, 90 };
	void *states, *index, *more, *none;
	size_t n_states, n_index, n_more, n_none;

	decode_once(d, &p, top, NULL, 0, INDEX_DEAR, &states, &n_states);
	ck_assert(states);
	ck_assert_int_eq(decode_once(d, &p, top, states, n_states, INDEX_DEAR, &index, &n_index), INDEX_MADE);
	ck_assert_msg(index && n_index == n_states && checkpoints_valid(index, n_index),
		      "the states are lost, or do not say that a pack is too large");
	ck_assert_uint_eq(checkpoints_rows_known(index), checkpoints_rows_known(states));
	ck_assert_int_eq(decode_once(d, &p, top, index, n_index, INDEX_DEAR, &none, &n_none), INDEX_MISSING);
	ck_assert(!none);
	ck_assert_int_eq(decode_once(d, &p, low, index, n_index, INDEX_DEAR, &more, &n_more), INDEX_MISSING);
	ck_assert(more && checkpoints_rows_known(more) > checkpoints_rows_known(index));
	ck_assert_int_eq(decode_once(d, &p, low, more, n_more, INDEX_DEAR, &none, &n_none), INDEX_MISSING);
	ck_assert(!none);
	free(states);
	free(index);
	free(more);
	decoder_destroy(d);
	picture_free(&p);
}
END_TEST

START_TEST(test_coarse_and_large_pictures_are_not_tried)
{
	/* Their packs would take more than three times the file, or their coefficients too much memory. */
	struct jpeg_recipe recipes[] = {
		{ .width = 400, .height = 400, .n_components = 3, .h = 1, .v = 1, .quality = 1 },
		{ .width = 2200, .height = 2000, .n_components = 3, .h = 1, .v = 1, .quality = 80, .noise = 200 },
	};
	struct decoder *d = decoder_create(&decode_limits_default);
	enum index_use use;

	for (unsigned i = 0; i < 2; i++) {
		struct picture p = picture_make(&recipes[i], 6);
		void *states, *index;
		size_t n_states, n_index;

		use = decode_once(d, &p, (struct region_px){ 3, 5, 60, 40 }, NULL, 0, INDEX_DEAR, &states, &n_states);
		use = decode_once(d, &p, (struct region_px){ 3, 5, 60, 40 }, states, n_states, INDEX_DEAR, &index,
				  &n_index);
		ck_assert(!index && use == INDEX_MISSING);
		free(states);
		picture_free(&p);
	}
	decoder_destroy(d);
}
END_TEST

SUITE(block_pack)
{
	Suite *suite = suite_create("block_pack");
	TCase *tc = tcase_create("block_pack");

	tcase_add_test(tc, test_a_pack_gives_libjpegs_pixels);
	tcase_add_test(tc, test_a_baseline_picture_is_packed_as_well);
	tcase_add_test(tc, test_a_baseline_picture_is_packed_once_it_has_an_index);
	tcase_add_test(tc, test_damage_below_a_crop_stays_as_it_is);
	tcase_add_test(tc, test_a_pack_that_is_too_large_is_tried_once);
	tcase_add_test(tc, test_coarse_and_large_pictures_are_not_tried);
	tcase_add_test(tc, test_a_forged_pack_reads_nothing_outside);
	tcase_add_test(tc, test_a_pack_keeps_to_its_limit);
	tcase_add_test(tc, test_a_pack_takes_no_memory_for_what_lies_behind_the_picture);
	tcase_add_test(tc, test_an_index_grows_once_and_then_suffices);
	tcase_add_test(tc, test_rows_that_no_index_can_hold_are_not_decoded);
	suite_add_tcase(suite, tc);

	return suite;
}
