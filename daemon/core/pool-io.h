/* The threads that fetch rows' inputs and run tasks. */
#ifndef BATCHD_POOL_IO_H
#define BATCHD_POOL_IO_H

#include "core/pool-impl.h"

/* A pthread's start routine, for a struct pool_thread. */
void *pool_io_main(void *arg);

#endif
