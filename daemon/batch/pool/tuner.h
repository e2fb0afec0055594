/* Decides how many workers run: more while a trainer waits, fewer while none does. Loop thread only. */
#ifndef BATCHD_TUNER_H
#define BATCHD_TUNER_H

#include <stdbool.h>

#include "batch/pool/pool.h"

struct tuner {
	struct pool *pool;
	unsigned max, target;
	bool fixed;
	unsigned n_calm;   /* batches published in a row for which no trainer waited */
	unsigned patience; /* how many such batches before one worker is idled */
	char why[160];     /* for status */
};

/* max: the limit from affinity and quota, or the configured number (fixed). */
void tuner_init(struct tuner *t, struct pool *pool, unsigned max, bool fixed);
/* A batch was published; whether its trainer was waiting for it. */
void tuner_note(struct tuner *t, bool waited);
/* Sets a fixed number, or 0: decide automatically. Returns the number now in force (no more than there are threads). */
unsigned tuner_set(struct tuner *t, unsigned n);

#endif
