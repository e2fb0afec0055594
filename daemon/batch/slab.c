/* See slab.h. Order matters: the mapping has to exist before F_SEAL_FUTURE_WRITE, and the read-only descriptor is a
 * re-open through /proc because the first descriptor is open for writing. The mode 0400 and the seal both matter: a
 * memfd's inode has mode 0777, so any process with a descriptor could otherwise re-open it for writing. */
#include "batch/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch/slab-release.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
	ALIGN = 256, /* of the parts of a slot */
	POPULATE_BYTES = 4 << 20,
};

static int open_memfd(void)
{
	int fd = memfd_create("batchd-slab", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) /* Linux before 6.3 */
		fd = memfd_create("batchd-slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd < 0 ? -errno : fd;
}

/* Makes the pages now, so that no worker pays for a fault on a slot's first use. In steps: each holds the lock on the
 * process's mappings, which other threads wait for. 0 or negative errno. */
static int slab_populate(uint8_t *base, size_t bytes)
{
	(void)madvise(base, bytes, MADV_HUGEPAGE);
	for (size_t at = 0, step; at < bytes; at += step) {
		step = bytes - at < POPULATE_BYTES ? bytes - at : POPULATE_BYTES;
		if (madvise(base + at, step, MADV_POPULATE_WRITE) == 0)
			continue;
		if (errno != EINVAL)
			return -errno;
		for (size_t i = 0; i < step; i += 4096) /* Linux before 5.14 */
			((volatile uint8_t *)base)[at + i] = 0;
	}
	return 0;
}

static int seal(int fd, int seals)
{
	return fcntl(fd, F_ADD_SEALS, seals) ? -errno : 0;
}

/* Makes pages behind the end of the file, which ends behind them afterwards. If memory is short it returns an error,
 * instead of a signal at the first write, and the file stays as it is. 0 or negative errno. */
static int append_pages(int fd, uint8_t *base, size_t offset, size_t n_bytes)
{
	slab_release_wait();
	if (fallocate(fd, 0, (off_t)offset, (off_t)n_bytes))
		return -errno;
	(void)slab_populate(base + offset, n_bytes); /* fallocate has confirmed that the memory is there */
	return 0;
}

static int reopen_readonly(int fd)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int ro = open(path, O_RDONLY | O_CLOEXEC);
	return ro < 0 ? -errno : ro;
}

static int slab_make(struct slab *s, size_t size_bytes, size_t present_bytes, const struct slab_placing *placing,
		     int seals)
{
	*s = (struct slab){ .fd = -1, .writable_fd = -1 };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t bytes = (size_bytes + page - 1) / page * page;
	if (bytes < size_bytes || bytes == 0)
		return -EOVERFLOW;
	size_t present = present_bytes < bytes ? (present_bytes + page - 1) / page * page : bytes;
	int fd = open_memfd();
	if (fd < 0)
		return fd;
	int r = 0;
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		r = -errno;
		goto close_fd;
	}
	if (placing)
		placing->place(placing->arg, base, bytes);
	r = append_pages(fd, base, 0, present);
	if (r == 0)
		r = fchmod(fd, 0400) ? -errno : seal(fd, seals);
	if (r == 0)
		r = reopen_readonly(fd);
	if (r < 0) {
		munmap(base, bytes);
		goto close_fd;
	}
	s->fd = r;
	s->writable_fd = fd;
	s->base = base;
	s->bytes = bytes;
	return 0;
close_fd:
	close(fd);
	return r;
}

int slab_init_open(struct slab *s, size_t size_bytes)
{
	return slab_make(s, size_bytes, size_bytes, NULL, F_SEAL_SHRINK | F_SEAL_GROW);
}

int slab_init(struct slab *s, size_t size_bytes, size_t present_bytes)
{
	return slab_init_placed(s, size_bytes, present_bytes, NULL);
}

int slab_init_placed(struct slab *s, size_t size_bytes, size_t present_bytes, const struct slab_placing *placing)
{
	int r = slab_make(s, size_bytes, present_bytes, placing, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE);
	if (r == 0 && present_bytes >= size_bytes) {
		r = slab_seal(s);
		if (r)
			slab_finish(s);
	}
	return r;
}

int slab_extend(struct slab *s, size_t offset, size_t n_bytes)
{
	return n_bytes ? append_pages(s->writable_fd, s->base, offset, n_bytes) : 0;
}

int slab_seal(struct slab *s)
{
	int r = seal(s->writable_fd, F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
	close(s->writable_fd);
	s->writable_fd = -1;
	return r;
}

void slab_finish(struct slab *s)
{
	if (!s || !s->base)
		return;
	slab_release(s->base, s->bytes, (int[2]){ s->fd, s->writable_fd }, s->payer);
	*s = (struct slab){ .fd = -1, .writable_fd = -1 };
}

/* Takes n items at the layout's end, which stays aligned; *offset: where they begin. */
static int slab_place(size_t *end, uint64_t n, size_t item_bytes, size_t *offset)
{
	size_t bytes, sum;

	*offset = *end;
	if (n > SIZE_MAX || __builtin_mul_overflow((size_t)n, item_bytes, &bytes) ||
	    __builtin_add_overflow(*end, bytes, &sum) || __builtin_add_overflow(sum, ALIGN - 1, &sum))
		return -EOVERFLOW;
	*end = sum / ALIGN * ALIGN;
	return 0;
}

static int place_dense(struct slot_layout *l, size_t *end)
{
	bool first = true;
	int r = 0;

	for (unsigned k = 0; r == 0 && k < l->n_fields; k++) {
		struct slot_field *f = &l->field[k];

		if (f->ragged)
			continue;
		r = slab_place(end, l->batch_size, f->item_bytes, &f->offset);
		l->row_bytes += f->item_bytes;
		if (first) {
			l->first_row_bytes = f->item_bytes;
			l->rest_offset = *end;
		}
		first = false;
	}
	return r;
}

static int place_ragged(struct slot_layout *l, size_t *end)
{
	int r = 0;

	for (unsigned k = 0; r == 0 && k < l->n_fields; k++) {
		struct slot_field *f = &l->field[k];

		if (!f->ragged)
			continue;
		l->any_ragged = true;
		r = slab_place(end, (uint64_t)l->batch_size + 1, sizeof(int64_t), &f->offset);
		if (r == 0)
			r = slab_place(end, f->most_values, f->item_bytes, &f->values_offset);
	}
	return r;
}

int slot_layout_make(const struct slot_field *fields, unsigned n, uint32_t batch_size, struct slot_layout *out)
{
	size_t end = 0, page = (size_t)sysconf(_SC_PAGESIZE);

	*out = (struct slot_layout){ .batch_size = batch_size, .n_fields = n };
	if (n > SLOT_MAX_FIELDS)
		return -EOVERFLOW;
	for (unsigned k = 0; k < n; k++)
		out->field[k] = fields[k];
	int r = place_dense(out, &end);
	if (r == 0)
		r = slab_place(&end, batch_size, sizeof(int64_t), &out->indices_offset);
	if (r == 0)
		r = place_ragged(out, &end);
	if (r || __builtin_add_overflow(end, page - 1, &out->slot_bytes))
		return -EOVERFLOW;
	out->slot_bytes = out->slot_bytes / page * page;
	return 0;
}
