/* See filling.h. */
#include "batch/filling.h"

#include <stddef.h>

enum {
	FIRST_ROWS = 8,             /* of which the shortest begins the median */
	STEPS = 64,                 /* of the median: each row moves it by so small a part of it */
	FIRST_CREDIT_NS = 25000000, /* so that a small data set is kept at once */
	MOST_CREDIT_ROWS = 64,      /* what a worker may save up */
};

static struct filling_account *account_of(struct filling *f, const void *cache)
{
	for (unsigned i = 0; i < FILLING_ACCOUNTS; i++) {
		if (f->accounts[i].cache == cache)
			return &f->accounts[i];
	}
	struct filling_account *a = &f->accounts[f->next++ % FILLING_ACCOUNTS];
	*a = (struct filling_account){ .cache = cache, .credit_ns = FIRST_CREDIT_NS };
	return a;
}

/* Each row moves the estimate by the same step, whatever it took, so as many rows lie above it as below. */
static void learn(struct filling_time *t, uint64_t ns)
{
	if (t->n < FIRST_ROWS) {
		if (t->n++ == 0 || ns < t->ns)
			t->ns = ns;
		return;
	}
	uint64_t step = t->ns / STEPS + 1;
	if (ns > t->ns)
		t->ns += step;
	else if (t->ns > step)
		t->ns -= step;
}

static uint64_t extra_ns(const struct filling_account *a)
{
	uint64_t plain = a->usual[FILLING_PLAIN].ns, kept = a->usual[FILLING_KEPT].ns;
	return kept > plain ? kept - plain : 0;
}

bool filling_may(struct filling *f, const void *cache, bool hurried)
{
	const struct filling_account *a = account_of(f, cache);
	if (!hurried)
		return true;
	return a->usual[FILLING_PLAIN].n == FIRST_ROWS && a->credit_ns >= (int64_t)extra_ns(a);
}

void filling_note(struct filling *f, const void *cache, enum filling_row row, uint64_t ns, unsigned part)
{
	struct filling_account *a = account_of(f, cache);
	if (ns)
		learn(&a->usual[row], ns);
	int64_t plain = (int64_t)a->usual[FILLING_PLAIN].ns, most = plain * MOST_CREDIT_ROWS;
	if (plain == 0)
		return; /* every row fills, because no trainer waits: nothing is known of rows that do not */
	if (most < FIRST_CREDIT_NS)
		most = FIRST_CREDIT_NS;
	a->credit_ns += plain + plain / (int64_t)part - (int64_t)a->usual[row].ns;
	if (a->credit_ns > most)
		a->credit_ns = most;
}
