/* Makes a socket where another daemon may live, may have died, or where a hostile user has left something.
 *
 * The lock file beside the socket decides which daemon owns the path. The kernel drops the lock with the process,
 * however that ends. A daemon that holds the lock may remove a socket on which no process answers. A socket that does
 * answer belongs to a process that takes no lock (systemd), and is left alone. The lock file is removed at the end too,
 * so a new daemon may have opened and locked a file that no longer has a name: it looks again after locking. Nothing
 * here follows a symbolic link in the last component, and the directory must not be one where other users can swap
 * files. */
#include "server/ipc/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/notify.h"

enum { LOCK_ATTEMPTS = 100 };

static int listen_fail(struct listen_error *err, int error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int listen_fail(struct listen_error *err, int error, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(err->text, sizeof err->text, fmt, args);
	va_end(args);
	return -error;
}

static int fail_errno(struct listen_error *err, const char *doing, const char *path)
{
	int error = errno;

	return listen_fail(err, error, "%s: cannot %s: %s", path, doing, strerror(error));
}

/* ---- the directory ---- */

static void directory_of(const char *path, char dir[ADDRESS_MAX_BYTES])
{
	memcpy(dir, path, strlen(path) + 1); /* fits, because a listener's path does */

	char *slash = strrchr(dir, '/'); /* never NULL: the path is absolute */

	slash[slash == dir] = '\0';
}

static int prepare_directory(struct listener *l, struct listen_error *err)
{
	char dir[ADDRESS_MAX_BYTES];
	struct stat st;

	directory_of(l->path, dir);
	/* A user's directory is for that user alone; in the system's directory every user must reach the socket, whose
	 * own mode decides. */
	if (mkdir(dir, geteuid() == 0 ? 0755 : 0700) == 0)
		l->made_directory = true;
	else if (errno != EEXIST)
		return fail_errno(err, "make the socket's directory", dir);
	if (lstat(dir, &st) < 0)
		return errno == ENOENT ? 0 : fail_errno(err, "look at it", dir); /* just removed: lock_once finds out */
	if (!S_ISDIR(st.st_mode))
		return listen_fail(err, ENOTDIR,
				   "%s: is not a directory, or a symbolic link; name the real one with --socket", dir);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return listen_fail(err, EPERM,
				   "%s: belongs to user %u, so a socket there would not be safe; run batchd as that "
				   "user, remove it, or choose another with --socket",
				   dir, (unsigned)st.st_uid);
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX))
		return listen_fail(err, EPERM,
				   "%s: others may write to it, so a socket there would not be safe; "
				   "chmod go-w it or choose another with --socket",
				   dir);
	return 0;
}

/* ---- the lock ---- */

static void lock_path(const struct listener *l, char buf[ADDRESS_MAX_BYTES + 8])
{
	size_t n = strlen(l->path);

	memcpy(buf, l->path, n);
	memcpy(buf + n, ".lock", sizeof ".lock");
}

/* Whether this descriptor is a file of this daemon's that still has its name. */
static bool is_named(int fd, const char *path)
{
	struct stat open_st, named_st;

	return fstat(fd, &open_st) == 0 && lstat(path, &named_st) == 0 && named_st.st_ino == open_st.st_ino &&
	       named_st.st_dev == open_st.st_dev;
}

static int lock_file(int fd, const struct listener *l, const char *path, struct listen_error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return listen_fail(err, EINVAL, "%s: is not a regular file; remove it", path);
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno == EWOULDBLOCK)
		return listen_fail(err, EADDRINUSE,
				   "%s: another batchd is running there; stop it, or choose another --socket", l->path);
	return fail_errno(err, "lock it", path);
}

/* 1: locked, and lock_fd is set; 0: file or directory disappeared meanwhile, try again; negative errno. */
static int lock_once(struct listener *l, struct listen_error *err)
{
	char path[ADDRESS_MAX_BYTES + 8];

	lock_path(l, path);

	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return errno == ELOOP ? listen_fail(err, ELOOP, "%s: is a symbolic link; remove it", path)
				      : fail_errno(err, "open the lock", path);

	int r = lock_file(fd, l, path, err);

	if (r < 0 || !is_named(fd, path)) {
		close(fd);
		return r;
	}
	l->lock_fd = fd;
	return 1;
}

static int lock_acquire(struct listener *l, struct listen_error *err)
{
	for (int i = 0; i < LOCK_ATTEMPTS; i++) {
		int r = prepare_directory(l, err); /* at each attempt: a daemon that ends removes its directory */

		if (r == 0)
			r = lock_once(l, err);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	return listen_fail(err, EADDRINUSE, "%s: daemons start and stop there all the time", l->path);
}

/* ---- the socket ---- */

/* Examines the path: 0: there is nothing, or a dead socket, which is then removed. */
static int clear_path(const struct listener *l, const struct sockaddr_un *sa, struct listen_error *err)
{
	struct stat st;

	if (lstat(l->path, &st) < 0)
		return errno == ENOENT ? 0 : fail_errno(err, "look at it", l->path);
	if (S_ISLNK(st.st_mode))
		return listen_fail(err, ELOOP, "%s: is a symbolic link; remove it, or choose another --socket",
				   l->path);
	if (!S_ISSOCK(st.st_mode))
		return listen_fail(err, EEXIST, "%s: exists and is not a socket; remove it, or choose another --socket",
				   l->path);

	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return fail_errno(err, "make a socket", l->path);

	int dead = connect(fd, (const struct sockaddr *)sa, sizeof *sa) < 0 && errno == ECONNREFUSED;

	close(fd);
	if (!dead)
		return listen_fail(err, EADDRINUSE,
				   "%s: something else serves there (systemd, perhaps); "
				   "use that, stop it, or choose another --socket",
				   l->path);
	return unlink(l->path) < 0 && errno != ENOENT ? fail_errno(err, "remove the dead socket", l->path) : 0;
}

/* Only this daemon can connect until the socket has the requested mode and group. */
static int bind_closed(const struct listener *l, const struct sockaddr_un *sa)
{
	mode_t before = umask(0177);
	int r = bind(l->fd, (const struct sockaddr *)sa, sizeof *sa);
	int error = errno;

	umask(before);
	errno = error;
	return r;
}

static int make_socket(struct listener *l, mode_t mode, gid_t group, struct listen_error *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct stat st;
	int r;

	memcpy(sa.sun_path, l->path, sizeof l->path);
	if ((r = clear_path(l, &sa, err)) < 0)
		return r;
	l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0 || bind_closed(l, &sa) < 0)
		return fail_errno(err, "bind a socket", l->path);
	if (lstat(l->path, &st) < 0)
		return fail_errno(err, "look at it", l->path);
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	if (group != (gid_t)-1 && lchown(l->path, (uid_t)-1, group) < 0)
		return fail_errno(err, "give it to its group (socket_group)", l->path);
	if (chmod(l->path, mode) < 0)
		return fail_errno(err, "set its mode (socket_mode)", l->path);
	return listen(l->fd, SOMAXCONN) < 0 ? fail_errno(err, "listen", l->path) : 0;
}

int listener_open(struct listener *l, const char *path, mode_t mode, gid_t group, struct listen_error *err)
{
	*l = LISTENER_CLOSED;
	if (path[0] != '/')
		return listen_fail(err, EINVAL, "%.200s: is not an absolute path", path);
	if (strlen(path) >= sizeof l->path)
		return listen_fail(err, ENAMETOOLONG, "%.200s: is too long for a socket; at most %zu bytes", path,
				   sizeof l->path - 1);
	memcpy(l->path, path, strlen(path) + 1);

	int r = lock_acquire(l, err);

	if (r == 0)
		r = make_socket(l, mode, group, err);
	if (r < 0)
		listener_close(l);
	return r;
}

int listener_adopt(struct listener *l, struct listen_error *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNSPEC };
	int type = 0, listening = 0, n = notify_listen_fds();
	socklen_t type_size = sizeof type, listening_size = sizeof listening, sa_size = sizeof sa - 1;

	*l = LISTENER_CLOSED;
	if (n == 0)
		return 0;
	if (n != 1)
		return listen_fail(err, EINVAL,
				   "the service manager passed %s; expected one socket (systemd/units/batchd.socket)",
				   n < 0 ? "descriptors that make no sense" : "more than one socket");
	if (getsockopt(NOTIFY_FIRST_FD, SOL_SOCKET, SO_TYPE, &type, &type_size) < 0 || type != SOCK_SEQPACKET ||
	    getsockopt(NOTIFY_FIRST_FD, SOL_SOCKET, SO_ACCEPTCONN, &listening, &listening_size) < 0 || !listening ||
	    getsockname(NOTIFY_FIRST_FD, (struct sockaddr *)&sa, &sa_size) < 0 || sa.sun_family != AF_UNIX)
		return listen_fail(err, EINVAL,
				   "the service manager passed something else than a listening unix socket; "
				   "its unit needs ListenSequentialPacket= and Accept=no");
	if (fcntl(NOTIFY_FIRST_FD, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
		return fail_errno(err, "make it non-blocking", "the service manager's socket");
	l->fd = NOTIFY_FIRST_FD;
	l->adopted = true;
	snprintf(l->path, sizeof l->path, "%s", sa.sun_path);
	return 1;
}

/* The files are removed before the lock is released, so that a successor finds the path clear. */
static void remove_files(struct listener *l)
{
	char path[ADDRESS_MAX_BYTES + 8], dir[ADDRESS_MAX_BYTES];
	struct stat st;

	if (l->ino && lstat(l->path, &st) == 0 && st.st_ino == l->ino && st.st_dev == l->dev)
		unlink(l->path);
	if (l->lock_fd >= 0) {
		lock_path(l, path);
		unlink(path);
	}
	if (l->made_directory) {
		directory_of(l->path, dir);
		rmdir(dir); /* stays if it holds other files */
	}
}

void listener_close(struct listener *l)
{
	if (!l->adopted)
		remove_files(l);
	if (l->fd >= 0)
		close(l->fd);
	if (l->lock_fd >= 0)
		close(l->lock_fd);
	*l = LISTENER_CLOSED;
}
