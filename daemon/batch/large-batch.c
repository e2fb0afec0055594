/* See large-batch.h. Memory that could become shorter would end the trainers that read it, and so would huge pages that
 * are not there when they are read. Pages that the producer has not written are made when a trainer reads them, so the
 * whole size is charged. */
#include "batch/large-batch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "batch/slab-release.h"

static const char *check(int fd, uint64_t n_bytes, uint64_t *held_bytes)
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;
	struct stat st;
	if (seals < 0)
		return "a batch that does not fit its slot comes in a memfd";
	if ((seals & needed) != needed)
		return "the memfd of a batch is sealed against shrinking, growing and writing";
	if (fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		return "the memfd of a batch has no huge pages";
	if (fstat(fd, &st) || (uint64_t)st.st_size != n_bytes)
		return "the memfd of a batch is as large as n_bytes says";
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), present = (uint64_t)st.st_blocks * 512;
	*held_bytes = (n_bytes + page - 1) / page * page;
	*held_bytes = present > *held_bytes ? present : *held_bytes; /* it may have pages behind its end */
	return NULL;
}

struct large_batch *large_batch_create(int fd, uint64_t n_bytes, uid_t payer, const char **why)
{
	uint64_t held_bytes = 0;
	*why = check(fd, n_bytes, &held_bytes);
	struct large_batch *b = *why ? NULL : calloc(1, sizeof(*b));
	if (b)
		*b = (struct large_batch){ .fd = fd, .n_bytes = n_bytes, .held_bytes = held_bytes, .payer = payer };
	return b;
}

void large_batch_destroy(struct large_batch *b)
{
	if (!b)
		return;
	slab_release(NULL, 0, (int[2]){ b->fd, -1 }, b->payer);
	charge_release(&b->bytes);
	charge_release(&b->fds);
	free(b);
}

int large_batch_charge(struct large_batch *b, struct accounts *a, uid_t uid, enum account_kind *kind)
{
	*kind = ACCOUNT_SLOT_BYTES;
	int r = charge_begin(&b->bytes, a, uid, ACCOUNT_SLOT_BYTES, b->held_bytes);
	if (r)
		return r;
	*kind = ACCOUNT_FDS;
	r = charge_begin(&b->fds, a, uid, ACCOUNT_FDS, 1);
	if (r)
		charge_release(&b->bytes);
	return r;
}
