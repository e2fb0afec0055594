/* The index of a data set in memory and on disk, and the parser of file lists that makes one. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "dataset/folder/filelist.h"
#include "dataset/folder/manifest.h"
#include "dataset/name.h"
#include "support/suite.h"

enum { CHECKSUM_AT = 16, CHECKED_FROM = 24 };

static char folder[] = "/tmp/test_manifest.XXXXXX";

static void set_up(void)
{
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void tear_down(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	ck_assert_int_eq(system(command), 0);
}

/* Two classes, three folders, `n` files in the last. */
static struct manifest make(unsigned n)
{
	struct manifest_builder b = { 0 };
	struct manifest_dir root = { .dev = 1, .ino = 2, .class_id = MANIFEST_NO_CLASS }, cat = { .ino = 3 },
			    dog = { .ino = 4, .class_id = 1 };
	struct manifest ix = { 0 };

	ck_assert_int_eq(manifest_add_class(&b, "cat"), 0);
	ck_assert_int_eq(manifest_add_class(&b, "dog"), 0);
	ck_assert_int_eq(manifest_add_dir(&b, ".", 1, &root), 0);
	ck_assert_int_eq(manifest_add_dir(&b, "cat", 3, &cat), 0);
	ck_assert_int_eq(manifest_add_dir(&b, "dog/small", 9, &dog), 0);
	ck_assert_int_eq(manifest_add_file(&b, 1, "tom.jpg", 7), 0);
	for (unsigned i = 0; i < n; i++) {
		char name[32];

		ck_assert_int_eq(manifest_add_file(&b, 2, name, (size_t)snprintf(name, sizeof(name), "%u.png", i)), 0);
	}
	ck_assert_int_eq(manifest_build(&b, &ix), 0);
	return ix;
}

static void *copy_of(const struct manifest *ix)
{
	void *copy = malloc(ix->block_bytes);

	ck_assert_ptr_nonnull(copy);
	return memcpy(copy, ix->block, ix->block_bytes);
}

static void correct_checksum(unsigned char *block, size_t n)
{
	uint64_t sum = XXH3_64bits(block + CHECKED_FROM, n - CHECKED_FROM);

	memcpy(block + CHECKSUM_AT, &sum, sizeof(sum));
}

START_TEST(test_an_index_holds_what_was_put_in)
{
	/* Proves names, folders, labels and classes of a built index. */
	struct manifest ix = make(1000);
	char name[64];

	ck_assert_uint_eq(ix.n_files, 1001);
	ck_assert_uint_eq(ix.n_classes, 2);
	manifest_name(&ix, 0, name, sizeof(name));
	ck_assert_str_eq(name, "cat/tom.jpg");
	ck_assert_int_eq(manifest_label(&ix, 0), 0);
	manifest_name(&ix, 1000, name, sizeof(name));
	ck_assert_str_eq(name, "dog/small/999.png");
	ck_assert_int_eq(manifest_label(&ix, 1000), 1);
	manifest_name(&ix, 1000, name, 5);
	ck_assert_str_eq(name, "dog/");
	manifest_finish(&ix);
}
END_TEST

START_TEST(test_a_million_files_take_about_thirty_megabytes)
{
	/* Proves the memory a file costs: 8 bytes and its name. */
	struct manifest ix = make(100000);

	ck_assert_uint_lt(ix.block_bytes, 100000 * (8 + 10) + 1000);
	manifest_finish(&ix);
}
END_TEST

START_TEST(test_a_saved_index_is_loaded_as_it_was)
{
	/* Proves that writing and reading give the same index, that nothing else is left in the folder, and that the
	 * hash is of the content. */
	struct manifest ix = make(10), back = { 0 }, other = make(11);
	char path[64];

	snprintf(path, sizeof(path), "%s/x", folder);
	ck_assert_int_eq(manifest_save(path, &ix), 0);
	ck_assert_int_eq(manifest_save(path, &ix), 0);
	ck_assert_int_eq(manifest_load(path, NULL, &back), 0);
	ck_assert_uint_eq(back.block_bytes, ix.block_bytes);
	ck_assert_int_eq(memcmp(back.block, ix.block, ix.block_bytes), 0);
	ck_assert_uint_eq(manifest_hash(&back, 1), manifest_hash(&ix, 1));
	ck_assert_uint_ne(manifest_hash(&back, 1), manifest_hash(&back, 2));
	ck_assert_uint_ne(manifest_hash(&other, 1), manifest_hash(&ix, 1));
	manifest_finish(&back);
	manifest_finish(&ix);
	manifest_finish(&other);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(rmdir(folder), 0); /* empty: no temporary file */
	ck_assert_int_eq(mkdir(folder, 0700), 0);
}
END_TEST

START_TEST(test_an_index_that_cannot_be_saved_leaves_nothing)
{
	/* Proves that a missing folder and a full device are errors and leave no partial files. */
	struct manifest ix = make(10), none;
	char path[64];

	snprintf(path, sizeof(path), "%s/no/x", folder);
	ck_assert_int_eq(manifest_save(path, &ix), -ENOENT);
	snprintf(path, sizeof(path), "%s/x", folder);
	ck_assert_int_eq(manifest_load(path, NULL, &none), -ENOENT);
	manifest_finish(&ix);
}
END_TEST

START_TEST(test_every_damaged_byte_is_noticed)
{
	/* Proves that no single flipped bit, cut or addition is accepted as an index. */
	struct manifest ix = make(3), out;

	for (size_t i = 0; i < ix.block_bytes; i++) {
		unsigned char *bad = copy_of(&ix);

		bad[i] ^= (unsigned char)(1u << (i % 8));
		ck_assert_int_eq(manifest_parse(bad, ix.block_bytes, &out), -EINVAL);
		free(bad);
	}
	for (size_t n = 0; n < ix.block_bytes; n++) {
		void *bad = malloc(n ? n : 1);

		memcpy(bad, ix.block, n);
		ck_assert_int_eq(manifest_parse(bad, n, &out), -EINVAL);
		free(bad);
	}
	manifest_finish(&ix);
}
END_TEST

START_TEST(test_a_forged_index_stays_inside_its_folder)
{
	/* Proves that a correct checksum over wrong content is not enough: whatever single 32-bit field is changed, an
	 * accepted index is safe to use. */
	static const uint32_t values[] = { 0, 1, 2, 3, 7, 11, 0x7fffffff, 0xffffffff };
	struct manifest ix = make(3);
	unsigned n_accepted = 0, n_refused = 0;

	for (size_t i = CHECKED_FROM; i + 4 <= ix.block_bytes; i += 4) {
		for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
			unsigned char *forged = copy_of(&ix);
			struct manifest out;

			memcpy(forged + i, &values[v], 4);
			correct_checksum(forged, ix.block_bytes);
			if (manifest_parse(forged, ix.block_bytes, &out) < 0) {
				n_refused++;
				free(forged);
				continue;
			}
			n_accepted++;
			for (uint64_t k = 0; k < out.n_files; k++) {
				char name[256];

				manifest_name(&out, k, name, sizeof(name));
				ck_assert_ptr_null(strstr(name, ".."));
				ck_assert_int_ne(name[0], '/');
				(void)manifest_label(&out, k);
			}
			manifest_finish(&out);
		}
	}
	ck_assert_uint_gt(n_accepted, 0);
	ck_assert_uint_gt(n_refused, 0);
	manifest_finish(&ix);
}
END_TEST

START_TEST(test_names_that_lead_out_are_refused)
{
	/* Proves the checks on names themselves, with everything else right. */
	static const char *const dirs[] = { "..", "a/..", "../a", "/etc", "a//b", "" };
	static const char *const files[] = { "..", ".", "", "a/b", "/x" };

	for (size_t k = 0; k < 11; k++) {
		const char *dir = k < 6 ? dirs[k] : "ok", *file = k < 6 ? "ok" : files[k - 6];
		struct manifest_dir root = { .class_id = MANIFEST_NO_CLASS }, sub = { 0 };
		struct manifest_builder b = { 0 };
		struct manifest ix, out;

		ck_assert_int_eq(manifest_add_class(&b, "c"), 0);
		ck_assert_int_eq(manifest_add_dir(&b, ".", 1, &root), 0);
		ck_assert_int_eq(manifest_add_dir(&b, dir, strlen(dir), &sub), 0);
		ck_assert_int_eq(manifest_add_file(&b, 1, file, strlen(file)), 0);
		ck_assert_int_eq(manifest_build(&b, &ix), 0);
		ck_assert_msg(manifest_parse(ix.block, ix.block_bytes, &out) == -EINVAL, "accepted '%s' in '%s'", file,
			      dir);
		manifest_finish(&ix);
	}
}
END_TEST

/* ---- lists ---- */

static int parse_list(const char *text, bool beneath, struct manifest *ix, struct dataset_error *err)
{
	return filelist_parse(text, strlen(text), "list.txt", beneath, ix, err);
}

START_TEST(test_a_list_is_read_line_by_line)
{
	/* Proves tabs, spaces, comments, CRLF, negative and extreme labels, spaces in paths, and a last line without a
	 * newline. */
	static const char text[] =
		"# comment\n\n  \t\r\na/1.jpg\t5\r\na/2.jpg 6\nwith space/a b.jpg\t-7\n  b c.png   8  \n/abs/x.jpg\t9223372036854775807\n"
		"top.jpg\t-9223372036854775808\na/3.jpg\t\t0\n../up.jpg 3";
	static const struct {
		const char *name;
		int64_t label;
	} expected[] = {
		{ "a/1.jpg", 5 },
		{ "a/2.jpg", 6 },
		{ "with space/a b.jpg", -7 },
		{ "b c.png", 8 },
		{ "/abs/x.jpg", INT64_MAX },
		{ "top.jpg", INT64_MIN },
		{ "a/3.jpg", 0 },
		{ "../up.jpg", 3 },
	};
	struct dataset_error err;
	struct manifest ix;

	ck_assert_msg(parse_list(text, false, &ix, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(ix.n_files, sizeof(expected) / sizeof(expected[0]));
	for (uint64_t i = 0; i < ix.n_files; i++) {
		char name[64];

		manifest_name(&ix, i, name, sizeof(name));
		ck_assert_str_eq(name, expected[i].name);
		ck_assert_int_eq(manifest_label(&ix, i), expected[i].label);
	}
	ck_assert_uint_eq(ix.n_dirs, 5); /* ".", "a", "with space", "/abs", ".." */
	manifest_finish(&ix);
}
END_TEST

START_TEST(test_bad_lines_are_named_by_number)
{
	/* Proves that each mistake is refused with its line. */
	static const struct {
		const char *text, *words;
		bool beneath;
	} bad[] = {
		{ "a.jpg 1\nb.jpg\n", "list.txt:2: no label", false },
		{ "a.jpg one\n", "list.txt:1: the label", false },
		{ "a.jpg 9223372036854775808\n", "list.txt:1: the label", false },
		{ "a.jpg -9223372036854775809\n", "list.txt:1: the label", false },
		{ "a.jpg 1.5\n", "list.txt:1: the label", false },
		{ "#\n#\na.jpg\t\n", "list.txt:3: no label", false },
		{ "dir/ 1\n", "list.txt:1: the path ends in '/'", false },
		{ "a.jpg 1\n/etc/x.jpg 1\n", "list.txt:2: the path leads out", true },
		{ "../x.jpg 1\n", "list.txt:1: the path leads out", true },
		{ "a/../../x.jpg 1\n", "list.txt:1: the path leads out", true },
		{ "a/.. 1\n", "list.txt:1: the path leads out", true },
		{ "", "names no file", false },
		{ "# nothing\n", "names no file", false },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct dataset_error err;
		struct manifest ix;

		ck_assert_msg(parse_list(bad[i].text, bad[i].beneath, &ix, &err) < 0, "accepted: %s", bad[i].text);
		ck_assert_msg(strstr(err.text, bad[i].words) != NULL, "%s: %s", bad[i].text, err.text);
	}
	struct dataset_error err;
	struct manifest ix;
	ck_assert_int_eq(filelist_parse("a\0.jpg 1\n", 9, "list.txt", false, &ix, &err), -EINVAL);
	ck_assert(strstr(err.text, "zero byte"));
}
END_TEST

START_TEST(test_harmless_dots_stay_beneath)
{
	/* Proves the other side of the refusals: harmless dots are accepted, and every folder on the path is listed for
	 * checking. */
	struct dataset_error err;
	struct manifest ix;

	ck_assert_msg(parse_list("./a..b/..c/d/x.jpg 1\n...jpg 2\n", true, &ix, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(ix.n_dirs, 4); /* ".", "./a..b", "./a..b/..c", and the leaf */
	manifest_finish(&ix);
}
END_TEST

START_TEST(test_many_folders_in_any_order)
{
	/* Proves that a folder that appears again after others is found, so that each folder is stored once. */
	char *text = malloc(1 << 20), *at = text;
	struct dataset_error err;
	struct manifest ix;

	for (unsigned i = 0; i < 20000; i++) {
		at += sprintf(at, "d%u/%u.jpg\t%u\n", i * 7919u % 1000, i, i);
	}
	ck_assert_int_eq(filelist_parse(text, (size_t)(at - text), "list", false, &ix, &err), 0);
	ck_assert_uint_eq(ix.n_dirs, 1001);
	for (unsigned i = 0; i < 20000; i++) {
		char name[32], expected[32];

		manifest_name(&ix, i, name, sizeof(name));
		snprintf(expected, sizeof(expected), "d%u/%u.jpg", i * 7919u % 1000, i);
		ck_assert_str_eq(name, expected);
		ck_assert_int_eq(manifest_label(&ix, i), i);
	}
	manifest_finish(&ix);
	free(text);
}
END_TEST

START_TEST(test_names_sort_as_python_sorts_them)
{
	/* Proves the order around ASCII, invalid UTF-8 (U+DC80..U+DCFF in Python) and code points above those. */
	static const char *const sorted[] = { "",
					      "A",
					      "a",
					      "a-b",
					      "a/b",
					      "ab",
					      "\xc3\xa9",
					      "\xe4\xb8\xad",
					      "\xed\x9f\xbf",
					      "\x80",
					      "\xc3",
					      "\xed\xa0\x80",
					      "\xff",
					      "\xee\x80\x80",
					      "\xef\xbf\xae",
					      "\xf0\x9f\x98\x80" };
	enum { N = sizeof(sorted) / sizeof(sorted[0]) };

	for (int i = 0; i < N; i++) {
		for (int k = 0; k < N; k++) {
			int c = name_compare(sorted[i], sorted[k]);

			ck_assert_msg((c < 0) == (i < k) && (c > 0) == (i > k), "%d against %d: %d", i, k, c);
		}
	}
}
END_TEST

SUITE(manifest)
{
	Suite *s = suite_create("index");
	TCase *tc = tcase_create("index");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_an_index_holds_what_was_put_in);
	tcase_add_test(tc, test_a_million_files_take_about_thirty_megabytes);
	tcase_add_test(tc, test_a_saved_index_is_loaded_as_it_was);
	tcase_add_test(tc, test_an_index_that_cannot_be_saved_leaves_nothing);
	tcase_add_test(tc, test_every_damaged_byte_is_noticed);
	tcase_add_test(tc, test_a_forged_index_stays_inside_its_folder);
	tcase_add_test(tc, test_names_that_lead_out_are_refused);
	tcase_add_test(tc, test_a_list_is_read_line_by_line);
	tcase_add_test(tc, test_bad_lines_are_named_by_number);
	tcase_add_test(tc, test_harmless_dots_stay_beneath);
	tcase_add_test(tc, test_many_folders_in_any_order);
	tcase_add_test(tc, test_names_sort_as_python_sorts_them);
	suite_add_tcase(s, tc);
	return s;
}
