/* batchd_next_into: fields of a batch in the caller's memory. */
#include "fake/daemon/fake.h"
#include "support/suite.h"

enum { CAPTIONS_AT = 3072, VALUES_AT = 3328, MOST_BYTES = 256 };

static const char words[] = "onetwothreefourfive";
static const int64_t offsets[] = { 0, 3, 6, 11, 15, 19 };

static void setup_fields(void)
{
	setup();
	set_field(d, 2, "caption", BATCHD__WIRE__DTYPE__UINT8, CAPTIONS_AT);
	d->field[2].kind = BATCHD__WIRE__FIELD_KIND__RAGGED;
	d->field[2].text = true;
	d->field[2].values_offset = VALUES_AT;
	d->field[2].most_values = MOST_BYTES;
	d->opened.n_field = 3;
}

static void lend_captions(struct fake *f, unsigned step, unsigned n_rows)
{
	memcpy(f->slab + VALUES_AT, words, sizeof words - 1);
	memcpy(f->slab + CAPTIONS_AT, offsets, (BATCH + 1) * sizeof offsets[0]);
	lend(f, 1, 0, step, 0, n_rows, false);
}

static void two_batches(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_captions(f, 0, BATCH);
	EXPECT(f, RELEASE);
	lend_captions(f, 1, 2);
	EXPECT(f, RELEASE);
	EXPECT(f, CLOSE);
}

static float pixels[BATCH + 1][ROW_FLOATS];
static int64_t labels[BATCH], at[BATCH + 1];
static char text[MOST_BYTES];

static const struct batchd_target targets[] = {
	{ .field = "caption",
	  .dtype = BATCHD_UINT8,
	  .data = text,
	  .n_bytes = sizeof text,
	  .offsets = at,
	  .n_offsets = BATCH + 1 },
	{ .field = "data", .dtype = BATCHD_FLOAT32, .data = pixels, .n_bytes = sizeof pixels },
	{ .field = "label", .dtype = BATCHD_INT64, .data = labels, .n_bytes = sizeof labels },
};

START_TEST(test_fields_are_written_and_the_batch_goes_back)
{
	/* Proves the rows of every field, that later rows keep their content, the facts about the batch, and that the
	 * slot is given back with each call. */
	play(two_batches);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	pixels[BATCH][0] = -7;
	ck_assert_int_eq(batchd_next_into(loader, &batch, targets, 3, NULL, BATCHD_FOREVER), BATCHD_OK);
	ck_assert(batch.n_rows == BATCH && batch.step == 0 && !batch.generation && !batch.data);
	ck_assert_uint_eq(batchd_n_leased(loader), 0);
	for (unsigned row = 0; row < BATCH; row++) {
		ck_assert(pixels[row][ROW_FLOATS - 1] == value(1, row));
		ck_assert_int_eq(labels[row], row);
		ck_assert_int_eq(at[row + 1], offsets[row + 1]);
	}
	ck_assert_mem_eq(text, words, (size_t)at[BATCH]);
	ck_assert_int_eq(batchd_next_into(loader, &batch, targets, 3, NULL, BATCHD_FOREVER), BATCHD_OK);
	ck_assert_uint_eq(batch.n_rows, 2);
	ck_assert(pixels[1][0] == value(2, 1) && pixels[2][0] == value(1, 2) && pixels[BATCH][0] == -7);
	finish();
}
END_TEST

static const struct {
	struct batchd_target target;
	const char *says;
} unsuitable[] = {
	{ { "caption", BATCHD_UINT8, text, MOST_BYTES - 1, at, BATCH + 1 },
	  "'caption' takes up to 256 bytes in a batch, and its target has 255" },
	{ { "caption", BATCHD_INT64, text, MOST_BYTES, at, BATCH + 1 }, "'caption' is uint8, and its target is int64" },
	{ { "caption", BATCHD_UINT8, text, MOST_BYTES, NULL, 0 }, "'caption' is ragged: its target needs offsets" },
	{ { "caption", BATCHD_UINT8, text, MOST_BYTES, at, BATCH },
	  "'caption' takes 5 offsets in a batch, and its target has room for 4" },
	{ { "data", BATCHD_FLOAT32, pixels, sizeof pixels, at, BATCH + 1 }, "'data' is not ragged" },
	{ { "data", BATCHD_FLOAT32, NULL, sizeof pixels, NULL, 0 }, "its target has 0" },
	{ { "data", (enum batchd_dtype)99, pixels, sizeof pixels, NULL, 0 }, "its target is of no known type" },
	{ { "datum", BATCHD_FLOAT32, pixels, sizeof pixels, NULL, 0 }, "'datum'" },
	{ { NULL, BATCHD_FLOAT32, pixels, sizeof pixels, NULL, 0 }, "no such field" },
};

static void one_batch(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_captions(f, 0, BATCH);
	EXPECT(f, RELEASE);
	EXPECT(f, CLOSE);
}

START_TEST(test_unsuitable_targets_are_refused_before_a_batch_is_taken)
{
	/* Proves the text for each kind of mistake, and that the batch is still the next one. */
	play(one_batch);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	ck_assert_int_eq(batchd_next_into(loader, &batch, &unsuitable[_i].target, 1, NULL, BATCHD_FOREVER),
			 BATCHD_E_INVALID);
	ck_assert_msg(strstr(batchd_error(loader), unsuitable[_i].says), "%s", batchd_error(loader));
	ck_assert_uint_eq(batchd_n_leased(loader), 0);
	next_is(0, 0);
	ck_assert_int_eq(batchd_into(loader, &batch, &unsuitable[_i].target, 1, NULL), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_into(loader, &batch, targets, 3, NULL), 0);
	ck_assert_mem_eq(text, words, (size_t)at[BATCH]);
	release();
	finish();
}
END_TEST

SUITE(into)
{
	Suite *s = suite_create("into");
	TCase *tc = tcase_create("targets");

	tcase_add_checked_fixture(tc, setup_fields, teardown);
	tcase_add_test(tc, test_fields_are_written_and_the_batch_goes_back);
	tcase_add_loop_test(tc, test_unsuitable_targets_are_refused_before_a_batch_is_taken, 0,
			    sizeof unsuitable / sizeof unsuitable[0]);
	suite_add_tcase(s, tc);
	return s;
}
