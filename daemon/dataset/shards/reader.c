/* See reader.h. Reading everything would bring a shard of images through memory for a thousandth of it; reading
 * each header alone costs a call for each small member. So the read-ahead doubles while the next header is near, and
 * begins again after a far jump. */
#include "dataset/shards/reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/io-full.h"

enum { AHEAD_LEAST = 4 << 10, AHEAD_MOST = 256 << 10 };

static int shard_reader_fill(struct shard_reader *r, uint64_t at, size_t n)
{
	uint64_t end = r->at + r->n;
	uint64_t left = r->n_bytes - at;
	ssize_t got;
	int result = r->on_progress ? r->on_progress(r->progress_arg, at) : 0;

	if (result < 0)
		return result;
	if (!r->buffer) {
		r->buffer = malloc(SHARD_READER_MAX_BYTES);
		if (!r->buffer)
			return dataset_fail_errno(r->err, ENOMEM, r->name);
	}
	r->ahead = r->n && at >= r->at && at < end + r->ahead ? r->ahead * 2 : AHEAD_LEAST;
	r->ahead = r->ahead > AHEAD_MOST ? AHEAD_MOST : r->ahead;
	n = n > r->ahead ? n : r->ahead;
	n = n < left ? n : (size_t)left;
	got = io_full_read(r->fd, r->buffer, n, (off_t)at);
	if (got < 0)
		return dataset_fail_errno(r->err, (int)-got, r->name);
	r->at = at;
	r->n = (size_t)got;
	return 0;
}

int shard_reader_get(struct shard_reader *r, uint64_t at, size_t n, const uint8_t **piece)
{
	int result;

	if (at > r->n_bytes || n > r->n_bytes - at)
		return shard_reader_refuse(r, at, "the shard ends in the middle of a member: cut short?");
	if (r->fd < 0) {
		*piece = r->bytes + at;
		return r->on_progress ? r->on_progress(r->progress_arg, at) : 0;
	}
	if (at < r->at || at + n > r->at + r->n) {
		result = shard_reader_fill(r, at, n);
		if (result < 0)
			return result;
	}
	if (n > r->n)
		return shard_reader_refuse(r, at, "the shard has become shorter while it was read");
	*piece = r->buffer + (at - r->at);
	return 0;
}

int shard_reader_refuse(struct shard_reader *r, uint64_t at, const char *fmt, ...)
{
	char why[300];
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	return dataset_fail(r->err, DATASET_E_BAD_DATA, -EINVAL, "%.180s, byte %llu: %s", r->name,
			    (unsigned long long)at, why);
}

void shard_reader_finish(struct shard_reader *r)
{
	free(r->buffer);
	r->buffer = NULL;
	r->n = 0;
}
