/* What `batchctl top` shows, read from the daemon's status: a row for each trainer. Every key may be missing. */
#ifndef BATCHCTL_TOP_ROWS_H
#define BATCHCTL_TOP_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

/* Of a trainer's clock, in the order of columns. */
enum top_state {
	TOP_READ,
	TOP_DECODE,
	TOP_TRANSFORM,
	TOP_COPY,
	TOP_ORDER,
	TOP_PRODUCER,
	TOP_PEER,
	TOP_MEMORY,
	TOP_BUSY,
	TOP_IDLE,
	TOP_N_STATES
};
extern const char *const top_state_names[TOP_N_STATES]; /* the status's */
enum { TOP_N_STARVED = TOP_BUSY };                      /* those before are time lost */

enum top_sort { TOP_BY_LOST, TOP_BY_WAIT, TOP_BY_RATE, TOP_BY_JOB, TOP_N_SORTS };
extern const char *const top_sort_names[TOP_N_SORTS + 1]; /* "lost", ...; ends with NULL */

struct top_row {
	char job[132], program[68], state[40];
	int rank;
	long pid, uid;
	bool stalled, has_clock;
	double share[TOP_N_STATES]; /* of the last 10 seconds; sums to 1 */
	double wait;                /* the part of it that was lost */
	double lost_s;              /* since it connected */
	double images_per_s;        /* since the look before, or since it connected */
	double ready, window;       /* batches; window: of its stream */
	int cause;                  /* enum top_state: the largest lost one; -1: none */
};

struct top_rows {
	struct top_row *row;
	size_t n;
};

/* last: the status at the look before, `seconds` ago, or NULL. job: only this job's trainers, or NULL. 0 or -ENOMEM. */
int top_rows_make(struct top_rows *rows, const json_t *status, const json_t *last, double seconds, const char *job);
void top_rows_sort(struct top_rows *rows, enum top_sort by);
void top_rows_finish(struct top_rows *rows);
/* A new reference; NULL: out of memory. */
json_t *top_rows_json(const struct top_rows *rows);

#endif
