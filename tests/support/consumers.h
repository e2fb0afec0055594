/* Consumers without a ring, for tests of streams: a trainer that works on the oldest batch it has, has not taken the
 * others, and says when it waits. */
#ifndef BATCHD_TESTS_CONSUMERS_H
#define BATCHD_TESTS_CONSUMERS_H

#include "batch/stream.h"

static inline void consumer_look(struct consumer *c)
{
	c->n_unread = c->n_leases ? c->n_leases - 1 : 0;
}

/* It has taken its only batch since the look. */
static inline bool consumer_arm(struct consumer *c, uint32_t wake_at)
{
	(void)wake_at;
	return c->n_unread && c->n_leases <= 1;
}

/* The trainer has taken all its batches and waits for the next one. */
static inline void consumer_waits(struct consumer *c)
{
	c->waiting = true;
	if (c->stream)
		stream_wake(c);
}

#endif
