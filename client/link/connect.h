/* Finding and greeting a daemon. */
#ifndef BATCHD_CLIENT_CONNECT_H
#define BATCHD_CLIENT_CONNECT_H

#include <stdbool.h>

#include "address.h"
#include "link/error.h"
#include "wire.h"

struct connection {
	int socket; /* blocking, close-on-exec; -1: none */
	char address[ADDRESS_MAX_BYTES];
	bool own;         /* a daemon of this user's, not the system's */
	char notice[640]; /* which daemon is used and why, where a user may wonder; else "" */
	unsigned char bytes[WIRE_MAX_BYTES];
	struct wire_arena arena; /* of the last message received */
	char daemon_version[WIRE_MAX_PROGRAM + 1];
	struct fault said; /* the daemon's Error, after which it hangs up; code 0: none yet */
};

/* address: NULL for the rule in address.h. Connects, starting a daemon if allowed and necessary, and says hello. 0 or a
 * batchd code with f. */
int connection_open(struct connection *c, const char *address, bool autostart, const char *program, struct fault *f);
void connection_close(struct connection *c);
/* For one question: an open connection to a daemon that is there, or NULL with f. */
struct connection *connection_for_question(const char *address, struct fault *f);
void connection_answered(struct connection *c);
/* Whether `code`, the result of opening with this address, may be passing, because the daemon is being restarted: it
 * was stopping, or went away, or no daemon listens at the address that the argument or the environment named, though
 * its directory is there. */
bool connection_may_return(const char *address, int code);
/* How long a call that comes in the middle of a restart waits for it. A misspelt socket name is reported only after
 * that time. */
enum { CONNECTION_RETURN_MS = 3000, CONNECTION_LOOK_MS = 50, CONNECTION_LOOK_MOST_MS = 1000 };
/* For this part of the time the library expects the daemon back at its own socket; then it takes any, one that it
 * starts included. */
enum { CONNECTION_SAME_SHARE = 6 };

/* Receives one message, valid until the next. An Error from the daemon, its end and malformed messages become f; the end
 * of a daemon that sent an Error becomes that Error again, so a caller that takes messages on the side hides none. flags:
 * MSG_DONTWAIT or 0. fds may be NULL, or has room for CONNECTION_FDS descriptors (-1: none), which the caller closes.
 * 0; BATCHD_AGAIN: nothing there, a signal came, or the socket's time-out (a second) passed; or a batchd code. */
enum { CONNECTION_FDS = WIRE_OPENED_FDS };
int connection_recv(struct connection *c, int flags, const Batchd__Wire__ServerMessage **msg, int *fds,
		    struct fault *f);

/* Sends one message, waits for room if necessary. 0 or a negative errno. Callers serialise. */
int connection_send(struct connection *c, Batchd__Wire__ClientMessage *m, const int *fds, unsigned n_fds);

/* Writes why sending failed: the daemon's reason if it left one, else that it has gone. Returns f->code. */
int connection_lost(struct connection *c, struct fault *f);

#endif
