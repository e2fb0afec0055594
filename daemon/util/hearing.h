/* Hearing: how the time of one turn of the loop is shared among users, and a user's share among that user's
 * connections.
 *
 * In a turn all connections of a user are heard for HEARING_NS together; those that had to wait come first in the next,
 * before anybody is heard twice. So however many connections a user floods us through, other users' wait no longer than
 * that, and that user's own each get on. Loop thread only. */
#ifndef BATCHD_HEARING_H
#define BATCHD_HEARING_H

#include <stdbool.h>
#include <stdint.h>

enum { HEARING_NS = 1000000 };

/* A user's. Zeroed: nobody has been heard. */
struct hearing {
	uint64_t number;   /* the loop's turn that the rest is about */
	uint64_t spent_ns; /* in it */
	uint64_t round;    /* in which each connection is heard once before one is again */
	bool passed_over;  /* somebody had to wait in this turn */
};

/* Whether a connection is heard in the loop's turn `number` (from 1 on). *round is the connection's: the last round in
 * which it was heard, 0 at first. */
bool hearing_take(struct hearing *h, uint64_t number, uint64_t *round);
/* A connection has been heard for that long. */
void hearing_spend(struct hearing *h, uint64_t ns);

#endif
