/* See ring.h. Every access to the page's words is sequentially consistent. Release and acquire would be enough to hand
 * over an entry, but not for the flags: each side writes one word and then reads the other side's (a position and
 * `waiting`, a position and `wake_at`). Only a single order of all these accesses makes sure that at least one side
 * sees the other's write, so that neither sleeps while an entry waits for it. */
#include "ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

_Static_assert(sizeof(struct ring_page) == RING_PAGE_BYTES, "the layout in README.md");
_Static_assert((RING_ENTRIES & (RING_ENTRIES - 1)) == 0, "positions wrap at 2^32");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "atomics are shared between processes");

/* ---- the page ---- */

static int ring_map_page(struct ring *r, int fd)
{
	void *page = mmap(NULL, RING_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		return -errno;
	r->page = page;
	r->batches = (struct ring_end){ &r->page->batches, r->page->batch[0], RING_BATCH_BYTES, 0, 0, false };
	r->releases = (struct ring_end){ &r->page->releases, r->page->release[0], RING_RELEASE_BYTES, 0, 0, false };
	return 0;
}

int ring_create(struct ring *r, int *fd)
{
	int result;

	*r = (struct ring){ 0 };
	*fd = memfd_create("batchd-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (*fd < 0 && errno == EINVAL) /* Linux before 6.3 */
		*fd = memfd_create("batchd-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return -errno;
	/* Where memory is short, fallocate fails; without it the first write would raise a signal. */
	if (ftruncate(*fd, RING_PAGE_BYTES) < 0 || fallocate(*fd, 0, 0, RING_PAGE_BYTES) < 0 ||
	    fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		result = -errno;
	else
		result = ring_map_page(r, *fd);
	if (result < 0) {
		close(*fd);
		*fd = -1;
	}
	return result;
}

int ring_map(struct ring *r, int fd)
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	*r = (struct ring){ 0 };
	if (seals < 0 || (seals & needed) != needed || fstat(fd, &st) < 0 || st.st_size != RING_PAGE_BYTES)
		return -EPROTO;
	return ring_map_page(r, fd);
}

void ring_unmap(struct ring *r)
{
	if (r->page)
		munmap(r->page, RING_PAGE_BYTES);
	*r = (struct ring){ 0 };
}

/* ---- one entry ---- */

static unsigned char *ring_entry(const struct ring_end *e)
{
	return e->entries + (size_t)(e->at % RING_ENTRIES) * e->entry_bytes;
}

/* Returns n, the entries between the two ends, where the other end is at `there`; at least `least` and at most `most`
 * of them. Positions only grow, so a position that moves back gives too many entries, or too few. */
static uint32_t ring_check(struct ring_end *e, uint32_t there, uint32_t n, uint32_t least, uint32_t most)
{
	if (e->broken || n < least || n > most) {
		e->broken = true;
		return 0;
	}
	e->seen = there;
	return n;
}

uint32_t ring_untaken(struct ring_end *e)
{
	uint32_t taken = atomic_load(&e->lane->taken);

	return ring_check(e, taken, e->at - taken, 0, e->at - e->seen);
}

uint32_t ring_peek_untaken(const struct ring_end *e)
{
	uint32_t n = e->at - atomic_load(&e->lane->taken), most = e->at - e->seen;

	return n < most ? n : most;
}

uint32_t ring_waiting_entries(struct ring_end *e)
{
	uint32_t produced = atomic_load(&e->lane->produced);

	return ring_check(e, produced, produced - e->at, e->seen - e->at, RING_ENTRIES);
}

int ring_put(struct ring_end *e, const ProtobufCMessage *m)
{
	unsigned char bytes[RING_MAX_MESSAGE];
	uint32_t untaken = ring_untaken(e), n;
	size_t size = protobuf_c_message_get_packed_size(m);

	if (e->broken)
		return -EPROTO;
	if (size > e->entry_bytes - sizeof n)
		return -EMSGSIZE;
	if (untaken == RING_ENTRIES)
		return -EAGAIN;
	n = (uint32_t)protobuf_c_message_pack(m, bytes);
	memcpy(ring_entry(e), &n, sizeof n);
	memcpy(ring_entry(e) + sizeof n, bytes, n);
	atomic_store(&e->lane->produced, ++e->at);
	return 0;
}

int ring_take(struct ring_end *e, void *buf, size_t *n_bytes)
{
	uint32_t there = ring_waiting_entries(e), n;

	if (e->broken)
		return -EPROTO;
	if (there == 0)
		return -EAGAIN;
	n = *(volatile const uint32_t *)(const void *)ring_entry(e); /* read once: the other side may change it */
	if (n == 0 || n > e->entry_bytes - sizeof n)
		return -EPROTO;
	memcpy(buf, ring_entry(e) + sizeof n, n);
	*n_bytes = n;
	atomic_store(&e->lane->taken, ++e->at);
	return 0;
}

/* ---- sleeping and waking ---- */

void ring_start_waiting(struct ring *r)
{
	atomic_store(&r->page->waiting, 1);
}

bool ring_stop_waiting(struct ring *r)
{
	return atomic_exchange(&r->page->waiting, 0) != 0;
}

bool ring_is_waited_for(const struct ring *r)
{
	return atomic_load(&r->page->waiting) != 0;
}

bool ring_wake_client(struct ring *r)
{
	return ring_is_waited_for(r) && atomic_exchange(&r->page->waiting, 0) != 0;
}

void ring_arm(struct ring *r, uint32_t wake_at)
{
	atomic_store(&r->page->wake_at, wake_at);
}

/* How many entries of a lane wait, for a reader that is at neither end. */
static uint32_t ring_between(const struct ring_lane *l)
{
	uint32_t taken = atomic_load(&l->taken);

	return atomic_load(&l->produced) - taken;
}

bool ring_wake_daemon_taken(struct ring *r)
{
	return atomic_load(&r->page->wake_at) && ring_between(&r->page->batches) == 0 &&
	       atomic_exchange(&r->page->wake_at, 0) != 0;
}

bool ring_wake_daemon_released(struct ring *r)
{
	uint32_t wake_at = atomic_load(&r->page->wake_at);
	return wake_at && ring_between(&r->page->releases) >= wake_at && atomic_exchange(&r->page->wake_at, 0) != 0;
}

/* ---- notices ---- */

void ring_note_notice(struct ring *r)
{
	atomic_store(&r->page->noticed, 1);
}

bool ring_take_notice(struct ring *r)
{
	return atomic_load(&r->page->noticed) && atomic_exchange(&r->page->noticed, 0) != 0;
}

/* ---- what the trainer does ---- */

/* Statistics need no order among themselves, nor with the entries. */
void ring_set_state(struct ring *r, enum ring_state to)
{
	atomic_store_explicit(&r->page->trainer.state, to, memory_order_relaxed);
}

enum ring_state ring_get_state(const struct ring *r)
{
	return (enum ring_state)atomic_load_explicit(&r->page->trainer.state, memory_order_relaxed);
}

static uint64_t ring_count(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

void ring_count_batch(struct ring *r, uint32_t n_rows)
{
	struct ring_trainer *t = &r->page->trainer;

	atomic_store_explicit(&t->n_batches, ring_count(&t->n_batches) + 1, memory_order_relaxed);
	atomic_store_explicit(&t->n_rows, ring_count(&t->n_rows) + n_rows, memory_order_relaxed);
}

struct ring_taken ring_read_taken(const struct ring *r)
{
	const struct ring_trainer *t = &r->page->trainer;

	return (struct ring_taken){ ring_count(&t->n_batches), ring_count(&t->n_rows) };
}
