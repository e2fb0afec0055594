/* A session's messages, and its end; see session-state.h for its data. Loop thread only. */
#ifndef BATCHD_SESSION_H
#define BATCHD_SESSION_H

#include "server/job.h"
#include "server/session-state.h"

extern const struct peer_ops session_peer_ops;
extern const struct job_ops session_job_ops;

/* The steps of a shutdown, in this order. */

/* Tells the trainer. Ends the session unless the trainer's process may have memory on a GPU open: that memory must not
 * be freed until the trainer sends Close or exits. */
void session_drain(struct session *s);
/* Stops waiting for the slots of an orphan, or of a trainer that is opening again, unless they are on a GPU. */
void session_drop_orphan(struct session *s);
/* Stops waiting for the session's GPU mapping, too; the exit of this process frees it. Returns whether there was
 * one. */
bool session_detach_gpu(struct session *s);

#endif
