#include "link/backoff.h"

unsigned backoff_next_ms(struct backoff *b)
{
	if (!b->last_ms)
		b->last_ms = b->first_ms;
	else
		b->last_ms = b->last_ms < b->most_ms / 2 ? 2 * b->last_ms : b->most_ms;
	return b->last_ms;
}
