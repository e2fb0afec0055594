/* Orientation: EXIF directories and XMP packets, valid, unusual and damaged. */
#include "image/formats/exif.h"
#include "support/suite.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* One directory with one entry; 16-bit and 32-bit numbers in the given byte order. */
struct tiff {
	uint8_t bytes[64];
	size_t n;
	bool big_endian;
};

static void put(struct tiff *t, uint32_t value, int n_bytes)
{
	for (int i = 0; i < n_bytes; i++) {
		int shift = 8 * (t->big_endian ? n_bytes - 1 - i : i);

		t->bytes[t->n++] = (uint8_t)(value >> shift);
	}
}

static struct tiff begin(bool big_endian, uint32_t n_entries)
{
	struct tiff t = { .big_endian = big_endian, .n = 2 };

	memset(t.bytes, big_endian ? 'M' : 'I', 2);
	put(&t, 42, 2);
	put(&t, 8, 4);
	put(&t, n_entries, 2);
	return t;
}

static void put_entry(struct tiff *t, uint32_t tag, uint32_t type, uint32_t count, uint32_t value, int value_bytes)
{
	put(t, tag, 2);
	put(t, type, 2);
	put(t, count, 4);
	put(t, value, value_bytes);
	put(t, 0, 4 - value_bytes);
}

static struct tiff with_orientation(bool big_endian, uint32_t type, uint32_t value)
{
	struct tiff t = begin(big_endian, 1);

	put_entry(&t, 0x0112, type, 1, value, type == 3 || type == 8 ? 2 : 4);
	return t;
}

/* From memory of exactly that size, so that a sanitizer sees a read past the end. */
static int read_exactly(const uint8_t *bytes, size_t n)
{
	uint8_t *copy = malloc(n + !n);

	memcpy(copy, bytes, n);
	int o = exif_orientation(copy, n);
	free(copy);
	return o;
}

START_TEST(test_exif_orientation_in_both_byte_orders)
{
	/* Proves that all eight values are read in either byte order and that a ninth is ignored. */
	for (int big = 0; big < 2; big++) {
		for (uint32_t value = 0; value < 12; value++) {
			struct tiff t = with_orientation(big, 3, value);

			ck_assert_int_eq(read_exactly(t.bytes, t.n), value >= 1 && value <= 8 ? (int)value : 0);
		}
	}
}
END_TEST

START_TEST(test_exif_orientation_of_every_whole_number_type)
{
	/* Proves which types can hold an orientation: short, long, their signed kin and IFD, as in Pillow. */
	for (uint32_t type = 0; type < 20; type++) {
		struct tiff t = with_orientation(true, type, 6);
		bool whole = type == 3 || type == 4 || type == 8 || type == 9 || type == 13;

		ck_assert_int_eq(read_exactly(t.bytes, t.n), whole ? 6 : 0);
	}
}
END_TEST

START_TEST(test_exif_first_orientation_counts)
{
	/* Proves that of two entries the first is taken, and that an entry of unknown type before it is skipped. */
	struct tiff t = begin(false, 3);

	put_entry(&t, 0x0112, 77, 1, 8, 2);
	put_entry(&t, 0x0112, 3, 1, 5, 2);
	put_entry(&t, 0x0112, 3, 1, 2, 2);
	ck_assert_int_eq(read_exactly(t.bytes, t.n), 5);
}
END_TEST

START_TEST(test_exif_directory_ends_where_data_lie_outside)
{
	/* Proves that an entry whose data are cut off ends the directory, while one of an impossible size is skipped.
	 */
	struct tiff t = begin(false, 2);

	put_entry(&t, 0x010f, 2, 30, 50, 4);
	put_entry(&t, 0x0112, 3, 1, 5, 2);
	ck_assert_int_eq(read_exactly(t.bytes, t.n), 0);

	t = begin(false, 2);
	put_entry(&t, 0x010f, 2, 0xffffffff, 50, 4);
	put_entry(&t, 0x0112, 3, 1, 5, 2);
	ck_assert_int_eq(read_exactly(t.bytes, t.n), 5);
}
END_TEST

START_TEST(test_exif_orientation_array_gives_its_first_value)
{
	/* Proves that an array of orientations elsewhere in the record is followed, and only within the record. */
	struct tiff t = begin(true, 1);
	size_t value_at = t.n + 12;

	put_entry(&t, 0x0112, 3, 4, (uint32_t)value_at, 4);
	for (uint32_t v = 7; v > 3; v--)
		put(&t, v, 2);
	ck_assert_int_eq(read_exactly(t.bytes, t.n), 7);
	ck_assert_int_eq(read_exactly(t.bytes, t.n - 1), 0);
}
END_TEST

START_TEST(test_exif_prefix_is_optional_and_may_be_doubled)
{
	/* Proves that "Exif\0\0" is skipped once and twice, because some writers repeat it, but not three times. */
	struct tiff t = with_orientation(false, 3, 3);
	uint8_t bytes[128];

	for (size_t n_prefixes = 0; n_prefixes < 4; n_prefixes++) {
		for (size_t i = 0; i < n_prefixes; i++)
			memcpy(bytes + 6 * i, "Exif\0", 6);
		memcpy(bytes + 6 * n_prefixes, t.bytes, t.n);
		ck_assert_int_eq(read_exactly(bytes, 6 * n_prefixes + t.n), n_prefixes < 3 ? 3 : 0);
	}
}
END_TEST

START_TEST(test_exif_damaged_records_are_upright_and_never_read_outside)
{
	/* Proves that every cut and any changed byte of a record give a number from 0 to 8, and that reads stay inside
	 * it. */
	struct tiff t = with_orientation(false, 3, 6);

	ck_assert_int_eq(exif_orientation(NULL, 0), 0);
	for (size_t n = 0; n < t.n; n++)
		ck_assert_int_eq(read_exactly(t.bytes, n), 0);
	for (size_t i = 0; i < t.n; i++) {
		for (unsigned v = 0; v < 256; v++) {
			struct tiff damaged = t;

			damaged.bytes[i] = (uint8_t)v;
			int o = read_exactly(damaged.bytes, damaged.n);

			ck_assert(o >= 0 && o <= 8);
		}
	}
}
END_TEST

START_TEST(test_xmp_orientation_as_attribute_and_as_element)
{
	/* Proves the two spellings, that the first counts, and that similar text does not. */
	static const struct {
		const char *text;
		int want;
	} cases[] = {
		{ "<rdf:Description tiff:Orientation=\"6\"/>", 6 },
		{ "<tiff:Orientation>8</tiff:Orientation>", 8 },
		{ "tiff:Orientation=\"3\" tiff:Orientation=\"6\"", 3 },
		{ "tiff:Orientation=\"x\" tiff:Orientation=\"6\"", 6 },
		{ "tiff:Orientation=\"0\" tiff:Orientation=\"6\"", 0 },
		{ "tiff:Orientation=\"9\"", 0 },
		{ "tiff:Orientation=6", 0 },
		{ "tiff:Orientation='6'", 0 },
		{ "exif:Orientation=\"6\"", 0 },
		{ "tiff:Orientation", 0 },
		{ "tiff:Orientation=\"", 0 },
		{ "tiff:Orientation>", 0 },
		{ "", 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t n = strlen(cases[i].text);
		uint8_t *copy = malloc(n + 1);

		memcpy(copy, cases[i].text, n);
		copy = realloc(copy, n + !n); /* without the zero byte */
		ck_assert_msg(xmp_orientation(copy, n) == cases[i].want, "%s", cases[i].text);
		free(copy);
	}
}
END_TEST

SUITE(exif)
{
	Suite *suite = suite_create("exif");
	TCase *tc = tcase_create("exif");

	tcase_add_test(tc, test_exif_orientation_in_both_byte_orders);
	tcase_add_test(tc, test_exif_orientation_of_every_whole_number_type);
	tcase_add_test(tc, test_exif_first_orientation_counts);
	tcase_add_test(tc, test_exif_directory_ends_where_data_lie_outside);
	tcase_add_test(tc, test_exif_orientation_array_gives_its_first_value);
	tcase_add_test(tc, test_exif_prefix_is_optional_and_may_be_doubled);
	tcase_add_test(tc, test_exif_damaged_records_are_upright_and_never_read_outside);
	tcase_add_test(tc, test_xmp_orientation_as_attribute_and_as_element);
	suite_add_tcase(suite, tc);

	return suite;
}
