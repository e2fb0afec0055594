/* The progress of a long command, on stderr: a bar with rate and remaining time on a terminal, a plain line every few
 * seconds in a log, JSON lines for programs. Standard output stays free for the result. One thread. */
#ifndef BATCHCTL_PROGRESS_H
#define BATCHCTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum progress_style { PROGRESS_QUIET, PROGRESS_BAR, PROGRESS_LINES, PROGRESS_JSON };

struct progress {
	enum progress_style style;
	const char *phase; /* "verify"; borrowed */
	const char *unit;  /* "files"; borrowed */
	uint64_t total;    /* 0: not known */
	uint64_t begun_ns, shown_ns;
	uint64_t mark_ns, mark_done; /* where the current rate is measured from */
	double rate;                 /* units per second, of the last seconds */
	bool shown;                  /* a bar is on the screen */
};

/* JSON if requested, else a bar if stderr is a terminal, else lines. */
enum progress_style progress_style_for(bool json, bool quiet);

void progress_begin(struct progress *p, enum progress_style style, const char *phase, const char *unit, uint64_t total);
/* Cheap when it is not yet time to show something. */
void progress_update(struct progress *p, uint64_t done);
/* Removes the bar, so that the result stands alone. */
void progress_end(struct progress *p);

uint64_t progress_now_ns(void); /* CLOCK_MONOTONIC */

#endif
