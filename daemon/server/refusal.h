/* A refusal: why a client's request failed, as told to the client and the log.
 *
 * A function that may refuse returns REFUSED and fills in a refusal. Only the session's own files (session-fail.c) tell
 * the client and end the session, so the objects that a refusing function uses stay valid until it returns. */
#ifndef BATCHD_REFUSAL_H
#define BATCHD_REFUSAL_H

#include "wire.h"

enum { REFUSED = 1 };

struct refusal {
	Batchd__Wire__ErrorCode code;
	const char *field;        /* static; "" or NULL: no field is at fault */
	char text[WIRE_MAX_TEXT]; /* may hold a producer's traceback */
};

/* Fills it in; returns REFUSED. */
int refuse(struct refusal *why, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
int refuse_memory(struct refusal *why); /* "out of memory" */

#endif
