/* On whose behalf files are opened: the daemon does not read for a user what that user may not read, whatever path the
 * user names or swaps meanwhile. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "support/datasets.h"

START_TEST(test_others_read_what_their_mode_bits_allow)
{
	/* Proves that owner, group and other bits are checked at every open: a file closed to the peer costs only that
	 * file, and rights are checked again each time. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_pets();
	ck_assert_int_eq(chmod(in_root("pets/cat/a.jpg"), 0600), 0);
	ck_assert_int_eq(chmod(in_root("pets/cat/b.JPEG"), 0640), 0);
	ck_assert_msg(open_folder_for_other("pets", &ds) == 0, "%s", f.err.text);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -EACCES);
	ck_assert_str_eq(f.err.text, "cat/a.jpg: Permission denied");
	ck_assert_int_eq(f.err.code, DATASET_E_ACCESS);
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), -EACCES);
	ck_assert_int_eq(dataset_read(ds, 2, READ_WAIT, &b, &f.err), 0);
	ck_assert(dataset_is_current(ds, 2, READ_WAIT, &b));
	ck_assert_int_eq(chmod(in_root("pets/dog/c.png"), 0600), 0);
	/* otherwise a cache would reveal what another user may read */
	ck_assert(!dataset_is_current(ds, 2, READ_WAIT, &b));
	ck_assert_int_eq(dataset_read(ds, 2, READ_WAIT, &b, &f.err), -EACCES);
	dataset_unref(ds);

	f.other.gids[0] = getgid();
	ck_assert_int_eq(open_folder_for_other("pets", &ds), 0);
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(chmod(in_root("pets/cat/b.JPEG"), 0604), 0); /* the group's bits decide, not those of others */
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), -EACCES);
	dataset_unref(ds);

	f.other.uid = getuid();
	ck_assert_int_eq(open_folder_for_other("pets", &ds), 0);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	dataset_unref(ds);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_others_need_every_folder)
{
	/* Proves that a folder that the peer may not list or search refuses the data set by name, even when an index
	 * was kept for another user. */
	static const mode_t modes[] = { 0700, 0744, 0711 };
	struct dataset *ds;

	make_pets();
	make_dir("cache", 0755);
	settle();
	ck_assert(lists_again(3));
	for (size_t i = 0; i < 3; i++) {
		int fd = open_dir("pets"), r;

		ck_assert_int_eq(chmod(in_root("pets/dog"), modes[i]), 0);
		r = open_as(&f.other, "imagefolder", in_root("pets"), in_root("cache"), &fd, 1, &ds);
		close(fd);
		ck_assert_int_eq(r, -EACCES);
		ck_assert_msg(strstr(f.err.text, "pets/dog: Permission denied") != NULL, "%s", f.err.text);
		ck_assert_int_eq(f.err.code, DATASET_E_ACCESS);
	}
	ck_assert_int_eq(chmod(in_root("pets/dog"), 0755), 0);
	ck_assert_int_eq(chmod(in_root("pets"), 0700), 0);
	ck_assert_int_eq(open_folder_for_other("pets", &ds), -EACCES);
}
END_TEST

START_TEST(test_others_must_send_descriptors)
{
	/* Proves that the daemon opens no path for a peer that is not trusted. */
	struct dataset *ds;

	make_pets();
	put("list", "pets/cat/a.jpg 1\n");
	ck_assert_int_eq(open_as(&f.other, "imagefolder", in_root("pets"), NULL, NULL, 0, &ds), -EACCES);
	ck_assert_msg(strstr(f.err.text, "not named in the configuration") != NULL, "%s", f.err.text);
	ck_assert_int_eq(open_as(&f.other, "files", in_root("list"), NULL, NULL, 0, &ds), -EACCES);
	ck_assert_int_eq(open_as(&f.other, "npy", in_root("list"), NULL, NULL, 0, &ds), -EACCES);
}
END_TEST

START_TEST(test_links_lead_others_nowhere)
{
	/* Proves that a link to a file is not read, a link to a folder refuses the set, and that trusted sources follow
	 * both. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_pets();
	make_dir("secret", 0755);
	put("secret/s.jpg", "secret");
	ck_assert_int_eq(symlink("../../secret/s.jpg", in_root("pets/cat/0.jpg")), 0);
	ck_assert_msg(open_folder_for_other("pets", &ds) == 0, "%s", f.err.text);
	ck_assert_uint_eq(dataset_n(ds), 4);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -ELOOP);
	ck_assert_msg(strstr(f.err.text, "cat/0.jpg: a symbolic link") != NULL, "%s", f.err.text);
	dataset_unref(ds);
	ck_assert_int_eq(symlink("../../secret", in_root("pets/dog/down")), 0);
	ck_assert_int_eq(open_folder_for_other("pets", &ds), -ELOOP);
	ck_assert_msg(strstr(f.err.text, "dog/down: a symbolic link") != NULL, "%s", f.err.text);

	ds = open_trusted("imagefolder", in_root("pets"));
	ck_assert_uint_eq(dataset_n(ds), 5);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(memcmp(b.data, "secret", 6), 0);
	dataset_unref(ds);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_a_folder_swapped_for_a_link_leads_nowhere)
{
	/* Proves that swapping a checked folder for a link afterwards gives a peer nothing. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_pets();
	make_dir("secret", 0700);
	put("secret/c.png", "secret");
	ck_assert_int_eq(open_folder_for_other("pets", &ds), 0);
	ck_assert_int_eq(rename(in_root("pets/dog"), in_root("dog")), 0);
	ck_assert_int_eq(symlink("../secret", in_root("pets/dog")), 0);
	ck_assert_int_lt(dataset_read(ds, 2, READ_WAIT, &b, &f.err), 0);
	dataset_unref(ds);
	file_bytes_finish(&b);
}
END_TEST

/* From now on this process has no openat2, as in a container whose sandbox is older than it. */
static void forbid_openat2(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
	ck_assert_int_lt(syscall(SYS_openat2, AT_FDCWD, "/", NULL, 0), 0);
}

START_TEST(test_without_openat2_the_same_rules_hold)
{
	/* Proves the older way to open: other users read the files that they may read, and no links; trusted sources
	 * read; and without waiting nothing can be read. Forks. */
	struct file_bytes b = { 0 };
	struct dataset *ds;
	int fds[2];

	forbid_openat2();
	make_pets();
	make_dir("secret", 0755);
	put("secret/s.jpg", "secret");
	ck_assert_int_eq(symlink("../../secret/s.jpg", in_root("pets/cat/0.jpg")), 0);
	ck_assert_msg(open_folder_for_other("pets", &ds) == 0, "%s", f.err.text);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -ELOOP);
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(dataset_read(ds, 1, READ_NOWAIT, &b, &f.err), -EAGAIN);
	dataset_unref(ds);
	ck_assert_int_eq(rename(in_root("pets/dog"), in_root("dog")), 0);
	ck_assert_int_eq(symlink("../secret", in_root("pets/dog")), 0);
	ck_assert_int_lt(open_folder_for_other("pets", &ds), 0);

	put("list.txt", "dog/./c.png 1\npets/dog/s.jpg 2\n");
	fds[0] = open(in_root("list.txt"), O_RDONLY);
	fds[1] = open_dir("");
	ck_assert_int_lt(open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 2, &ds), 0); /* a linked folder */
	ck_assert_int_eq(unlink(in_root("pets/dog")), 0);
	ck_assert_msg(open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 2, &ds) == 0, "%s", f.err.text);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(symlink("../secret", in_root("pets/dog")), 0);
	ck_assert_int_lt(dataset_read(ds, 1, READ_WAIT, &b, &f.err), 0);
	dataset_unref(ds);
	ds = open_trusted("files", in_root("list.txt"));
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(memcmp(b.data, "secret", 6), 0);
	dataset_unref(ds);
	close(fds[0]);
	close(fds[1]);
	file_bytes_finish(&b);
}
END_TEST

SUITE(access)
{
	Suite *s = suite_create("access");
	TCase *tc = tcase_create("access");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_others_read_what_their_mode_bits_allow);
	tcase_add_test(tc, test_others_need_every_folder);
	tcase_add_test(tc, test_others_must_send_descriptors);
	tcase_add_test(tc, test_links_lead_others_nowhere);
	tcase_add_test(tc, test_a_folder_swapped_for_a_link_leads_nowhere);
	tcase_add_test(tc, test_without_openat2_the_same_rules_hold);
	suite_add_tcase(s, tc);
	return s;
}
