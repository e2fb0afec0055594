/* See block.h. */
#include "dataset/block.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "dataset/file.h"
#include "base/io-full.h"

#define BLOCK_MAX_BYTES (64ull << 30)

enum {
	CHECKED_FROM = offsetof(struct block_header, block_bytes),
	MOST_HOLES = 64,
	HOLES_ALLOWED = 16 << 20,
};

static uint64_t checksum_of(const void *block, size_t block_bytes)
{
	return XXH3_64bits((const char *)block + CHECKED_FROM, block_bytes - CHECKED_FROM);
}

void block_seal(void *block)
{
	struct block_header *h = block;

	h->checksum = checksum_of(block, h->block_bytes);
}

bool block_is_sealed(const void *block, size_t block_bytes, uint64_t magic, uint32_t version)
{
	struct block_header h;

	if (block_bytes < sizeof(h))
		return false;
	memcpy(&h, block, sizeof(h));
	return h.magic == magic && h.version == version && h.block_bytes == block_bytes &&
	       h.checksum == checksum_of(block, block_bytes);
}

/* ---- building ---- */

int block_grow(struct meter *meter, void *array, size_t *capacity, size_t n, size_t element_bytes)
{
	size_t wanted = *capacity ? *capacity : 64;
	void *larger;
	int r;

	if (n <= *capacity)
		return 0;
	if (n > PTRDIFF_MAX / 2 / element_bytes)
		return -EDQUOT;
	while (wanted < n)
		wanted += wanted / 2;
	r = meter_take(meter, (wanted - *capacity) * element_bytes);
	if (r < 0)
		return r;
	memcpy(&larger, array, sizeof(larger));
	larger = reallocarray(larger, wanted, element_bytes);
	if (!larger) {
		meter_give(meter, (wanted - *capacity) * element_bytes);
		return -ENOMEM;
	}
	memcpy(array, &larger, sizeof(larger));
	*capacity = wanted;
	return 0;
}

int text_add(struct text *t, const char *bytes, size_t n, uint64_t *offset)
{
	int r = block_grow(t->meter, &t->bytes, &t->capacity, t->n + n + 1, 1);

	if (r < 0)
		return r;
	*offset = t->n;
	memcpy(t->bytes + t->n, bytes, n);
	t->bytes[t->n + n] = '\0';
	t->n += n + 1;
	return 0;
}

/* ---- files ---- */

/* Whether this may be a block as a whole, before memory is allocated for it: a file's length alone proves nothing. */
static int block_check_size(int fd, uint64_t magic, uint32_t version, uint64_t *size_bytes)
{
	struct block_header h;
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid())
		return -EPERM;
	*size_bytes = (uint64_t)st.st_size;
	n = S_ISREG(st.st_mode) ? io_full_read(fd, &h, sizeof(h), 0) : -EINVAL;
	if (n < 0)
		return (int)n;
	return n == sizeof(h) && h.magic == magic && h.version == version && h.block_bytes == (uint64_t)st.st_size &&
			       (uint64_t)st.st_size / MOST_HOLES <= (uint64_t)st.st_blocks * 512 + HOLES_ALLOWED
		       ? 0
		       : -EINVAL;
}

/* Of a file that has size_bytes. */
static int block_read(int fd, uint64_t size_bytes, struct meter *meter, void **block, size_t *block_bytes)
{
	char *bytes;
	int r = meter_take(meter, size_bytes);

	if (r < 0)
		return r;
	r = file_slurp(fd, size_bytes < BLOCK_MAX_BYTES ? size_bytes : BLOCK_MAX_BYTES, &bytes, block_bytes);
	if (r == 0 && *block_bytes != size_bytes) {
		free(bytes);
		r = -EINVAL;
	}
	if (r < 0) {
		meter_give(meter, size_bytes);
		return r;
	}
	(void)futimens(fd, NULL); /* marks it as used: cache/dir.h */
	*block = bytes;
	return 0;
}

int block_load(const char *path, uint64_t magic, uint32_t version, struct meter *meter, void **block,
	       size_t *block_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), r;
	uint64_t size_bytes = 0;

	if (fd < 0)
		return -errno;
	r = block_check_size(fd, magic, version, &size_bytes);
	r = r < 0 ? r : block_read(fd, size_bytes, meter, block, block_bytes);
	close(fd);
	return r;
}

static int block_write_all(int fd, const char *bytes, size_t n)
{
	while (n) {
		ssize_t done = write(fd, bytes, n);

		if (done < 0 && errno != EINTR)
			return -errno;
		bytes += done > 0 ? done : 0;
		n -= done > 0 ? (size_t)done : 0;
	}
	return 0;
}

int block_save(const char *path, const void *block, size_t block_bytes)
{
	char temporary[4096];
	int fd, r;

	if (snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= (int)sizeof(temporary))
		return -ENAMETOOLONG;
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = block_write_all(fd, block, block_bytes);
	if (!r)
		r = io_full_sync(fd);
	if (close(fd) < 0 && !r)
		r = -errno;
	if (!r && rename(temporary, path) < 0)
		r = -errno;
	if (r)
		unlink(temporary);
	return r;
}
