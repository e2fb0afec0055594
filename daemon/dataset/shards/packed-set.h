/* What an open packed data set does: a sample is one read at its place in an open shard. */
#ifndef BATCHD_PACKED_SET_H
#define BATCHD_PACKED_SET_H

#include "dataset/shards/packed-impl.h"

extern const struct dataset_ops packed_ops;

#endif
