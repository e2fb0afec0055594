/* A state clock: how long something was in each of a few states, in all and over the last minute.
 *
 * The states of a trainer: exactly one of them holds at any moment, so the shares of any period sum to 1. A trainer that
 * has a batch, or has one ready to take, is busy; in every state from CLOCK_READ to CLOCK_MEMORY it has asked for a batch
 * that is not there, and the state names what the batch waits for.
 *
 * Time is added when an event happens anyway; nothing wakes up for it. No allocation, no lock; one thread's. */
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

enum { CLOCK_SECONDS = 64 }; /* how far back it can look */

struct clock_second {
	uint32_t ns[CLOCK_N_STATES];
};

struct state_clock {
	uint64_t began_ns, at_ns; /* time is accounted from the first to the second; CLOCK_MONOTONIC */
	uint64_t total_ns[CLOCK_N_STATES];
	struct clock_second second[CLOCK_SECONDS]; /* at_ns's, and those before; by their number, modulo */
};

void state_clock_begin(struct state_clock *c, uint64_t now_ns);
/* Accounts the time up to now_ns. ns: the part of it that each state had; their sum is the time since at_ns, and any
 * rest counts as busy. Of several states it does not matter which came first. */
void state_clock_add(struct state_clock *c, uint64_t now_ns, const uint64_t ns[CLOCK_N_STATES]);
/* The time in each state during the last n seconds that have been accounted, at most CLOCK_SECONDS; the oldest of them
 * and the present one count in whole seconds of the clock. */
void state_clock_last(const struct state_clock *c, unsigned n_seconds, uint64_t ns[CLOCK_N_STATES]);

#endif
