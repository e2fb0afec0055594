/* Image folders: numbered, read, listed again when they change, found again when they are replaced. */
#include <sched.h>
#include <sys/mount.h>
#include <time.h>

#include "support/datasets.h"

START_TEST(test_an_image_folder_is_numbered_and_read)
{
	/* Proves classes, labels, names and bytes, and the zero bytes after them. */
	struct file_bytes b = { 0 };
	struct dataset *ds;
	char name[64];

	make_pets();
	ds = open_trusted("imagefolder", in_root("pets/"));
	ck_assert(dataset_is_image(ds));
	ck_assert_uint_eq(dataset_n(ds), 3);
	ck_assert_uint_eq(dataset_n_classes(ds), 2);
	ck_assert_str_eq(dataset_class(ds, 1), "dog");
	ck_assert_ptr_null(dataset_class(ds, 2));
	dataset_name(ds, 1, name, sizeof(name));
	ck_assert_str_eq(name, "cat/b.JPEG");
	ck_assert_int_eq(dataset_label(ds, 2), 1);
	for (int turn = 0; turn < 3; turn++) {
		ck_assert_int_eq(dataset_read(ds, 2, READ_WAIT, &b, &f.err), 0);
		ck_assert_uint_eq(b.n_bytes, 5);
		ck_assert_int_eq(memcmp(b.data, "dog c", 5), 0);
		for (int i = 0; i < 64; i++) {
			ck_assert_uint_eq(b.data[5 + i], 0);
		}
	}
	ck_assert_int_eq(dataset_read(ds, 3, READ_WAIT, &b, &f.err), -ERANGE);
	file_bytes_finish(&b);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_reading_without_waiting_gives_the_same_or_asks_for_more)
{
	/* Proves that READ_NOWAIT either reads the whole file or returns -EAGAIN, and that a file that was just read is
	 * usually in memory. */
	struct file_bytes b = { 0 };
	struct dataset *ds;
	int r;

	make_pets();
	ds = open_trusted("imagefolder", in_root("pets"));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	r = dataset_read(ds, 0, READ_NOWAIT, &b, &f.err);
	ck_assert(r == 0 || r == -EAGAIN);
	ck_assert(r || (b.n_bytes == 5 && !memcmp(b.data, "cat a", 5)));
	file_bytes_finish(&b);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_a_changed_file_is_not_current)
{
	/* Proves that rewriting, replacing and removing a file are all detected. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_pets();
	ds = open_trusted("imagefolder", in_root("pets"));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert(dataset_is_current(ds, 0, READ_WAIT, &b));
	ck_assert(!dataset_is_current(ds, 1, READ_WAIT, &b));
	put("pets/cat/a.jpg", "longer than before");
	ck_assert(!dataset_is_current(ds, 0, READ_WAIT, &b));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_uint_eq(b.n_bytes, 18);
	put("pets/new", "longer than before");
	ck_assert_int_eq(rename(in_root("pets/new"), in_root("pets/cat/a.jpg")), 0);
	ck_assert(!dataset_is_current(ds, 0, READ_WAIT, &b));
	ck_assert_int_eq(unlink(in_root("pets/cat/a.jpg")), 0);
	ck_assert(!dataset_is_current(ds, 0, READ_WAIT, &b));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -ENOENT);
	ck_assert_str_eq(f.err.text, "cat/a.jpg: No such file or directory");
	ck_assert_int_eq(f.err.code, DATASET_E_NOT_FOUND);
	file_bytes_finish(&b);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_a_folder_replaced_while_open_is_found_again)
{
	/* Proves that keeping a folder's descriptor does not tie the set to a folder that was removed. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_pets();
	ds = open_trusted("imagefolder", in_root("pets"));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(rename(in_root("pets/cat"), in_root("old")), 0);
	ck_assert_int_eq(unlink(in_root("old/a.jpg")), 0);
	make_dir("pets/cat", 0755);
	put("pets/cat/a.jpg", "new a");
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(memcmp(b.data, "new a", 5), 0);
	file_bytes_finish(&b);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_odd_files_are_refused_without_waiting)
{
	/* Proves that FIFOs, folders named like images and files beyond the limit are errors that name the file, at
	 * once. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_dir("odd", 0755);
	make_dir("odd/c", 0755);
	ck_assert_int_eq(mkfifo(in_root("odd/c/1.jpg"), 0644), 0);
	put("odd/c/2.jpg", "");
	ck_assert_int_eq(truncate(in_root("odd/c/2.jpg"), (256 << 20) + 1), 0);
	put("odd/c/3.jpg", "");
	ds = open_trusted("imagefolder", in_root("odd"));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -EINVAL);
	ck_assert_str_eq(f.err.text, "c/1.jpg: not a regular file");
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), -EFBIG);
	ck_assert_str_eq(f.err.text, "c/2.jpg: larger than 256 MiB");
	ck_assert_int_eq(dataset_read(ds, 2, READ_WAIT, &b, &f.err), 0);
	ck_assert_uint_eq(b.n_bytes, 0);
	file_bytes_finish(&b);
	dataset_unref(ds);
}
END_TEST

/* The one file in root/cache. */
static const char *kept_file(void)
{
	static char path[512];
	DIR *d = opendir(in_root("cache"));
	unsigned n = 0;

	for (struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/cache/%s", f.root, e->d_name);
			n++;
		}
	}
	closedir(d);
	ck_assert_uint_eq(n, 1);
	return path;
}

START_TEST(test_the_index_is_used_again_until_something_changes)
{
	/* Proves reuse, and that every change of names in any folder is detected. */
	make_pets();
	make_dir("cache", 0755);
	settle();
	ck_assert(lists_again(3));
	ck_assert(!lists_again(3));
	put("pets/cat/z.jpg", "z");
	settle();
	ck_assert(lists_again(4));
	ck_assert(!lists_again(4));
	ck_assert_int_eq(rename(in_root("pets/cat/z.jpg"), in_root("pets/dog/z.jpg")), 0);
	settle();
	ck_assert(lists_again(4));
	make_dir("pets/ant", 0755);
	put("pets/ant/x.webp", "x");
	settle();
	ck_assert(lists_again(5));
	ck_assert(!lists_again(5));
	put("pets/cat/a.jpg", "other bytes do not matter");
	ck_assert(!lists_again(5));
}
END_TEST

START_TEST(test_a_folder_changed_this_moment_is_not_trusted)
{
	/* Proves that an index is not kept while a change with the same time stamp could still come. */
	make_pets();
	make_dir("cache", 0755);
	put("pets/cat/now.jpg", "x");
	ck_assert(lists_again(4));
	ck_assert(lists_again(4));
}
END_TEST

static void stamp_whole_seconds(const char *name)
{
	struct stat st;
	struct timespec times[2] = { 0 };

	ck_assert_int_eq(stat(in_root(name), &st), 0);
	times[0].tv_sec = times[1].tv_sec = st.st_mtim.tv_sec;
	ck_assert_int_eq(utimensat(AT_FDCWD, in_root(name), times, 0), 0);
}

START_TEST(test_whole_seconds_are_not_trusted_for_two_of_them)
{
	/* Proves that an index is not kept within two seconds of a change where time stamps are whole seconds: a file
	 * added in the same second would never be seen. */
	struct timespec began, ended;
	uint64_t n = 0;
	bool again, slow;

	make_pets();
	make_dir("cache", 0755);
	do { /* a slower machine proves nothing */
		char name[32];

		snprintf(name, sizeof(name), "pets/%llu", (unsigned long long)++n);
		make_dir(name, 0755); /* changes the root */
		ck_assert_int_eq(rmdir(in_root(name)), 0);
		stamp_whole_seconds("pets");
		clock_gettime(CLOCK_REALTIME, &began);
		settle();
		again = lists_again(3) && lists_again(3);
		clock_gettime(CLOCK_REALTIME, &ended);
		slow = ended.tv_sec - began.tv_sec > 1;
	} while (slow && n < 20);
	if (slow)
		puts("skipped: a folder takes seconds to list here");
	else
		ck_assert(again);
}
END_TEST

START_TEST(test_a_file_added_in_the_second_of_the_listing_is_seen)
{
	/* Proves it on a file system that has whole seconds only. Skipped where no such file system may be mounted. */
	char command[512];
	struct stat before, after;
	uint64_t n = 1;

	snprintf(command, sizeof(command),
		 "cd %s && truncate -s 2M disk && mkfs.ext4 -q -F -I 128 -N 64 disk 2>/dev/null && mkdir pets cache && "
		 "mount -o loop disk pets 2>/dev/null && mkdir pets/cat",
		 f.root);
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    system(command) != 0) {
		puts("skipped: no file system with coarse time stamps may be mounted here");
		return;
	}
	ck_assert_int_eq(rmdir(in_root("pets/lost+found")), 0);
	put("pets/cat/1.jpg", "x");
	do {
		char name[32];

		settle();
		lists_again(n);
		ck_assert_int_eq(stat(in_root("pets/cat"), &before), 0);
		snprintf(name, sizeof(name), "pets/cat/%llu.jpg", (unsigned long long)++n);
		put(name, "x");
		ck_assert_int_eq(stat(in_root("pets/cat"), &after), 0);
		lists_again(n); /* checks how many there are */
	} while (before.st_ctim.tv_sec != after.st_ctim.tv_sec && n < 20);
	ck_assert_int_eq(umount2(in_root("pets"), MNT_DETACH), 0);
}
END_TEST

START_TEST(test_a_damaged_index_is_made_again)
{
	/* Proves that an index that is cut, empty, foreign or has a flipped byte is rebuilt without an error. */
	make_pets();
	make_dir("cache", 0755);
	settle();
	ck_assert(lists_again(3));
	for (int damage = 0; damage < 4; damage++) {
		const char *path = kept_file();
		struct stat st;
		int fd = open(path, O_RDWR);

		ck_assert_int_eq(fstat(fd, &st), 0);
		if (damage == 0) {
			ck_assert_int_eq(ftruncate(fd, st.st_size / 2), 0);
		} else if (damage == 1) {
			ck_assert_int_eq(pwrite(fd, "\xff", 1, st.st_size - 3), 1);
		} else if (damage == 2) {
			ck_assert_int_eq(ftruncate(fd, 0), 0);
		} else {
			ck_assert_int_eq(pwrite(fd, "GIF89a, honestly", 16, 0), 16);
		}
		close(fd);
		ck_assert(lists_again(3));
		ck_assert(!lists_again(3));
	}
}
END_TEST

START_TEST(test_no_place_for_the_index_is_no_error)
{
	/* Proves that a cache folder that is missing or full only costs the listing. */
	make_pets();
	settle();
	ck_assert(lists_again(3));
	put("cache", "a file where the folder should be");
	ck_assert(lists_again(3));
}
END_TEST

START_TEST(test_the_id_says_what_the_samples_are)
{
	/* Proves that the id is the same for the same samples, listed or from the index, and changes with a name. */
	struct dataset *a, *b, *c;

	make_pets();
	make_dir("cache", 0755);
	settle();
	a = open_trusted("imagefolder", in_root("pets"));
	ck_assert(lists_again(3));
	ck_assert_int_eq(open_as(&f.trusted, "imagefolder", in_root("pets"), in_root("cache"), NULL, 0, &b), 0);
	ck_assert_int_eq(rename(in_root("pets/dog/c.png"), in_root("pets/dog/d.png")), 0);
	c = open_trusted("imagefolder", in_root("pets"));
	ck_assert_uint_eq(dataset_id(a), dataset_id(b));
	ck_assert_uint_ne(dataset_id(a), dataset_id(c));
	dataset_unref(a);
	dataset_unref(b);
	dataset_unref(c);
}
END_TEST

SUITE(imagefolder)
{
	Suite *s = suite_create("imagefolder");
	TCase *tc = tcase_create("imagefolder");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_an_image_folder_is_numbered_and_read);
	tcase_add_test(tc, test_reading_without_waiting_gives_the_same_or_asks_for_more);
	tcase_add_test(tc, test_a_changed_file_is_not_current);
	tcase_add_test(tc, test_a_folder_replaced_while_open_is_found_again);
	tcase_add_test(tc, test_odd_files_are_refused_without_waiting);
	tcase_add_test(tc, test_the_index_is_used_again_until_something_changes);
	tcase_add_test(tc, test_a_folder_changed_this_moment_is_not_trusted);
	tcase_add_test(tc, test_whole_seconds_are_not_trusted_for_two_of_them);
	tcase_add_test(tc, test_a_file_added_in_the_second_of_the_listing_is_seen);
	tcase_add_test(tc, test_a_damaged_index_is_made_again);
	tcase_add_test(tc, test_no_place_for_the_index_is_no_error);
	tcase_add_test(tc, test_the_id_says_what_the_samples_are);
	suite_add_tcase(s, tc);
	return s;
}
