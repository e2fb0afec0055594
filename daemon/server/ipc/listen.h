/* The daemon's listening socket: taken over from systemd, or made here with a lock that keeps two daemons off one
 * path. */
#ifndef BATCHD_LISTEN_H
#define BATCHD_LISTEN_H

#include <stdbool.h>
#include <sys/types.h>

#include "address.h"

struct listener {
	int fd;       /* SOCK_SEQPACKET, listening, non-blocking, close-on-exec */
	int lock_fd;  /* held for the process's life; -1 when the socket is systemd's */
	bool adopted; /* systemd made it: do not remove its file */
	bool made_directory;
	dev_t dev;                    /* identity of the file of our own socket, */
	ino_t ino;                    /* so that only this file is removed */
	char path[ADDRESS_MAX_BYTES]; /* for messages; "" when an adopted socket has none */
};

#define LISTENER_CLOSED (struct listener){ .fd = -1, .lock_fd = -1 }

struct listen_error {
	char text[320]; /* names the path and says what to do */
};

/* path: absolute. mode: of the socket's file. group: (gid_t)-1 keeps it. Makes the socket's directory if only that is
 * missing. 0; -EADDRINUSE: another daemon is alive there; other negative errno. Call it before any thread starts (it
 * sets the umask for a moment). */
int listener_open(struct listener *l, const char *path, mode_t mode, gid_t group, struct listen_error *err);

/* Takes over the socket that systemd opened. 1: done; 0: there is none; -EINVAL: it is not one listening SOCK_SEQPACKET
 * socket. */
int listener_adopt(struct listener *l, struct listen_error *err);

/* Closes it; removes socket, lock and directory if this process made them. A closed listener is allowed. Safe in a
 * signal handler. */
void listener_close(struct listener *l);

#endif
