/* See threads.h. */
#include "batch/pool/threads.h"

#include <assert.h>
#include <signal.h>

int pool_thread_start(struct pool_thread *t, void *(*main)(void *), const char *name)
{
	assert(t->pool && !t->started);
	/* Only the loop thread handles signals; a fault is its own thread's. */
	sigset_t all, old;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int r = pthread_create(&t->id, NULL, main, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r)
		return -r;
	pthread_setname_np(t->id, name);
	t->started = true;
	return 0;
}

void pool_threads_join(struct pool_thread *threads, unsigned n)
{
	for (unsigned i = 0; threads && i < n; i++) {
		if (threads[i].started)
			pthread_join(threads[i].id, NULL);
	}
}
