/* See unzip.h. */
#include "dataset/shards/unzip.h"

#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/io-full.h"

enum { PIECE_BYTES = 64 << 10 };

struct unzip {
	z_stream z;
	int fd;
	const char *name;
	const atomic_bool *stop;
	uint64_t at, end; /* in the file */
	bool ended;
	uint8_t piece[PIECE_BYTES];
};

int unzip_begin(int fd, const char *name, uint64_t from, uint64_t to, enum unzip_kind kind, const atomic_bool *stop,
		struct unzip **out, struct dataset_error *err)
{
	struct unzip *s = calloc(1, sizeof(*s));

	if (!s || inflateInit2(&s->z, kind == UNZIP_GZIP ? 15 + 16 : -15) != Z_OK) {
		free(s);
		return dataset_fail_errno(err, ENOMEM, name);
	}
	s->fd = fd;
	s->name = name;
	s->stop = stop;
	s->at = from;
	s->end = to;
	*out = s;
	return 0;
}

void unzip_end(struct unzip *s)
{
	if (s) {
		inflateEnd(&s->z);
		free(s);
	}
}

static int unzip_refill(struct unzip *s, struct dataset_error *err)
{
	size_t room = s->end - s->at < sizeof(s->piece) ? (size_t)(s->end - s->at) : sizeof(s->piece);
	ssize_t n = io_full_read(s->fd, s->piece, room, (off_t)s->at);

	if (n < 0)
		return dataset_fail_errno(err, (int)-n, s->name);
	if (n == 0)
		return dataset_fail(err, DATASET_E_BAD_DATA, -EINVAL, "%s: the compressed data is cut short", s->name);
	s->at += (uint64_t)n;
	s->z.next_in = s->piece;
	s->z.avail_in = (unsigned)n;
	return 0;
}

int unzip_read(struct unzip *s, void *to, size_t n, size_t *got, struct dataset_error *err)
{
	*got = 0;
	while (*got < n && !s->ended) {
		size_t room = n - *got < INT32_MAX ? n - *got : INT32_MAX;
		int r = s->z.avail_in ? 0 : unzip_refill(s, err);

		if (r < 0)
			return r;
		if (s->stop && atomic_load_explicit(s->stop, memory_order_relaxed))
			return -ECANCELED;
		s->z.next_out = (uint8_t *)to + *got;
		s->z.avail_out = (unsigned)room;
		r = inflate(&s->z, Z_NO_FLUSH);
		if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
			return dataset_fail(err, DATASET_E_BAD_DATA, -EINVAL, "%s: damaged compressed data", s->name);
		*got += room - s->z.avail_out;
		s->ended = r == Z_STREAM_END;
	}
	return 0;
}
