/* Threads that take the next index from a counter.
 *
 * The calling thread does no work: it wakes ten times a second to draw, so that a slow file delays the work but not the
 * display. */
#include "ctl/command/parallel-for.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct parallel {
	const struct parallel_job *job;
	atomic_uint_fast64_t next, done;
	atomic_int error;     /* of the first thread that failed */
	pthread_mutex_t lock; /* guards n_running */
	pthread_cond_t left;  /* a thread has ended */
	unsigned n_running;
};

static void parallel_for_fail(struct parallel *c, int error)
{
	int none = 0;

	atomic_compare_exchange_strong(&c->error, &none, error);
}

static bool parallel_for_stopped(struct parallel *c)
{
	if (c->job->cancel && atomic_load(c->job->cancel))
		parallel_for_fail(c, -ECANCELED);
	return atomic_load(&c->error) != 0;
}

static void run_member(struct parallel *c)
{
	const struct parallel_job *job = c->job;
	void *own = job->begin(job->arg);
	uint64_t i;
	int r = own ? 0 : -ENOMEM;

	while (r == 0 && !parallel_for_stopped(c) && (i = atomic_fetch_add(&c->next, 1)) < job->n) {
		r = job->work(job->arg, own, i);
		atomic_fetch_add(&c->done, 1);
	}
	if (r < 0)
		parallel_for_fail(c, r);
	if (own)
		job->end(job->arg, own);
}

static void *member_main(void *arg)
{
	struct parallel *c = arg;

	run_member(c);
	pthread_mutex_lock(&c->lock);
	c->n_running--;
	pthread_cond_signal(&c->left);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

static void parallel_for_watch(struct parallel *c, struct progress *progress)
{
	pthread_mutex_lock(&c->lock);
	while (c->n_running) {
		struct timespec until;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += 100000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&c->left, &c->lock, &until);
		progress_update(progress, atomic_load(&c->done));
	}
	pthread_mutex_unlock(&c->lock);
}

int parallel_for(const struct parallel_job *job, struct progress *progress)
{
	struct parallel c = { .job = job, .lock = PTHREAD_MUTEX_INITIALIZER };
	pthread_t *threads = calloc(job->n_threads, sizeof *threads);
	pthread_condattr_t monotonic;
	unsigned n = 0;

	if (!threads)
		return -ENOMEM;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&c.left, &monotonic);
	pthread_condattr_destroy(&monotonic);

	pthread_mutex_lock(&c.lock);
	for (; n < job->n_threads; n++) {
		if (pthread_create(&threads[n], NULL, member_main, &c) != 0)
			break;
		c.n_running++;
	}
	pthread_mutex_unlock(&c.lock);
	if (n == 0)
		parallel_for_fail(&c, -EAGAIN);
	parallel_for_watch(&c, progress);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pthread_cond_destroy(&c.left);
	free(threads);
	return atomic_load(&c.error);
}
