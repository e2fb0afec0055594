/* The opening of a job's data set: what an I/O thread needs for it, and what it makes. One for local disks finds the file
 * systems of the files, without asking them. Then one of the file system's own opens the data set (it may take minutes to
 * index) and parses the pipeline; the result is a recipe. job.c says when each runs. */
#ifndef BATCHD_OPENING_H
#define BATCHD_OPENING_H

#include <stdatomic.h>

#include "dataset/file.h"
#include "dataset/locate.h"
#include "server/job.h"
#include "base/meter.h"

struct opening {
	struct job_task task;
	struct pool_lane_user *lane; /* of the file system that it reads; NULL: of local disks, or not known yet */
	uv_timer_t progress;
	struct charge memory;  /* of the data set that it opens */
	int refused;           /* ACCOUNT_E_: there was no memory for it */
	uint64_t wanted_bytes; /* if refused: the total */
	struct meter meter;
	/* the I/O thread's, until done */
	struct data_access access;
	struct Sources *sources;
	char *manifest_dir;
	uint64_t index_dir_limit_bytes;
	double bad_data; /* of the configuration */
	struct cache *cache;
	uint64_t decoded_budget_bytes;
	bool choose_decoded;
	struct decode_limits limits;
	int fds[WIRE_MAX_FDS];
	unsigned n_fds;
	struct location where;
	struct recipe recipe;
	int result;
	struct refusal why; /* if it failed */
	atomic_uint_fast64_t done, total;
	_Atomic(const char *) phase;
	atomic_bool stop; /* the loop's: no session waits for it any more, or the daemon stops */
};

/* The memory for the bit per sample that marks bad ones, of data sets that can have such. */
uint64_t opening_bits_bytes(const struct recipe *r, bool has_pipeline);
/* For job_task: run, on the I/O thread; the second first. */
void opening_run(struct job_task *t);
void opening_locate(struct job_task *t);
/* What was not the data set's fault. The first reason counts. */
void opening_fail(struct opening *o, Batchd__Wire__ErrorCode code, const char *field, const char *text);
/* Gives back what it has made. */
void opening_free_recipe(struct opening *o);
/* For uv_close of its timer: frees it. */
void opening_free(uv_handle_t *progress);

#endif
