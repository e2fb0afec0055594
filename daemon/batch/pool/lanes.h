/* Lanes: the I/O threads and tickets of one file system. pool_lane_join and pool_lane_leave of pool.h, and what the pool
 * does with its lanes. Loop thread. */
#ifndef BATCHD_POOL_LANES_H
#define BATCHD_POOL_LANES_H

#include "batch/pool/impl.h"

/* lane is zeroed. 0 or -ENOMEM; pool_lane_finish in either case. */
int pool_lane_init(struct pool *p, struct pool_lane *lane, unsigned n_io, unsigned n_tickets);
void pool_lane_finish(struct pool_lane *lane);
/* Frees the lanes that have ended. */
void pool_lanes_reap(struct pool *p);
/* p->stopping is set, every lane has been left: waits for the threads and frees the lanes. */
void pool_lanes_stop(struct pool *p);

#endif
