/* Permissions of folders and files are checked when they are read, on the descriptors that are read, whatever a client
 * swapped since the data set was opened; and nothing is opened before it is known to be a regular file. */
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "support/datasets.h"

static int open_list_for_other(int root_fd, const char *list, struct dataset **out)
{
	int fds[2] = { -1, root_fd }, r;

	put("list.txt", list);
	fds[0] = open(in_root("list.txt"), O_RDONLY);
	r = open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 2, out);
	close(fds[0]);
	return r;
}

START_TEST(test_a_folder_that_appears_later_is_judged_when_it_is_read)
{
	/* Proves that a folder that was missing when the list was opened, and that the peer may not search, gives
	 * nothing, although the modes of its files let any user read them. */
	struct file_bytes b = { 0 };
	struct dataset *ds;
	int root = open_dir("");

	make_dir("secret", 0700);
	put("secret/0.jpg", "secret");
	ck_assert_msg(open_list_for_other(root, "sub/0.jpg 0\n", &ds) == 0, "%s", f.err.text);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -ENOENT);
	ck_assert_int_eq(rename(in_root("secret"), in_root("sub")), 0);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -EACCES);
	ck_assert_int_eq(dataset_is_current(ds, 0, READ_WAIT, &b), 0);
	ck_assert_int_eq(chmod(in_root("sub"), 0711), 0); /* searching is enough to read a file by its name */
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	dataset_unref(ds);
	close(root);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_a_folder_swapped_for_a_closed_one_is_judged_when_it_is_read)
{
	/* Proves the same for a folder that existed, and was allowed, when the data set was listed. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_pets();
	make_dir("secret", 0700);
	put("secret/c.png", "secret");
	ck_assert_int_eq(open_folder_for_other("pets", &ds), 0);
	ck_assert_int_eq(rename(in_root("pets/dog"), in_root("dog")), 0);
	ck_assert_int_eq(rename(in_root("secret"), in_root("pets/dog")), 0);
	ck_assert_int_eq(dataset_read(ds, 2, READ_WAIT, &b, &f.err), -EACCES);
	dataset_unref(ds);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_every_folder_on_the_way_is_judged)
{
	/* Proves that an open folder below a closed one is closed, at opening and when it is read. */
	struct file_bytes b = { 0 };
	struct dataset *ds;
	int root = open_dir("");

	make_dir("secret", 0700);
	make_dir("secret/open", 0755);
	put("secret/open/0.jpg", "secret");
	ck_assert_int_eq(open_list_for_other(root, "secret/open/0.jpg 0\n", &ds), -EACCES);
	ck_assert_int_eq(open_list_for_other(root, "sub/open/0.jpg 0\n", &ds), 0);
	ck_assert_int_eq(rename(in_root("secret"), in_root("sub")), 0);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -EACCES);
	dataset_unref(ds);
	close(root);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_folders_are_judged_where_no_descriptor_can_be_kept)
{
	/* Proves the same rule when files are opened by their whole path, because too many folders are kept already. */
	enum { FILES = 64, KEPT = FILES / 4 };
	struct rlimit before, few = { FILES, FILES };
	char list[4096] = "";
	struct file_bytes b = { 0 };
	struct dataset *ds;
	int root = open_dir("");

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	few.rlim_max = before.rlim_max;
	for (int i = 0; i < KEPT; i++) {
		char name[32];

		snprintf(name, sizeof(name), "d%d", i);
		make_dir(name, 0755);
		snprintf(name, sizeof(name), "d%d/0.jpg", i);
		put(name, "open");
		snprintf(list + strlen(list), 64, "%s 0\n", name);
	}
	strcat(list, "sub/0.jpg 0\nsub/1.jpg 0\n");
	make_dir("secret", 0700);
	put("secret/0.jpg", "secret");
	put("secret/1.jpg", "secret");
	ck_assert_msg(open_list_for_other(root, list, &ds) == 0, "%s", f.err.text);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (uint64_t i = 0; i < KEPT; i++) {
		ck_assert_int_eq(dataset_read(ds, i, READ_WAIT, &b, &f.err), 0);
	}
	ck_assert_int_eq(rename(in_root("secret"), in_root("sub")), 0);
	ck_assert_int_eq(dataset_read(ds, KEPT, READ_WAIT, &b, &f.err), -EACCES);
	ck_assert_int_eq(chmod(in_root("sub"), 0755), 0);
	ck_assert_int_eq(dataset_read(ds, KEPT, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(dataset_is_current(ds, KEPT, READ_WAIT, &b), 1);
	ck_assert_int_eq(chmod(in_root("sub"), 0700), 0); /* nothing is kept: checked again each time */
	ck_assert_int_eq(dataset_read(ds, KEPT + 1, READ_WAIT, &b, &f.err), -EACCES);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	dataset_unref(ds);
	close(root);
	file_bytes_finish(&b);
}
END_TEST

/* ---- a client's own mounts ---- */

static void send_fd(int socket, int fd)
{
	char byte = 0;
	struct iovec v = { &byte, 1 };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (sendmsg(socket, &m, 0) != 1) {
		_exit(2);
	}
}

static int receive_fd(int socket)
{
	char byte;
	struct iovec v = { &byte, 1 };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	int fd = -1;

	if (recvmsg(socket, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m)) {
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	}
	return fd;
}

/* A user with mounts that only its own processes see: sends a descriptor of the folder, and mounts root/secret at
 * root/sub and root/public at root/pub when asked to. Ends without an answer where it may not mount. */
static void be_the_other_user(int socket)
{
	char byte;
	int fd;

	if (getuid() == 0 && (setresgid(f.other.uid, f.other.uid, f.other.uid) < 0 ||
			      setresuid(f.other.uid, f.other.uid, f.other.uid) < 0)) {
		_exit(1);
	}
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) {
		_exit(1);
	}
	fd = open(f.root, O_RDONLY | O_DIRECTORY);
	send_fd(socket, fd);
	if (read(socket, &byte, 1) != 1 || mkdir(in_root("sub"), 0755) < 0 ||
	    mount(in_root("secret"), in_root("sub"), NULL, MS_BIND, NULL) < 0 || mkdir(in_root("pub"), 0755) < 0 ||
	    mount(in_root("public"), in_root("pub"), NULL, MS_BIND, NULL) < 0) {
		_exit(1);
	}
	fd = open(in_root("sub/0.jpg"), O_RDONLY);
	byte = fd >= 0;
	if (write(socket, &byte, 1) != 1 || read(socket, &byte, 1) != 0) {
		_exit(1);
	}
	_exit(0);
}

START_TEST(test_a_foreign_folder_mounted_into_ones_own_gives_nothing)
{
	/* Proves that a bind mount in the peer's own mount namespace, where the descriptor it sent leads, does not
	 * carry the daemon into a folder that the peer may not search, whether the mount existed at opening or not;
	 * that a folder which the peer may search is entered if it existed; and that such a set does not count as one
	 * on local disks. Skipped where user namespaces are forbidden. */
	struct file_bytes b = { 0 };
	struct dataset *ds;
	int sockets[2], root, status;
	char byte = 0;
	bool mounted;
	pid_t child;

	make_dir("secret", 0700);
	put("secret/0.jpg", "secret");
	make_dir("public", 0755);
	put("public/0.jpg", "public");
	ck_assert_int_eq(chmod(f.root, 0777), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	child = fork();
	if (child == 0) {
		close(sockets[0]);
		be_the_other_user(sockets[1]);
	}
	close(sockets[1]);
	root = receive_fd(sockets[0]);
	mounted = root >= 0;
	if (mounted) {
		ck_assert_msg(open_list_for_other(root, "sub/0.jpg 0\n", &ds) == 0, "%s", f.err.text);
		mounted = write(sockets[0], &byte, 1) == 1 && read(sockets[0], &byte, 1) == 1;
		if (mounted) {
			ck_assert(getuid() != 0 || !byte); /* the user itself is refused */
			ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -EXDEV);
			dataset_unref(ds);
			ck_assert_int_eq(open_list_for_other(root, "sub/0.jpg 0\n", &ds), -EACCES);
			ck_assert_int_eq(open_list_for_other(root, "public/0.jpg 0\n", &ds), 0);
			ck_assert_uint_eq(dataset_server(ds), 0);
			dataset_unref(ds);
			ck_assert_int_eq(open_list_for_other(root, "pub/0.jpg 0\n", &ds), 0);
			ck_assert_uint_ne(dataset_server(ds), 0);
			ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
		}
		dataset_unref(ds);
		close(root);
	}
	close(sockets[0]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	if (!mounted) {
		puts("skipped: no mounts in user namespaces here");
	}
	file_bytes_finish(&b);
}
END_TEST

/* ---- which files are opened at all ---- */

START_TEST(test_nothing_but_a_regular_file_is_opened)
{
	/* Proves that sockets, FIFOs and device nodes are detected before they are opened: opening these gives ENXIO.
	 * The device node has a driver that no machine has; skipped where device nodes may not be made. */
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct file_bytes b = { 0 };
	struct dataset *ds;
	int root = open_dir(""), s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool device;

	make_dir("d", 0755);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", in_root("d/socket"));
	ck_assert_int_eq(bind(s, (const struct sockaddr *)&address, sizeof(address)), 0);
	close(s);
	device = mknod(in_root("d/device"), S_IFCHR | 0644, makedev(511, 77)) == 0;
	if (!device) {
		puts("skipped: device nodes may not be made here");
	}
	ck_assert_int_eq(open_list_for_other(root, "d/socket 0\nd/device 1\n", &ds), 0);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -EINVAL);
	ck_assert_str_eq(f.err.text, "d/socket: not a regular file");
	if (device) {
		ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), -EINVAL);
	}
	dataset_unref(ds);
	ck_assert_int_eq(open_as(&f.trusted, "files", in_root("d/socket"), NULL, NULL, 0, &ds), -EINVAL);
	ck_assert_int_eq(open_as(&f.trusted, "npy", in_root("d/socket"), NULL, NULL, 0, &ds), -EINVAL);
	close(root);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_a_lease_makes_a_sample_bad_and_no_thread_spin)
{
	/* Proves that a file with a lease of another process is bad data, long before the kernel would break the lease;
	 * that a worker does not even try; and that checking whether a file is current leaves leases alone. */
	struct file_bytes b = { 0 };
	struct dataset *ds[2];
	int root = open_dir("");

	signal(SIGIO, SIG_IGN);
	make_dir("d", 0755);
	put("d/0.jpg", "leased");
	ck_assert_int_eq(open_list_for_other(root, "d/0.jpg 0\n", &ds[0]), 0);
	ds[1] = open_trusted("files", in_root("list.txt"));
	for (int i = 0; i < 2; i++) {
		int lessee, r;

		ck_assert_int_eq(dataset_read(ds[i], 0, READ_WAIT, &b, &f.err), 0);
		lessee = open(in_root("d/0.jpg"), O_RDWR);
		ck_assert_int_eq(fcntl(lessee, F_SETLEASE, F_WRLCK), 0);
		ck_assert_int_eq(dataset_is_current(ds[i], 0, READ_WAIT, &b), 1);
		ck_assert_int_eq(fcntl(lessee, F_GETLEASE), F_WRLCK);
		ck_assert_int_eq(dataset_read(ds[i], 0, READ_NOWAIT, &b, &f.err), -EAGAIN);
		r = dataset_read(ds[i], 0, READ_WAIT, &b, &f.err);
		ck_assert_int_eq(r, -EBUSY);
		ck_assert_msg(strstr(f.err.text, "d/0.jpg: another process holds a lease") != NULL, "%s", f.err.text);
		ck_assert_int_eq(f.err.code, DATASET_E_BAD_DATA);
		close(lessee);
		ck_assert_int_eq(dataset_read(ds[i], 0, READ_WAIT, &b, &f.err), 0);
		dataset_unref(ds[i]);
	}
	close(root);
	file_bytes_finish(&b);
}
END_TEST

SUITE(folders)
{
	Suite *s = suite_create("folders");
	TCase *tc = tcase_create("folders");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_a_folder_that_appears_later_is_judged_when_it_is_read);
	tcase_add_test(tc, test_a_folder_swapped_for_a_closed_one_is_judged_when_it_is_read);
	tcase_add_test(tc, test_every_folder_on_the_way_is_judged);
	tcase_add_test(tc, test_folders_are_judged_where_no_descriptor_can_be_kept);
	tcase_add_test(tc, test_a_foreign_folder_mounted_into_ones_own_gives_nothing);
	tcase_add_test(tc, test_nothing_but_a_regular_file_is_opened);
	tcase_add_test(tc, test_a_lease_makes_a_sample_bad_and_no_thread_spin);
	suite_add_tcase(s, tc);
	return s;
}
