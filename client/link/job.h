/* The name of a job when the user chose none: all ranks of one training run must arrive at the same name, other runs
 * must not. */
#ifndef BATCHD_CLIENT_JOB_H
#define BATCHD_CLIENT_JOB_H

#include "batchd.h"
#include "wire.h"

struct job {
	struct job *next; /* among the live jobs of this process */
	uint64_t spec;    /* hash of the request; 0: not in the list */
	unsigned ordinal; /* among the live jobs with the same spec */
	bool own;         /* the name is random: no other trainer can come to the job */
	char name[WIRE_MAX_JOB + 1];
};

struct source;

/* source: as source_open made it. o->job, if set, is the name (the daemon checks its length). The memory is the
 * caller's and must stay where it is until job_finish. */
void job_init(struct job *j, const struct batchd_options *o, const struct source *source);
void job_finish(struct job *j);

#endif
