/* See verdict.h. A prediction takes away what a change makes unnecessary, but never more than the next limit allows: with
 * twice the processors, rows still take half of their time. */
#include "watch/verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

enum {
	LEAST_US = 1000000,     /* a trainer's time before there is a verdict */
	LEAST_PERCENT = 5,      /* of its time that a trainer waits when its input is the limit */
	LEAST_GAIN_PERCENT = 5, /* of a change that is named */
	MOST_GAIN = 9,          /* beyond ten times the speed, an estimate from waits says nothing */
};

static const enum clock_state waiting[] = { CLOCK_READ,  CLOCK_DECODE,   CLOCK_TRANSFORM, CLOCK_GPU_COPY,
					    CLOCK_ORDER, CLOCK_PRODUCER, CLOCK_PEER,      CLOCK_MEMORY };
enum { N_WAITING = sizeof(waiting) / sizeof(*waiting) };

static double verdict_sum(const struct verdict_facts *f)
{
	double all = 0;
	for (unsigned i = 0; i < N_WAITING; i++)
		all += (double)f->times.us[waiting[i]];
	return all;
}

/* How much faster training is that takes `then` instead of `now`. */
static double gain(double now, double then)
{
	double g = then > 0 ? now / then - 1 : MOST_GAIN;
	return g < LEAST_GAIN_PERCENT / 100.0 ? 0 : g > MOST_GAIN ? MOST_GAIN : g;
}

static double greater(double a, double b)
{
	return a > b ? a : b;
}

/* ---- predictions ---- */

/* With so many times the processors at work. */
static double gain_of_more_cpu(const struct verdict_facts *f, double all, double times)
{
	double cpu = (double)f->times.us[CLOCK_DECODE] + (double)f->times.us[CLOCK_TRANSFORM];
	return cpu > 0 ? gain(all, greater(all - cpu, all / times)) : 0;
}

/* The least part of the time that the workers need for rows of which each takes `work` of what all rows took: they have
 * worked on them, or could have. */
static double least_part(const struct verdict_facts *f, double work)
{
	const uint64_t *us = f->times.work_us;
	double could = (double)us[WORK_READ] + (double)us[WORK_DECODE] + (double)us[WORK_TRANSFORM] +
		       (double)us[WORK_MEMORY] + (double)us[WORK_IDLE];
	return could > 0 ? work / could : 0;
}

/* Without waiting for files, workers still have all their work to do. */
static double gain_of_fast_files(const struct verdict_facts *f, double all)
{
	const uint64_t *us = f->times.work_us;
	double work = (double)us[WORK_READ] + (double)us[WORK_DECODE] + (double)us[WORK_TRANSFORM];
	return gain(all, greater(all - (double)f->times.us[CLOCK_READ], all * least_part(f, work)));
}

/* Rows then cost their transforms. The cache keeps the result of the first ops, up to one that draws, so it saves these as
 * well; ops share their work, so what each costs is not known. */
static void predict_decoded_cache(const struct verdict_facts *f, double all, struct verdict *v)
{
	double saved = (double)f->times.us[CLOCK_READ] + (double)f->times.us[CLOCK_DECODE] +
		       (double)f->times.us[CLOCK_TRANSFORM];
	if (f->is_decoded_cached || f->decoded_bytes <= 0 || f->times.us[CLOCK_READ] + f->times.us[CLOCK_DECODE] == 0)
		return;
	double bytes = f->decoded_bytes * (double)f->n_samples;
	bytes += bytes / 8; /* the margin that a loader asks for, too */
	v->decoded_bytes = bytes < (double)INT64_MAX ? (uint64_t)bytes : INT64_MAX;
	v->raise_memory = v->decoded_bytes > f->decoded_room_bytes;
	v->decoded_room_bytes = v->raise_memory ? f->most_decoded_room_bytes : f->decoded_room_bytes;
	if (v->decoded_bytes > v->decoded_room_bytes)
		return;
	v->at_least = f->caches_ops;
	double transforms = least_part(f, (double)f->times.work_us[WORK_TRANSFORM]);
	v->decoded_cache = gain(all, greater(all - saved, all * transforms));
}

/* ---- the line ---- */

static void add(struct verdict *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct verdict *v, const char *fmt, ...)
{
	size_t n = strlen(v->text);
	va_list args;
	va_start(args, fmt);
	vsnprintf(v->text + n, sizeof(v->text) - n, fmt, args);
	va_end(args);
}

static void add_gain(struct verdict *v, const char *what, double gained, bool at_least)
{
	const char *about = gained >= MOST_GAIN ? "more than" : at_least ? "at least" : "about";
	if (gained > 0)
		add(v, "; %s: %s +%.0f %% (estimate)", what, about, 100 * gained);
}

/* Workers, while the trainer waited for rows. */
static double mean_busy(const struct verdict_facts *f)
{
	const uint64_t *us = f->times.work_us;
	double busy = (double)us[WORK_READ] + (double)us[WORK_DECODE] + (double)us[WORK_TRANSFORM] +
		      (double)us[WORK_MEMORY] + (double)us[WORK_OTHERS];
	return us[WORK_WAITED] ? busy / (double)us[WORK_WAITED] : 0;
}

static void add_cause(const struct verdict_facts *f, struct verdict *v)
{
	static const char *const texts[CLOCK_N_STATES] = {
		[CLOCK_READ] = "reading the files",
		[CLOCK_DECODE] = "decode",
		[CLOCK_TRANSFORM] = "transform",
		[CLOCK_GPU_COPY] = "the copy to the GPU",
		[CLOCK_ORDER] = "the order (a shuffle, or the trainer's own sampler)",
		[CLOCK_PRODUCER] = "the producer",
		[CLOCK_PEER] = "other trainers of the job",
		[CLOCK_MEMORY] = "memory (too small a budget, or every slot held by this trainer)",
	};
	bool copies = v->cause == CLOCK_READ && f->copies;
	add(v, "%s", copies ? "copying rows of arrays" : texts[v->cause]);
	if (v->cause == CLOCK_DECODE || v->cause == CLOCK_TRANSFORM || copies)
		add(v, " (%.0f of %u workers busy, CPU quota %u)", mean_busy(f), f->n_workers, f->n_processors);
	const char *peer = f->why && *f->why ? f->why : f->slowest;
	if (v->cause == CLOCK_PEER && peer && *peer)
		add(v, " (%s)", peer);
}

static void add_predictions(const struct verdict_facts *f, struct verdict *v)
{
	char what[128], need[32], room[32];
	bool is_cpu = v->cause == CLOCK_DECODE || v->cause == CLOCK_TRANSFORM;
	snprintf(what, sizeof(what), "as many workers as processors (%u)", f->n_processors);
	if (is_cpu && v->more_workers > 0)
		add_gain(v, what, v->more_workers, false);
	else if (is_cpu)
		add_gain(v, "twice the CPU", v->more_cpu, false);
	else
		add_gain(v, v->cause == CLOCK_READ && !f->copies ? "without waiting for files" : "without that",
			 v->without, false);
	size_format(v->decoded_bytes, need, sizeof(need));
	size_format(v->decoded_room_bytes, room, sizeof(room));
	snprintf(what, sizeof(what), "decoded cache fits%s (%s of %s)", v->raise_memory ? " with more memory" : "",
		 need, room);
	add_gain(v, what, v->decoded_cache, v->at_least);
}

void verdict_make(const struct verdict_facts *f, struct verdict *v)
{
	double waited = verdict_sum(f), all = waited + (double)f->times.us[CLOCK_BUSY];
	*v = (struct verdict){ .known = all >= LEAST_US, .cause = CLOCK_BUSY };
	v->share = all > 0 ? waited / all : 0;
	v->input_bound = v->known && v->share >= LEAST_PERCENT / 100.0;
	for (unsigned i = 0; i < N_WAITING; i++)
		if (f->times.us[waiting[i]] > (v->cause == CLOCK_BUSY ? 0 : f->times.us[v->cause]))
			v->cause = waiting[i];
	if (!v->known) {
		add(v, "no verdict yet: rank %u has trained for %.1f s %s", f->rank, all / 1e6, f->period);
		return;
	}
	if (!v->input_bound) {
		add(v, "not input-bound %s: p99 wait %.0f us", f->period, (double)f->p99_wait_ns / 1000);
		if (f->why && *f->why)
			add(v, "; %s", f->why);
		return;
	}
	v->without = v->cause == CLOCK_READ && !f->copies ? gain_of_fast_files(f, all)
							  : gain(all, all - (double)f->times.us[v->cause]);
	v->more_cpu = gain_of_more_cpu(f, all, 2);
	if (f->n_most_workers && f->n_most_workers < f->n_processors)
		v->more_workers = gain_of_more_cpu(f, all, (double)f->n_processors / f->n_most_workers);
	if (v->cause != CLOCK_PEER)
		predict_decoded_cache(f, all, v);
	/* A slow peer is no fault of the input, and no cache helps against it. */
	add(v,
	    v->cause == CLOCK_PEER ? "held up %.0f %% of rank %u's time %s, not by the input: "
				   : "input-bound %.0f %% of rank %u's time %s: ",
	    100 * v->share, f->rank, f->period);
	add_cause(f, v);
	add_predictions(f, v);
}
