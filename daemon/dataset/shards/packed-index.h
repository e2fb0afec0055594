/* Makes the index of a packed data set: of each shard from the kept index if it is unchanged, from the index beside it,
 * or from its headers. A shard is the one that was indexed as long as device, inode, length and times are the same, so
 * the result is not kept while a further change might leave the times as they are. */
#ifndef BATCHD_PACKED_INDEX_H
#define BATCHD_PACKED_INDEX_H

#include "dataset/shards/packed-impl.h"

/* Fills o->packed->index. 0, -ECANCELED, or negative errno with o->err. */
int packed_make_index(struct packed_opening *o);
/* The error for that negative errno, which was met for want of memory or places. */
int packed_no_room(const struct packed_opening *o, int error);

#endif
