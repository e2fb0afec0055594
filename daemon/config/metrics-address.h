/* Where metrics are served, as text: "127.0.0.1:9464", "[::1]:9464", "unix:/run/batchd/metrics", or with "public:"
 * before an address that other machines can reach. */
#ifndef BATCHD_METRICS_ADDRESS_H
#define BATCHD_METRICS_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

struct metrics_address {
	struct sockaddr_storage at;
	socklen_t n_bytes;
	dev_t dev; /* a Unix socket's file, once it listens */
	ino_t ino;
	bool public; /* it may be reached from other machines, as the text says */
};

/* 0; -EINVAL: *why is static text that says what was expected. */
int metrics_address_parse(const char *text, struct metrics_address *a, const char **why);
/* A listening, non-blocking, close-on-exec stream socket, or a negative errno. The file of a Unix socket lets in the users
 * that trainers' socket lets in: it has the group and mode of that file, which is at `trainers` (NULL: none, and mode
 * 0600). With "public:" it has mode 0666. What a peer sees depends on its user in any case. It replaces a file that nothing
 * listens on. */
int metrics_address_listen(struct metrics_address *a, const char *trainers);
/* Removes a Unix socket's file, if it is still the one that listens. */
void metrics_address_remove(const struct metrics_address *a);
/* "http://127.0.0.1:9464/" or the path, of a listening socket: port 0 has become a real one. */
void metrics_address_text(const struct metrics_address *a, int fd, char *text, size_t size);

#endif
