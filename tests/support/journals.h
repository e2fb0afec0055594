/* Journals for one test alone: a socket at journald's path, or journald itself, in a mount namespace of the test's
 * process. */
#ifndef BATCHD_TESTS_JOURNALS_H
#define BATCHD_TESTS_JOURNALS_H

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/journal.h"

/* An empty /run. False where that is not allowed. */
static inline bool journal_world(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", "/run", "tmpfs", 0, NULL) < 0)
		return false;
	mkdir("/run/systemd", 0755);
	mkdir("/run/systemd/journal", 0755);
	return true;
}

/* A socket that only the test reads, or -1 where that is not allowed. */
static inline int journal_socket(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX, .sun_path = JOURNAL_SOCKET };

	if (!journal_world())
		return -1;

	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	return fd;
}

#define JOURNALD "/lib/systemd/systemd-journald"

/* systemd's own journal, kept in memory and deaf to the rest of the machine; -1 where it does not run. */
static inline pid_t journald_start(void)
{
	FILE *f;
	pid_t pid;

	if (access(JOURNALD, X_OK) < 0 || !journal_world())
		return -1;
	mkdir("/run/log", 0755);
	mkdir("/run/log/journal", 0755);
	mkdir("/run/systemd/journald.conf.d", 0755);
	f = fopen("/run/systemd/journald.conf.d/test.conf", "w");
	ck_assert_ptr_nonnull(f);
	fputs("[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\nReadKMsg=no\nAudit=no\nRateLimitBurst=0\n", f);
	fclose(f);
	pid = fork();
	if (pid == 0) {
		if (!freopen("/dev/null", "w", stderr) || execl(JOURNALD, JOURNALD, (char *)NULL) < 0)
			_exit(127);
	}
	while (access(JOURNAL_SOCKET, F_OK) < 0) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return -1;
		usleep(10000);
	}
	return pid;
}

static inline void journald_stop(pid_t pid)
{
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
}

/* The entry that has this field, as a line of JSON; waits for journald to have written it. */
static inline void journald_find(const char *match, char *json, size_t size)
{
	char command[256];

	snprintf(command, sizeof command, "journalctl -D /run/log/journal -o json --no-pager -q '%s'", match);
	for (bool found = false; !found;) {
		FILE *f = popen(command, "r");

		found = fgets(json, (int)size, f) != NULL;
		pclose(f);
	}
}

#endif
