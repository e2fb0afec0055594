/* The verdict on a trainer's input: whether it is the limit, what the trainer waits for, and what would help, in a line.
 *
 * The line and its numbers follow from the state clock. What a change would bring is an estimate, and called one. It
 * assumes that the rest of the training takes as long as before. */
#ifndef BATCHD_VERDICT_H
#define BATCHD_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "batch/state-clock.h"

/* What a verdict is made of. */
struct verdict_facts {
	const char *period; /* that it is about: "in the last minute" */
	struct clock_times times;
	uint64_t p99_wait_ns; /* of the trainer's recent batches */
	uint32_t rank;
	unsigned n_workers;      /* that may work */
	unsigned n_processors;   /* of the CPU quota */
	unsigned n_most_workers; /* as the configuration has it; 0: one for each processor */
	bool copies;             /* rows are copied from arrays, by workers: what they read */
	uint64_t n_samples;
	double decoded_bytes; /* what the decoded cache would keep of a sample, on average; 0: not known */
	bool is_decoded_cached;
	bool caches_ops; /* the decoded cache would save ops, too, and not only decoding */
	/* The decoded cache's room as configured, and in the largest memory budget that this machine allows. */
	uint64_t decoded_room_bytes, most_decoded_room_bytes;
	const char *why;     /* of a peer: which trainer is stalled, and why; may be empty */
	const char *slowest; /* of a peer, without a stalled one: which trainer the others wait for; may be empty */
};

struct verdict {
	bool known; /* the trainer has worked long enough */
	bool input_bound;
	double share;           /* of the trainer's time, without idle: waiting for batches */
	enum clock_state cause; /* the state with the greatest part of the waiting; CLOCK_BUSY: it never waited */
	/* Estimates: how much faster the training would be, 0.6 for 60 %; 0: no faster, or that does not apply. */
	double without;       /* if nothing were waited for because of `cause` */
	double more_cpu;      /* with twice the processors */
	double more_workers;  /* with a worker for each processor; 0 where there are as many already */
	double decoded_cache; /* with every sample's decoded pixels in memory */
	uint64_t decoded_bytes,
		decoded_room_bytes; /* of decoded_cache: what all samples take, and what there is room for */
	bool at_least;              /* decoded_cache: ops that are saved are not known by their cost */
	bool raise_memory;          /* there is room only with the largest memory budget */
	char text[512];             /* one line */
};

void verdict_make(const struct verdict_facts *f, struct verdict *v);

#endif
