/* What a trainer's waiting is counted as: a sample for its state clock. */
#ifndef BATCHD_CLOCK_SAMPLE_H
#define BATCHD_CLOCK_SAMPLE_H

#include <stdbool.h>

#include "batch/pool/pool.h"
#include "batch/shortage.h"
#include "batch/state-clock.h"

/* All of it in one state. */
struct clock_sample clock_sample_of(enum clock_state state);
/* The trainer waits for rows. c: its clock, for what its workers did lately. copies: its workers copy rows of arrays. */
struct clock_sample clock_sample_of_rows(const struct pool_look *look, bool copies, const struct state_clock *c);
/* The trainer waits for something else, or for nothing: for the hand-over. */
struct clock_sample clock_sample_of_shortage(enum shortage shortage);

#endif
