/* Data sets of Arrow files: which files are read for whom, which rows are the samples, and files that change. The files
 * are those that the fuzzer begins with: nine rows, of which the odd ones have pictures and the even ones name them. */
#include "support/datasets.h"

#include <sys/mman.h>

#include "support/arrow-seeds.h"

static void put_files(void)
{
	make_dir("d", 0755);
	make_dir("p", 0755);
	take_seed("stream");
	put_bytes("d/a.arrow", bytes, n_bytes, 0644);
	for (int i = 0; i < 9; i += 2) {
		char name[32];

		snprintf(name, sizeof(name), "p/%d.jpg", i);
		put(name, name);
	}
}

/* As a file without a name, as clients send it. */
static int rows_of(const void *rows, size_t n)
{
	int fd = memfd_create("rows", MFD_CLOEXEC);

	ck_assert_int_eq(write(fd, rows, n), (ssize_t)n);
	return fd;
}

static const char fields[] = "#image=i,label=l,t=t";

/* Opens d/a.arrow on behalf of the other user. images: its descriptor, or -1; rows: likewise. */
static int open_for_other(int images, int rows, struct dataset **out)
{
	int fds[3] = { open_dir("d") }, r;
	unsigned n = 1;
	char names[600];

	snprintf(names, sizeof(names), "%s%s%s//a.arrow%s", rows >= 0 ? "rows=abc," : "",
		 images >= 0 ? "images=/p," : "", in_root("d"), fields);
	if (images >= 0) {
		fds[n++] = images;
	}
	if (rows >= 0) {
		fds[n++] = rows;
	}
	r = open_as(&f.other, "arrow", names, NULL, fds, n, out);
	close(fds[0]);
	return r;
}

static void assert_reads(struct dataset *ds, uint64_t index, const char *text)
{
	struct file_bytes b = { 0 };

	ck_assert_msg(dataset_read(ds, index, READ_WAIT, &b, &f.err) == 0, "%s", f.err.text);
	ck_assert_uint_eq(b.n_bytes, strlen(text));
	ck_assert_mem_eq(b.data, text, b.n_bytes);
	ck_assert_int_eq(dataset_is_current(ds, index, READ_WAIT, &b), 1);
	b.n_bytes++;
	ck_assert_int_eq(dataset_is_current(ds, index, READ_WAIT, &b), 0);
	file_bytes_finish(&b);
}

static void assert_unreadable(struct dataset *ds, uint64_t index, int error)
{
	struct file_bytes b = { 0 };

	ck_assert_int_eq(dataset_read(ds, index, READ_WAIT, &b, &f.err), error);
	ck_assert(f.err.text[0]);
	file_bytes_finish(&b);
}

START_TEST(test_pictures_are_read_in_place_or_below_their_folder)
{
	/* Both kinds, for another user with descriptors, with their values; no descriptor is left open. */
	struct dataset *ds = NULL;
	struct field_value v;
	int images;

	put_files();
	images = open_dir("p");
	ck_assert_msg(open_for_other(images, -1, &ds) == 0, "%s", f.err.text);
	close(images);
	ck_assert_uint_eq(dataset_n(ds), 9);
	ck_assert(dataset_is_image(ds));
	assert_reads(ds, 3,
		     "\xff\xd8"
		     "3");
	assert_reads(ds, 4, "p/4.jpg");
	ck_assert_int_eq(dataset_label(ds, 5), 1);
	dataset_value(ds, 5, 2, &v);
	ck_assert_uint_eq(v.n_bytes, 5);
	ck_assert_uint_eq(dataset_n_classes(ds), 2);
	ck_assert_str_eq(dataset_class(ds, 1), "b");
	dataset_unref(ds);
}
END_TEST

/* Of equal length, in every batch that has the path. */
static void replace_paths(const char *was, const char *is)
{
	uint8_t *at;

	while ((at = memmem(bytes, n_bytes, was, strlen(was))) != NULL) {
		memcpy(at, is, strlen(is));
	}
}

START_TEST(test_a_peer_reads_what_it_may)
{
	/* Mode bits and links count for each picture, and no path leads out of the folder of pictures. */
	struct dataset *ds = NULL;
	int images;

	put_files();
	ck_assert_int_eq(chmod(in_root("p/2.jpg"), 0600), 0);
	ck_assert_int_eq(unlink(in_root("p/4.jpg")), 0);
	put("secret", "secret");
	ck_assert_int_eq(symlink("../secret", in_root("p/4.jpg")), 0);
	replace_paths("/p/6.jpg", "/p/../se");
	replace_paths("/p/8.jpg", "/q/8.jpg");
	put_bytes("d/a.arrow", bytes, n_bytes, 0644);
	put("se", "secret");
	images = open_dir("p");
	ck_assert_msg(open_for_other(images, -1, &ds) == 0, "%s", f.err.text);
	close(images);
	assert_reads(ds, 0, "p/0.jpg");
	assert_unreadable(ds, 2, -EACCES);
	assert_unreadable(ds, 4, -ELOOP);
	assert_unreadable(ds, 6, -EACCES);
	assert_unreadable(ds, 8, -EACCES);
	ck_assert_ptr_nonnull(strstr(f.err.text, "/q/8.jpg: not below /p"));
	dataset_unref(ds);

	ck_assert_int_eq(open_for_other(-1, -1, &ds), -EACCES);
	ck_assert_ptr_nonnull(strstr(f.err.text, "name their folder: arrow:images=DIR"));
	ck_assert_int_eq(chmod(in_root("d/a.arrow"), 0600), 0);
	ck_assert_int_eq(open_for_other(-1, -1, &ds), -EACCES);
	ck_assert_ptr_nonnull(strstr(f.err.text, "a.arrow"));
	ck_assert_int_eq(open_as(&f.other, "arrow", in_root("d/a.arrow"), NULL, NULL, 0, &ds), -EACCES);
}
END_TEST

START_TEST(test_a_configured_file_names_pictures_of_its_folder_only)
{
	/* The file's writer need not be the operator, whose source says with images= where pictures lie: without it they
	 * are refused, and no path leads out of it. */
	struct dataset *ds = NULL;
	char names[600];

	put_files();
	put("se", "secret");
	replace_paths("/p/4.jpg", ".//4.jpg");
	replace_paths("/p/6.jpg", "..////se");
	put_bytes("d/a.arrow", bytes, n_bytes, 0644);
	snprintf(names, sizeof(names), "%s#image=i", in_root("d/a.arrow"));
	ck_assert_int_eq(open_as(&f.trusted, "arrow", names, NULL, NULL, 0, &ds), -EACCES);
	ck_assert_ptr_nonnull(strstr(f.err.text, "name their folder: arrow:images=DIR"));
	snprintf(names, sizeof(names), "images=%s,%s#image=i", in_root("p"), in_root("d/a.arrow"));
	ds = open_trusted("arrow", names);
	assert_reads(ds, 4, "p/4.jpg");
	assert_unreadable(ds, 6, -EACCES);
	assert_unreadable(ds, 8, -EACCES);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_rows_choose_and_order_the_samples)
{
	/* A row twice, another order; values and pictures follow, names tell the file's row, and ids differ. */
	static const uint64_t rows[] = { 7, 1, 7, 3 };
	struct dataset *ds = NULL, *whole = NULL;
	char name[64];
	int fd, images;

	put_files();
	fd = rows_of(rows, sizeof(rows));
	ck_assert_msg(open_for_other(-1, fd, &ds) == 0, "%s", f.err.text);
	images = open_dir("p");
	ck_assert_int_eq(open_for_other(images, -1, &whole), 0);
	close(images);
	ck_assert_int_eq(pwrite(fd, "\xff\xff\xff", 3, 0), 3); /* what it becomes later does not matter */
	close(fd);
	ck_assert_uint_eq(dataset_n(ds), 4);
	assert_reads(ds, 0,
		     "\xff\xd8"
		     "7");
	assert_reads(ds, 1,
		     "\xff\xd8"
		     "1");
	assert_reads(ds, 2,
		     "\xff\xd8"
		     "7");
	dataset_name(ds, 3, name, sizeof(name));
	ck_assert_str_eq(name, "a.arrow: row 3");
	ck_assert_uint_ne(dataset_content_id(ds), dataset_content_id(whole));
	ck_assert_uint_ne(dataset_cache_id(ds), dataset_cache_id(whole));
	dataset_unref(ds);
	dataset_unref(whole);
}
END_TEST

START_TEST(test_rows_that_are_not_there_are_refused)
{
	/* One row after the last, far ones, none, a broken number, no descriptor. */
	static const struct {
		uint64_t row;
		size_t n;
		const char *expected;
	} cases[] = { { 9, 8, "row 9, and the files have 9 rows" },
		      { 1 << 20, 8, "the files have 9 rows" },
		      { UINT64_MAX, 8, "more than there is memory for" },
		      { 0, 0, "no sample is chosen" },
		      { 0, 7, "numbers of 8 bytes" } };
	struct dataset *ds = NULL;

	put_files();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int fd = rows_of(&cases[i].row, cases[i].n);

		ck_assert_int_lt(open_for_other(-1, fd, &ds), 0);
		ck_assert_msg(strstr(f.err.text, cases[i].expected) != NULL, "%s", f.err.text);
		close(fd);
	}
	ck_assert_int_eq(open_as(&f.trusted, "arrow", "rows=abc,/tmp", NULL, NULL, 0, &ds), -EINVAL);
	ck_assert_ptr_nonnull(strstr(f.err.text, "descriptors"));
}
END_TEST

START_TEST(test_a_file_that_changes_is_named)
{
	/* Written in place or cut short while it is open: no bytes. Replaced by rename: read to the end as it was. */
	struct file_bytes b = { 0 };
	struct dataset *ds;
	char names[600];

	put_files();
	snprintf(names, sizeof(names), "images=/,%s#image=i", in_root("d/a.arrow"));
	ds = open_trusted("arrow", names);
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), 0);
	put_bytes("d/b.arrow", bytes, n_bytes / 2, 0644);
	ck_assert_int_eq(rename(in_root("d/b.arrow"), in_root("d/a.arrow")), 0);
	assert_reads(ds, 5,
		     "\xff\xd8"
		     "5");
	dataset_unref(ds);

	put_bytes("d/a.arrow", bytes, n_bytes, 0644);
	ds = open_trusted("arrow", names);
	ck_assert_int_eq(truncate(in_root("d/a.arrow"), 600), 0);
	ck_assert_int_eq(dataset_is_current(ds, 1, READ_WAIT, &b), 0);
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), -ESTALE);
	ck_assert_ptr_nonnull(strstr(f.err.text, "/a.arrow: cut short since it was indexed"));
	dataset_unref(ds);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_values_alone_are_gathered)
{
	/* Without the image: dense fields by gather, ragged ones by value, over two files of both forms. */
	static const uint64_t indices[] = { 16, 2, 9 };
	struct dataset *ds;
	float v[3][2];
	int64_t l[3];
	struct field_value r;

	put_files();
	take_seed("file");
	put_bytes("d/b.arrow", bytes, n_bytes, 0644);
	ds = open_trusted("arrow", in_root("d#v=v,l=l,r=r"));
	ck_assert(!dataset_is_image(ds));
	ck_assert_uint_eq(dataset_n(ds), 18);
	ck_assert_int_eq(dataset_gather(ds, indices, 3, ROWS(v, l, NULL), &f.err), 0);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t row = indices[i] % 9;

		ck_assert_float_eq(v[i][0], (float)row);
		ck_assert_float_eq(v[i][1], (float)row);
		ck_assert_int_eq(l[i], (int64_t)row % 2);
		dataset_value(ds, indices[i], 2, &r);
		ck_assert_uint_eq(r.n_bytes, 2 * row);
	}
	dataset_unref(ds);
}
END_TEST

SUITE(arrow_set)
{
	Suite *s = suite_create("arrow_set");
	TCase *tc = tcase_create("arrow_set");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_pictures_are_read_in_place_or_below_their_folder);
	tcase_add_test(tc, test_a_peer_reads_what_it_may);
	tcase_add_test(tc, test_a_configured_file_names_pictures_of_its_folder_only);
	tcase_add_test(tc, test_rows_choose_and_order_the_samples);
	tcase_add_test(tc, test_rows_that_are_not_there_are_refused);
	tcase_add_test(tc, test_a_file_that_changes_is_named);
	tcase_add_test(tc, test_values_alone_are_gathered);
	suite_add_tcase(s, tc);
	return s;
}
