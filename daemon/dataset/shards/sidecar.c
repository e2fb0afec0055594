/* See sidecar.h. */
#include "dataset/shards/sidecar.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io-full.h"

/* A line about a member is shorter than its header and its name in the shard. */
static const char *why_not(const struct stat *st, const struct shard_stamp *stamp)
{
	struct shard_stamp own = shard_stamp_of(st);

	return own.mtime_ns < stamp->mtime_ns ? "it is older than the shard"
	       : own.n_bytes > stamp->n_bytes ? "it is longer than the shard"
					      : NULL;
}

static int read_text(struct sidecar *s, int fd, size_t n, char *why, size_t size)
{
	ssize_t got;

	if (meter_take(s->meter, n + 1))
		return -EDQUOT;
	s->n = n;
	s->text = malloc(n + 1);
	if (!s->text) {
		meter_give(s->meter, n + 1);
		return -ENOMEM;
	}
	got = io_full_read(fd, s->text, n, 0);
	if (got == (ssize_t)n) {
		s->text[n] = '\0';
		return 0;
	}
	snprintf(why, size, "it cannot be read whole");
	sidecar_finish(s);
	return 1;
}

int sidecar_read(struct sidecar *s, const struct shards *shards, uint32_t i, const char *ending,
		 const struct shard_stamp *stamp, struct meter *meter, char *why, size_t size)
{
	struct stat st;
	const char *reason;
	int fd = shards_open_beside(shards, i, ending, &st), r;

	*s = (struct sidecar){ .meter = meter };
	if (fd == -ENOENT)
		return 0;
	if (fd < 0) {
		snprintf(why, size, "%s", strerror(-fd));
		return 1;
	}
	reason = why_not(&st, stamp);
	if (reason)
		snprintf(why, size, "%s", reason);
	r = reason ? 1 : read_text(s, fd, (size_t)st.st_size, why, size);
	close(fd);
	return r;
}

void sidecar_finish(struct sidecar *s)
{
	if (s->text)
		meter_give(s->meter, s->n + 1);
	free(s->text);
	s->text = NULL;
}
