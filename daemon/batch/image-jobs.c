/* See image-jobs.h. */
#include "batch/image-jobs.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/container.h"
#include "base/thread-kind.h"

static int image_jobs_run(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	assert(first == 0 && n == 1);
	(void)first;
	(void)n;
	(void)ticket;
	struct image_job *j = container_of(job, struct image_job, job);
	struct image_jobs *of = j->of;
	void *rows[] = { of->slab->base + (size_t)(j - of->job) * of->slot_bytes };
	j->result = sample_make_at(of->recipe, worker, j->key, of->fd, j->offset, j->n_bytes, rows, &j->error);
	return 0;
}

static void image_jobs_on_done(struct pool_job *job)
{
	struct image_job *j = container_of(job, struct image_job, job);
	struct image_jobs *of = j->of;
	assert(j->busy && of->n_busy > 0);
	j->busy = false;
	of->n_busy--;
	of->done(of, j);
}

static const struct pool_job_ops image_jobs_ops = { .run = image_jobs_run, .done = image_jobs_on_done };

int image_jobs_init(struct image_jobs *of, struct pool *pool, uid_t uid)
{
	assert(is_loop_thread());
	assert(of->n > 0 && of->recipe && of->slab && of->done);
	of->pool = pool;
	of->n_busy = 0;
	of->job = calloc(of->n, sizeof(*of->job));
	if (!of->job || pool_queue_add(pool, &of->queue, 0, uid, NULL)) {
		free(of->job);
		of->job = NULL;
		return -ENOMEM;
	}
	/* A client waits for every image. */
	pool_queue_set_urgency(pool, &of->queue, 0, true);
	return 0;
}

void image_jobs_submit(struct image_jobs *of, unsigned slot, uint64_t offset, uint64_t n_bytes, struct sample_key key)
{
	assert(is_loop_thread());
	assert(of->job);
	struct image_job *j = &of->job[slot];
	assert(slot < of->n && !j->busy);
	*j = (struct image_job){ .job = { .ops = &image_jobs_ops, .n_rows = 1, .chunk = 1 },
				 .of = of,
				 .busy = true,
				 .offset = offset,
				 .n_bytes = n_bytes,
				 .key = key,
				 .result = -ECANCELED };
	of->n_busy++;
	pool_submit(of->pool, &of->queue, &j->job);
}

void image_jobs_cancel(struct image_jobs *of)
{
	assert(is_loop_thread());
	for (unsigned i = 0; of->job && i < of->n; i++)
		if (of->job[i].busy)
			pool_cancel(of->pool, &of->job[i].job);
}

void image_jobs_finish(struct image_jobs *of)
{
	assert(is_loop_thread());
	assert(!of->n_busy);
	if (of->job)
		pool_queue_remove(of->pool, &of->queue);
	free(of->job);
	of->job = NULL;
}
