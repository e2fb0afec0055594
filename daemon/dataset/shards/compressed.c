/* See compressed.h. */
#include "dataset/shards/compressed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io-full.h"

enum { READ_BYTES = 16 << 20 };

static int compressed_fail(const struct shards *s, uint32_t i, int code, int error, const char *why,
			   struct dataset_error *err)
{
	char path[400];

	shards_path(s, i, path, sizeof(path));
	return dataset_fail(err, (unsigned)code, error, "%s: %s", path, why);
}

static bool compressed_ends_with(const char *text, const char *ending)
{
	size_t n = strlen(text), n_ending = strlen(ending);

	return n > n_ending && strcmp(text + n - n_ending, ending) == 0;
}

/* Of most formats the bytes do not tell: streaming's names do. */
static int refuse_others(const struct shards *s, uint32_t i, struct dataset_error *err)
{
	const char *path = shard_names_path(&s->names, i);

	for (unsigned k = SHARD_NAMES_N_ZSTD; shard_names_compressed[k]; k++) {
		char why[160];

		snprintf(why, sizeof(why),
			 "compressed by %s, which is not read: unpack the shard, or write it with compression 'zstd'",
			 shard_names_compressed[k] + 1);
		if (compressed_ends_with(path, shard_names_compressed[k]))
			return compressed_fail(s, i, DATASET_E_INVALID, -EINVAL, why, err);
	}
	return 0;
}

static int unpack_shard(struct shards *s, uint32_t i, const uint8_t *from, size_t n, struct shard_stamp *stamp,
			const struct unzstd_watch *watch, struct dataset_error *err)
{
	const char *why = NULL;
	uint8_t *bytes;
	size_t n_bytes = 0;
	int r = unzstd_all(from, n, UINT32_MAX, s->names.meter, watch, &bytes, &n_bytes, &why);

	if (r == 0) {
		r = shards_hold(s, i, bytes, n_bytes);
		if (r == 0) {
			stamp->n_bytes = n_bytes;
			return 0;
		}
		meter_give(s->names.meter, n_bytes);
		free(bytes);
	}
	if (r == -ECANCELED)
		return r;
	if (r == -EINVAL)
		return compressed_fail(s, i, DATASET_E_BAD_DATA, r, why, err);
	return compressed_fail(
		s, i, DATASET_E_LIMIT, r,
		"unpacked it is more than there is memory for: raise memory, or unpack the shards on disk (unzstd)",
		err);
}

static int read_shard(struct shards *s, uint32_t i, int fd, uint8_t *to, size_t n, const struct unzstd_watch *watch,
		      struct dataset_error *err)
{
	int r = 0;

	for (size_t at = 0; !r && at < n; at += READ_BYTES) {
		size_t part = n - at > READ_BYTES ? READ_BYTES : n - at;

		if (io_full_read(fd, to + at, part, (off_t)at) != (ssize_t)part)
			return compressed_fail(s, i, DATASET_E_BAD_DATA, -EIO, "cannot be read whole", err);
		r = watch->step ? watch->step(watch->arg, 0) : 0;
	}
	return r;
}

int compressed_load(struct shards *s, uint32_t i, int fd, struct shard_stamp *stamp, const struct unzstd_watch *watch,
		    struct dataset_error *err)
{
	uint8_t head[4], *from;
	size_t n = (size_t)stamp->n_bytes;
	ssize_t got = io_full_read(fd, head, sizeof(head), 0);
	int r = refuse_others(s, i, err);

	if (r < 0 || got < 0 || !unzstd_is_compressed(head, (size_t)got))
		return r; /* a file that cannot be read is named when its headers are */
	r = meter_take(s->names.meter, n);
	if (r < 0)
		return compressed_fail(s, i, DATASET_E_LIMIT, r, "more than there is memory for", err);
	from = malloc(n);
	r = from ? read_shard(s, i, fd, from, n, watch, err)
		 : dataset_fail_errno(err, ENOMEM, shard_names_path(&s->names, i));
	r = r ? r : unpack_shard(s, i, from, n, stamp, watch, err);
	free(from);
	meter_give(s->names.meter, n);
	return r;
}
