/* Starting, waiting for and stopping a batchd.
 *
 * The daemon must not outlive batchctl, however that ends: the kernel sends the daemon SIGTERM when batchctl dies
 * (PR_SET_PDEATHSIG), and if that fails the daemon exits when it has had no request for a while. Its files must not
 * outlive batchctl either: the daemon itself makes its directory and removes it, and its log, which batchctl quotes if
 * the daemon does not start, has no name. */
#include "ctl/bench/private-daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "batchd.h"
#include "ctl/ctl.h"
#include "gpu/inherit.h"
#include "ctl/term/progress.h"

#define START_NS 15000000000u
#define STOP_NS 15000000000u

static void private_daemon_nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
}

static bool make_places(struct private_daemon *d)
{
	const char *base = getenv("TMPDIR");

	/* A socket's path has 107 bytes; a long TMPDIR leaves too few of them. */
	if (!base || base[0] != '/' || strlen(base) > sizeof d->dir - 20)
		base = "/tmp";
	snprintf(d->dir, sizeof d->dir, "%s/batchctl-XXXXXX", base);
	d->log_fd = memfd_create("log", MFD_CLOEXEC);
	/* Only the name is reserved; the daemon refuses a directory that another user has made meanwhile. */
	if (d->log_fd < 0 || !mkdtemp(d->dir) || rmdir(d->dir) < 0) {
		d->dir[0] = 0;
		return false;
	}
	snprintf(d->socket, sizeof d->socket, "%s/socket", d->dir);
	return true;
}

/* $BATCHD_DAEMON, else beside batchctl, else by $PATH. */
static void private_daemon_find_program(char path[PATH_MAX])
{
	const char *given = getenv("BATCHD_DAEMON");
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
	char *slash;

	if (given && *given) {
		snprintf(path, PATH_MAX, "%s", given);
		return;
	}
	path[n > 0 ? n : 0] = 0;
	slash = strrchr(path, '/');
	if (slash && slash - path < PATH_MAX - 8) {
		strcpy(slash + 1, "batchd");
		if (access(path, X_OK) == 0)
			return;
	}
	strcpy(path, "batchd");
}

/* In the child; does not return. */
static void become_daemon(const struct private_daemon *d, pid_t parent, const char *program, uint64_t workers,
			  char **environment)
{
	char n_workers[24];

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGINT, SIG_IGN); /* the terminal sends it to batchctl too, which stops the daemon after the trainers
	                          * have ended */
	dup2(d->log_fd, STDOUT_FILENO);
	dup2(d->log_fd, STDERR_FILENO);
	snprintf(n_workers, sizeof n_workers, "%llu", (unsigned long long)workers);
	environ = environment;
	execlp(program, "batchd", "--foreground", "--socket", d->socket, "--idle-exit", "60s",
	       workers ? "--workers" : NULL, n_workers, (char *)NULL);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", program, strerror(errno));
	_exit(127);
}

static bool private_daemon_has_ended(struct private_daemon *d)
{
	if (d->pid && waitpid(d->pid, NULL, WNOHANG) == d->pid)
		d->pid = 0;
	return !d->pid;
}

static bool private_daemon_answers(const struct private_daemon *d)
{
	char *json = NULL;
	bool yes = batchd_status(d->socket, &json, NULL, 0) == 0;

	free(json);
	return yes;
}

/* The log's last line says why. */
static void private_daemon_complain(const struct private_daemon *d, const char *command, const char *what)
{
	FILE *f = lseek(d->log_fd, 0, SEEK_SET) == 0 ? fdopen(dup(d->log_fd), "r") : NULL;
	char line[1024], last[1024] = "";

	while (f && fgets(line, sizeof line, f)) {
		const char *record = strstr(line, "batchd["); /* after the time */

		if (*line != '\n')
			snprintf(last, sizeof last, "%s", record ? record : line);
	}
	if (f)
		fclose(f);
	last[strcspn(last, "\n")] = 0;
	ctl_complain(command, "the private daemon %s%s%s", what, *last ? ": " : "", last);
}

int private_daemon_start(struct private_daemon *d, const char *command, uint64_t workers)
{
	uint64_t begun = progress_now_ns();
	char program[PATH_MAX], **environment;
	pid_t parent = getpid();

	if (!make_places(d)) {
		ctl_complain(command, "cannot make a directory for the private daemon: %s", strerror(errno));
		return -1;
	}
	environment = inherit_environment(environ);
	if (!environment) {
		ctl_complain(command, "cannot start the private daemon: out of memory");
		return -1;
	}
	private_daemon_find_program(program);
	d->pid = fork();
	if (d->pid == 0)
		become_daemon(d, parent, program, workers, environment);
	free(environment);
	if (d->pid < 0) {
		d->pid = 0;
		ctl_complain(command, "cannot start the private daemon: %s", strerror(errno));
		return -1;
	}
	while (!private_daemon_answers(d)) {
		if (private_daemon_has_ended(d)) {
			private_daemon_complain(d, command, "did not start");
			return -1;
		}
		if (progress_now_ns() - begun > START_NS) {
			private_daemon_complain(d, command, "does not answer");
			return -1;
		}
		private_daemon_nap();
	}
	return 0;
}

void private_daemon_stop(struct private_daemon *d)
{
	uint64_t begun = progress_now_ns();

	if (d->pid)
		kill(d->pid, SIGTERM);
	while (!private_daemon_has_ended(d)) {
		if (progress_now_ns() - begun > STOP_NS)
			kill(d->pid, SIGKILL);
		private_daemon_nap();
	}
	if (d->log_fd > 0)
		close(d->log_fd);
	d->log_fd = 0;
	if (!*d->dir)
		return;
	unlink(d->socket);                              /* of one that was killed */
	if (rmdir(d->dir) != 0 && errno == ENOTEMPTY) { /* a lock file beside the socket */
		char lock[96];

		snprintf(lock, sizeof lock, "%s.lock", d->socket);
		unlink(lock);
		rmdir(d->dir);
	}
	d->dir[0] = 0;
}
