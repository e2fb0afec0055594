/* A refusal: why a client does not get what it asked for, as it and the log are told.
 *
 * A function that may refuse returns REFUSED and fills one in. Only session.c tells the client and ends the session, so
 * nothing that a refusing function still has on its stack goes away under it. */
#ifndef BATCHD_REFUSAL_H
#define BATCHD_REFUSAL_H

#include "wire.h"

enum { REFUSED = 1 };

struct refusal {
	Batchd__Wire__ErrorCode code;
	const char *field;        /* static; "" or NULL: none is to blame */
	char text[WIRE_MAX_TEXT]; /* a producer tells its traceback */
};

/* Fills it in; returns REFUSED. */
int refuse(struct refusal *why, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
int refuse_memory(struct refusal *why); /* "out of memory" */

#endif
