/* Shards that are compressed as a whole: unpacked when the data set is opened, and kept in memory. */
#ifndef BATCHD_COMPRESSED_H
#define BATCHD_COMPRESSED_H

#include "dataset/shards/shards.h"
#include "dataset/shards/unzstd.h"

/* Unpacks shard i, open at fd, if it is compressed; its stamp then has the length of its content. 0 or negative errno
 * with err, which names the shard: damaged, of another compression than zstd, more than there is memory for. The
 * watch's error comes without err. */
int compressed_load(struct shards *s, uint32_t i, int fd, struct shard_stamp *stamp, const struct unzstd_watch *watch,
		    struct dataset_error *err);

#endif
