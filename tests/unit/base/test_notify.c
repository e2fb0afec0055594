/* A fake service manager: the messages that it receives, the descriptors that it may pass, and behaviour without a
 * manager. */
#include "base/notify.h"
#include "support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char folder[64];
static char path[sizeof folder + 16];
static int manager = -1;

static void manager_start(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	strcpy(folder, "/tmp/batchd-test-notify-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/notify", folder);
	memcpy(sa.sun_path, path, strlen(path));
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(manager, (struct sockaddr *)&sa, sizeof sa), 0);
	setenv("NOTIFY_SOCKET", path, 1);
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

static void manager_stop(void)
{
	close(manager);
	unlink(path);
	rmdir(folder);
}

static const char *received(int fd)
{
	static char message[2048];
	ssize_t n = recv(fd, message, sizeof message - 1, MSG_DONTWAIT);

	if (n < 0)
		return "(nothing)";
	message[n] = '\0';
	return message;
}

START_TEST(test_every_call_sends_its_own_words)
{
	/* Proves the protocol, message by message, in one datagram each. */
	notify_ready("serving");
	ck_assert_str_eq(received(manager), "READY=1\nSTATUS=serving");
	notify_status("2 loaders");
	ck_assert_str_eq(received(manager), "STATUS=2 loaders");
	notify_stopping();
	ck_assert_str_eq(received(manager), "STOPPING=1");
	notify_extend(5000000);
	ck_assert_str_eq(received(manager), "EXTEND_TIMEOUT_USEC=5000000");
	notify_watchdog();
	ck_assert_str_eq(received(manager), "WATCHDOG=1");
	notify_watchdog_failed();
	ck_assert_str_eq(received(manager), "WATCHDOG=trigger");
	ck_assert_str_eq(received(manager), "(nothing)");
}
END_TEST

START_TEST(test_reloading_carries_the_monotonic_time)
{
	/* Proves that the time lies between two readings of the same clock: systemd ignores a reload with another
	 * time. */
	struct timespec before, after;
	unsigned long long usec;

	clock_gettime(CLOCK_MONOTONIC, &before);
	notify_reloading();
	clock_gettime(CLOCK_MONOTONIC, &after);
	ck_assert_int_eq(sscanf(received(manager), "RELOADING=1\nMONOTONIC_USEC=%llu", &usec), 1);
	ck_assert_uint_ge(usec,
			  (unsigned long long)before.tv_sec * 1000000 + (unsigned long long)before.tv_nsec / 1000);
	ck_assert_uint_le(usec, (unsigned long long)after.tv_sec * 1000000 + (unsigned long long)after.tv_nsec / 1000);
}
END_TEST

START_TEST(test_a_status_cannot_smuggle_an_assignment_and_is_cut)
{
	/* Proves that line ends in a status become blanks and that a long status is truncated to a datagram of sane
	 * size. */
	char longer[4096];
	const char *message;

	notify_status("a\nMAINPID=1");
	ck_assert_str_eq(received(manager), "STATUS=a MAINPID=1");
	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	notify_ready(longer);
	message = received(manager);
	ck_assert_uint_ge(strlen(message), 400);
	ck_assert_uint_le(strlen(message), 600);
	ck_assert_int_eq(strncmp(message, "READY=1\nSTATUS=xxx", 18), 0);
}
END_TEST

START_TEST(test_an_abstract_manager_is_reached)
{
	/* Proves the @name form, which containers use. */
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), n;
	char name[64];

	n = snprintf(name, sizeof name, "@batchd-test-notify-%d", getpid());
	memcpy(sa.sun_path + 1, name + 1, (size_t)n - 1);
	ck_assert_int_eq(
		bind(fd, (struct sockaddr *)&sa, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)), 0);
	setenv("NOTIFY_SOCKET", name, 1);
	notify_stopping();
	ck_assert_str_eq(received(fd), "STOPPING=1");
	close(fd);
}
END_TEST

START_TEST(test_without_a_manager_nothing_happens)
{
	/* Proves that no manager, a dead manager and unsupported addresses are all silent and harmless. */
	static const char *const addresses[] = { "", "vsock:2:1234", "relative/path", "/nonexistent/notify" };
	char longer[200];

	unsetenv("NOTIFY_SOCKET");
	notify_ready("x");
	for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
		setenv("NOTIFY_SOCKET", addresses[i], 1);
		notify_ready("x");
	}
	memset(longer, '/', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	setenv("NOTIFY_SOCKET", longer, 1);
	notify_ready("x");
	ck_assert_str_eq(received(manager), "(nothing)");
}
END_TEST

START_TEST(test_watchdog_interval_is_half_of_what_is_allowed)
{
	/* Proves the interval, and that a watchdog for another process, an invalid one and a missing one mean none. */
	char pid[32];

	ck_assert_uint_eq(notify_watchdog_interval_ns(), 0);
	setenv("WATCHDOG_USEC", "30000000", 1);
	ck_assert_uint_eq(notify_watchdog_interval_ns(), UINT64_C(15000000000));
	snprintf(pid, sizeof pid, "%d", getpid());
	setenv("WATCHDOG_PID", pid, 1);
	ck_assert_uint_eq(notify_watchdog_interval_ns(), UINT64_C(15000000000));
	setenv("WATCHDOG_PID", "1", 1);
	ck_assert_uint_eq(notify_watchdog_interval_ns(), 0);
	unsetenv("WATCHDOG_PID");
	setenv("WATCHDOG_USEC", "-1", 1);
	ck_assert_uint_eq(notify_watchdog_interval_ns(), 0);
	setenv("WATCHDOG_USEC", "18446744073709551615", 1);
	ck_assert_uint_eq(notify_watchdog_interval_ns(), 0);
}
END_TEST

/* Runs in a process of its own, because the protocol wants descriptor 3, which belongs to Check in this process.
 * pid_offset 0: meant for this process. Returns the result of notify_listen_fds plus 100, or 99 when the environment or
 * the close-on-exec flag is wrong. */
static int listen_fds_in_child(const char *n_fds, int n_open, int pid_offset)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		char pid[32];
		int null = open("/dev/null", O_RDONLY);

		for (int fd = 3; fd < 3 + n_open; fd++)
			dup2(null, fd);
		for (int fd = 3 + n_open; fd < 80; fd++)
			close(fd);
		snprintf(pid, sizeof pid, "%d", getpid() + pid_offset);
		setenv("LISTEN_PID", pid, 1);
		setenv("LISTEN_FDS", n_fds, 1);
		setenv("LISTEN_FDNAMES", "a:b", 1);

		int r = notify_listen_fds();

		if (getenv("LISTEN_PID") || getenv("LISTEN_FDS") || getenv("LISTEN_FDNAMES"))
			r = r < 0 ? r : -1;
		for (int fd = 3; r > 0 && fd < 3 + r; fd++)
			if (!(fcntl(fd, F_GETFD) & FD_CLOEXEC))
				_exit(99);
		_exit((100 + r) & 0xff); /* -EINVAL is -22 */
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status) - 100;
}

START_TEST(test_listen_fds_are_taken_when_meant_for_us)
{
	/* Proves the count, close-on-exec, and that variables inherited from a parent are ignored. */
	ck_assert_int_eq(listen_fds_in_child("1", 1, 0), 1);
	ck_assert_int_eq(listen_fds_in_child("2", 2, 0), 2);
	ck_assert_int_eq(listen_fds_in_child("0", 0, 0), 0);
	ck_assert_int_eq(listen_fds_in_child("1", 1, 1), 0);
}
END_TEST

START_TEST(test_listen_fds_that_make_no_sense_are_refused)
{
	/* Proves that fewer descriptors than announced, and invalid counts, are errors. */
	ck_assert_int_eq(listen_fds_in_child("2", 1, 0), -EINVAL);
	ck_assert_int_eq(listen_fds_in_child("x", 1, 0), -EINVAL);
	ck_assert_int_eq(listen_fds_in_child("65", 65, 0), -EINVAL);
	ck_assert_int_eq(listen_fds_in_child("64", 64, 0), 64);
	ck_assert_int_eq(listen_fds_in_child("99999999999999999999", 1, 0), -EINVAL);
}
END_TEST

SUITE(notify)
{
	Suite *suite = suite_create("notify");
	TCase *tc = tcase_create("notify");

	tcase_add_checked_fixture(tc, manager_start, manager_stop);
	tcase_add_test(tc, test_every_call_sends_its_own_words);
	tcase_add_test(tc, test_reloading_carries_the_monotonic_time);
	tcase_add_test(tc, test_a_status_cannot_smuggle_an_assignment_and_is_cut);
	tcase_add_test(tc, test_an_abstract_manager_is_reached);
	tcase_add_test(tc, test_without_a_manager_nothing_happens);
	tcase_add_test(tc, test_watchdog_interval_is_half_of_what_is_allowed);
	tcase_add_test(tc, test_listen_fds_are_taken_when_meant_for_us);
	tcase_add_test(tc, test_listen_fds_that_make_no_sense_are_refused);
	suite_add_tcase(suite, tc);

	return suite;
}
