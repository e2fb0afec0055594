/* How a session finds its job: the name, what must agree with what runs, incarnations, and the charges of a new job. Loop
 * thread only. */
#ifndef BATCHD_JOB_JOIN_H
#define BATCHD_JOB_JOIN_H

#include "server/job.h"

/* Joins the job, making it if it is new. Takes the request's contents and the fds (those taken are set to -1). 0 or
 * REFUSED; then the session is in no job. */
int job_join(struct engine *e, struct session *s, struct open_request *r, int *fds, unsigned n_fds,
	     struct refusal *why);

#endif
