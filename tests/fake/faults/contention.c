/* A library for LD_PRELOAD that counts how often a program takes its mutexes, and how often one was taken already.
 *
 *     CONTENTION_TO=FILE LD_PRELOAD=build/tests/contention.so program
 *
 * At exit FILE gets a line for each mutex: acquisitions, those that had to wait, and where it was taken first: the
 * program or library and the place in it, as addr2line wants it. Mutexes that lie at the same address one after the
 * other count as one. Waiting on a condition is not counted. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_LOCKS = 1 << 14, TRIES = 64 };

struct lock {
	_Atomic(void *) mutex;
	_Atomic(void *) caller;
	atomic_ulong taken, waited;
} __attribute__((aligned(64)));

static struct lock locks[N_LOCKS];
static atomic_ulong n_unknown; /* acquisitions for which the table had no place */
static int (*real_lock)(pthread_mutex_t *);
static int (*real_trylock)(pthread_mutex_t *);

static void find_real(void)
{
	*(void **)&real_trylock = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
	*(void **)&real_lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
}

__attribute__((constructor)) static void start(void)
{
	find_real();
}

static struct lock *lock_of(void *mutex, void *caller)
{
	size_t at = ((uintptr_t)mutex >> 4) * 0x9E3779B97F4A7C15U >> 40;

	for (size_t i = 0; i < TRIES; i++) {
		struct lock *l = &locks[(at + i) % N_LOCKS];
		void *there = atomic_load_explicit(&l->mutex, memory_order_relaxed);

		if (!there && atomic_compare_exchange_strong(&l->mutex, &there, mutex)) {
			atomic_store(&l->caller, caller);
			return l;
		}
		if (there == mutex)
			return l;
	}
	return NULL;
}

__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	struct lock *l = lock_of(mutex, __builtin_return_address(0));

	if (!real_lock)
		find_real();
	if (!l) {
		atomic_fetch_add_explicit(&n_unknown, 1, memory_order_relaxed);
		return real_lock(mutex);
	}
	atomic_fetch_add_explicit(&l->taken, 1, memory_order_relaxed);

	int result = real_trylock(mutex);

	if (result != EBUSY)
		return result;
	atomic_fetch_add_explicit(&l->waited, 1, memory_order_relaxed);
	return real_lock(mutex);
}

__attribute__((destructor)) static void write_counts(void)
{
	const char *path = getenv("CONTENTION_TO");
	FILE *to = path ? fopen(path, "w") : NULL;
	unsigned long unknown = atomic_load(&n_unknown);

	if (!to)
		return;
	for (size_t i = 0; i < N_LOCKS; i++) {
		char *caller = atomic_load(&locks[i].caller);
		Dl_info in;

		if (!caller || !dladdr(caller, &in))
			continue;
		fprintf(to, "%lu %lu %s %#zx\n", atomic_load(&locks[i].taken), atomic_load(&locks[i].waited),
			in.dli_fname, (size_t)(caller - (char *)in.dli_fbase));
	}
	if (unknown)
		fprintf(to, "%lu 0 unknown 0\n", unknown);
	fclose(to);
}
