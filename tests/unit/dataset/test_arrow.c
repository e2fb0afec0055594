/* Arrow files: what becomes of files that are cut short, of damaged metadata and of values that lie about
 * themselves. The files are those that the fuzzer begins with, which pyarrow has written; test_hf.py has the values. */
#include "support/suite.h"

#include <sys/mman.h>

#include "dataset/arrow/index.h"

#include "support/arrow-seeds.h"
#include "support/sources-text.h"

static struct dataset_error err;

static int arrow_refuse(void *arg, uint64_t more)
{
	uint64_t *left = arg;

	*left -= more <= *left ? more : 0;
	return more <= *left ? 0 : -EDQUOT;
}

/* Reads the bytes, a copy of their own size so that a sanitizer sees each access after them. */
static int arrow_load(size_t n, const char *list, const struct arrow_rows *rows, uint64_t memory,
		      struct arrow_index *out)
{
	struct arrow_rows all = { NULL, 0 };
	uint8_t *copy = malloc(n ? n : 1);
	struct meter meter = { .more = arrow_refuse, .arg = &memory };
	struct shard_reader reader = { .fd = -1, .bytes = copy, .n_bytes = n, .name = "x.arrow", .err = &err };
	int r;

	ck_assert(copy != NULL);
	memcpy(copy, bytes, n);
	memset(out, 0, sizeof(*out));
	err.text[0] = '\0';
	out->meter = &meter;
	r = arrow_index_add(out, &reader, fields_of(list), rows ? rows : &all);
	out->meter = NULL;
	free(copy);
	return r;
}

static const char every[] = "image=i,l=l,t=t,b=b,v=v,r=r,g=g,f=f";
enum { PLENTY = 64 << 20 };

START_TEST(test_streams_and_files_have_the_same_rows)
{
	/* The picture's bytes are where the index says, paths are kept, and each value is that of its row. */
	for (int k = 0; k < 2; k++) {
		struct arrow_index ix;
		struct field_value v;

		take_seed(k ? "file" : "stream");
		ck_assert_msg(arrow_load(n_bytes, every, NULL, PLENTY, &ix) == 0, "%s", err.text);
		ck_assert_uint_eq(ix.n_rows, 9);
		for (uint64_t i = 0; i < 9; i++) {
			char wanted[32];

			snprintf(wanted, sizeof(wanted), i % 2 ? "\xff\xd8%d" : "/p/%d.jpg", (int)i);
			if (i % 2) {
				ck_assert_uint_eq(ix.n_bytes[i], strlen(wanted));
				ck_assert_mem_eq(bytes + ix.at[i], wanted, strlen(wanted));
			} else {
				ck_assert_uint_eq(ix.n_bytes[i], ARROW_IN_FILE);
				ck_assert_str_eq(ix.paths.bytes + ix.at[i], wanted);
			}
			arrow_column_value(&ix.columns[1], i, &v);
			ck_assert_int_eq(*(const int64_t *)v.bytes, (int64_t)i % 2);
			arrow_column_value(&ix.columns[2], i, &v);
			ck_assert_uint_eq(v.n_bytes, i);
			arrow_column_value(&ix.columns[5], i, &v);
			ck_assert_uint_eq(v.n_bytes, 2 * i);
			arrow_column_value(&ix.columns[7], i, &v);
			ck_assert_int_eq(*(const uint8_t *)v.bytes, i > 2);
		}
		arrow_index_finish(&ix);
	}
}
END_TEST

START_TEST(test_every_file_that_is_cut_short_is_refused)
{
	/* At each length: a stream without its mark of the end, a file without its footer. */
	for (int k = 0; k < 2; k++) {
		take_seed(k ? "file" : "stream");
		for (size_t n = 0; n < n_bytes; n++) {
			struct arrow_index ix;

			ck_assert_msg(arrow_load(n, every, NULL, PLENTY, &ix) < 0, "%zu bytes of %zu", n, n_bytes);
			ck_assert(strncmp(err.text, "x.arrow, byte ", 14) == 0);
			arrow_index_finish(&ix);
		}
	}
}
END_TEST

START_TEST(test_no_damaged_byte_leads_outside_of_the_file)
{
	/* Each byte in turn is another: what is then read is refused by name or lies inside the file. A sanitizer
	 * sees the rest. */
	static const uint8_t others[] = { 0x00, 0x80, 0xff };

	for (int k = 0; k < 2; k++) {
		take_seed(k ? "file" : "stream");
		for (size_t at = 0; at < n_bytes; at++) {
			uint8_t was = bytes[at];

			for (size_t i = 0; i < sizeof(others); i++) {
				struct arrow_index ix;
				int r;

				bytes[at] = others[i];
				r = arrow_load(n_bytes, every, NULL, PLENTY, &ix);
				ck_assert(r == 0 || err.text[0]);
				for (uint64_t row = 0; r == 0 && row < ix.n_rows; row++) {
					ck_assert(ix.n_bytes[row] == ARROW_IN_FILE ||
						  (ix.at[row] <= n_bytes && ix.n_bytes[row] <= n_bytes - ix.at[row]));
				}
				arrow_index_finish(&ix);
			}
			bytes[at] = was;
		}
	}
}
END_TEST

/* Puts a number of 8 bytes in place of each of this value; how many there were. */
static unsigned put_number(uint64_t was, uint64_t is)
{
	unsigned n = 0;

	for (size_t at = 0; at + 8 <= n_bytes; at += 4) {
		if (!memcmp(bytes + at, &was, 8)) {
			memcpy(bytes + at, &is, 8);
			n++;
		}
	}
	return n;
}

START_TEST(test_numbers_of_rows_are_checked_against_the_buffers)
{
	/* Three rows become many, negative ones, and more than any buffer has. */
	static const uint64_t lies[] = { 4, 1000, 1ull << 31, 1ull << 62, UINT64_MAX, 1ull << 63 };

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct arrow_index ix;

		take_seed("nulls");
		ck_assert_uint_ge(put_number(3, lies[i]), 3);
		ck_assert_int_lt(arrow_load(n_bytes, "l=l", NULL, PLENTY, &ix), 0);
		ck_assert_msg(strstr(err.text, "x.arrow, byte ") == err.text, "%s", err.text);
		arrow_index_finish(&ix);
	}
}
END_TEST

START_TEST(test_nulls_are_refused_in_wanted_rows_alone)
{
	/* Row 1 is null in each column; without it the others are read. */
	static const uint8_t outer[] = { 0x05 };
	struct arrow_rows some = { outer, 3 };
	struct arrow_index ix;

	take_seed("nulls");
	ck_assert_int_eq(arrow_load(n_bytes, "t=t", NULL, PLENTY, &ix), -EINVAL);
	ck_assert_msg(strstr(err.text, "column t is null in row 1") != NULL, "%s", err.text);
	arrow_index_finish(&ix);
	ck_assert_msg(arrow_load(n_bytes, "l=l,t=t,v=v,f=f", &some, PLENTY, &ix) == 0, "%s", err.text);
	for (uint64_t i = 0; i < 3; i++) {
		struct field_value v;

		arrow_column_value(&ix.columns[0], i, &v);
		ck_assert_int_eq(*(const int64_t *)v.bytes, i == 1 ? 0 : (int64_t)i + 1);
		arrow_column_value(&ix.columns[1], i, &v);
		ck_assert_uint_eq(v.n_bytes, i != 1);
		arrow_column_value(&ix.columns[2], i, &v);
		ck_assert_uint_eq(v.n_bytes, i == 0 ? 8 : i == 2 ? 4 : 0);
	}
	arrow_index_finish(&ix);
}
END_TEST

START_TEST(test_rows_that_are_not_wanted_are_checked_too)
{
	/* Rows that no sample is have no values to check, so their number may be any: so many that their bytes are
	 * again few in 64 bits, or that to count them one by one takes years. */
	static const uint8_t outer[] = { 0x05 };
	static const uint64_t lies[] = { 1ull << 61, (1ull << 61) - 1, 1ull << 60, (1ull << 63) - 1, 1ull << 40 };
	struct arrow_rows some = { outer, 3 };

	for (size_t i = 0; i < 2 * sizeof(lies) / sizeof(lies[0]); i++) {
		struct arrow_index ix;

		take_seed("nulls");
		ck_assert_uint_ge(put_number(3, lies[i / 2]), 3);
		ck_assert_int_lt(arrow_load(n_bytes, i % 2 ? "t=t" : "l=l", &some, PLENTY, &ix), 0);
		ck_assert_msg(strstr(err.text, "more than there is memory for") != NULL, "%s", err.text);
		arrow_index_finish(&ix);
	}
}
END_TEST

START_TEST(test_rows_are_paid_for_before_they_are_looked_at)
{
	/* A client's list of rows may have as many bits as it has memory for, and a batch may claim as many rows. None of
	 * the bits after the first page may be looked at: they cannot be read. */
	enum { PAGE = 4096, LIST_BYTES = 1 << 29 };
	uint8_t *list = mmap(NULL, LIST_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct arrow_rows some = { list, 8ull * LIST_BYTES };

	ck_assert(list != MAP_FAILED && mprotect(list, PAGE, PROT_READ | PROT_WRITE) == 0);
	list[0] = 0x05;
	for (unsigned i = 0; i < 2; i++) {
		struct arrow_index ix;

		take_seed("nulls");
		ck_assert_uint_ge(put_number(3, 1ull << 32), 3);
		ck_assert_int_lt(arrow_load(n_bytes, i ? "t=t" : "l=l", &some, PLENTY, &ix), 0);
		ck_assert_msg(strstr(err.text, "more than there is memory for") != NULL, "%s", err.text);
		arrow_index_finish(&ix);
	}
	munmap(list, LIST_BYTES);
}
END_TEST

static void put32(size_t at, size_t value)
{
	uint32_t narrow = (uint32_t)value;

	memcpy(bytes + at, &narrow, 4);
}

static void put16s(size_t at, const uint16_t *values, size_t n)
{
	memcpy(bytes + at, values, n * sizeof(*values));
}

/* A stream of columns of truth values that share one table, whose keys of metadata share one table too. */
static void make_shared_keys(unsigned n_columns, unsigned n_keys)
{
	static const uint16_t message[] = { 12, 12, 8, 10, 4, 0 }, schema[] = { 8, 8, 0, 4 },
			      column[] = { 18, 12, 0, 0, 8, 0, 0, 0, 4 }, pair[] = { 8, 8, 4, 0 };
	enum { AT = 8, MESSAGE = AT + 16, SCHEMA = AT + 44, COLUMNS = AT + 56 };
	size_t layout = COLUMNS + 4 + 4 * (size_t)n_columns, field = layout + 20, keys = field + 20;
	size_t entry = keys + 4 + 4 * (size_t)n_keys, end = entry + 16;

	ck_assert_uint_le(end + 8, sizeof(bytes));
	memset(bytes, 0, sizeof(bytes));
	put32(0, UINT32_MAX);
	put32(4, end - AT);
	put32(AT, MESSAGE - AT);
	put16s(AT + 4, message, 6);
	put32(MESSAGE, MESSAGE - (AT + 4));
	put32(MESSAGE + 4, SCHEMA - (MESSAGE + 4));
	put16s(MESSAGE + 8, (const uint16_t[]){ 4, 1 }, 2); /* version, a schema */
	put16s(SCHEMA - 12, schema, 4);
	put32(SCHEMA, 12);
	put32(SCHEMA + 4, COLUMNS - (SCHEMA + 4));
	put32(COLUMNS, n_columns);
	for (size_t at = COLUMNS + 4; at < layout; at += 4) {
		put32(at, field - at);
	}
	put16s(layout, column, 9);
	put32(field, field - layout);
	put32(field + 4, keys - (field + 4));
	bytes[field + 8] = ARROW_BOOL;
	put16s(field + 12, pair, 4);
	put32(keys, n_keys);
	for (size_t at = keys + 4; at < entry; at += 4) {
		put32(at, entry - at);
	}
	put32(entry, entry - (field + 12));
	put32(entry + 4, 4);
	put32(entry + 8, 3); /* the key, of three bytes */
	put32(end, UINT32_MAX);
	n_bytes = end + 8;
}

START_TEST(test_keys_that_all_columns_share_are_counted)
{
	/* Proves that the work of reading a schema has a bound, which a list of keys that many columns share does not
	 * go round. */
	struct arrow_index ix;

	make_shared_keys(100, 100);
	ck_assert_int_eq(arrow_load(n_bytes, "l=l", NULL, PLENTY, &ix), -EINVAL);
	ck_assert_msg(strstr(err.text, "there is no column 'l'") != NULL, "%s", err.text);
	arrow_index_finish(&ix);
	make_shared_keys(900, 1000);
	ck_assert_int_eq(arrow_load(n_bytes, "l=l", NULL, PLENTY, &ix), -EINVAL);
	ck_assert_msg(strstr(err.text, "more than 1048576 keys of metadata") != NULL, "%s", err.text);
	arrow_index_finish(&ix);
}
END_TEST

START_TEST(test_what_is_not_read_is_refused_by_name)
{
	/* Compressed buffers, columns that are not there, two images. */
	struct arrow_index ix;

	take_seed("compressed");
	ck_assert_int_eq(arrow_load(n_bytes, "l=l", NULL, PLENTY, &ix), -EINVAL);
	ck_assert_msg(strstr(err.text, "compressed (lz4)") != NULL, "%s", err.text);
	arrow_index_finish(&ix);
	take_seed("stream");
	ck_assert_int_eq(arrow_load(n_bytes, "x=nothing", NULL, PLENTY, &ix), -EINVAL);
	ck_assert_msg(strstr(err.text, "no column 'nothing'") && strstr(err.text, "i (image), l (int64)"), "%s",
		      err.text);
	arrow_index_finish(&ix);
	ck_assert_int_eq(arrow_load(n_bytes, "a=i,b=i", NULL, PLENTY, &ix), -EINVAL);
	ck_assert_msg(strstr(err.text, "two columns of images") != NULL, "%s", err.text);
	arrow_index_finish(&ix);
}
END_TEST

START_TEST(test_memory_is_charged_before_it_is_taken)
{
	/* Each smaller limit is met with a refusal that names it, the last one is enough. */
	struct arrow_index ix;
	unsigned n_refused = 0;

	take_seed("stream");
	for (uint64_t limit = 0; limit < PLENTY; limit += 512) {
		int r = arrow_load(n_bytes, every, NULL, limit, &ix);

		ck_assert(r == 0 || r == -EDQUOT);
		ck_assert(r == 0 || strstr(err.text, "memory for"));
		ck_assert_uint_le(arrow_index_bytes(&ix), r ? limit : PLENTY);
		arrow_index_finish(&ix);
		if (!r) {
			break;
		}
		n_refused++;
	}
	ck_assert_uint_gt(n_refused, 4);
	/* The schema's JSON of 452 bytes is charged with what parsing it may take. */
	ck_assert_uint_gt(n_refused * (uint64_t)512, 40 * 452);
}
END_TEST

SUITE(arrow)
{
	Suite *s = suite_create("arrow");
	TCase *t = tcase_create("arrow");

	tcase_add_test(t, test_streams_and_files_have_the_same_rows);
	tcase_add_test(t, test_every_file_that_is_cut_short_is_refused);
	tcase_add_test(t, test_no_damaged_byte_leads_outside_of_the_file);
	tcase_add_test(t, test_numbers_of_rows_are_checked_against_the_buffers);
	tcase_add_test(t, test_nulls_are_refused_in_wanted_rows_alone);
	tcase_add_test(t, test_rows_that_are_not_wanted_are_checked_too);
	tcase_add_test(t, test_rows_are_paid_for_before_they_are_looked_at);
	tcase_add_test(t, test_keys_that_all_columns_share_are_counted);
	tcase_add_test(t, test_what_is_not_read_is_refused_by_name);
	tcase_add_test(t, test_memory_is_charged_before_it_is_taken);
	suite_add_tcase(s, t);
	return s;
}
