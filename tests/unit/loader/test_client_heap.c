/* libbatchd and the heap: behaviour when allocations fail, and that taking batches does not allocate. Allocations of
 * one thread are counted and made to fail; the sanitizers have their own allocators, so under them nothing is
 * tested. */
#include <sched.h>

#include "link/slab.h"
#include "fake/daemon/fake.h"
#include "support/own-heap.h"
#include "support/suite.h"

#if OWN_HEAP
static __thread unsigned n_allocations, fail_at; /* fail_at: which allocation fails, from 1; 0: none */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static void reset_count(void)
{
	n_allocations = 0;
}

static unsigned count(void)
{
	return n_allocations;
}

static bool refuses(void)
{
	if (++n_allocations != fail_at)
		return false;
	errno = ENOMEM;
	return true;
}

__attribute__((visibility("default"))) void *malloc(size_t n)
{
	return refuses() ? NULL : __libc_malloc(n);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	return refuses() ? NULL : __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
	return refuses() ? NULL : __libc_realloc(p, n);
}
#else
static void reset_count(void)
{
}

static unsigned count(void)
{
	return 0;
}
#endif

#if OWN_HEAP

static void welcome_whoever_comes(struct fake *f)
{
	const Batchd__Wire__ClientMessage *m;

	while (!atomic_load(&f->step)) {
		Batchd__Wire__Welcome w = BATCHD__WIRE__WELCOME__INIT;

		f->peer = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
		while ((m = hear(f))) {
			w.version = WIRE_VERSION;
			if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_HELLO)
				SAY(f, WELCOME, &w);
			else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN)
				say_opened(f);
		}
		close(f->peer);
	}
	f->peer = -1;
}

START_TEST(test_any_allocation_may_fail_while_opening)
{
	/* The first allocation fails, then the second, ... until all succeed: an error each time, and everything is
	 * given back. */
	unsigned n_failed = 0, n_fds;
	int r;

	options.own_batches = 1;
	play(welcome_whoever_comes);
	n_fds = count_fds();
	do {
		n_allocations = 0;
		fail_at = n_failed + 1;
		r = batchd_open(&options, &loader, err, sizeof err);
		if (r == 0)
			atomic_store(&d->step, 1);
		fail_at = 0;
		if (r < 0) {
			n_failed++;
			ck_assert_msg(r == BATCHD_E_NOMEM || r == BATCHD_E_INVALID || r == BATCHD_E_CONNECT, "%s: %s",
				      batchd_code_name(r), err);
			ck_assert_ptr_null(loader);
			while (count_fds() > n_fds + 1) /* the daemon's thread is closing its ends; a leak stays */
				sched_yield();
		}
	} while (r < 0);
	ck_assert_uint_ge(n_failed, 4);
	finish();
}
END_TEST
#endif

START_TEST(test_a_batch_allocates_nothing)
{
	/* Taking and giving back 50 batches, written to or not, works, and allocates nothing where that can be
	 * counted. */
	unsigned n_good = 0, n;

	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	release();
	reset_count();
	for (unsigned step = 1; step <= 50; step++) { /* without assertions, because those allocate */
		n_good += batchd_next(loader, &batch, BATCHD_FOREVER) == BATCHD_OK;
		if (step % 2)
			((volatile float *)batch.data)[0] = 1;
		n_good += batchd_release(loader, batch.slot, batch.generation) == 0;
	}
	n = count();
	ck_assert_uint_eq(n_good, 100);
	ck_assert_uint_eq(n, 0);
	finish();
}
END_TEST

static unsigned map_and_destroy(uint32_t n_slots)
{
	struct slab *s;
	struct fault f;

	reset_count();
	ck_assert_int_eq(slab_map(d->slab_fd, n_slots, d->slot_bytes, false, &s, &f), 0);
	unsigned n = count();
	ck_assert(slab_detach(s)); /* unmaps what is not on loan */
	slab_destroy(s);
	return n;
}

START_TEST(test_what_a_fault_looks_at_is_never_freed)
{
	/* A fault elsewhere may look through a slab while that is destroyed. So its slots' states stay, and the next slab
	 * has them. */
	map_and_destroy(1);
	for (uint32_t i = 0; i < 10; i++)
		ck_assert_uint_eq(map_and_destroy(1 + i % N_SLOTS), 0);
}
END_TEST

SUITE(client_heap)
{
	Suite *suite = suite_create("client-heap");
	TCase *all = tcase_create("client-heap");

	tcase_add_checked_fixture(all, setup, teardown);
	suite_add_tcase(suite, all);
#if OWN_HEAP
	tcase_add_test(all, test_any_allocation_may_fail_while_opening);
#endif
	tcase_add_test(all, test_a_batch_allocates_nothing);
	tcase_add_test(all, test_what_a_fault_looks_at_is_never_freed);
	return suite;
}
