/* A crew: some threads that together process every index 0..n-1, while the calling thread shows the progress. */
#ifndef BATCHCTL_CREW_H
#define BATCHCTL_CREW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "progress.h"

struct crew_job {
	uint64_t n;
	unsigned n_threads; /* at least 1 */
	/* One thread's own state; NULL: memory is short, the crew stops. */
	void *(*begin)(void *arg);
	void (*end)(void *arg, void *own);
	/* 0, or negative errno: the crew stops. Several threads at once, each with its own state. */
	int (*work)(void *arg, void *own, uint64_t i);
	void *arg;
	const atomic_bool *cancel; /* the crew stops when it becomes true; may be NULL */
};

/* Returns when all threads have ended: 0, the first error, or -ECANCELED. progress is begun by the caller. */
int crew_run(const struct crew_job *job, struct progress *progress);

#endif
