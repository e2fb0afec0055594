/* Creating the socket: alone, beside other daemons, and where old files are left. */
#include "server/ipc/listen.h"
#include "support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];
static char path[sizeof folder + 24], lock[sizeof path + 8];
static struct listen_error err;

static void folder_make(void)
{
	strcpy(folder, "/tmp/batchd-test-listen-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/run/socket", folder);
	snprintf(lock, sizeof lock, "%s.lock", path);
	err.text[0] = '\0';
}

static void folder_remove(void)
{
	char dir[sizeof path];

	snprintf(dir, sizeof dir, "%s/run", folder);
	unlink(path);
	unlink(lock);
	if (rmdir(dir) < 0)
		unlink(dir);
	rmdir(folder);
}

static void make_run(mode_t mode)
{
	char dir[sizeof path];

	snprintf(dir, sizeof dir, "%s/run", folder);
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	ck_assert_int_eq(chmod(dir, mode), 0);
}

static struct sockaddr_un address(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	memcpy(sa.sun_path, path, strlen(path));
	return sa;
}

static bool can_connect(void)
{
	struct sockaddr_un sa = address();
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool ok = connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0;

	close(fd);
	return ok;
}

static bool exists(const char *name)
{
	struct stat st;

	return lstat(name, &st) == 0;
}

/* The first free descriptor: the same again when nothing leaked. */
static int next_fd(void)
{
	int fd = dup(STDIN_FILENO);

	close(fd);
	return fd;
}

static void expect_refused(int error, const char *because)
{
	struct listener l;
	int fd = next_fd();

	ck_assert_int_eq(listener_open(&l, path, 0600, (gid_t)-1, &err), -error);
	ck_assert_msg(strstr(err.text, because) != NULL, "expected '%s' in: %s", because, err.text);
	ck_assert_int_eq(l.fd, -1);
	ck_assert_int_eq(next_fd(), fd);
}

START_TEST(test_a_listener_serves_and_leaves_nothing_behind)
{
	/* Proves directory, modes, group, flags and type of the socket, and that closing removes everything that
	 * opening made. */
	struct listener l;
	struct stat st;
	int type, fd = next_fd();
	socklen_t size = sizeof type;

	ck_assert_msg(listener_open(&l, path, 0660, getegid(), &err) == 0, "%s", err.text);
	ck_assert(can_connect());
	ck_assert_int_eq(lstat(path, &st), 0);
	ck_assert(S_ISSOCK(st.st_mode));
	ck_assert_uint_eq(st.st_mode & 07777, 0660);
	ck_assert_uint_eq(st.st_gid, getegid());
	ck_assert_int_eq(lstat(lock, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(getsockopt(l.fd, SOL_SOCKET, SO_TYPE, &type, &size), 0);
	ck_assert_int_eq(type, SOCK_SEQPACKET);
	ck_assert(fcntl(l.fd, F_GETFL) & O_NONBLOCK);
	ck_assert(fcntl(l.fd, F_GETFD) & FD_CLOEXEC);
	ck_assert(fcntl(l.lock_fd, F_GETFD) & FD_CLOEXEC);
	listener_close(&l);
	listener_close(&l); /* twice is harmless */
	ck_assert_int_eq(next_fd(), fd);
	ck_assert_int_eq(rmdir(folder), 0); /* so it was empty */
	folder_make();
}
END_TEST

START_TEST(test_mode_is_what_was_asked_whatever_the_umask)
{
	/* Proves that the process's umask neither widens nor narrows the socket, and survives. */
	static const mode_t umasks[] = { 0, 0777, 022 };
	struct listener l;
	struct stat st;

	for (size_t i = 0; i < sizeof umasks / sizeof *umasks; i++) {
		make_run(0700);
		umask(umasks[i]);
		ck_assert_msg(listener_open(&l, path, 0666, (gid_t)-1, &err) == 0, "%s", err.text);
		ck_assert_int_eq(lstat(path, &st), 0);
		ck_assert_uint_eq(st.st_mode & 07777, 0666);
		ck_assert_uint_eq(umask(022), umasks[i]);
		listener_close(&l);
		folder_remove();
		folder_make();
	}
}
END_TEST

START_TEST(test_a_second_daemon_is_refused_and_disturbs_nothing)
{
	/* Proves the lock: the newcomer gets an error, the first continues to serve, and its files stay. */
	struct listener first, third;

	ck_assert_int_eq(listener_open(&first, path, 0600, (gid_t)-1, &err), 0);
	expect_refused(EADDRINUSE, "another batchd is running there");
	ck_assert(can_connect());
	ck_assert(exists(lock));
	listener_close(&first);
	ck_assert_int_eq(listener_open(&third, path, 0600, (gid_t)-1, &err), 0);
	listener_close(&third);
}
END_TEST

START_TEST(test_a_killed_daemons_socket_is_taken_over)
{
	/* Proves that socket and lock of a process that died without cleaning up do not block a new daemon. */
	struct listener l;
	int status;
	pid_t child = fork();

	if (child == 0) {
		if (listener_open(&l, path, 0600, (gid_t)-1, &err) == 0)
			raise(SIGKILL);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	ck_assert(exists(path));
	ck_assert(!can_connect());
	ck_assert_msg(listener_open(&l, path, 0600, (gid_t)-1, &err) == 0, "%s", err.text);
	ck_assert(can_connect());
	listener_close(&l);
}
END_TEST

START_TEST(test_another_programs_live_socket_is_left_alone)
{
	/* Proves that a listener that takes no lock, like systemd's, is neither removed nor replaced, whatever its
	 * type. */
	static const int types[] = { SOCK_SEQPACKET, SOCK_STREAM, SOCK_DGRAM };
	struct sockaddr_un sa = address();

	make_run(0700);
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		int fd = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);

		ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
		if (types[i] != SOCK_DGRAM)
			ck_assert_int_eq(listen(fd, 1), 0);
		expect_refused(EADDRINUSE, "something else serves there");
		ck_assert(exists(path));
		ck_assert(!exists(lock));
		close(fd);
		unlink(path);
	}
}
END_TEST

START_TEST(test_symbolic_links_are_not_followed)
{
	/* Proves it for the socket, for the lock and for the directory; their targets are untouched. */
	char target[sizeof path], dir[sizeof path];

	snprintf(target, sizeof target, "%s/target", folder);
	snprintf(dir, sizeof dir, "%s/run", folder);
	make_run(0700);
	ck_assert_int_eq(symlink(target, path), 0);
	expect_refused(ELOOP, "is a symbolic link");
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink(target, lock), 0);
	expect_refused(ELOOP, "socket.lock: is a symbolic link");
	ck_assert(!exists(target));
	ck_assert_int_eq(unlink(lock), 0);
	ck_assert_int_eq(rmdir(dir), 0);
	ck_assert_int_eq(mkdir(target, 0700), 0);
	ck_assert_int_eq(symlink(target, dir), 0);
	expect_refused(ENOTDIR, "symbolic link");
	ck_assert_int_eq(rmdir(target), 0); /* so nothing was made in it */
}
END_TEST

START_TEST(test_files_in_the_way_are_named_and_kept)
{
	/* Proves that only sockets are ever removed. */
	make_run(0700);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	expect_refused(EEXIST, "is not a socket");
	ck_assert(exists(path));
	unlink(path);
	ck_assert_int_eq(mkfifo(lock, 0600), 0);
	expect_refused(EINVAL, "is not a regular file");
	ck_assert(exists(lock));
}
END_TEST

START_TEST(test_a_directory_others_may_write_to_is_refused)
{
	/* Proves both sides: group or world may not write, unless the sticky bit keeps each user's files apart as in
	 * /tmp. */
	struct listener l;
	char dir[sizeof path];

	snprintf(dir, sizeof dir, "%s/run", folder);
	make_run(0770);
	expect_refused(EPERM, "others may write to it");
	ck_assert_int_eq(chmod(dir, 0707), 0);
	expect_refused(EPERM, "others may write to it");
	ck_assert_int_eq(chmod(dir, 01777), 0);
	ck_assert_msg(listener_open(&l, path, 0600, (gid_t)-1, &err) == 0, "%s", err.text);
	listener_close(&l);
	ck_assert_int_eq(chmod(dir, 0755), 0);
	ck_assert_msg(listener_open(&l, path, 0600, (gid_t)-1, &err) == 0, "%s", err.text);
	listener_close(&l);
}
END_TEST

START_TEST(test_a_directory_of_another_user_is_refused)
{
	/* Proves that no other user can prepare a directory in advance and wait there; needs root to make one. */
	char dir[sizeof path];

	snprintf(dir, sizeof dir, "%s/run", folder);
	make_run(0755);
	if (geteuid() != 0) {
		puts("skipped: needs root to give a directory away");
		return;
	}
	ck_assert_int_eq(chown(dir, 12345, (gid_t)-1), 0);
	expect_refused(EPERM, "belongs to user 12345");
}
END_TEST

START_TEST(test_paths_that_cannot_be_a_sockets_are_refused)
{
	/* Proves the length limit from both sides, and that a path must be absolute and its directory's parent exist.
	 */
	struct listener l;
	char longer[256];
	int n = snprintf(longer, sizeof longer, "%s/", folder);

	memset(longer + n, 'x', sizeof longer - (size_t)n);
	longer[ADDRESS_MAX_BYTES - 1] = '\0';
	ck_assert_msg(listener_open(&l, longer, 0600, (gid_t)-1, &err) == 0, "%s", err.text);
	listener_close(&l);
	longer[ADDRESS_MAX_BYTES - 1] = 'x';
	longer[ADDRESS_MAX_BYTES] = '\0';
	ck_assert_int_eq(listener_open(&l, longer, 0600, (gid_t)-1, &err), -ENAMETOOLONG);
	ck_assert_ptr_nonnull(strstr(err.text, "at most 107 bytes"));
	ck_assert_int_eq(listener_open(&l, "relative", 0600, (gid_t)-1, &err), -EINVAL);
	snprintf(path, sizeof path, "%s/no/run/s", folder);
	expect_refused(ENOENT, "cannot make the socket's directory");
}
END_TEST

START_TEST(test_closing_removes_only_our_own_socket)
{
	/* Proves that a socket that replaced ours is not removed when ours closes. */
	struct sockaddr_un sa = address();
	struct listener l;

	ck_assert_int_eq(listener_open(&l, path, 0600, (gid_t)-1, &err), 0);
	ck_assert_int_eq(unlink(path), 0);

	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	listener_close(&l);
	ck_assert(can_connect());
	close(fd);
}
END_TEST

enum { N_RACERS = 12 };

START_TEST(test_of_many_that_start_at_once_one_serves_at_a_time)
{
	/* Proves the lock under races with daemons that end: the process that opens the path holds it alone, checked
	 * with a file made exclusively. */
	char token[sizeof path];
	pid_t racers[N_RACERS];
	int served = 0;

	snprintf(token, sizeof token, "%s/token", folder);
	for (int i = 0; i < N_RACERS; i++) {
		racers[i] = fork();
		if (racers[i] == 0) {
			struct listener l;
			int n = 0;

			for (int round = 0; round < 100; round++) {
				int r = listener_open(&l, path, 0600, (gid_t)-1, &err);

				if (r < 0 && r != -EADDRINUSE)
					_exit(2);
				if (r < 0)
					continue;
				if (open(token, O_CREAT | O_EXCL | O_CLOEXEC, 0600) < 0)
					_exit(3); /* another process serves too */
				if (!can_connect() || unlink(token) < 0)
					_exit(4);
				listener_close(&l);
				n = 1;
			}
			_exit(n);
		}
	}
	for (int i = 0; i < N_RACERS; i++) {
		int status;

		ck_assert_int_eq(waitpid(racers[i], &status, 0), racers[i]);
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) <= 1, "a racer ended with status %d",
			      WEXITSTATUS(status));
		served += WEXITSTATUS(status);
	}
	ck_assert_int_ge(served, 1);
	ck_assert(!exists(path));
}
END_TEST

/* ---- sockets from systemd; in a process of its own, since they must be descriptor 3 ---- */

/* What listener_adopt returns for descriptor 3 of this kind, plus 100. */
static int adopt_in_child(int type, bool listening, const char *n_fds)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct sockaddr_un sa = address();
		struct listener l;
		char pid[32];
		int fd = socket(AF_UNIX, type, 0);

		if (bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 || (listening && listen(fd, 1) < 0) ||
		    dup2(fd, 3) < 0)
			_exit(99);
		if (fd != 3)
			dup2(fd, 4);
		snprintf(pid, sizeof pid, "%d", getpid());
		setenv("LISTEN_PID", pid, 1);
		setenv("LISTEN_FDS", n_fds, 1);

		int r = listener_adopt(&l, &err);

		if (r == 1 && (l.fd != 3 || strcmp(l.path, path) != 0))
			_exit(95);
		if (r == 1 && (!(fcntl(3, F_GETFL) & O_NONBLOCK) || !(fcntl(3, F_GETFD) & FD_CLOEXEC)))
			_exit(98);
		if (r == -EINVAL && !strstr(err.text, "service manager"))
			_exit(97);
		listener_close(&l);
		if (r == 1 && !exists(path))
			_exit(96);
		_exit(100 + r);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	unlink(path);
	return WEXITSTATUS(status) - 100;
}

START_TEST(test_systemds_socket_is_taken_over_and_left_in_place)
{
	/* Proves that exactly one listening seqpacket socket is accepted, made non-blocking, and not removed at the
	 * end. */
	make_run(0700);
	ck_assert_int_eq(adopt_in_child(SOCK_SEQPACKET, true, "1"), 1);
	ck_assert_int_eq(adopt_in_child(SOCK_SEQPACKET, true, "0"), 0);
	ck_assert_int_eq(adopt_in_child(SOCK_SEQPACKET, true, "2"), -EINVAL);
	ck_assert_int_eq(adopt_in_child(SOCK_SEQPACKET, false, "1"), -EINVAL);
	ck_assert_int_eq(adopt_in_child(SOCK_STREAM, true, "1"), -EINVAL);
	ck_assert_int_eq(adopt_in_child(SOCK_DGRAM, false, "1"), -EINVAL);
}
END_TEST

/* ---- the rule for the place ---- */

START_TEST(test_address_rule)
{
	/* Proves where a user's daemon listens and in which order clients look. Root is a user like any other. */
	char a[ADDRESS_MAX_BYTES], want[ADDRESS_MAX_BYTES], longer[ADDRESS_MAX_BYTES + 1];

	unsetenv(ADDRESS_VARIABLE);
	if (getuid() == 0 && _i == 1)
		ck_assert_int_eq(seteuid(12345), 0);
	setenv("XDG_RUNTIME_DIR", "/run/user/none", 1);
	ck_assert_int_eq(address_own(a), 0);
	ck_assert_str_eq(a, "/run/user/none/batchd/socket");
	setenv("XDG_RUNTIME_DIR", "run", 1); /* relative */
	snprintf(want, sizeof want, "/tmp/batchd-%u/socket", (unsigned)geteuid());
	ck_assert_int_eq(address_own(a), 0);
	ck_assert_str_eq(a, want);
	unsetenv("XDG_RUNTIME_DIR");
	ck_assert_int_eq(address_own(a), 0);
	ck_assert_str_eq(a, want);
	ck_assert_int_eq(address_candidate(0, a), 0);
	ck_assert_str_eq(a, want);
	ck_assert_int_eq(address_candidate(1, a), 0);
	ck_assert_str_eq(a, ADDRESS_SYSTEM);
	ck_assert_int_eq(address_candidate(2, a), -ENOENT);
	if (getuid() == 0)
		ck_assert_int_eq(seteuid(0), 0);
	setenv(ADDRESS_VARIABLE, "/x/y", 1);
	ck_assert_int_eq(address_candidate(0, a), 0);
	ck_assert_str_eq(a, "/x/y");
	ck_assert_int_eq(address_candidate(1, a), -ENOENT);
	memset(longer, 'x', ADDRESS_MAX_BYTES);
	longer[ADDRESS_MAX_BYTES] = '\0';
	setenv(ADDRESS_VARIABLE, longer, 1);
	ck_assert_int_eq(address_candidate(0, a), -ENAMETOOLONG);
}
END_TEST

START_TEST(test_a_runtime_directory_of_another_user_is_not_used)
{
	/* Proves that root with a user's environment (sudo -E) does not make a directory in the user's folder. Only
	 * root can make such a directory. */
	char a[ADDRESS_MAX_BYTES], want[ADDRESS_MAX_BYTES];

	unsetenv(ADDRESS_VARIABLE);
	setenv("XDG_RUNTIME_DIR", folder, 1);
	snprintf(want, sizeof want, "%s/batchd/socket", folder);
	ck_assert_int_eq(address_own(a), 0);
	ck_assert_str_eq(a, want);
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(chown(folder, 12345, 0), 0);
	ck_assert_int_eq(address_own(a), 0);
	ck_assert_str_eq(a, "/tmp/batchd-0/socket");
	ck_assert_int_eq(chown(folder, 0, 0), 0);
}
END_TEST

START_TEST(test_address_check_trusts_only_private_directories)
{
	/* Proves where a client may connect to: not to a socket that another user could have put there. */
	char dir[sizeof path];

	snprintf(dir, sizeof dir, "%s/run", folder);
	ck_assert_int_eq(address_check(path), -ENOENT);
	make_run(0700);
	ck_assert_int_eq(address_check(path), 0);
	ck_assert_int_eq(chmod(dir, 0755), 0);
	ck_assert_int_eq(address_check(path), 0);
	ck_assert_int_eq(chmod(dir, 0775), 0);
	ck_assert_int_eq(address_check(path), -EPERM);
	ck_assert_int_eq(chmod(dir, 01777), 0);
	ck_assert_int_eq(address_check(path), -EPERM);
	ck_assert_int_eq(rmdir(dir), 0);
	ck_assert_int_eq(symlink(folder, dir), 0);
	ck_assert_int_eq(address_check(path), -EPERM);
	ck_assert_int_eq(address_check("socket"), -EPERM);
	ck_assert_int_eq(address_check("/socket"), 0); /* the root directory is root's */
}
END_TEST

SUITE(listen)
{
	Suite *suite = suite_create("listen");
	TCase *tc = tcase_create("listen");

	tcase_add_checked_fixture(tc, folder_make, folder_remove);
	tcase_add_test(tc, test_a_listener_serves_and_leaves_nothing_behind);
	tcase_add_test(tc, test_mode_is_what_was_asked_whatever_the_umask);
	tcase_add_test(tc, test_a_second_daemon_is_refused_and_disturbs_nothing);
	tcase_add_test(tc, test_a_killed_daemons_socket_is_taken_over);
	tcase_add_test(tc, test_another_programs_live_socket_is_left_alone);
	tcase_add_test(tc, test_symbolic_links_are_not_followed);
	tcase_add_test(tc, test_files_in_the_way_are_named_and_kept);
	tcase_add_test(tc, test_a_directory_others_may_write_to_is_refused);
	tcase_add_test(tc, test_a_directory_of_another_user_is_refused);
	tcase_add_test(tc, test_paths_that_cannot_be_a_sockets_are_refused);
	tcase_add_test(tc, test_closing_removes_only_our_own_socket);
	tcase_add_test(tc, test_of_many_that_start_at_once_one_serves_at_a_time);
	tcase_add_test(tc, test_systemds_socket_is_taken_over_and_left_in_place);
	tcase_add_loop_test(tc, test_address_rule, 0, 2);
	tcase_add_test(tc, test_a_runtime_directory_of_another_user_is_not_used);
	tcase_add_test(tc, test_address_check_trusts_only_private_directories);
	suite_add_tcase(suite, tc);

	return suite;
}
