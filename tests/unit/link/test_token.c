/* Tokens as text: written ones are read, damaged ones are refused, and changes of the data set are said. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library exports none of these. */
#include "link/error.c"
#include "link/token.c"
#include "support/suite.h"

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
			   .order = 0x8000000000000001 };

	strcpy(t.source, "imagefolder:/data/Bilder und \"mehr\"/50%/Hündchen=1 sum=2");
	return t;
}

START_TEST(test_a_token_is_read_as_it_was_written)
{
	/* Every field; the longest fits the documented size. */
	char text[BATCHD_TOKEN_BYTES];
	struct token t = sample_token(), back;
	struct fault f;

	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(token_write(&t, text, sizeof text), 0);
		ck_assert_int_eq(token_read(text, &back, &f), 0);
		ck_assert_mem_eq(&back, &t, sizeof t);
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

START_TEST(test_a_token_of_an_earlier_version_is_read)
{
	/* Proves that the field that tokens used to have at their end does not count. */
	char text[BATCHD_TOKEN_BYTES];
	struct token t = sample_token(), back;
	struct fault f;

	ck_assert_int_eq(token_write(&t, text, sizeof text), 0);
	strcpy(strstr(text, " sum="), " fingerprint=AQAAAA-_");
	size_t n = strlen(text);
	sprintf(text + n, " sum=%016" PRIx64, hash_bytes(text, n));
	ck_assert_msg(token_read(text, &back, &f) == 0, "%s", f.text);
	ck_assert_mem_eq(&back, &t, sizeof t);
}
END_TEST

START_TEST(test_a_change_is_said_in_numbers)
{
	/* Another name, another number, and neither; a source that was cut short is the same name. */
	struct token t = { .n_samples = 96, .source = "imagefolder:/pets" };
	char text[1024], longer[2 * TOKEN_SOURCE_BYTES];

	token_explain(&t, "imagefolder:/cats", 97, text, sizeof text);
	ck_assert_str_eq(text, "imagefolder:/pets with 96 samples then, imagefolder:/cats with 97 now");
	token_explain(&t, "imagefolder:/pets", 97, text, sizeof text);
	ck_assert_str_eq(text, "96 samples then, 97 now");
	token_explain(&t, "imagefolder:/pets", 96, text, sizeof text);
	ck_assert_str_eq(text, "as many samples, but other ones");
	memset(longer, 'x', sizeof longer);
	longer[sizeof longer - 1] = '\0';
	memcpy(t.source, longer, sizeof t.source - 1);
	token_explain(&t, longer, 97, text, sizeof text);
	ck_assert_str_eq(text, "96 samples then, 97 now");
}
END_TEST

SUITE(token)
{
	Suite *s = suite_create("token");
	TCase *t = tcase_create("token");

	tcase_add_test(t, test_a_token_is_read_as_it_was_written);
	tcase_add_test(t, test_every_damage_to_a_token_is_noticed);
	tcase_add_test(t, test_a_token_of_an_earlier_version_is_read);
	tcase_add_test(t, test_a_change_is_said_in_numbers);
	suite_add_tcase(s, t);
	return s;
}
