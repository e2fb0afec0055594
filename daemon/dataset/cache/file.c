/* Normal operation only appends, so a crash can only damage the end. Each record has two checksums: one over its
 * header, so that a length is used only if it is intact, and one over its payload. After a damaged header the reader
 * searches for the next one in steps of eight bytes, up to a limit; it steps over a damaged payload. So reading takes
 * time linear in the sound part. Unreadable records are never served; decoding makes them again. */
#include "dataset/cache/file.h"
#include "base/io-full.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define FILE_MAGIC \
	0x3345484341435442ull /* "BTCACHE3" on a little-endian machine; another byte order does not
                                            * match */
enum {
	MOST_HOLES = 64,                              /* bytes of length for each byte of space */
	MOST_JUNK_BYTES = 4 * CACHE_RECORD_MAX_BYTES, /* between two sound records */
};

#define RECORD_MAGIC 0x44524342u /* "BCRD" */

struct file_header {
	uint64_t magic, dataset_id;
	uint64_t reserved[5];
	uint64_t checksum; /* XXH3 of the fields before */
};

struct record_header {
	uint32_t magic, n_payload;
	uint64_t index, mtime_ns, ctime_ns, ino, n_file_bytes;
	uint64_t payload_checksum;
	uint64_t checksum; /* XXH3 of the fields before */
};

_Static_assert(sizeof(struct file_header) == CACHE_FILE_HEADER_BYTES, "as documented");
_Static_assert(sizeof(struct record_header) == CACHE_RECORD_HEADER_BYTES, "as documented");

void cache_file_make_header(unsigned char header[CACHE_FILE_HEADER_BYTES], uint64_t dataset_id)
{
	struct file_header h = { .magic = FILE_MAGIC, .dataset_id = dataset_id };

	h.checksum = XXH3_64bits(&h, offsetof(struct file_header, checksum));
	memcpy(header, &h, sizeof(h));
}

int cache_file_check_header(const void *bytes, size_t n_bytes, uint64_t dataset_id)
{
	unsigned char expected[CACHE_FILE_HEADER_BYTES];

	cache_file_make_header(expected, dataset_id);
	return n_bytes >= sizeof(expected) && !memcmp(bytes, expected, sizeof(expected)) ? 0 : -EINVAL;
}

size_t cache_record_bytes(size_t n_payload)
{
	return CACHE_RECORD_HEADER_BYTES + (n_payload + 7) / 8 * 8;
}

void cache_record_make(unsigned char *out, const struct cache_record *r)
{
	struct record_header h = { .magic = RECORD_MAGIC,
				   .n_payload = (uint32_t)r->n_payload,
				   .index = r->index,
				   .mtime_ns = r->mtime_ns,
				   .ctime_ns = r->ctime_ns,
				   .ino = r->ino,
				   .n_file_bytes = r->n_file_bytes,
				   .payload_checksum = XXH3_64bits(r->payload, r->n_payload) };
	size_t n_padding = cache_record_bytes(r->n_payload) - sizeof(h) - r->n_payload;

	h.checksum = XXH3_64bits(&h, offsetof(struct record_header, checksum));
	memcpy(out, &h, sizeof(h));
	memcpy(out + sizeof(h), r->payload, r->n_payload);
	memset(out + sizeof(h) + r->n_payload, 0, n_padding);
}

ssize_t cache_record_parse(const void *bytes, size_t n_bytes, struct cache_record *out)
{
	const unsigned char *payload = (const unsigned char *)bytes + CACHE_RECORD_HEADER_BYTES;
	struct record_header h;

	if (n_bytes < sizeof(h))
		return 0;
	memcpy(&h, bytes, sizeof(h));
	if (h.magic != RECORD_MAGIC || h.checksum != XXH3_64bits(&h, offsetof(struct record_header, checksum)) ||
	    !h.n_payload || h.n_payload > CACHE_RECORD_MAX_BYTES)
		return -EINVAL;
	if (n_bytes < cache_record_bytes(h.n_payload))
		return 0;
	*out = (struct cache_record){ h.index, h.mtime_ns, h.ctime_ns, h.ino, h.n_file_bytes, payload, h.n_payload };
	if (h.payload_checksum != XXH3_64bits(payload, h.n_payload))
		out->payload = NULL;
	return (ssize_t)cache_record_bytes(h.n_payload);
}

/* ---- files ---- */

static int write_at(int fd, const void *bytes, size_t n, uint64_t at)
{
	const char *from = bytes;

	while (n) {
		ssize_t done = pwrite(fd, from, n, (off_t)at);

		if (done < 0 && errno != EINTR)
			return -errno;
		from += done > 0 ? done : 0;
		at += done > 0 ? (uint64_t)done : 0;
		n -= done > 0 ? (size_t)done : 0;
	}
	return 0;
}

static int cache_file_begin(struct cache_file *f)
{
	unsigned char header[CACHE_FILE_HEADER_BYTES];
	int r;

	cache_file_make_header(header, f->dataset_id);
	if (ftruncate(f->fd, 0) < 0)
		return -errno;
	r = write_at(f->fd, header, sizeof(header), 0);
	f->size_bytes = sizeof(header);
	return r;
}

static int open_and_lock(struct cache_file *f)
{
	f->fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (f->fd < 0)
		return -errno;
	f->writable = flock(f->fd, LOCK_EX | LOCK_NB) == 0;
	return 0;
}

/* A file's length proves nothing: a file of holes takes hours to read and no space. Compressing file systems do not
 * reach MOST_HOLES with these data. */
static bool is_plausible(const struct stat *st, uint64_t most_bytes)
{
	return (uint64_t)st->st_size <= most_bytes &&
	       (uint64_t)st->st_size / MOST_HOLES <= (uint64_t)st->st_blocks * 512 + CACHE_RECORD_MAX_BYTES;
}

int cache_file_open(struct cache_file *f, const char *dir, uint64_t dataset_id, uint64_t most_bytes)
{
	unsigned char header[CACHE_FILE_HEADER_BYTES];
	struct stat st;
	int r;

	*f = (struct cache_file){ .fd = -1, .dataset_id = dataset_id };
	if (snprintf(f->path, sizeof(f->path), "%s/index-%016llx.cache", dir, (unsigned long long)dataset_id) >=
	    (int)sizeof(f->path))
		return -ENAMETOOLONG;
	r = open_and_lock(f);
	if (r < 0)
		return r;
	if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		r = -EINVAL;
	} else if (st.st_uid != geteuid()) {
		r = -EPERM;
	} else {
		ssize_t n = io_full_read(f->fd, header, sizeof(header), 0);

		f->size_bytes = (uint64_t)st.st_size;
		if (n < 0)
			r = (int)n;
		else if (cache_file_check_header(header, (size_t)n, dataset_id) < 0 || !is_plausible(&st, most_bytes))
			r = f->writable ? cache_file_begin(f) : -EINVAL;
	}
	if (r < 0)
		cache_file_close(f);
	return r;
}

void cache_file_close(struct cache_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	f->writable = 0;
}

struct window {
	unsigned char *bytes; /* capacity: two of the largest record */
	size_t n;             /* valid */
	uint64_t at;          /* place of bytes[0] in the file */
};

enum { WINDOW_BYTES = 2 * (CACHE_RECORD_MAX_BYTES + CACHE_RECORD_HEADER_BYTES) };

static int cache_file_refill(const struct cache_file *f, struct window *w, size_t n_used)
{
	ssize_t got;

	memmove(w->bytes, w->bytes + n_used, w->n - n_used);
	w->n -= n_used;
	w->at += n_used;
	got = io_full_read(f->fd, w->bytes + w->n, WINDOW_BYTES - w->n, (off_t)(w->at + w->n));
	if (got < 0)
		return (int)got;
	w->n += (size_t)got;
	return got > 0;
}

int cache_file_read(struct cache_file *f, int (*fn)(void *arg, const struct cache_record *r), void *arg)
{
	struct window w = { .bytes = malloc(WINDOW_BYTES), .at = CACHE_FILE_HEADER_BYTES };
	uint64_t sound_end = CACHE_FILE_HEADER_BYTES;
	int more = w.bytes ? 1 : -ENOMEM, stop = 0;
	size_t used = 0;

	while (more >= 0 && !stop && w.at + used - sound_end <= MOST_JUNK_BYTES) {
		struct cache_record record;
		ssize_t n = cache_record_parse(w.bytes + used, w.n - used, &record);

		if (n == 0 && more) {
			more = cache_file_refill(f, &w, used);
			used = 0;
		} else if (n <= 0 && w.n - used < CACHE_RECORD_HEADER_BYTES) {
			break;
		} else if (n <= 0) {
			used += 8; /* not a record, or one cut off by the file's end */
		} else {
			used += (size_t)n;
			if (record.payload) {
				sound_end = w.at + used;
				stop = fn(arg, &record);
			}
		}
	}
	free(w.bytes);
	if (more < 0)
		return more;
	(void)futimens(f->fd, NULL); /* marks it as used: dir.h */
	if (!stop && f->writable) {
		f->size_bytes = sound_end;
		return ftruncate(f->fd, (off_t)sound_end) < 0 ? -errno : 0;
	}
	return 0;
}

int cache_file_append(struct cache_file *f, const void *records, size_t n_bytes)
{
	int r = write_at(f->fd, records, n_bytes, f->size_bytes);

	if (r < 0) {
		/* A full disk leaves half a record. The reader would skip it; this removes it. */
		return ftruncate(f->fd, (off_t)f->size_bytes) < 0 ? -errno : r;
	}
	f->size_bytes += n_bytes;
	return 0;
}

int cache_file_begin_new(const struct cache_file *old, struct cache_file *fresh)
{
	int r;

	*fresh = (struct cache_file){ .fd = -1, .dataset_id = old->dataset_id };
	if (snprintf(fresh->path, sizeof(fresh->path), "%.500s.new", old->path) >= (int)sizeof(fresh->path))
		return -ENAMETOOLONG;
	r = open_and_lock(fresh);
	if (r < 0)
		return r;
	r = fresh->writable ? cache_file_begin(fresh) : -EBUSY;
	if (r < 0 && fresh->writable)
		cache_file_abandon(fresh);
	else if (r < 0)
		cache_file_close(fresh);
	return r;
}

void cache_file_abandon(struct cache_file *fresh)
{
	unlink(fresh->path);
	cache_file_close(fresh);
}

int cache_file_replace(struct cache_file *old, struct cache_file *fresh)
{
	int r = io_full_sync(fresh->fd);

	if (r < 0 || rename(fresh->path, old->path) < 0) {
		r = r < 0 ? r : -errno;
		cache_file_abandon(fresh);
		return r;
	}
	memcpy(fresh->path, old->path, sizeof(fresh->path));
	cache_file_close(old);
	*old = *fresh;
	fresh->fd = -1;
	return 0;
}
