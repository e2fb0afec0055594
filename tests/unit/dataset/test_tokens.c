/* Windows of token files: raw, with llm.c's header, with Megatron's index; and files that lie. */
#include "support/datasets.h"

enum { N = 1000 };

static uint16_t tokens[N];

static void make_tokens(void)
{
	for (unsigned i = 0; i < N; i++) {
		tokens[i] = (uint16_t)(i * 7919 + 11);
	}
}

/* One window, as its x and y; the data set's length is 8. */
static void check_window(struct dataset *ds, uint64_t index, uint64_t start)
{
	int64_t x[8], y[8];

	ck_assert_msg(dataset_gather(ds, &index, 1, ROWS(x, y), &f.err) == 0, "%s", f.err.text);
	for (unsigned i = 0; i < 8; i++) {
		ck_assert_int_eq(x[i], tokens[start + i]);
		ck_assert_int_eq(y[i], tokens[start + i + 1]);
	}
}

START_TEST(test_windows_follow_each_other_and_do_not_cross_files)
{
	/* Proves the number of windows of each file, and their places. */
	struct dataset *ds;
	char spec[600];

	make_tokens();
	put_bytes("a.bin", tokens, 2 * 25, 0644);      /* 25 tokens: 3 windows of 8 + 1 */
	put_bytes("b.bin", tokens + 25, 2 * 24, 0644); /* 24 tokens: only 2 */
	put_bytes("c.bin", tokens + 49, 2 * 9, 0644);  /* 1 */
	snprintf(spec, sizeof(spec), "%s,%s,%s,length=8", in_root("a.bin"), in_root("b.bin"), in_root("c.bin"));
	ds = open_trusted("tokens", spec);
	ck_assert_uint_eq(dataset_n(ds), 6);
	check_window(ds, 0, 0);
	check_window(ds, 2, 16);
	check_window(ds, 3, 25);
	check_window(ds, 4, 33);
	check_window(ds, 5, 49);
	dataset_unref(ds);
	snprintf(spec, sizeof(spec), "length=8,stride=3,%s", in_root("a.bin"));
	ds = open_trusted("tokens", spec);
	ck_assert_uint_eq(dataset_n(ds), 6); /* 0, 3, ... 15: the last takes tokens 15 to 23 */
	check_window(ds, 5, 15);
	dataset_unref(ds);
}
END_TEST

static void refuse(const char *spec, const char *why)
{
	struct dataset *ds;

	ck_assert_int_lt(open_as(&f.trusted, "tokens", spec, NULL, NULL, 0, &ds), 0);
	ck_assert_msg(strstr(f.err.text, why) != NULL, "'%s' is not in: %s", why, f.err.text);
}

static const char *with(const char *name, const char *options)
{
	static char spec[600];

	snprintf(spec, sizeof(spec), "%s,%s", in_root(name), options);
	return spec;
}

START_TEST(test_an_index_of_endless_zeros_is_refused)
{
	/* Proves that the length of a sparse file is no reason to read for hours. */
	static const unsigned char head[34] = { 'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0,
						0,   0,   0,   0,   0,   8,   0,   0, 0, 0, 1 };
	char spec[200];

	put_bytes("a.bin", tokens, 2 * 25, 0644);
	put_bytes("a.idx", head, sizeof(head), 0644);
	ck_assert_int_eq(truncate(in_root("a.idx"), 34 + (12ll << 32)), 0);
	snprintf(spec, sizeof(spec), "%s,length=8", in_root("a.idx"));
	refuse(spec, "4294967296 sequences: expected at most");
}
END_TEST

START_TEST(test_a_path_that_is_too_long_is_refused)
{
	/* Proves that such a file is not passed over: without files, a random window would be read from nowhere. */
	struct dataset *ds = NULL;
	char spec[4300];

	memset(spec, 'x', sizeof(spec));
	memcpy(spec, "tokens:", 7);
	strcpy(spec + 4200, ",length=8,windows=random");
	ck_assert_int_eq(dataset_open(&(struct dataset_source){ .spec = spec, .access = &f.trusted }, &ds, &f.err),
			 -ENAMETOOLONG);
	ck_assert_msg(strstr(f.err.text, "too long") != NULL, "%s", f.err.text);
}
END_TEST

START_TEST(test_wrong_options_are_named)
{
	/* Proves that each mistake in the text has an error of its own. */
	put_bytes("a.bin", tokens, 2 * 9, 0644);
	refuse(in_root("a.bin"), "length=T is missing");
	refuse("length=8", "no file is named");
	refuse(with("a.bin", "length=9"), "it has 9 tokens, and a window of length 9 takes 10");
	refuse(with("a.bin", "length=0"), "length=0: expected");
	refuse(with("a.bin", "length=-1"), "length=-1: expected");
	refuse(with("a.bin", "length=99999999999999999999"), "expected");
	refuse(with("a.bin", "length=4,length=4"), "expected it once");
	refuse(with("a.bin", "length=4,dtype=float32"), "dtype=float32: expected");
	refuse(with("a.bin", "length=4,windows=some"), "sequential or random");
	refuse(with("a.bin", "length=4,seed=3"), "go with windows=random");
	refuse(with("a.bin", "length=4,windows=random,stride=2"), "goes with windows=sequential");
	refuse(with("a.bin", "length=4,,"), "between two commas");
	refuse(with("b.bin", "length=4"), "b.bin");
}
END_TEST

START_TEST(test_random_windows_depend_on_seed_and_index)
{
	/* Proves that a window is the same in any batch, that all starts are possible, the last one included, and no
	 * others, and that another seed gives others. */
	struct dataset *ds, *other;
	unsigned seen[4] = { 0 }, differ = 0;

	make_tokens();
	put_bytes("a.bin", tokens, 2 * 12, 0644); /* starts 0 to 3 for a length of 8 */
	ds = open_trusted("tokens", with("a.bin", "length=8,windows=random,seed=1"));
	other = open_trusted("tokens", with("a.bin", "length=8,windows=random,seed=2"));
	ck_assert_uint_eq(dataset_n(ds), 1ull << 40);
	for (uint64_t i = 0; i < 4000; i++) {
		int64_t x[8], y[8], z[8];
		unsigned start = 0;

		ck_assert_int_eq(dataset_gather(ds, &i, 1, ROWS(x, y), &f.err), 0);
		ck_assert_int_eq(dataset_gather(other, &i, 1, ROWS(z, y), &f.err), 0);
		while (start < 4 && x[0] != tokens[start]) {
			start++;
		}
		ck_assert_uint_lt(start, 4);
		seen[start]++;
		differ += x[0] != z[0];
		check_window(ds, i, start);
	}
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_msg(seen[i] > 900 && seen[i] < 1100, "start %u: %u of 4000", i, seen[i]);
	}
	ck_assert_uint_gt(differ, 2700);
	dataset_unref(ds);
	dataset_unref(other);
}
END_TEST

static void put_llmc(const char *name, int32_t magic, int32_t version, int32_t n, const void *data, size_t n_bytes)
{
	static unsigned char bytes[1024 + 4 * N];
	int32_t head[3] = { magic, version, n };

	memcpy(bytes, head, sizeof(head));
	memcpy(bytes + 1024, data, n_bytes);
	put_bytes(name, bytes, 1024 + n_bytes, 0644);
}

START_TEST(test_llmc_headers_that_lie_are_refused)
{
	/* Proves both kinds of header, and the refusal of what does not fit the file. */
	uint32_t wide[20];
	struct dataset *ds;

	make_tokens();
	for (unsigned i = 0; i < 20; i++) {
		wide[i] = tokens[i];
	}
	put_llmc("a.bin", 20240520, 1, 20, tokens, 40);
	ds = open_trusted("tokens", with("a.bin", "length=8"));
	ck_assert_uint_eq(dataset_n(ds), 2);
	check_window(ds, 1, 8);
	dataset_unref(ds);
	put_llmc("b.bin", 20240801, 7, 20, wide, 80);
	ds = open_trusted("tokens", with("b.bin", "length=8"));
	check_window(ds, 1, 8);
	dataset_unref(ds);
	put_llmc("c.bin", 20240520, 1, 21, tokens, 40);
	refuse(with("c.bin", "length=8"), "promises 21 tokens: cut short?");
	put_llmc("c.bin", 20240520, 1, -1, tokens, 40);
	refuse(with("c.bin", "length=8"), "promises -1 tokens");
	put_llmc("c.bin", 20240520, 2, 20, tokens, 40);
	refuse(with("c.bin", "length=8"), "version 2");
	refuse(with("a.bin", "length=8,dtype=uint32"), "leave dtype out");
	put_bytes("d.bin", tokens, 41, 0644);
	refuse(with("d.bin", "length=8"), "no whole number of uint16 tokens");
}
END_TEST

/* An index of n sequences, with whatever values. */
static void put_index(const char *name, unsigned char code, uint64_t n, uint64_t n_documents, const int32_t *lengths,
		      const int64_t *pointers, unsigned n_written)
{
	unsigned char bytes[1024] = "MMIDIDX\0";
	uint64_t version = 1;
	size_t at = 34;

	memcpy(bytes + 9, &version, 8);
	bytes[17] = code;
	memcpy(bytes + 18, &n, 8);
	memcpy(bytes + 26, &n_documents, 8);
	memcpy(bytes + at, lengths, n_written * sizeof(*lengths));
	at += n_written * sizeof(*lengths);
	memcpy(bytes + at, pointers, n_written * sizeof(*pointers));
	at += n_written * sizeof(*pointers);
	put_bytes(name, bytes, at, 0644);
}

START_TEST(test_indexes_that_lie_are_refused)
{
	/* Proves the checks of a Megatron index: type, counts, lengths, places, and the size of the .bin. */
	static const int32_t good[] = { 10, 0, 15 }, negative[] = { 10, -1, 15 }, huge[] = { 10, INT32_MAX, 15 };
	static const int64_t places[] = { 0, 20, 20 }, gap[] = { 0, 20, 22 }, back[] = { 0, 20, -20 };
	struct dataset *ds;

	make_tokens();
	put_bytes("a.bin", tokens, 2 * 25, 0644);
	put_index("a.idx", 8, 3, 0, good, places, 3);
	ds = open_trusted("tokens", with("a.idx", "length=8"));
	ck_assert_uint_eq(dataset_n(ds), 3);
	check_window(ds, 1, 8);
	dataset_unref(ds);
	refuse(with("a.idx", "length=8,dtype=int32"), "its tokens are uint16");
	put_index("a.idx", 8, 3, 0, negative, places, 3);
	refuse(with("a.idx", "length=8"), "sequence 1 has -1 tokens");
	put_index("a.idx", 8, 3, 0, huge, places, 3);
	refuse(with("a.idx", "length=8"), "sequence 2 begins at byte 20");
	put_index("a.idx", 8, 3, 0, good, gap, 3);
	refuse(with("a.idx", "length=8"), "sequence 2 begins at byte 22");
	put_index("a.idx", 8, 3, 0, good, back, 3);
	refuse(with("a.idx", "length=8"), "sequence 2 begins at byte -20");
	put_index("a.idx", 8, UINT64_MAX / 12 + 2, 0, good, places, 3);
	refuse(with("a.idx", "length=8"), "cut short?");
	put_index("a.idx", 8, 3, UINT64_MAX, good, places, 3);
	refuse(with("a.idx", "length=8"), "cut short?");
	put_index("a.idx", 7, 3, 0, good, places, 3);
	refuse(with("a.idx", "length=8"), "type 7");
	put_index("a.idx", 200, 3, 0, good, places, 3);
	refuse(with("a.idx", "length=8"), "type 200");
	put_index("a.idx", 4, 3, 0, good, (const int64_t[]){ 0, 40, 40 }, 3);
	refuse(with("a.idx", "length=8"), "the .bin beside it has 50");
	put_bytes("a.idx", "MMIDIDX", 7, 0644);
	refuse(with("a.idx", "length=8"), "not an index of Megatron's");
}
END_TEST

START_TEST(test_a_token_file_cut_short_is_an_error_not_a_crash)
{
	/* Proves that the file that has shrunk is named, whichever of several it is. */
	static uint16_t many[40000];
	struct dataset *ds;
	char spec[600];
	int64_t x[8], y[8];
	uint64_t first = 0, last;

	put_bytes("a.bin", many, sizeof(many), 0644);
	put_bytes("b.bin", many, sizeof(many), 0644);
	snprintf(spec, sizeof(spec), "%s,%s,length=8", in_root("a.bin"), in_root("b.bin"));
	ds = open_trusted("tokens", spec);
	last = dataset_n(ds) - 1;
	ck_assert_int_eq(truncate(in_root("b.bin"), 5000), 0);
	ck_assert_int_eq(dataset_gather(ds, &first, 1, ROWS(x, y), &f.err), 0);
	ck_assert_int_eq(dataset_gather(ds, &last, 1, ROWS(x, y), &f.err), -EIO);
	ck_assert_msg(strstr(f.err.text, "b.bin: the file has become shorter") != NULL, "%s", f.err.text);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_descriptors_are_counted)
{
	/* Proves that another user's list needs a descriptor for each file, and two for an index. */
	int fds[3];
	struct dataset *ds;

	put_bytes("a.bin", tokens, 2 * 9, 0644);
	fds[0] = fds[1] = fds[2] = open(in_root("a.bin"), O_RDONLY);
	ck_assert_int_eq(open_as(&f.other, "tokens", with("a.bin", "length=8"), NULL, fds, 1, &ds), 0);
	dataset_unref(ds);
	ck_assert_int_eq(open_as(&f.other, "tokens", with("a.bin", "length=8"), NULL, fds, 2, &ds), -EINVAL);
	ck_assert_msg(strstr(f.err.text, "2 descriptors for 1 files") != NULL, "%s", f.err.text);
	ck_assert_int_eq(open_as(&f.other, "tokens", with("a.bin", "length=8"), NULL, NULL, 0, &ds), -EACCES);
	ck_assert_int_eq(open_as(&f.other, "tokens", with("a.idx", "length=8"), NULL, fds, 1, &ds), -EINVAL);
	ck_assert_msg(strstr(f.err.text, "1 descriptors for 2 files") != NULL, "%s", f.err.text);
	close(fds[0]);
}
END_TEST

SUITE(tokens)
{
	Suite *s = suite_create("tokens");
	TCase *tc = tcase_create("tokens");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_windows_follow_each_other_and_do_not_cross_files);
	tcase_add_test(tc, test_an_index_of_endless_zeros_is_refused);
	tcase_add_test(tc, test_a_path_that_is_too_long_is_refused);
	tcase_add_test(tc, test_wrong_options_are_named);
	tcase_add_test(tc, test_random_windows_depend_on_seed_and_index);
	tcase_add_test(tc, test_llmc_headers_that_lie_are_refused);
	tcase_add_test(tc, test_indexes_that_lie_are_refused);
	tcase_add_test(tc, test_a_token_file_cut_short_is_an_error_not_a_crash);
	tcase_add_test(tc, test_descriptors_are_counted);
	suite_add_tcase(s, tc);
	return s;
}
