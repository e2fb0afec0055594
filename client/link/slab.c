/* Batches that a trainer may write to although all trainers share them.
 *
 * The slab is mapped private, so a written page becomes this process's own. It is mapped read-only at first, because a
 * batch that was written to has to be dropped page by page before its slot is used again, and only a fault tells which
 * batches were. So the first write into a slot on loan raises SIGSEGV; the handler makes that slot writable, notes it,
 * and returns. Every other fault goes to the handler that was installed before this one.
 *
 * The kernel could be asked at release instead (PAGEMAP_SCAN, Linux 6.7), but it walks the page tables of the whole
 * slot: 90 to 350 us for 38 MB, where taking and releasing such a batch costs 20 us. To drop the pages of every batch,
 * written to or not, costs 450 us, and 1100 us more when the next batch faults them in (tests/bench/written.c).
 *
 * Awkward corners:
 *
 * - The handler may run at any time in any thread, so it reads a list that only ever grows: a struct slab and the
 *   states of its slots are used again, never freed.
 * - The program may install a handler later (Python's faulthandler is the usual one). slab_guard, called at the
 *   start of each epoch, installs this handler on top again and remembers both. In between, faulthandler prints its
 *   report, restores this handler and raises the signal again: si_code says that it was sent, the address is lost.
 *   Returning makes the write fault again, this time straight into this handler.
 * - A thread that blocks SIGSEGV, and a system call that writes into a batch (EFAULT), have no such remedy: they
 *   need option writable. */
#include "link/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batchd.h"
#include "link/process.h"

enum { SLOT_FREE, SLOT_LENT, SLOT_WRITTEN };
enum { LEAST_STATES = 64, MOST_SLOTS = 1 << 16 };

struct slab {
	struct slab *next;    /* in `slabs`; set once */
	_Atomic(char *) base; /* NULL: not in use */
	size_t bytes;         /* of the mapping */
	size_t slot_bytes;
	uint32_t n_slots;
	uint32_t n_there; /* the first ones have memory: what was seen of the file's end, which only grows */
	int fd;           /* to look again; -1: all have */
	bool writable;    /* from the start: every slot on loan counts as written */
	bool used;        /* under process_lock: a loader uses it */
	atomic_uint n_lent;
	uint32_t n_states;    /* room in `state`; set once */
	atomic_uchar state[]; /* of each slot; the handler turns LENT into WRITTEN */
};

/* ---- the handler; all state that it may read at any moment is atomic or written before it becomes visible ---- */

enum { MAX_HANDLERS = 8 };

static _Atomic(struct slab *) slabs;          /* all of them; changed under process_lock, as `before` is */
static struct sigaction before[MAX_HANDLERS]; /* the handlers that were replaced, the oldest first */
static atomic_uint n_before;
/* How many of them are active in this thread; initial-exec, as the other models may allocate. */
static __thread unsigned depth __attribute__((tls_model("initial-exec")));
static __thread bool sent_before __attribute__((tls_model("initial-exec")));

/* The slab and slot on loan that hold this address, or NULL. */
static struct slab *find_lent(const void *address, uint32_t *slot)
{
	for (struct slab *s = atomic_load(&slabs); s; s = s->next) {
		char *base = atomic_load(&s->base);

		if (!base || (const char *)address < base || (const char *)address >= base + s->bytes)
			continue;
		/* The place of a free slot may be another slab's by now: slab_detach gives it back. A slab that is
		 * destroyed and used again just now may have slots of another size. */
		*slot = (uint32_t)((size_t)((const char *)address - base) / s->slot_bytes);
		if (*slot < s->n_states && atomic_load(&s->state[*slot]) != SLOT_FREE)
			return s;
	}
	return NULL;
}

static bool anything_lent(void)
{
	for (struct slab *s = atomic_load(&slabs); s; s = s->next)
		if (atomic_load(&s->n_lent))
			return true;
	return false;
}

static bool make_writable(const void *address)
{
	uint32_t slot;
	struct slab *s = find_lent(address, &slot);

	if (!s)
		return false;
	/* Noted first: a page dropped without need costs time, a page wrongly kept shows stale pixels. */
	atomic_store(&s->state[slot], SLOT_WRITTEN);
	return mprotect(slab_slot(s, slot), s->slot_bytes, PROT_READ | PROT_WRITE) == 0;
}

/* Dies of the signal as without a handler: a fault repeats by itself on return, a sent signal is sent again. */
static void slab_die(int sig, bool sent)
{
	struct sigaction fatal = { .sa_handler = SIG_DFL };

	sigaction(sig, &fatal, NULL);
	if (sent)
		raise(sig);
}

/* Calls the handler that was replaced, with the signal mask that the kernel would have set. */
static void call_before(int sig, siginfo_t *info, void *context, bool sent)
{
	unsigned n = atomic_load(&n_before);
	struct sigaction *sa = &before[n > depth ? n - 1 - depth : 0];
	sigset_t mask, saved;

	if (sa->sa_handler == SIG_IGN && sent)
		return;
	if (sa->sa_handler == SIG_DFL || sa->sa_handler == SIG_IGN) {
		slab_die(sig, sent);
		return;
	}
	sigemptyset(&mask);
	sigorset(&mask, &((ucontext_t *)context)->uc_sigmask, &sa->sa_mask);
	if (!(sa->sa_flags & SA_NODEFER))
		sigaddset(&mask, sig);
	pthread_sigmask(SIG_SETMASK, &mask, &saved);
	depth++;
	if (sa->sa_flags & SA_SIGINFO)
		sa->sa_sigaction(sig, info, context);
	else
		sa->sa_handler(sig);
	depth--;
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	bool sent = info->si_code <= 0;

	if (!sent && info->si_code == SEGV_ACCERR && make_writable(info->si_addr)) {
		sent_before = false;
	} else if (info->si_code == SI_TKILL && !sent_before && !depth && anything_lent()) {
		sent_before = true; /* only once in a row, so that raise(SIGSEGV) can still end the process */
	} else {
		sent_before = false;
		call_before(sig, info, context, sent);
	}
	errno = saved;
}

static void slab_install(void)
{
	struct sigaction ours = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK }, now;
	unsigned n = atomic_load(&n_before);

	if (n == MAX_HANDLERS || sigaction(SIGSEGV, NULL, &now) < 0)
		return;
	if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_fault)
		return;
	before[n] = now;
	atomic_store(&n_before, n + 1);
	sigaction(SIGSEGV, &ours, NULL);
}

void slab_guard(const struct slab *s)
{
	if (s->writable)
		return;
	process_lock();
	slab_install();
	process_unlock();
}

/* ---- mapping ---- */

/* An unused struct slab with room for so many slots, from the list or new at its head. NULL when memory is short. New
 * ones have a power of two of states, so that a process that opens loaders of many sizes has few. */
static struct slab *slab_claim(uint32_t n_slots)
{
	uint32_t n_states = LEAST_STATES;
	struct slab *s;

	while (n_states < n_slots)
		n_states *= 2;
	process_lock();
	for (s = atomic_load(&slabs); s && (s->used || s->n_states < n_slots); s = s->next)
		;
	if (!s) {
		s = calloc(1, sizeof *s + n_states * sizeof *s->state);
		if (s) {
			s->n_states = n_states;
			s->next = atomic_load(&slabs);
			atomic_store(&slabs, s);
		}
	}
	if (s)
		s->used = true;
	process_unlock();
	return s;
}

static void slab_unclaim(struct slab *s)
{
	process_lock();
	s->used = false;
	process_unlock();
}

/* How many slots the file has memory for. Behind its end a read would raise SIGBUS. */
static uint32_t slots_there(int fd, uint64_t slot_bytes, uint32_t n_slots)
{
	struct stat st;
	uint64_t n = fstat(fd, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size / slot_bytes : 0;

	return n < n_slots ? (uint32_t)n : n_slots;
}

/* Without these seals a truncation by the daemon would raise SIGBUS here, and another process could change a batch
 * while it is read. */
static int check_seals(int fd, int needed, struct fault *f)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & needed) != needed)
		return fault_set(f, BATCHD_E_PROTOCOL, "the daemon's memory is not sealed (seals 0x%x, needed 0x%x)",
				 seals, needed);
	return 0;
}

int slab_map(int fd, uint32_t n_slots, uint64_t slot_bytes, bool writable, struct slab **out, struct fault *f)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n_bytes;
	uint32_t n_there;
	struct slab *s;
	void *base;
	int r, own = -1;

	if (!n_slots || n_slots > MOST_SLOTS || !slot_bytes || slot_bytes % page ||
	    __builtin_mul_overflow((size_t)slot_bytes, n_slots, &n_bytes) || n_bytes > PTRDIFF_MAX)
		return fault_set(f, BATCHD_E_PROTOCOL,
				 "the daemon offers %u slots of %llu bytes, which is no whole number of pages", n_slots,
				 (unsigned long long)slot_bytes);
	n_there = slots_there(fd, slot_bytes, n_slots);
	r = check_seals(fd, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE, f);
	if (r == 0 && !n_there)
		r = fault_set(f, BATCHD_E_PROTOCOL, "the daemon's memory has no whole slot");
	if (r < 0)
		return r;
	if (n_there < n_slots) {
		own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (own < 0)
			return fault_set(f, BATCHD_E_NOMEM, "no descriptor for the daemon's memory: %s",
					 strerror(errno));
	}
	s = slab_claim(n_slots);
	base = s ? mmap(NULL, n_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd,
			0)
		 : MAP_FAILED;
	if (base == MAP_FAILED) {
		r = fault_set(f, BATCHD_E_NOMEM, "cannot map the daemon's %zu bytes: %s", n_bytes, strerror(errno));
		if (s)
			slab_unclaim(s);
		if (own >= 0)
			close(own);
		return r;
	}
	s->bytes = n_bytes;
	s->slot_bytes = (size_t)slot_bytes;
	s->n_slots = n_slots;
	s->n_there = n_there;
	s->fd = own;
	s->writable = writable;
	atomic_store(&s->n_lent, 0);
	atomic_store(&s->base, base);
	slab_guard(s);
	*out = s;
	return 0;
}

static void forget_fd(struct slab *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

bool slab_has(struct slab *s, uint32_t slot)
{
	if (slot >= s->n_there && s->fd >= 0)
		s->n_there = slots_there(s->fd, s->slot_bytes, s->n_slots);
	if (s->n_there == s->n_slots)
		forget_fd(s);
	return slot < s->n_there;
}

void *slab_slot(const struct slab *s, uint32_t slot)
{
	return atomic_load(&s->base) + slot * s->slot_bytes;
}

void slab_lend(struct slab *s, uint32_t slot)
{
	atomic_store(&s->state[slot], s->writable ? SLOT_WRITTEN : SLOT_LENT);
	atomic_fetch_add(&s->n_lent, 1);
}

void slab_take_back(struct slab *s, uint32_t slot)
{
	if (atomic_exchange(&s->state[slot], SLOT_FREE) == SLOT_WRITTEN) {
		madvise(slab_slot(s, slot), s->slot_bytes, MADV_DONTNEED);
		if (!s->writable)
			mprotect(slab_slot(s, slot), s->slot_bytes, PROT_READ);
	}
	atomic_fetch_sub(&s->n_lent, 1);
}

int slab_map_alone(int fd, uint64_t n_bytes, void **out, struct fault *f)
{
	struct stat st;
	int r;

	if (!n_bytes || n_bytes > PTRDIFF_MAX)
		return fault_set(f, BATCHD_E_PROTOCOL, "the daemon offers a batch of %llu bytes",
				 (unsigned long long)n_bytes);
	r = check_seals(fd, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, f);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < n_bytes)
		return fault_set(f, BATCHD_E_PROTOCOL, "the daemon's memory has %lld bytes where it said %llu",
				 (long long)st.st_size, (unsigned long long)n_bytes);
	*out = mmap(NULL, (size_t)n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
	return *out == MAP_FAILED ? fault_set(f, BATCHD_E_NOMEM, "cannot map a batch of %llu bytes: %s",
					      (unsigned long long)n_bytes, strerror(errno))
				  : 0;
}

/* In one step, so that a concurrent reader notices nothing. */
bool slab_detach_alone(void *at, size_t n_bytes)
{
	void *copy = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return false;
	memcpy(copy, at, n_bytes);
	if (mremap(copy, n_bytes, n_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED)
		return true;
	munmap(copy, n_bytes);
	return false;
}

bool slab_detach(struct slab *s)
{
	bool all = true;

	forget_fd(s);
	for (uint32_t i = 0; i < s->n_slots; i++) {
		if (atomic_load(&s->state[i]) == SLOT_FREE)
			munmap(slab_slot(s, i), s->slot_bytes);
		else if (!slab_detach_alone(slab_slot(s, i), s->slot_bytes))
			all = false;
	}
	return all;
}

void slab_drop(struct slab *s, uint32_t slot)
{
	atomic_store(&s->state[slot], SLOT_FREE);
	atomic_fetch_sub(&s->n_lent, 1);
	munmap(slab_slot(s, slot), s->slot_bytes);
}

void slab_destroy(struct slab *s)
{
	if (!s)
		return;
	forget_fd(s);
	atomic_store(&s->base, NULL);
	slab_unclaim(s);
}
