/* Some threads that together process every index 0..n-1, while the calling thread shows the progress. */
#ifndef BATCHCTL_PARALLEL_FOR_H
#define BATCHCTL_PARALLEL_FOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ctl/term/progress.h"

struct parallel_job {
	uint64_t n;
	unsigned n_threads; /* at least 1 */
	/* One thread's own state; NULL: memory is short, the threads stop. */
	void *(*begin)(void *arg);
	void (*end)(void *arg, void *own);
	/* 0, or negative errno: the threads stop. Several threads at once, each with its own state. */
	int (*work)(void *arg, void *own, uint64_t i);
	void *arg;
	const atomic_bool *cancel; /* the threads stop when it becomes true; may be NULL */
};

/* Returns when all threads have ended: 0, the first error, or -ECANCELED. progress is begun by the caller. */
int parallel_for(const struct parallel_job *job, struct progress *progress);

#endif
