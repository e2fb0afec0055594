/* Images that a client asks for one by one: each is read from the client's memory, and made into a row of a small slab
 * that the client maps.
 *
 * Each slot of the slab has a job of its own, so nothing is allocated for a request. The client's memory is a memfd: it is
 * read with pread into the worker's own buffer, so that the client can neither change an image while it is decoded nor
 * make the daemon wait for a server.
 *
 * The queue is a user's like any other: it gets its share of the workers, and as its jobs are short and few, its turn
 * comes before that of streams with batches ahead. Loop thread only. */
#ifndef BATCHD_IMAGE_JOBS_H
#define BATCHD_IMAGE_JOBS_H

#include "batch/pool/pool.h"
#include "batch/sample.h"
#include "batch/slab.h"

struct image_jobs;

struct image_job {
	struct pool_job job;
	struct image_jobs *of;
	bool busy;                /* from image_jobs_submit until done */
	uint64_t offset, n_bytes; /* of the image, in the memfd; the worker reads these while it is busy */
	struct sample_key key;
	int result;                /* the worker's, like the next: of sample_make_at */
	struct sample_error error; /* SAMPLE_E_BAD */
};

struct image_jobs {
	struct pool *pool;
	struct pool_queue queue;
	const struct recipe *recipe; /* without a data set and caches; of one view */
	struct slab *slab;
	size_t slot_bytes;
	int fd; /* the client's memfd */
	unsigned n, n_busy;
	struct image_job *job; /* n of them */
	/* The job has ended, or was cancelled and has not been begun; nothing of it is in use. */
	void (*done)(struct image_jobs *of, struct image_job *j);
};

/* recipe, slab, slot_bytes, fd, n and done are set. uid: the client's user. 0 or -ENOMEM. */
int image_jobs_init(struct image_jobs *of, struct pool *pool, uid_t uid);
/* The slot is not busy. */
void image_jobs_submit(struct image_jobs *of, unsigned slot, uint64_t offset, uint64_t n_bytes, struct sample_key key);
/* Jobs that no worker has begun will not be; done is called for each busy job, later. */
void image_jobs_cancel(struct image_jobs *of);
void image_jobs_finish(struct image_jobs *of); /* none is busy */

#endif
