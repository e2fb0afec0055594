/* See slab-release.h. One thread, which begins with the first slab and frees them in the order of their coming. */
#include "batch/slab-release.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/thread-kind.h"

struct release {
	struct release *next;
	void *base;
	size_t bytes;
	int fds[2];
	uid_t payer;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct release *first;
static uint64_t n_given, n_freed;
static bool started, ending;
static void (*charge)(void *arg, uid_t payer, uint64_t ns);
static void *charge_arg;
static unsigned n_charging;
static pthread_t thread;
static pid_t process; /* whose thread it is: a forked child has none */

static void free_pages(const struct release *r)
{
	uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	if (r->base)
		munmap(r->base, r->bytes);
	for (int i = 0; i < 2; i++) {
		if (r->fds[i] >= 0)
			close(r->fds[i]);
	}
	pthread_mutex_lock(&lock);
	void (*fn)(void *, uid_t, uint64_t) = charge;
	void *arg = charge_arg;
	n_charging += fn != NULL;
	pthread_mutex_unlock(&lock);
	if (!fn)
		return;
	fn(arg, r->payer, clock_ns(CLOCK_THREAD_CPUTIME_ID) - began);
	pthread_mutex_lock(&lock);
	if (--n_charging == 0)
		pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void slab_release_charge(void (*fn)(void *arg, uid_t payer, uint64_t ns), void *arg)
{
	pthread_mutex_lock(&lock);
	charge = fn;
	charge_arg = arg;
	while (!fn && n_charging)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void *free_all(void *arg)
{
	(void)arg;
	thread_kind = THREAD_OTHER;
	pthread_mutex_lock(&lock);
	while (first || !ending) {
		struct release *r = first;
		if (!r) {
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		first = r->next;
		pthread_mutex_unlock(&lock);
		free_pages(r);
		free(r);
		pthread_mutex_lock(&lock);
		n_freed++;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Under the lock. */
static bool is_running(void)
{
	return started && process == getpid();
}

/* Under the lock. */
static bool start(void)
{
	sigset_t all, old;
	if (is_running())
		return true;
	first = NULL;
	n_freed = n_given;
	n_charging = 0;
	process = getpid();
	changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER; /* the parent's thread waits for its copy */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* only the loop thread handles signals */
	started = pthread_create(&thread, NULL, free_all, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (started) {
		static bool registered;
		pthread_setname_np(thread, "batchd-free");
		registered = registered || atexit(slab_release_end) == 0; /* no thread outlives what it uses */
	}
	return started;
}

void slab_release(void *base, size_t bytes, const int fds[2], uid_t payer)
{
	struct release now = { .base = base, .bytes = bytes, .fds = { fds[0], fds[1] }, .payer = payer },
		       *r = malloc(sizeof(*r));
	pthread_mutex_lock(&lock);
	bool later = r && start();
	if (later) {
		*r = now;
		list_append(&first, r, next);
		n_given++;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	if (later)
		return;
	free(r);
	free_pages(&now);
}

void slab_release_wait(void)
{
	pthread_mutex_lock(&lock);
	for (uint64_t n = n_given; is_running() && n_freed < n;)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

void slab_release_end(void)
{
	pthread_mutex_lock(&lock);
	bool running = is_running();
	ending = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	if (running)
		pthread_join(thread, NULL);
	pthread_mutex_lock(&lock);
	started = ending = false;
	pthread_mutex_unlock(&lock);
}
