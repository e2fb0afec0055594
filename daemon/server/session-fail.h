/* How a session's client hears that its request is refused. Loop thread only. */
#ifndef BATCHD_SESSION_FAIL_H
#define BATCHD_SESSION_FAIL_H

#include "server/refusal.h"

struct session;

/* Ends the connection with an Error; see peer_fail. field: NULL or "" for none. */
void session_fail(struct session *s, Batchd__Wire__ErrorCode code, const char *field, const char *text);
/* For calls with an outcome: tells the client if it is a refusal. */
void session_note(struct session *s, int r, const struct refusal *why);

#endif
