/* Decides how many workers work: more while a trainer waits, fewer while nobody does. Loop thread only. */
#ifndef BATCHD_TUNER_H
#define BATCHD_TUNER_H

#include <stdbool.h>

#include "core/pool.h"

struct tuner {
	struct pool *pool;
	unsigned max, target;
	bool fixed;
	unsigned n_calm;   /* batches published in a row for which nobody waited */
	unsigned patience; /* how many of them before one worker is sent to rest */
	char why[160];     /* for status */
};

/* max: what affinity and quota allow, or the configured number (fixed). */
void tuner_init(struct tuner *t, struct pool *pool, unsigned max, bool fixed);
/* A batch was published; whether its trainer was waiting for it. */
void tuner_note(struct tuner *t, bool waited);
/* A fixed number from now on, or 0: decide again. Returns what is now in force (no more than there are threads). */
unsigned tuner_set(struct tuner *t, unsigned n);

#endif
