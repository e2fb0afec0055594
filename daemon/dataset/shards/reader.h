/* Reads the headers of a shard: few bytes here and there, in ascending order. It reads ahead as far as the distances
 * between headers make worthwhile. */
#ifndef BATCHD_SHARD_READER_H
#define BATCHD_SHARD_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataset/error.h"

enum { SHARD_READER_MAX_BYTES = 1 << 20 }; /* of one piece */

struct shard_reader {
	int fd; /* borrowed; -1: the shard is `bytes` */
	const uint8_t *bytes;
	uint64_t n_bytes; /* of the shard */
	const char *name; /* of the shard, for messages; borrowed */
	struct dataset_error *err;
	int (*on_progress)(void *arg, uint64_t at); /* now and then; negative: reading ends with that. May be NULL */
	void *progress_arg;
	bool lacks_end; /* set by the format: its members end without a mark, as if the shard were cut between two */
	/* private */
	uint8_t *buffer;
	uint64_t at;
	size_t n, ahead;
};

/* *piece: n bytes of the shard from `at` on, valid until the next call; n is at most SHARD_READER_MAX_BYTES. 0, or
 * negative errno with err: the shard ends before, or cannot be read. */
int shard_reader_get(struct shard_reader *r, uint64_t at, size_t n, const uint8_t **piece);
/* Fails with a message that begins with the shard's name and the place. Returns -EINVAL. */
int shard_reader_refuse(struct shard_reader *r, uint64_t at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void shard_reader_finish(struct shard_reader *r);

#endif
