/* How the time of one turn of the loop is shared among users, and a user's share among that user's
 * connections.
 *
 * In a turn all connections of a user together are heard for FAIR_TURN_NS. Connections that had to wait come first in the
 * next turn, before any connection is heard twice. So however many connections a user floods the daemon with, other
 * users wait no longer than that, and each of that user's own connections makes progress. Loop thread only. */
#ifndef BATCHD_FAIR_TURN_H
#define BATCHD_FAIR_TURN_H

#include <stdbool.h>
#include <stdint.h>

enum { FAIR_TURN_NS = 1000000 };

/* The state of one user. Zeroed: no connection has been heard. */
struct fair_turn {
	uint64_t number;   /* the loop's turn to which the other members refer */
	uint64_t spent_ns; /* in that turn */
	uint64_t round;    /* in which each connection is heard once before any is heard again */
	bool passed_over;  /* a connection had to wait in this turn */
};

/* Whether a connection is heard in the loop's turn `number` (from 1 on). *round is the connection's: the last round in
 * which it was heard, 0 at first. */
bool fair_turn_take(struct fair_turn *h, uint64_t number, uint64_t *round);
/* A connection has been heard for that long. */
void fair_turn_spend(struct fair_turn *h, uint64_t ns);

#endif
