/* See fair-turn.h. */
#include "base/fair-turn.h"

bool fair_turn_take(struct fair_turn *h, uint64_t number, uint64_t *round)
{
	if (h->number != number) {
		h->number = number;
		h->spent_ns = 0;
		h->round += !h->passed_over; /* a round ends with the first turn in which no connection had to wait */
		h->passed_over = false;
	}
	if (*round == h->round)
		return false;
	if (h->spent_ns >= FAIR_TURN_NS) {
		h->passed_over = true;
		return false;
	}
	*round = h->round;
	return true;
}

void fair_turn_spend(struct fair_turn *h, uint64_t ns)
{
	h->spent_ns += ns;
}
