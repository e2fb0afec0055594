/* The beginning and the end of the pool's threads. */
#ifndef BATCHD_POOL_THREADS_H
#define BATCHD_POOL_THREADS_H

#include "batch/pool/impl.h"

/* Starts main(t), which gets no signal, under this name for top, perf and debuggers. 0 or negative errno. */
int pool_thread_start(struct pool_thread *t, void *(*main)(void *), const char *name);
/* Waits for the end of those of the n threads that were started; threads may be NULL. */
void pool_threads_join(struct pool_thread *threads, unsigned n);

#endif
