/* Which setting a group of trials speaks for. Machines are noisy and defaults adapt to what changes later, so a fixed
 * number is chosen only where it is clearly better than the default: by 2.5 %, and in every round. Two settings are
 * compared round by round, so that a machine whose speed changes meanwhile changes both sides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/tune/tune.h"

static const double CLEARLY = 1.025; /* two choices one after the other stay within 5 % of the best */

static int tune_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double tune_median(const double *values, unsigned n)
{
	double sorted[TUNE_MOST_ROUNDS];

	if (!n)
		return 0;
	memcpy(sorted, values, n * sizeof *values);
	qsort(sorted, n, sizeof *sorted, tune_by_value);
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static const struct tune_trial *find_value(const struct tune *t, enum tune_group group, const char *value)
{
	for (unsigned i = 0; i < t->n_trials; i++)
		if (t->trial[i].group == group && t->trial[i].median > 0 && !strcmp(t->trial[i].value, value))
			return &t->trial[i];
	return NULL;
}

static const struct tune_trial *find_best(const struct tune *t, enum tune_group group)
{
	const struct tune_trial *best = NULL;

	for (unsigned i = 0; i < t->n_trials; i++)
		if (t->trial[i].group == group && t->trial[i].median > 0 &&
		    (!best || t->trial[i].median > best->median))
			best = &t->trial[i];
	return best;
}

/* How many times as fast a is as b: the median of the rounds that both have. */
static double ratio(const struct tune_trial *a, const struct tune_trial *b)
{
	double of[TUNE_MOST_ROUNDS];
	unsigned n = a->n_rounds < b->n_rounds ? a->n_rounds : b->n_rounds;

	for (unsigned i = 0; i < n; i++)
		of[i] = a->rate[i] / b->rate[i];
	return tune_median(of, n);
}

static bool is_clearly_faster(const struct tune_trial *a, const struct tune_trial *b)
{
	unsigned n = a->n_rounds < b->n_rounds ? a->n_rounds : b->n_rounds;

	for (unsigned i = 0; i < n; i++)
		if (a->rate[i] <= b->rate[i])
			return false;
	return ratio(a, b) > CLEARLY;
}

/* The first number of the group, in its order, that is nearly as good as the best trial. */
static const struct tune_trial *find_least(const struct tune *t, enum tune_group group)
{
	const struct tune_trial *best = find_best(t, group);

	for (unsigned i = 0; best && i < t->n_trials; i++) {
		const struct tune_trial *x = &t->trial[i];

		if (x->group == group && x->median > 0 && strcmp(x->value, "auto") != 0 && ratio(best, x) <= CLEARLY)
			return x;
	}
	return best;
}

/* Workers and slots: auto, unless a number is clearly better. NULL: auto. */
static const struct tune_trial *choose_number(struct tune *t, enum tune_group group, const char *what)
{
	const struct tune_trial *automatic = find_value(t, group, "auto"), *least = find_least(t, group);
	char *reason = t->choice.reason[group];
	size_t size = sizeof t->choice.reason[group];

	if (!least)
		return NULL;
	if (automatic && (least == automatic || !is_clearly_faster(least, automatic))) {
		if (least == automatic)
			snprintf(reason, size, "%s: auto makes %.0f images/s; no number makes as many", what,
				 automatic->median);
		else
			snprintf(reason, size, "%s: auto makes %.0f images/s; %s makes %.0f, which is not clearly more",
				 what, automatic->median, least->value, least->median);
		return NULL;
	}
	snprintf(reason, size, "%s: %s makes %.0f images/s, auto %.0f; more brings less than 2.5 %%", what,
		 least->value, least->median, automatic ? automatic->median : 0);
	return least;
}

static void choose_pin(struct tune *t)
{
	const struct tune_trial *off = find_value(t, TUNE_PIN, "off"), *on = find_value(t, TUNE_PIN, "on");
	char *reason = t->choice.reason[TUNE_PIN];
	size_t size = sizeof t->choice.reason[TUNE_PIN];

	if (!off || !on)
		return;
	t->choice.pin_on = is_clearly_faster(on, off);
	t->choice.pin_off = is_clearly_faster(off, on);
	snprintf(reason, size,
		 "pin_memory: %s; batches on a GPU come with %.0f images/s from pinned memory, %.0f without",
		 t->choice.pin_on    ? "on"
		 : t->choice.pin_off ? "off"
				     : "auto",
		 on->median, off->median);
}

static void choose_cache(struct tune *t)
{
	const struct tune_trial *off = find_value(t, TUNE_CACHE, "off"), *on = find_value(t, TUNE_CACHE, "auto");
	char *reason = t->choice.reason[TUNE_CACHE];
	size_t size = sizeof t->choice.reason[TUNE_CACHE];

	if (!off || !on)
		return;
	t->choice.decoded_off = is_clearly_faster(off, on);
	snprintf(reason, size,
		 "caches: %s; epochs after the first make %.0f images/s with them and %.0f without (%.2f x)",
		 t->choice.decoded_off ? "off" : "auto", on->median, off->median, on->median / off->median);
}

static void choose_dtype(struct tune *t)
{
	const struct tune_trial *wide = find_value(t, TUNE_DTYPE, "float32"), *best = find_best(t, TUNE_DTYPE);

	if (!find_value(t, TUNE_DTYPE, "uint8")) /* arrays, which come as they are stored */
		return;
	if (wide && best == wide)
		snprintf(t->choice.reason[TUNE_DTYPE], sizeof t->choice.reason[TUNE_DTYPE],
			 "dtype: float32 makes %.0f images/s; no other type makes as many", wide->median);
	else if (wide && best)
		snprintf(
			t->choice.reason[TUNE_DTYPE], sizeof t->choice.reason[TUNE_DTYPE],
			"dtype: %s is the fastest with %.0f images/s, float32 makes %.0f; the model decides which it takes",
			best->value, best->median, wide->median);
}

static void choose_torch(struct tune *t)
{
	const struct tune_trial *torch = find_best(t, TUNE_TORCH), *ours = find_best(t, TUNE_WORKERS);
	const struct tune_trial *cached = find_value(t, TUNE_CACHE, "auto");

	if (!torch || !ours)
		return;
	char *reason = t->choice.reason[TUNE_TORCH];
	size_t size = sizeof t->choice.reason[TUNE_TORCH];
	int n = snprintf(
		reason, size,
		"PyTorch's DataLoader: at best %.0f images/s, with num_workers=%s; batchd makes %.1f times that in the "
		"first epoch",
		torch->median, torch->value, ours->median / torch->median);

	if (cached && n > 0 && (size_t)n < size)
		snprintf(reason + n, size - (size_t)n, ", %.1f times in later ones", cached->median / torch->median);
}

void tune_choose(struct tune *t, enum tune_group group)
{
	const struct tune_trial *chosen;

	switch (group) {
	case TUNE_WORKERS:
		chosen = choose_number(t, group, "workers");
		t->choice.workers = chosen ? chosen->workers : 0;
		break;
	case TUNE_SLOTS:
		chosen = choose_number(t, group, "slots");
		t->choice.slots = chosen ? chosen->slots : 0;
		break;
	case TUNE_CACHE:
		choose_cache(t);
		break;
	case TUNE_DTYPE:
		choose_dtype(t);
		break;
	case TUNE_PIN:
		choose_pin(t);
		break;
	default:
		choose_torch(t);
		break;
	}
}
