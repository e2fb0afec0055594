/* Bytes that zstd has compressed as a whole: shards of MosaicML streaming. */
#ifndef BATCHD_UNZSTD_H
#define BATCHD_UNZSTD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/meter.h"

/* By the first bytes of a file. */
bool unzstd_is_compressed(const uint8_t *bytes, size_t n);

/* Called often during the work, which takes seconds for a large frame. at: bytes read so far. Returns 0, or a negative
 * errno with which the work ends. */
struct unzstd_watch {
	int (*step)(void *arg, uint64_t at); /* NULL: none */
	void *arg;
};

/* Unpacks all frames. *out is malloc'ed, *n_out of the meter's bytes are taken for it, before it is allocated: the
 * lengths stand in the frames, so no more is unpacked than is paid for. 0; -EINVAL with *why: damaged, or more than
 * `most` bytes; -ENOMEM; the meter's or the watch's error. */
int unzstd_all(const uint8_t *from, size_t n, uint64_t most, struct meter *meter, const struct unzstd_watch *watch,
	       uint8_t **out, size_t *n_out, const char **why);

#endif
