/* The threads that make rows: workers, and relief threads. */
#ifndef BATCHD_POOL_WORKERS_H
#define BATCHD_POOL_WORKERS_H

#include "batch/pool/impl.h"

/* A pthread's start routine, for a struct pool_thread. */
void *pool_worker_main(void *arg);
void *pool_relief_main(void *arg);

#endif
