/* Data sets as the rest of the daemon sees them: opened by spec, read by any thread; lists of files. */
#include <pthread.h>
#include <time.h>

#include "support/datasets.h"

START_TEST(test_unknown_specs_are_refused_with_what_is_expected)
{
	/* Proves the errors of specs that name no data set. */
	static const struct {
		const char *kind, *rest, *words;
	} bad[] = {
		{ "imagenet", "/x", "expected imagefolder:DIR" },
		{ "imagefolder", "", "nothing follows the colon" },
		{ "imagefolder", "/no/such/folder", "No such file" },
		{ "imagefolder", "/dev/null", "not a folder" },
		{ "files", "/no/such/list", "No such file" },
		{ "npy", "/no/such.npy", "No such file" },
		{ "npy", "/dev/zero", "not a regular file" },
		{ "random", "length=5", "shape is missing" },
		{ "random", "length=0,shape=3", "at least 1" },
		{ "random", "length=5,shape=3,shape=3", "expected it once" },
		{ "random", "length=5,shape=3x", "like 3x224x224" },
		{ "random", "length=5,shape=x3", "like 3x224x224" },
		{ "random", "length=5,shape=1x1x1x1x1x1x1x1x1", "like 3x224x224" },
		{ "random", "length=5,shape=0", "like 3x224x224" },
		{ "random", "length=5,shape=3,dtype=complex64", "expected uint8, float16" },
		{ "random", "length=5,shape=3,size=2", "unknown option 'size'" },
		{ "random", "length=5,shape=3,seed", "expected a value after '='" },
		{ "random", "length=5,shape=3,seed=18446744073709551616", "64 bits" },
		{ "random", "length=5,shape=4294967295x4294967295", "larger than 1 GiB" },
		{ "random", "length=5,shape=3,classes=1000001", "1 to 1000000" },
		{ "random", "length=-5,shape=3", "at least 1" },
		{ "random", "length=5,shape=3,", "expected a value after '='" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct dataset *ds;

		ck_assert_msg(open_as(&f.trusted, bad[i].kind, bad[i].rest, NULL, NULL, 0, &ds) < 0, "accepted %s:%s",
			      bad[i].kind, bad[i].rest);
		ck_assert_msg(strstr(f.err.text, bad[i].words) != NULL, "%s:%s: %s", bad[i].kind, bad[i].rest,
			      f.err.text);
	}
}
END_TEST

/* ---- lists ---- */

START_TEST(test_a_list_is_read_from_descriptors_or_by_path)
{
	/* Proves labels, order and bytes of a list, for trusted sources and for peers with descriptors of the list and
	 * its folder. */
	struct file_bytes b = { 0 };
	int fds[2];

	make_pets();
	put("list.txt", "pets/dog/c.png\t-5\npets/cat/a.jpg\t7\npets/cat/none.jpg\t8\n");
	fds[0] = open(in_root("list.txt"), O_RDONLY);
	fds[1] = open_dir("");
	for (int other = 0; other < 2; other++) {
		struct dataset *ds;

		ck_assert_msg(open_as(other ? &f.other : &f.trusted, "files", in_root("list.txt"), NULL,
				      other ? fds : NULL, other ? 2 : 0, &ds) == 0,
			      "%s", f.err.text);
		ck_assert_uint_eq(dataset_n(ds), 3);
		ck_assert_uint_eq(dataset_n_classes(ds), 0);
		ck_assert_int_eq(dataset_label(ds, 0), -5);
		ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), 0);
		ck_assert_int_eq(memcmp(b.data, "cat a", 5), 0);
		ck_assert_int_eq(dataset_read(ds, 2, READ_WAIT, &b, &f.err), -ENOENT);
		dataset_unref(ds);
	}
	close(fds[0]);
	close(fds[1]);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_a_list_does_not_lead_others_through_closed_folders)
{
	/* Proves that each folder on the path must let the peer pass. */
	struct dataset *ds;
	int fds[2], r;

	make_dir("a", 0700);
	make_dir("a/b", 0755);
	put("a/b/x.jpg", "x");
	put("list.txt", "a/b/x.jpg\t1\n");
	fds[0] = open(in_root("list.txt"), O_RDONLY);
	fds[1] = open_dir("");
	r = open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 2, &ds);
	ck_assert_int_eq(r, -EACCES);
	ck_assert_str_eq(f.err.text, "a: Permission denied");
	ck_assert_int_eq(chmod(in_root("a"), 0711), 0);
	ck_assert_int_eq(open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 2, &ds), 0);
	dataset_unref(ds);
	ck_assert_int_eq(open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 1, &ds), -EINVAL);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

/* ---- threads ---- */

struct crowd {
	struct dataset *files, *arrays;
};

static void *read_everything(void *arg)
{
	const struct crowd *c = arg;
	struct file_bytes b = { 0 };
	struct dataset_error err;

	for (int turn = 0; turn < 50; turn++) {
		for (uint64_t i = 0; i < 3; i++) {
			uint64_t row;
			if (dataset_read(c->files, i, turn % 2 ? READ_WAIT : READ_NOWAIT, &b, &err) == 0 &&
			    !dataset_is_current(c->files, i, READ_WAIT, &b)) {
				return "not current";
			}
			if (dataset_gather(c->arrays, &i, 1, ROWS(&row), &err) < 0 || row != 3 * i) {
				return "not gathered";
			}
		}
	}
	file_bytes_finish(&b);
	dataset_unref(c->files);
	dataset_unref(c->arrays);
	return NULL;
}

START_TEST(test_any_thread_may_read)
{
	/* Proves that folders are opened once, by whichever thread is first, and that any thread may drop a reference
	 * (checked by the thread sanitizer). */
	static const int64_t rows[3] = { 0, 3, 6 };
	struct crowd c;
	pthread_t t[4];

	make_pets();
	put_npy("x.npy", "<i8", "(3,)", rows, sizeof(rows));
	c.files = open_trusted("imagefolder", in_root("pets"));
	c.arrays = open_trusted("npy", in_root("x.npy"));
	for (int i = 0; i < 4; i++) {
		dataset_ref(c.files);
		dataset_ref(c.arrays);
		ck_assert_int_eq(pthread_create(&t[i], NULL, read_everything, &c), 0);
	}
	for (int i = 0; i < 4; i++) {
		void *what;

		pthread_join(t[i], &what);
		ck_assert_msg(!what, "%s", (char *)what);
	}
	dataset_unref(c.files);
	dataset_unref(c.arrays);
}
END_TEST

START_TEST(test_a_label_is_no_longer_than_a_class)
{
	/* Proves that a name which no client would take as that of a class is refused with its line. */
	char list[400];
	struct dataset *ds = NULL;
	int n = snprintf(list, sizeof(list), "path,label\nx.jpg,z%0254d\nx.jpg,a", 0);

	put("list.csv", list);
	dataset_unref(open_trusted("files", in_root("list.csv")));
	snprintf(list, sizeof(list), "path,label\nx.jpg,z%0255d\nx.jpg,a", 0);
	put("list.csv", list);
	ck_assert_int_eq(open_as(&f.trusted, "files", in_root("list.csv"), NULL, NULL, 0, &ds), -EINVAL);
	ck_assert_msg(strstr(f.err.text, "a label of more than 255 bytes") != NULL, "%s", f.err.text);
	ck_assert_int_lt(n, (int)sizeof(list));
}
END_TEST

/* Processor time of a list of `n_columns` columns, whose rows are all of the same length. */
static double time_of_list(unsigned n_columns)
{
	enum { N_ROWS = 200, N_CELLS = 4000 };
	FILE *list = fopen(in_root("list.csv"), "w");
	struct timespec began, ended;

	fputs("path", list);
	for (unsigned i = 1; i < n_columns; i++) {
		fputs(",x", list);
	}
	for (unsigned row = 0; row < N_ROWS; row++) {
		fputs("\nx.jpg", list);
		for (unsigned i = 1; i < N_CELLS; i++) {
			fputs(i < n_columns ? ",123456789012345" : "1234567890123456", list);
		}
	}
	fclose(list);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
	dataset_unref(open_trusted("files", in_root("list.csv")));
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
	return (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9;
}

START_TEST(test_many_columns_take_no_more_time_than_their_bytes)
{
	/* Proves that the time of a list does not grow with the square of its columns. */
	double narrow = time_of_list(2), wide = time_of_list(4000);

	ck_assert_in_time(wide < 20 * narrow + 0.05, "%.3f s for 2 columns, %.3f s for 4000", narrow, wide);
}
END_TEST

SUITE(dataset)
{
	Suite *s = suite_create("dataset");
	TCase *tc = tcase_create("dataset");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_a_label_is_no_longer_than_a_class);
	tcase_add_test(tc, test_unknown_specs_are_refused_with_what_is_expected);
	tcase_add_test(tc, test_a_list_is_read_from_descriptors_or_by_path);
	tcase_add_test(tc, test_a_list_does_not_lead_others_through_closed_folders);
	tcase_add_test(tc, test_any_thread_may_read);
	suite_add_tcase(s, tc);
	TCase *timing = suite_timing();
	tcase_add_checked_fixture(timing, set_up, tear_down);
	tcase_add_test(timing, test_many_columns_take_no_more_time_than_their_bytes);
	suite_add_tcase(s, timing);
	return s;
}
