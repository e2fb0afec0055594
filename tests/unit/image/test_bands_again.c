/* Pictures that turn out to be libjpeg-turbo's only after some bands: their coefficients are too large for the decoder
 * of scan.h. No sink gets a second attempt's rows, whatever index is kept of them, and the pixels are libjpeg's. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "image/formats/decode.h"
#include "image/jpeg/block-pack.h"
#include "support/jpegs.h"
#include "image/transform/views.h"
#include "support/pipelines.h"
#include "support/suite.h"

enum { LARGE = 20000 /* dequantized; 16 bits hold it */, MOST = 1000 /* that can be coded */ };

static uint32_t seed = 11;

static uint32_t draw(uint32_t n)
{
	return jpeg_random(&seed) % n;
}

/* The columns of blocks from `column` on, in a row of blocks of the first component. */
static void enlarge_blocks(struct jpeg_decompress_struct *c, jvirt_barray_ptr blocks, uint32_t row, uint32_t column)
{
	const UINT16 *quant = c->quant_tbl_ptrs[c->comp_info[0].quant_tbl_no]->quantval;
	JBLOCKARRAY lines = c->mem->access_virt_barray((j_common_ptr)c, blocks, row, 1, TRUE);

	for (uint32_t x = column; x < c->comp_info[0].width_in_blocks; x++)
		for (int k = 0; k < 8; k++) {
			int v = LARGE / quant[k] < MOST ? LARGE / quant[k] : MOST;

			lines[0][x][k] = (JCOEF)(k % 2 ? -v : v);
		}
}

/* A picture like r's whose right half has too large coefficients in one row of blocks, two thirds down. */
static uint8_t *make_hostile(const struct jpeg_recipe *r, size_t *n)
{
	struct jpeg_recipe plain = *r;
	struct jpeg_compress_struct to;
	struct jpeg_error_mgr errors;
	struct jpeg_in in;
	unsigned char *bytes = NULL;
	unsigned long size = 0;

	plain.progressive = false;
	uint8_t *from = jpeg_make(&plain, seed, n);
	ck_assert_int_eq(jpeg_in_open(&in, from, *n), 0);
	jvirt_barray_ptr *blocks = jpeg_read_coefficients(&in.c);
	enlarge_blocks(&in.c, blocks[0], in.c.comp_info[0].height_in_blocks * 2 / 3,
		       in.c.comp_info[0].width_in_blocks / 2);
	to.err = jpeg_std_error(&errors);
	jpeg_create_compress(&to);
	jpeg_mem_dest(&to, &bytes, &size);
	jpeg_copy_critical_parameters(&in.c, &to);
	to.optimize_coding = TRUE;
	to.restart_interval = r->restart;
	if (r->progressive)
		jpeg_simple_progression(&to);
	jpeg_write_coefficients(&to, blocks);
	jpeg_finish_compress(&to);
	jpeg_destroy_compress(&to);
	jpeg_in_close(&in);
	free(from);
	*n = size;
	return bytes;
}

static struct jpeg_recipe hostile_recipe(bool progressive)
{
	struct jpeg_recipe r = jpeg_random_progressive(&seed);

	r.progressive = progressive;
	r.width += 100;
	r.height += 100;
	r.quality = 30 + (int)draw(25);
	r.noise = 100 + draw(100);
	return r;
}

/* What earlier epochs know of the file. */
struct known {
	void *index;
	size_t n;
	enum index_use use; /* of the last decoding */
};

static void learn(struct known *k, const struct decoder *d)
{
	size_t n;
	const void *learnt = decoder_index(d, &n);

	k->use = decoder_index_use(d);
	if (!learnt)
		return;
	ck_assert_msg(n != k->n || memcmp(learnt, k->index, n) != 0, "what was known was learnt again");
	free(k->index);
	k->index = aligned_alloc(64, (n + 63) / 64 * 64);
	k->n = n;
	memcpy(k->index, learnt, n);
}

/* Keeps the rows that a sink gets, which may be `most`. */
struct counter {
	struct row_sink sink;
	uint32_t n_rows, most;
	uint8_t *rgb;
	size_t row_bytes;
};

static void count(struct row_sink *sink, const uint8_t *rows, size_t stride_bytes, unsigned n)
{
	struct counter *c = (struct counter *)(void *)sink;

	ck_assert_msg(c->n_rows + n <= c->most, "a second attempt's rows went to the sink");
	for (unsigned i = 0; i < n; i++, c->n_rows++)
		memcpy(c->rgb + c->n_rows * c->row_bytes, rows + i * stride_bytes, c->row_bytes);
}

/* Decodes the rectangle as an epoch does, and learns. Returns how many rows the sink got; *whole: all came at once, from
 * libjpeg-turbo. */
static uint32_t decode_epoch(struct decoder *d, const uint8_t *bytes, size_t n, const uint8_t *rgb,
			     struct region_px want, struct known *k, bool *whole)
{
	struct counter c = { .sink.take = count, .most = want.height, .row_bytes = (size_t)want.width * 3 };
	struct image_error err = { "" };
	struct image_info info;
	struct image out;

	c.rgb = malloc(c.row_bytes * want.height);
	ck_assert_int_eq(decoder_open(d, bytes, n, false, &info, &err), 0);
	decoder_want_index(d, k->index, k->n, INDEX_DEAR);
	ck_assert_msg(decoder_region_to(d, want, &c.sink, &out, &err) == 0, "%s", err.text);
	*whole = out.rgb != NULL;
	ck_assert(*whole || c.n_rows == want.height);
	for (uint32_t y = 0; y < want.height; y++)
		ck_assert_mem_eq(*whole ? out.rgb + y * out.stride_bytes : c.rgb + y * c.row_bytes,
				 rgb + ((size_t)(want.y + y) * info.width + want.x) * 3, c.row_bytes);
	learn(k, d);
	decoder_close(d);
	free(c.rgb);
	return c.n_rows;
}

static uint8_t *decoded_by_libjpeg(const uint8_t *bytes, size_t n, uint32_t *width, uint32_t *height)
{
	struct jpeg_in in;

	ck_assert_int_eq(jpeg_in_open(&in, bytes, n), 0);
	*width = in.c.image_width;
	*height = in.c.image_height;
	uint8_t *rgb = malloc((size_t)*width * *height * 3);
	ck_assert_int_eq(jpeg_in_pixels(&in, rgb), 0);
	jpeg_in_close(&in);
	return rgb;
}

START_TEST(test_a_kept_pack_that_fails_after_bands_is_the_last_attempt)
{
	/* Proves it for baseline and progressive files, with every sampling and with restarts: crops of the harmless
	 * half make the index and the pack, and the whole picture then fails after some bands of the pack. */
	struct decoder *d = decoder_create(&decode_limits_default);
	unsigned n_packs = 0, n_used = 0, n_late = 0;

	for (unsigned i = 0; i < 60; i++) {
		struct jpeg_recipe r = hostile_recipe(i % 2);
		struct known k = { 0 };
		bool whole;
		uint32_t width, height;
		size_t n;
		uint8_t *bytes = make_hostile(&r, &n), *rgb = decoded_by_libjpeg(bytes, n, &width, &height);
		struct region_px left = { 0, 0, width / 2 - 20, height }, all = { 0, 0, width, height };

		for (unsigned epoch = 0; epoch < 3; epoch++) {
			decode_epoch(d, bytes, n, rgb, left, &k, &whole);
			ck_assert_msg(!whole, "the harmless half came from libjpeg-turbo");
		}
		n_packs += block_pack_valid(k.index, k.n);
		n_used += k.use == INDEX_USED;
		uint32_t n_rows = decode_epoch(d, bytes, n, rgb, all, &k, &whole);
		ck_assert_msg(whole, "too large coefficients were not noticed");
		n_late += n_rows > 0;
		free(k.index);
		free(bytes);
		free(rgb);
	}
	ck_assert_uint_gt(n_packs, 40);
	ck_assert_uint_gt(n_used, 15);
	ck_assert_uint_eq(n_late, 60);
	decoder_destroy(d);
}
END_TEST

START_TEST(test_any_crops_in_any_epoch_have_libjpegs_pixels)
{
	/* Proves it for crops that meet the large coefficients at once, while a pack is made, or after it. */
	struct decoder *d = decoder_create(&decode_limits_default);
	unsigned n_late = 0, n_harmless = 0;

	for (unsigned i = 0; i < 60; i++) {
		struct jpeg_recipe r = hostile_recipe(i % 2);
		struct known k = { 0 };
		uint32_t width, height;
		size_t n;
		uint8_t *bytes = make_hostile(&r, &n), *rgb = decoded_by_libjpeg(bytes, n, &width, &height);

		for (unsigned epoch = 0; epoch < 8; epoch++) {
			struct region_px want = { .x = draw(width), .y = draw(height) };
			bool whole;

			want.width = 1 + draw(width - want.x);
			want.height = 1 + draw(height - want.y);
			uint32_t n_rows = decode_epoch(d, bytes, n, rgb, want, &k, &whole);
			n_late += whole && n_rows > 0;
			n_harmless += !whole;
		}
		free(k.index);
		free(bytes);
		free(rgb);
	}
	ck_assert_uint_gt(n_late, 30);
	ck_assert_uint_gt(n_harmless, 100);
	decoder_destroy(d);
}
END_TEST

START_TEST(test_a_row_of_such_a_picture_is_the_row_from_its_pixels)
{
	/* Proves it through the resampler, which no row may reach twice, epoch after epoch. */
	struct pipeline *p = expect_pipeline("[[\"RandomResizedCrop\",{\"size\":32,\"scale\":[0.2,1.0]}]]");
	struct pipeline_worker *w = pipeline_worker_create();
	struct decoder *d = decoder_create(&decode_limits_default);
	size_t n_row = pipeline_row_bytes(p);
	uint8_t *row = aligned_alloc(64, (n_row + 63) / 64 * 64), *expected = aligned_alloc(64, (n_row + 63) / 64 * 64);

	for (unsigned i = 0; i < 40; i++) {
		struct jpeg_recipe r = hostile_recipe(i % 2);
		struct known k = { 0 };
		struct image_error err = { "" };
		struct image_info info;
		struct image all = { 0 };
		size_t n;
		uint8_t *bytes = make_hostile(&r, &n);

		all.rgb = decoded_by_libjpeg(bytes, n, &all.width, &all.height);
		all.stride_bytes = (size_t)all.width * 3;
		for (uint64_t epoch = 0; epoch < 8; epoch++) {
			struct sample_key key = { 1, epoch, i };

			ck_assert_int_eq(decoder_open(d, bytes, n, false, &info, &err), 0);
			decoder_want_index(d, k.index, k.n, INDEX_DEAR);
			ck_assert_int_eq(views_run(p, w, d, &info, key, (void *const[]){ row }, &err), 0);
			learn(&k, d);
			ck_assert_int_eq(views_run_image(p, w, &all, false, key, (void *const[]){ expected }, &err), 0);
			ck_assert_mem_eq(row, expected, n_row);
		}
		free(k.index);
		free(all.rgb);
		free(bytes);
	}
	free(row);
	free(expected);
	decoder_destroy(d);
	pipeline_worker_destroy(w);
	pipeline_destroy(p);
}
END_TEST

SUITE(bands_again)
{
	Suite *suite = suite_create("bands_again");
	TCase *tc = tcase_create("bands_again");

	tcase_add_test(tc, test_a_kept_pack_that_fails_after_bands_is_the_last_attempt);
	tcase_add_test(tc, test_any_crops_in_any_epoch_have_libjpegs_pixels);
	tcase_add_test(tc, test_a_row_of_such_a_picture_is_the_row_from_its_pixels);
	suite_add_tcase(suite, tc);

	return suite;
}
