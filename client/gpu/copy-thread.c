/* See copy-thread.h. The queue holds slot numbers, each at most once, so it never overflows; each request is stored
 * with its slot.
 *
 * A program may end without batchd_close. The driver is dismantled then, in an atexit handler of its own, and no thread
 * may be in it: a handler that runs before it stops these threads. */
#include "gpu/copy-thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "batchd.h"
#include "link/process.h"

struct slot_request {
	struct copy_request wanted;
	uint64_t done_generation; /* of the last request that `run` completed; 0: none */
	int result;
	bool queued;
};

struct copy_thread {
	struct copy_thread *next; /* in all_threads */
	unsigned fork_generation; /* process_generation() */
	const struct gpu *gpu;
	int (*run)(void *arg, const struct copy_request *r);
	void *arg;
	uint32_t n_slots;
	pthread_t id;

	pthread_mutex_t lock;
	pthread_cond_t asked, done;
	/* under the lock */
	struct slot_request *request; /* of each slot */
	uint32_t *queue;              /* a ring of n_slots places */
	uint32_t first, n_queued;
	bool stop, busy;
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct copy_thread *all_threads;

enum { EXIT_WAIT_S = 2 }; /* a GPU that is stuck must not keep the process */

static int run_in_context(struct copy_thread *t, const struct copy_request *r)
{
	struct gpu_visit visit;
	int result = gpu_enter(t->gpu, &visit);

	if (result != CUDA_OK)
		return result;
	result = t->run(t->arg, r);
	gpu_leave(t->gpu, &visit);
	return result;
}

/* Called under the lock, which is released while the copy runs. */
static void take_one(struct copy_thread *t)
{
	struct slot_request *request = &t->request[t->queue[t->first]];
	struct copy_request wanted = request->wanted;
	int result;

	t->first = (t->first + 1) % t->n_slots;
	t->n_queued--;
	request->queued = false;
	t->busy = true;
	pthread_mutex_unlock(&t->lock);
	result = run_in_context(t, &wanted);
	pthread_mutex_lock(&t->lock);
	t->busy = false;
	request->done_generation = wanted.generation;
	request->result = result;
	pthread_cond_broadcast(&t->done);
}

static void *thread_main(void *arg)
{
	struct copy_thread *t = arg;

	pthread_setname_np(pthread_self(), "batchd-copy");
	pthread_mutex_lock(&t->lock);
	while (!t->stop) {
		if (t->n_queued)
			take_one(t);
		else
			pthread_cond_wait(&t->asked, &t->lock);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static void stop_before_exit(struct copy_thread *t)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += EXIT_WAIT_S;
	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_cond_signal(&t->asked);
	while (t->busy && r == 0)
		r = pthread_cond_timedwait(&t->done, &t->lock, &until);
	pthread_mutex_unlock(&t->lock);
}

/* A forked child has the list, but none of the threads; its locks may have been taken in the middle of the fork. */
static void on_exit_of_process(void)
{
	if (!all_threads || all_threads->fork_generation != process_generation())
		return;
	pthread_mutex_lock(&all_lock);
	for (struct copy_thread *t = all_threads; t; t = t->next)
		stop_before_exit(t);
	pthread_mutex_unlock(&all_lock);
}

static void watch_exit(void)
{
	atexit(on_exit_of_process);
}

/* The driver's handler was registered before, by cuInit, so this one runs first. */
static void join_list(struct copy_thread *t)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_exit);
	pthread_mutex_lock(&all_lock);
	t->next = all_threads;
	all_threads = t;
	pthread_mutex_unlock(&all_lock);
}

static void leave_list(const struct copy_thread *t)
{
	struct copy_thread **at = &all_threads;

	pthread_mutex_lock(&all_lock);
	while (*at && *at != t)
		at = &(*at)->next;
	if (*at)
		*at = t->next;
	pthread_mutex_unlock(&all_lock);
}

/* Blocks signals in the thread, as they are for the trainer's own threads, except those that a fault of this thread
 * raises. */
static int copy_thread_start(struct copy_thread *t)
{
	sigset_t blocked, old;
	int r;

	sigfillset(&blocked);
	sigdelset(&blocked, SIGSEGV);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGFPE);
	sigdelset(&blocked, SIGILL);
	pthread_sigmask(SIG_SETMASK, &blocked, &old);
	r = pthread_create(&t->id, NULL, thread_main, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

static void free_thread(struct copy_thread *t)
{
	pthread_cond_destroy(&t->done);
	pthread_cond_destroy(&t->asked);
	pthread_mutex_destroy(&t->lock);
	free(t->queue);
	free(t->request);
	free(t);
}

int copy_thread_create(struct copy_thread **out, const struct gpu *g, uint32_t n_slots,
		       int (*run)(void *arg, const struct copy_request *r), void *arg, struct fault *f)
{
	struct copy_thread *t = calloc(1, sizeof *t);

	if (!t)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	t->gpu = g;
	t->run = run;
	t->arg = arg;
	t->n_slots = n_slots;
	t->fork_generation = process_generation();
	t->request = calloc(n_slots, sizeof *t->request);
	t->queue = calloc(n_slots, sizeof *t->queue);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->asked, NULL);
	pthread_cond_init(&t->done, NULL);
	if (!t->request || !t->queue || copy_thread_start(t)) {
		free_thread(t);
		return fault_set(f, BATCHD_E_NOMEM,
				 "cannot start a thread for copies to the GPU: out of memory or threads");
	}
	join_list(t);
	*out = t;
	return 0;
}

void copy_thread_destroy(struct copy_thread *t)
{
	if (!t)
		return;
	leave_list(t);
	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_cond_signal(&t->asked);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->id, NULL);
	free_thread(t);
}

void copy_thread_ask(struct copy_thread *t, const struct copy_request *r)
{
	struct slot_request *request = &t->request[r->slot];

	pthread_mutex_lock(&t->lock);
	request->wanted = *r;
	request->done_generation = 0;
	if (!request->queued) {
		request->queued = true;
		t->queue[(t->first + t->n_queued++) % t->n_slots] = r->slot;
		pthread_cond_signal(&t->asked);
	}
	pthread_mutex_unlock(&t->lock);
}

int copy_thread_wait(struct copy_thread *t, uint32_t slot)
{
	struct slot_request *request = &t->request[slot];
	int result;

	pthread_mutex_lock(&t->lock);
	while (request->done_generation != request->wanted.generation)
		pthread_cond_wait(&t->done, &t->lock);
	result = request->result;
	pthread_mutex_unlock(&t->lock);
	return result;
}
