/* The threads that fetch rows' inputs and run tasks. */
#ifndef BATCHD_POOL_IO_H
#define BATCHD_POOL_IO_H

#include "batch/pool/impl.h"

/* Starts n threads of the lane, from number `first` on. 0, or a negative errno when one could not be started; those before it run. */
int pool_io_start(struct pool_lane *lane, unsigned first, unsigned n);

#endif
