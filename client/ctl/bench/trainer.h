/* A trainer process that bench drives, seen from bench. Trainers and bench exchange lines of JSON over pipes:
 *
 *   to it     {"epoch": E, "until_ns": T}   run one epoch, until CLOCK_MONOTONIC T at the latest (0: no limit)
 *             end of file                   leave
 *   from it   {"event": "opening", ...}     phase, done, total
 *             {"event": "progress", ...}    images of the running epoch
 *             {"event": "opened", ...}      once; what the loader serves
 *             {"event": "epoch", ...}       the epoch's counts, times and waits
 *             {"event": "error", ...}       code, text; the last line
 */
#ifndef BATCHCTL_TRAINER_H
#define BATCHCTL_TRAINER_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "ctl/term/progress.h"

struct trainer {
	pid_t pid;    /* 0: none */
	int to, from; /* pipes; -1: closed */
	char *buffer; /* received, without a whole line */
	size_t n_bytes, capacity;
	uint64_t images; /* of the running epoch */
	json_t *answer;  /* "opened" or "epoch"; owned until the next question */
	int failed;      /* a batchd code, 0: none */
};

/* config: bench-trainer's argument. 0 or negative errno. */
int trainer_start(struct trainer *t, const json_t *config);
/* Asks all trainers for one epoch. */
void trainers_run(struct trainer *list, unsigned n, uint64_t epoch, uint64_t until_ns);
/* Waits until every trainer has answered: 0, or the code of the first that failed (complained about), or 1 when
 * interrupted. */
int trainers_wait(struct trainer *list, unsigned n, struct progress *progress, const atomic_bool *interrupted);
/* Asks the trainers to leave, waits for their end, kills those that do not leave. Safe on zeroed structs. */
void trainers_stop(struct trainer *list, unsigned n, bool kill_them);

#endif
