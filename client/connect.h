/* Finding and greeting a daemon. */
#ifndef BATCHD_CLIENT_CONNECT_H
#define BATCHD_CLIENT_CONNECT_H

#include <stdbool.h>

#include "address.h"
#include "error.h"
#include "wire.h"

struct connection {
	int socket; /* blocking, close-on-exec; -1: none */
	char address[ADDRESS_MAX_BYTES];
	bool own;         /* a daemon of this user's, not the system's */
	char notice[640]; /* which one it is and why, where a user may wonder; else "" */
	unsigned char bytes[WIRE_MAX_BYTES];
	struct wire_arena arena; /* of the last message received */
	char daemon_version[WIRE_MAX_PROGRAM + 1];
};

/* address: NULL for the rule in address.h. Connects, starting a daemon if allowed and necessary, and says hello. 0 or a
 * batchd code with f. */
int connection_open(struct connection *c, const char *address, bool autostart, const char *program, struct fault *f);
void connection_close(struct connection *c);
/* Whether `code`, which opening with this address gave, may pass because the daemon is just being restarted: it was
 * stopping, or went away, or nobody is at the address that was named, by the argument or the environment, though its
 * directory is there. */
bool connection_may_return(const char *address, int code);
/* How long a restart may take, for those who come in the middle of it; a misspelt name of a socket is told no sooner.
 */
enum { CONNECTION_RETURN_MS = 3000, CONNECTION_LOOK_MS = 50 };
/* For this part of the time a daemon is expected back at its own socket; then any will do, one of our own included. */
enum { CONNECTION_SAME_SHARE = 6 };

/* Receives one message, valid until the next. A daemon's Error, its going away and nonsense become f. flags:
 * MSG_DONTWAIT or 0; fds may be NULL, or has room for CONNECTION_FDS of them, which are the caller's to close (-1:
 * none). 0; BATCHD_AGAIN: nothing there, a signal came, or the socket's time-out (a second) passed; or a batchd code.
 */
enum { CONNECTION_FDS = WIRE_OPENED_FDS };
int connection_recv(struct connection *c, int flags, const Batchd__Wire__ServerMessage **msg, int *fds,
		    struct fault *f);

/* Sends one message, waiting for room if need be. 0 or a negative errno. Callers serialise. */
int connection_send(struct connection *c, Batchd__Wire__ClientMessage *m, const int *fds, unsigned n_fds);

/* What sending said, in words: the daemon's reason if it left one, else that it has gone. Returns f->code. */
int connection_lost(struct connection *c, struct fault *f);

#endif
