/* A trainer's state clock: how long it was in each of a few states, in all and over the last minute, as samples tell.
 *
 * Exactly one state holds at any moment, so the shares of any period sum to 1. A trainer that has a batch, or has one
 * ready to take, is busy; in every state from CLOCK_READ to CLOCK_MEMORY it has asked for a batch that is not there, and
 * the state names what the batch waits for.
 *
 * A sample stands for the time since the one before, however late it is. No allocation, no lock; one thread's. */
#ifndef BATCHD_STATE_CLOCK_H
#define BATCHD_STATE_CLOCK_H

#include <stdint.h>

enum clock_state {
	CLOCK_BUSY,      /* the trainer has a batch, or one is ready: input is not the limit */
	CLOCK_READ,      /* a row's file is being read */
	CLOCK_DECODE,    /* workers decode */
	CLOCK_TRANSFORM, /* workers run the ops of the pipeline */
	CLOCK_GPU_COPY,  /* the batch is made and is being copied to the trainer's GPU */
	CLOCK_ORDER,     /* the epoch's order is being made, or the trainer's own sampler has sent no indices */
	CLOCK_PRODUCER,  /* the producer of a served data set makes the batch */
	CLOCK_PEER,      /* other trainers of the job hold the slots, or are not yet where this one waits for them */
	CLOCK_MEMORY,    /* no slot is free although no other trainer holds one, or workers wait for working memory */
	CLOCK_IDLE,      /* the trainer has asked for nothing: before its first batch, and between epochs */
	CLOCK_N_STATES
};

extern const char *const clock_state_names[CLOCK_N_STATES];

/* While the trainer waits for rows: what workers do, in worker time. */
enum clock_work {
	WORK_READ, /* at its own rows, like the next three */
	WORK_DECODE,
	WORK_TRANSFORM,
	WORK_MEMORY,
	WORK_OTHERS, /* at rows of others */
	WORK_IDLE,   /* a worker that could make its rows, and a processor for it, have nothing to do */
	WORK_WAITED, /* the time itself */
	WORK_N
};

/* What a trainer does at a moment. Its waiting for rows is divided by what the workers do, so several states may have a
 * part of it. */
struct clock_sample {
	double part[CLOCK_N_STATES]; /* they sum to 1 */
	double work[WORK_N];         /* workers */
};

struct clock_times {
	uint64_t us[CLOCK_N_STATES], work_us[WORK_N];
};

enum { CLOCK_SECONDS = 64 }; /* how far back it can look */

struct state_clock {
	uint64_t at_ns;         /* of the last sample; CLOCK_MONOTONIC */
	enum clock_state state; /* the greatest part of it */
	uint64_t first_second;
	struct clock_times total;
	struct clock_second {
		uint32_t us[CLOCK_N_STATES], work_us[WORK_N];
	} second[CLOCK_SECONDS]; /* at_ns's, and those before; by their number, modulo */
};

void state_clock_begin(struct state_clock *c, uint64_t now_ns);
void state_clock_add(struct state_clock *c, uint64_t now_ns, const struct clock_sample *sample);
/* Of the last n seconds before the last sample, at most CLOCK_SECONDS; the oldest of them and the present one count in
 * whole seconds of the clock. 0: of all time. */
void state_clock_last(const struct state_clock *c, unsigned n_seconds, struct clock_times *out);

#endif
