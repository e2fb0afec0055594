/* See closing.h. A thread for each packet's descriptors, because each may wait for another server for ever, and must
 * not delay those of other users. The number of these threads is bounded by the limits on connections
 * (server_admits). */
#include "base/closing.h"
#include "base/list.h"
#include "base/thread-kind.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STACK_BYTES = 128 << 10 };

struct pending {
	struct pending *next;
	uid_t user;
	unsigned n_fds;
	int fds[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pending *first; /* under the lock */

/* Directories, O_PATH descriptors and memfds have nothing to flush. Any further query about a descriptor may itself
 * wait for a server. */
static bool closes_at_once(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || (flags & (O_DIRECTORY | O_PATH)) || fcntl(fd, F_GET_SEALS) >= 0;
}

static void close_all(struct pending *p)
{
	for (unsigned i = 0; i < p->n_fds; i++)
		close(p->fds[i]);
	pthread_mutex_lock(&lock);
	list_remove(&first, p, next);
	pthread_mutex_unlock(&lock);
	free(p);
}

static void *closing_run(void *arg)
{
	thread_kind = THREAD_OTHER;
	close_all(arg);
	return NULL;
}

static int closing_start(struct pending *p)
{
	pthread_attr_t attributes;
	sigset_t all, old;
	pthread_t id;
	int r;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* only the loop thread handles signals */
	r = pthread_create(&id, &attributes, closing_run, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	return r;
}

/* If a thread cannot be created, the descriptors are closed in the calling thread, which may block. */
static void close_apart(uid_t user, const int *fds, unsigned n_fds)
{
	struct pending *p = malloc(sizeof(*p) + n_fds * sizeof(*fds));

	if (!p) {
		for (unsigned i = 0; i < n_fds; i++)
			close(fds[i]);
		return;
	}
	p->user = user;
	p->n_fds = n_fds;
	memcpy(p->fds, fds, n_fds * sizeof(*fds));
	pthread_mutex_lock(&lock);
	list_push(&first, p, next);
	pthread_mutex_unlock(&lock);
	if (closing_start(p))
		close_all(p);
}

void closing_add(uid_t user, const int *fds, unsigned n_fds)
{
	int slow[64];
	unsigned n_slow = 0;

	for (unsigned i = 0; i < n_fds; i++) {
		if (fds[i] < 0)
			continue;
		if (closes_at_once(fds[i])) {
			close(fds[i]);
			continue;
		}
		slow[n_slow++] = fds[i];
		if (n_slow == sizeof(slow) / sizeof(slow[0])) {
			close_apart(user, slow, n_slow);
			n_slow = 0;
		}
	}
	if (n_slow > 0)
		close_apart(user, slow, n_slow);
}

unsigned closing_pending(uid_t user)
{
	unsigned n = 0;

	pthread_mutex_lock(&lock);
	for (const struct pending *p = first; p; p = p->next)
		n += p->user == user ? p->n_fds : 0;
	pthread_mutex_unlock(&lock);
	return n;
}
