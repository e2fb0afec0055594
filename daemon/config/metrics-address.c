/* See metrics-address.h. Names are not looked up: a resolver could block, and could answer with an address that is not
 * this machine's. */
#include "config/metrics-address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/parse.h"

enum { BACKLOG = 16 };

static int parse_unix(const char *path, struct metrics_address *a, const char **why)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&a->at;

	*why = "the path of a Unix socket is absolute and has at most 107 bytes";
	if (path[0] != '/' || strlen(path) >= sizeof un->sun_path)
		return -EINVAL;
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path, strlen(path) + 1);
	a->n_bytes = sizeof *un;
	return 0;
}

static bool is_loopback(const struct metrics_address *a)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)&a->at;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&a->at;

	return a->at.ss_family == AF_INET ? ntohl(four->sin_addr.s_addr) >> 24 == 127
					  : IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

/* host: "127.0.0.1" or "[::1]". */
static bool parse_host(char *host, uint16_t port, struct metrics_address *a)
{
	struct sockaddr_in *four = (struct sockaddr_in *)&a->at;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&a->at;
	size_t n = strlen(host);

	if (n > 2 && host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(port);
		a->n_bytes = sizeof *six;
		return inet_pton(AF_INET6, host + 1, &six->sin6_addr) == 1;
	}
	four->sin_family = AF_INET;
	four->sin_port = htons(port);
	a->n_bytes = sizeof *four;
	return inet_pton(AF_INET, host, &four->sin_addr) == 1;
}

int metrics_address_parse(const char *text, struct metrics_address *a, const char **why)
{
	const char *colon;
	char host[64];
	uint64_t port;

	*a = (struct metrics_address){ .public = !strncmp(text, "public:", 7) };
	text += a->public ? 7 : 0;
	if (!strncmp(text, "unix:", 5))
		return parse_unix(text + 5, a, why);
	colon = strrchr(text, ':');
	*why = "a numeric address and a port, such as 127.0.0.1:9464 or [::1]:9464, or unix:/PATH";
	if (!colon || (size_t)(colon - text) >= sizeof host || number_parse(colon + 1, &port) < 0 || port > 65535)
		return -EINVAL;
	snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
	if (!parse_host(host, (uint16_t)port, a))
		return -EINVAL;
	*why = "an address of this machine alone (127.0.0.1, [::1], unix:/PATH); other machines can reach this one, "
	       "which public: before it allows";
	return a->public || is_loopback(a) ? 0 : -EINVAL;
}

static const char *path_of(const struct metrics_address *a)
{
	return ((const struct sockaddr_un *)&a->at)->sun_path;
}

/* A file that a killed daemon has left refuses connections. One whose process takes none is not waited for. */
static void remove_stale(const struct metrics_address *a)
{
	struct stat st;
	int fd = lstat(path_of(a), &st) == 0 && S_ISSOCK(st.st_mode)
			 ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)
			 : -1;

	if (fd < 0)
		return;
	if (connect(fd, (const struct sockaddr *)&a->at, a->n_bytes) < 0 && errno == ECONNREFUSED)
		unlink(path_of(a));
	close(fd);
}

/* The file has the mode 0600 until its group is right. */
static void let_in(const struct metrics_address *a, const char *trainers)
{
	struct stat st;

	if (a->public)
		chmod(path_of(a), 0666);
	else if (trainers && stat(trainers, &st) == 0 && S_ISSOCK(st.st_mode) &&
		 lchown(path_of(a), (uid_t)-1, st.st_gid) == 0)
		chmod(path_of(a), (st.st_mode & 0666) | 0600);
}

int metrics_address_listen(struct metrics_address *a, const char *trainers)
{
	struct stat st;
	bool is_unix = a->at.ss_family == AF_UNIX;
	int on = 1, e, fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (is_unix) {
		remove_stale(a);
		fchmod(fd, 0600); /* bind gives the file this mode, less the umask */
	} else {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	}
	if (bind(fd, (const struct sockaddr *)&a->at, a->n_bytes) == 0) {
		if (is_unix) {
			if (lstat(path_of(a), &st) == 0) {
				a->dev = st.st_dev;
				a->ino = st.st_ino;
			}
		}
		if (listen(fd, BACKLOG) == 0) {
			if (is_unix) /* not before: a user that the file lets in is not refused */
				let_in(a, trainers);
			return fd;
		}
	}
	e = errno;
	close(fd);
	return -e;
}

void metrics_address_remove(const struct metrics_address *a)
{
	struct stat st;

	if (a->at.ss_family == AF_UNIX && a->ino && lstat(path_of(a), &st) == 0 && st.st_dev == a->dev &&
	    st.st_ino == a->ino)
		unlink(path_of(a));
}

void metrics_address_text(const struct metrics_address *a, int fd, char *text, size_t size)
{
	struct sockaddr_storage at = { .ss_family = AF_UNSPEC };
	socklen_t n = sizeof at;
	char host[INET6_ADDRSTRLEN] = "";

	if (a->at.ss_family == AF_UNIX) {
		snprintf(text, size, "%s", path_of(a));
		return;
	}
	getsockname(fd, (struct sockaddr *)&at, &n);
	if (at.ss_family == AF_INET6) {
		const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&at;

		inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
		snprintf(text, size, "http://[%s]:%u/", host, ntohs(six->sin6_port));
	} else {
		const struct sockaddr_in *four = (const struct sockaddr_in *)&at;

		inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
		snprintf(text, size, "http://%s:%u/", host, ntohs(four->sin_port));
	}
}
