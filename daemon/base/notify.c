/* The protocol is a datagram of KEY=value lines to the socket in NOTIFY_SOCKET. systemd documents it as stable and
 * allows programs to implement it without its library. That suits the daemon: it takes a few lines, is the same on
 * every machine, and can be tested with a fake manager. The socket may be a path or, with a leading @, abstract; the
 * kind for virtual machines (vsock:) does not concern a service inside one. */
#include "base/notify.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"

enum { MAX_STATUS_BYTES = 512, MAX_FDS = 64 };

static int manager_address(struct sockaddr_un *sa, socklen_t *size)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t n = path ? strlen(path) : 0;

	*sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (n < 2 || n >= sizeof sa->sun_path || (path[0] != '/' && path[0] != '@'))
		return -ENOENT;
	memcpy(sa->sun_path, path, n);
	if (path[0] == '@')
		sa->sun_path[0] = '\0';
	*size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (path[0] == '/'));
	return 0;
}

static void notify_send(const char *message)
{
	struct timeval patience = { .tv_sec = 2 }; /* for a manager whose queue is full; its own timeouts are longer */
	struct sockaddr_un sa;
	socklen_t size;

	if (manager_address(&sa, &size) < 0)
		return;

	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
		if (sendto(fd, message, strlen(message), MSG_NOSIGNAL, (struct sockaddr *)&sa, size) >= 0) {
			close(fd);
			return;
		}
	}
	log_record(LOG_LEVEL_WARNING, "notify-failed", "cannot tell the service manager '%.40s': %s", message,
		   strerror(errno));
	if (fd >= 0)
		close(fd);
}

/* A line end in the text would start another assignment. */
static void send_status(const char *before, const char *status)
{
	char message[MAX_STATUS_BYTES + 64];
	int n = snprintf(message, sizeof message, "%sSTATUS=", before);

	for (; *status && n < MAX_STATUS_BYTES; status++)
		message[n++] = (unsigned char)*status < ' ' ? ' ' : *status;
	message[n] = '\0';
	notify_send(message);
}

void notify_ready(const char *status)
{
	send_status("READY=1\n", status);
}

void notify_status(const char *status)
{
	send_status("", status);
}

void notify_stopping(void)
{
	notify_send("STOPPING=1");
}

void notify_reloading(void)
{
	char message[64];
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(message, sizeof message, "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000);
	notify_send(message);
}

void notify_extend(uint64_t usec)
{
	assert(usec > 0);
	char message[64];

	snprintf(message, sizeof message, "EXTEND_TIMEOUT_USEC=%llu", (unsigned long long)usec);
	notify_send(message);
}

void notify_watchdog(void)
{
	notify_send("WATCHDOG=1");
}

void notify_watchdog_failed(void)
{
	notify_send("WATCHDOG=trigger");
}

static int number_from_environment(const char *name, uint64_t *value)
{
	const char *text = getenv(name);

	return text ? number_parse(text, value) : -ENOENT;
}

uint64_t notify_watchdog_interval_ns(void)
{
	uint64_t usec, pid, interval_ns;

	if (number_from_environment("WATCHDOG_USEC", &usec) < 0)
		return 0;
	if (number_from_environment("WATCHDOG_PID", &pid) == 0 && pid != (uint64_t)getpid())
		return 0; /* the variables are meant for a parent */
	return __builtin_mul_overflow(usec, 500, &interval_ns) ? 0 : interval_ns;
}

int notify_listen_fds(void)
{
	uint64_t pid, n;
	int result = 0;

	if (number_from_environment("LISTEN_PID", &pid) == 0 && pid == (uint64_t)getpid()) {
		result = number_from_environment("LISTEN_FDS", &n) < 0 || n > MAX_FDS ? -EINVAL : (int)n;
		for (int fd = NOTIFY_FIRST_FD; fd < NOTIFY_FIRST_FD + result; fd++) {
			int flags = fcntl(fd, F_GETFD);

			if (flags < 0 || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0)
				return -EINVAL;
		}
	}
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return result;
}
