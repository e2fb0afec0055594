/* Tokens as text, and fingerprints of data sets: written ones are read, damaged ones are refused, and changes are
 * named. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library exports none of these. */
#include "../client/error.c"
#include "../client/token.c"
#include "data/manifest.h"
#include "data/fingerprint.h"
#include "suite.h"

/* ---- tokens ---- */

static struct token sample_token(void)
{
	struct token t = { .content_id = 0xfedcba9876543210,
			   .n_samples = 1281167,
			   .pipeline_id = 7,
			   .seed = UINT64_MAX,
			   .batch_size = 256,
			   .consumers = 8,
			   .repeats = 3,
			   .epoch_rows = 1281024,
			   .shuffle = true,
			   .epoch = 89,
			   .base = 77,
			   .next = 611,
			   .n_given = 54321,
			   .order = 0x8000000000000001,
			   .n_fingerprint_bytes = WIRE_FINGERPRINT_BYTES };

	strcpy(t.source, "imagefolder:/data/Bilder und \"mehr\"/50%/Hündchen=1 sum=2");
	for (size_t i = 0; i < sizeof t.fingerprint; i++)
		t.fingerprint[i] = (uint8_t)(i * 37 + i / 256);
	return t;
}

START_TEST(test_a_token_is_read_as_it_was_written)
{
	/* Every field, with and without a fingerprint; the longest fits the documented size. */
	char text[BATCHD_TOKEN_BYTES];
	struct token t = sample_token(), back;
	struct fault f;

	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(token_write(&t, text, sizeof text), 0);
		ck_assert_int_eq(token_read(text, &back, &f), 0);
		ck_assert_mem_eq(&back, &t, sizeof t);
		t.n_fingerprint_bytes = 0;
		memset(t.fingerprint, 0, sizeof t.fingerprint);
		t.last = t.own_batches = true;
	}
	t = sample_token();
	memset(t.source, '\x01', sizeof t.source - 1);
	t.base = t.epoch = INT64_MAX - 1;
	ck_assert_int_eq(token_write(&t, text, sizeof text), 0);
	for (size_t size = 0; size < strlen(text); size += 97) {
		char *small = malloc(size + 1);

		ck_assert_int_eq(token_write(&t, small, size), BATCHD_E_INVALID);
		free(small);
	}
}
END_TEST

START_TEST(test_every_damage_to_a_token_is_noticed)
{
	/* Cut anywhere, any one byte changed, text after it, foreign text, another version. */
	char text[BATCHD_TOKEN_BYTES], bad[BATCHD_TOKEN_BYTES + 16];
	struct token t = sample_token(), back;
	struct fault f;
	size_t n;

	ck_assert_int_eq(token_write(&t, text, sizeof text), 0);
	n = strlen(text);
	for (size_t i = 0; i < n; i++) {
		strcpy(bad, text);
		bad[i] = '\0';
		ck_assert_int_eq(token_read(bad, &back, &f), BATCHD_E_INVALID);
		strcpy(bad, text);
		bad[i] ^= 1;
		ck_assert_int_eq(token_read(bad, &back, &f), BATCHD_E_INVALID);
	}
	strcat(strcpy(bad, text), "0");
	ck_assert_int_eq(token_read(bad, &back, &f), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(f.text, "damaged"));
	ck_assert_int_eq(token_read("{\"epoch\": 3}", &back, &f), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(f.text, "no token"));
	ck_assert_int_eq(token_read("batchd-token-9 data=1", &back, &f), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(f.text, "another version"));
}
END_TEST

/* ---- fingerprints ---- */

/* n_dirs folders of n_files, without those that `leave_out` names, each labelled by its folder or as `relabel` says. */
static struct manifest make_index(unsigned n_dirs, unsigned n_files, bool (*leave_out)(unsigned),
				  bool (*relabel)(unsigned))
{
	struct manifest_builder b = { 0 };
	struct manifest_dir like = { .class_id = MANIFEST_NO_CLASS };
	struct manifest ix;
	char name[64];

	for (unsigned i = 0; i < n_dirs; i++) {
		int n = snprintf(name, sizeof name, "dir%u", i);

		ck_assert_int_eq(manifest_add_dir(&b, name, (size_t)n, &like), 0);
		for (unsigned k = 0; k < n_files; k++) {
			unsigned number = i * n_files + k;

			if (leave_out && leave_out(number))
				continue;
			n = snprintf(name, sizeof name, "%04u.jpg", k);
			ck_assert_int_eq(manifest_add_labelled_file(&b, i, name, (size_t)n,
								    relabel && relabel(number) ? 999 : (int64_t)i),
					 0);
		}
	}
	ck_assert_int_eq(manifest_build(&b, &ix), 0);
	return ix;
}

static char *compare(bool (*left_out_then)(unsigned), bool (*relabelled_then)(unsigned), bool (*left_out_now)(unsigned),
		     bool (*relabelled_now)(unsigned))
{
	static char text[1024];
	struct manifest then = make_index(40, 500, left_out_then, relabelled_then),
			now = make_index(40, 500, left_out_now, relabelled_now);
	uint8_t fingerprint[FINGERPRINT_BYTES];

	fingerprint_make(&then, fingerprint);
	fingerprint_compare(&now, fingerprint, sizeof fingerprint, then.n_files, text, sizeof text);
	manifest_finish(&then);
	manifest_finish(&now);
	return text;
}

static bool twelve(unsigned i)
{
	return i % 1600 == 700;
} /* 13 of 20000, the first dir1/0200.jpg */
static bool few(unsigned i)
{
	return i % 5000 == 3;
} /* 4 */
static bool many(unsigned i)
{
	return i % 10 == 3;
} /* 2000 */
static bool half(unsigned i)
{
	return i % 2 == 0;
}

START_TEST(test_a_small_change_is_named_to_the_file)
{
	/* New, removed and relabelled files, and all together. */
	ck_assert_str_eq(compare(twelve, NULL, NULL, NULL),
			 "13 files more than before (20000 instead of 19987): 13 new, the first dir1/0200.jpg");
	ck_assert_str_eq(compare(NULL, NULL, twelve, NULL),
			 "13 files fewer than before (19987 instead of 20000): 13 gone");
	ck_assert_str_eq(
		compare(NULL, NULL, NULL, few),
		"as many files as before (20000), but not the same: 4 with another label, the first dir0/0003.jpg");
	ck_assert_str_eq(compare(few, NULL, NULL, few),
			 "4 files more than before (20000 instead of 19996): 4 new, the first dir0/0003.jpg");
	ck_assert_str_eq(compare(few, NULL, twelve, NULL),
			 "9 files fewer than before (19987 instead of 19996): 4 new, the first dir0/0003.jpg; 13 gone");
}
END_TEST

START_TEST(test_a_large_change_is_estimated_and_a_huge_one_counted)
{
	/* 2000 of 20000: the estimate is within a factor of two, and one file is named; half of all: numbers only. */
	char *text = compare(many, NULL, NULL, NULL);
	unsigned about = 0;

	ck_assert_ptr_nonnull(strstr(text, "2000 files more than before (20000 instead of 18000)"));
	ck_assert_msg(!strstr(text, "about") || (sscanf(strstr(text, "about"), "about %u new", &about) == 1 &&
						 about > 600 && about < 6000),
		      "%s", text);
	text = compare(half, NULL, NULL, NULL);
	ck_assert_ptr_nonnull(strstr(text, "10000 files more"));
}
END_TEST

START_TEST(test_bytes_that_are_no_print_do_no_harm)
{
	/* Of another length, of another version, random ones: numbers only, or arbitrary text of limited length. */
	struct manifest ix = make_index(2, 10, NULL, NULL);
	uint8_t fingerprint[FINGERPRINT_BYTES];
	char text[64];

	srand(5);
	fingerprint_make(&ix, fingerprint);
	fingerprint_compare(&ix, fingerprint, 7, 19, text, sizeof text);
	ck_assert_str_eq(text, "1 file more than before (20 instead of 19)");
	fingerprint[0]++;
	fingerprint_compare(&ix, fingerprint, sizeof fingerprint, 0, text, sizeof text);
	ck_assert_str_eq(text, "other files than before");
	for (int round = 0; round < 200; round++) {
		for (size_t i = 4; i < sizeof fingerprint; i++)
			fingerprint[i] = (uint8_t)rand();
		memcpy(fingerprint, "\1\0\0\0", 4);
		fingerprint_compare(&ix, fingerprint, sizeof fingerprint, 20, text, sizeof text);
		ck_assert_uint_lt(strlen(text), sizeof text);
	}
	manifest_finish(&ix);
}
END_TEST

SUITE(token)
{
	Suite *s = suite_create("token");
	TCase *t = tcase_create("token");

	tcase_add_test(t, test_a_token_is_read_as_it_was_written);
	tcase_add_test(t, test_every_damage_to_a_token_is_noticed);
	tcase_add_test(t, test_a_small_change_is_named_to_the_file);
	tcase_add_test(t, test_a_large_change_is_estimated_and_a_huge_one_counted);
	tcase_add_test(t, test_bytes_that_are_no_print_do_no_harm);
	suite_add_tcase(s, t);
	return s;
}
