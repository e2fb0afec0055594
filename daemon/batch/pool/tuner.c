/* See tuner.h. Starts with every processor, because every trainer waits for the first batch. When a trainer waits, a
 * worker is added at once. A worker is idled only after many calm batches, and each time that proves wrong the patience
 * doubles, so that the number settles instead of swinging. */
#include "batch/pool/tuner.h"

#include <assert.h>
#include <stdio.h>

#include "base/thread-kind.h"

enum { PATIENCE_MIN = 64, PATIENCE_MAX = 4096 };

static void set_target(struct tuner *t, unsigned n)
{
	assert(n >= 1 && n <= t->max);
	t->target = n;
	pool_set_target(t->pool, n);
}

void tuner_init(struct tuner *t, struct pool *pool, unsigned max, bool fixed)
{
	assert(is_loop_thread());
	assert(pool && max > 0);
	*t = (struct tuner){ .pool = pool, .max = max, .target = max, .fixed = fixed, .patience = PATIENCE_MIN };
	snprintf(t->why, sizeof(t->why), fixed ? "set in the configuration" : "one per processor this daemon may use");
}

void tuner_note(struct tuner *t, bool waited)
{
	assert(is_loop_thread());
	assert(t->target >= 1 && t->target <= t->max);
	if (t->fixed)
		return;
	if (!waited) {
		if (++t->n_calm < t->patience || t->target == 1)
			return;
		t->n_calm = 0;
		set_target(t, t->target - 1);
		snprintf(t->why, sizeof(t->why), "no trainer waited for %u batches: one of %u rests", t->patience,
			 t->max);
		return;
	}
	t->n_calm = 0;
	if (t->target == t->max)
		return;
	set_target(t, t->target + 1);
	if (t->patience < PATIENCE_MAX)
		t->patience *= 2;
	snprintf(t->why, sizeof(t->why), "a trainer waited with %u workers: one more", t->target - 1);
}

unsigned tuner_set(struct tuner *t, unsigned n)
{
	assert(is_loop_thread());
	assert(t->pool);
	t->fixed = n != 0;
	t->n_calm = 0;
	t->patience = PATIENCE_MIN;
	set_target(t, n == 0 || n > t->max ? t->max : n);
	snprintf(t->why, sizeof(t->why),
		 t->fixed ? "set in the configuration" : "one per processor this daemon may use");
	return t->target;
}
