/* A session's messages, and its end; see session-state.h for what it is. Loop thread only. */
#ifndef BATCHD_SESSION_H
#define BATCHD_SESSION_H

#include "job.h"
#include "session-state.h"

extern const struct peer_ops session_peer_ops;
extern const struct job_ops session_job_ops;
/* While stopping: tells the trainer, and ends the session unless its process may have memory on a GPU open, which is
 * not to be freed until it says Close or exits. */
void session_dismiss(struct session *s);
/* While stopping: slots of ghosts, and of trainers that are opening again, are not waited for, unless they are on a GPU.
 */
void session_forsake(struct session *s);
/* While stopping: nor is what is open on a GPU any longer, which is then left to the end of this process. Whether there
 * was such a thing. */
bool session_abandon(struct session *s);

#endif
