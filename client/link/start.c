/* Starts a daemon when a script finds none.
 *
 * Ranks start together, so a lock file in the socket's directory lets one of them start the daemon while the others
 * wait and then connect to it. The parent may have threads and a CUDA context, which rules out fork(): posix_spawn runs
 * a shell that puts the daemon into the background, tells its process id and exits, so the daemon is not a child of
 * this process and leaves no zombie. It gets a session of its own and no descriptor but 0, 1 and 2. The daemon inherits
 * of the script's environment what it reads itself (gpu/inherit.c), so $BATCHD_CONFIG and $XDG_CONFIG_HOME of the first
 * script hold for every script until it ends, and keys and tokens of that script stay with it. */
#include "link/start.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "link/backoff.h"
#include "batchd.h"
#include "gpu/inherit.h"

enum { START_MS = 10000, RETRY_MS = 5, RETRY_MOST_MS = 40, LOG_MOST_BYTES = 1 << 20 };

#define CONFIG_VARIABLE "BATCHD_CONFIG"

extern char **environ;

/* ---- the binary ---- */

static bool is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Whether there is a program at dir/name; its real path goes into out. */
static bool find_at(const char *dir, int n_dir, const char *name, char out[PATH_MAX])
{
	char path[PATH_MAX];

	return snprintf(path, sizeof path, "%.*s/%s", n_dir, dir, name) < PATH_MAX && is_program(path) &&
	       realpath(path, out);
}

/* Looks beside the library: the build folder has both in one place, a Python wheel in _lib and _bin, an installation in
 * lib[/triplet] and [s]bin. */
static bool find_beside(char out[PATH_MAX])
{
	static const char *const places[] = { "batchd",         "../_bin/batchd",   "../bin/batchd",
					      "../sbin/batchd", "../../bin/batchd", "../../sbin/batchd" };
	char library[PATH_MAX];
	Dl_info info;

	if (!dladdr((void *)(uintptr_t)find_beside, &info) || !info.dli_fname || !realpath(info.dli_fname, library))
		return false;
	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		if (find_at(library, (int)(strrchr(library, '/') - library), places[i], out))
			return true;
	return false;
}

static bool find_in_path(char out[PATH_MAX])
{
	for (const char *p = getenv("PATH"), *end; p; p = *end ? end + 1 : NULL) {
		end = strchrnul(p, ':');
		if (end > p && find_at(p, (int)(end - p), "batchd", out))
			return true;
	}
	return false;
}

static int start_find_program(char out[PATH_MAX], struct fault *f)
{
	const char *given = secure_getenv("BATCHD_DAEMON");

	if (given && *given) {
		if (!is_program(given) || !realpath(given, out))
			return fault_set(f, BATCHD_E_CONNECT, "$BATCHD_DAEMON names %s, which is no program", given);
		return 0;
	}
	if (find_beside(out) || find_in_path(out))
		return 0;
	return fault_set(f, BATCHD_E_CONNECT,
			 "no batchd is running, and none is installed: not beside the library, not in $PATH; "
			 "$BATCHD_DAEMON may name it");
}

/* ---- the directory ---- */

static int refuse_directory(const char *dir, struct fault *f)
{
	struct stat st;

	if (lstat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
		return fault_set(f, BATCHD_E_CONNECT,
				 "%s is not safe to use for a daemon of your own: it is no directory; remove it", dir);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return fault_set(
			f, BATCHD_E_CONNECT,
			"%s is not safe to use for a daemon of your own: it belongs to user %u; remove it as root, or set "
			"$XDG_RUNTIME_DIR to your own directory",
			dir, (unsigned)st.st_uid);
	return fault_set(f, BATCHD_E_CONNECT,
			 "%s is not safe to use for a daemon of your own: others may write to it; `chmod go-w %s`", dir,
			 dir);
}

/* The socket's directory, created if necessary; it must be this user's, and only this user may write to it. */
static int start_make_directory(const char *address, char dir[ADDRESS_MAX_BYTES], struct fault *f)
{
	strcpy(dir, address);
	*strrchr(dir, '/') = '\0';
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return fault_set(
			f, BATCHD_E_CONNECT,
			"cannot make %s for a daemon of your own: %s; set $XDG_RUNTIME_DIR to your own directory", dir,
			strerror(errno));
	return address_check(address) < 0 ? refuse_directory(dir, f) : 0;
}

void start_log_path(const char *address, char log[START_LOG_BYTES])
{
	const char *slash = strrchr(address, '/');

	log[0] = '\0';
	if (slash)
		snprintf(log, START_LOG_BYTES, "%.*s/daemon.log", (int)(slash - address), address);
}

/* Every daemon of this address appends to one log; the previous log is kept as .old. */
static void limit_log(const char *log)
{
	char old[START_LOG_BYTES + 8];
	struct stat st;

	snprintf(old, sizeof old, "%s.old", log);
	if (lstat(log, &st) == 0 && st.st_size > LOG_MOST_BYTES)
		rename(log, old);
}

/* The configuration that the environment names, absolute, as the daemon works in another directory. "": none. */
static int find_config(char out[PATH_MAX], struct fault *f)
{
	const char *given = secure_getenv(CONFIG_VARIABLE);

	out[0] = '\0';
	if (!given || !*given || realpath(given, out))
		return 0;
	return fault_set(f, BATCHD_E_CONNECT, "$" CONFIG_VARIABLE " names %s: %s", given, strerror(errno));
}

static int take_lock(const char *dir, struct fault *f)
{
	char path[ADDRESS_MAX_BYTES + 16];
	int fd, r;

	snprintf(path, sizeof path, "%s/start.lock", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fault_set(f, BATCHD_E_CONNECT, "%s: %s", path, strerror(errno));
	do
		r = flock(fd, LOCK_EX);
	while (r < 0 && errno == EINTR);
	return fd;
}

/* ---- the process ---- */

/* Nothing but 0, 1 and 2 goes to the daemon. glibc can say so from 2.34 on, and a wheel is linked with an older one; there,
 * only what is open now is named. (Closing a descriptor that another thread has closed meanwhile is no error.) */
static void keep_first_three(posix_spawn_file_actions_t *files)
{
	int (*close_from)(posix_spawn_file_actions_t *, int);
	DIR *open_now;

	*(void **)&close_from = dlsym(RTLD_DEFAULT, "posix_spawn_file_actions_addclosefrom_np");
	if (close_from) {
		close_from(files, 3);
		return;
	}
	open_now = opendir("/proc/self/fd");
	for (struct dirent *e; open_now && (e = readdir(open_now));) {
		int fd = atoi(e->d_name); /* "." is 0 */

		if (fd > 2)
			posix_spawn_file_actions_addclose(files, fd);
	}
	if (open_now)
		closedir(open_now);
}

/* Spawns the shell with the daemon's standard error in the log and the shell's output in a pipe. 0 or an errno. */
static int start_spawn(char *const argv[], const char *log, int output[2], pid_t *pid)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	char **environment = inherit_environment(environ);
	sigset_t none;
	int r;

	if (!environment)
		return ENOMEM;
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attributes);
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_adddup2(&files, output[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
	keep_first_three(&files);
	r = posix_spawn(pid, "/bin/sh", &files, &attributes, argv, environment);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attributes);
	free(environment);
	return r;
}

static int run_in_background(const char *program, const char *address, const char *config, const char *log,
			     pid_t *daemon, struct fault *f)
{
	char *argv[] = { "sh",
			 "-c",
			 "{ cd /; exec \"$@\"; } >/dev/null & echo $!",
			 "sh",
			 (char *)program,
			 "--socket",
			 (char *)address,
			 "--on-demand",
			 "--foreground",
			 *config ? "--config" : NULL,
			 (char *)config,
			 NULL };
	char text[32] = "";
	int output[2], r;
	pid_t shell;

	if (pipe2(output, O_CLOEXEC) < 0)
		return fault_set(f, BATCHD_E_CONNECT, "cannot start %s: %s", program, strerror(errno));
	r = start_spawn(argv, log, output, &shell);
	close(output[1]);
	if (r == 0) {
		ssize_t n;

		while ((n = read(output[0], text, sizeof text - 1)) < 0 && errno == EINTR)
			;
		while (waitpid(shell, NULL, 0) < 0 && errno == EINTR)
			;
	}
	close(output[0]);
	*daemon = (pid_t)strtol(text, NULL, 10);
	return r == 0 && *daemon > 0
		       ? 0
		       : fault_set(f, BATCHD_E_CONNECT, "cannot start %s: %s", program, strerror(r ? r : EIO));
}

void start_last_line(const char *log, char *out, size_t size)
{
	FILE *file = fopen(log, "re");
	char line[512];

	out[0] = '\0';
	if (!file)
		return;
	while (fgets(line, sizeof line, file))
		if (line[0] != '\n') {
			const char *record = strstr(line, "batchd["); /* after the time */

			record = record ? record : line;
			snprintf(out, size, "%.*s", (int)strcspn(record, "\n"), record);
		}
	fclose(file);
}

static int wait_until_ready(const char *address, start_dial dial, pid_t daemon, const char *log, struct fault *f)
{
	struct backoff backoff = { RETRY_MS, RETRY_MOST_MS, 0 };
	char line[512];

	for (unsigned ms = 0, pause_ms; ms < START_MS; ms += pause_ms) {
		int fd = dial(address);
		bool alive = kill(daemon, 0) == 0;

		if (fd >= 0)
			return fd;
		if (!alive && (fd = dial(address)) >= 0)
			return fd; /* another process's daemon was faster */
		if (!alive)
			break;
		pause_ms = backoff_next_ms(&backoff);
		poll(NULL, 0, (int)pause_ms);
	}
	start_last_line(log, line, sizeof line);
	return fault_set(f, BATCHD_E_CONNECT, "a daemon was started at %s but does not answer%s%s (its log: %s)",
			 address, *line ? ": " : "", line, log);
}

int start_daemon(const char *address, start_dial dial, struct fault *f)
{
	char dir[ADDRESS_MAX_BYTES], log[START_LOG_BYTES], program[PATH_MAX], config[PATH_MAX];
	pid_t daemon = 0;
	int lock, r;

	r = start_find_program(program, f);
	if (r == 0)
		r = find_config(config, f);
	if (r == 0)
		r = start_make_directory(address, dir, f);
	if (r < 0)
		return r;
	lock = take_lock(dir, f);
	if (lock < 0)
		return lock;
	r = dial(address);
	if (r < 0) {
		start_log_path(address, log);
		limit_log(log);
		r = run_in_background(program, address, config, log, &daemon, f);
		if (r == 0)
			r = wait_until_ready(address, dial, daemon, log, f);
	}
	close(lock);
	return r;
}
