/* A loader's part in a measurement with replays; headroom.c's. Zeroed at first. */
#ifndef BATCHD_CLIENT_HEADROOM_STATE_H
#define BATCHD_CLIENT_HEADROOM_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "batchd.h"

enum { HEADROOM_KEPT = 4 };

enum headroom_phase {
	HEADROOM_NONE,
	HEADROOM_BEFORE, /* steps are timed as they are */
	HEADROOM_REPLAY  /* kept batches are given out again, as soon as this epoch has given one to keep */
};

struct headroom_kept {
	struct batchd_batch batch;
	uint32_t n_rows; /* of the whole batch, of which a share group's trainer has a slice */
};

struct headroom {
	enum headroom_phase phase;
	uint64_t run; /* the measurement's number */
	uint32_t n_before, n_steps;
	uint64_t told_run; /* of the last Replay, which may come before the batch that is marked */
	uint32_t upto;     /* replays that are granted so far */
	bool ended;        /* no more will be */
	bool lost;         /* the daemon is away */
	uint64_t given_ns; /* when the last batch was given out; 0: the step behind it does not count, or is counted */
	uint32_t n_timed;  /* steps before, complete */
	uint64_t before_ns, before_wait_ns;
	uint32_t n_given; /* replays */
	uint32_t n_complete, n_reported;
	bool said_so; /* that it is ready for replays */
	uint64_t ns;
	struct headroom_kept kept[HEADROOM_KEPT]; /* the last batches, oldest first; a lease on each */
	uint32_t n_kept;
};

#endif
