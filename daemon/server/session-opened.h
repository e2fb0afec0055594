/* The answer to Open: what a trainer has to know of its batches, and the memory in which they come. Loop thread only. */
#ifndef BATCHD_SESSION_OPENED_H
#define BATCHD_SESSION_OPENED_H

struct session;

/* Of a session that has just been attached. ring: the descriptor of its ring; borrowed. */
void session_send_opened(struct session *s, int ring);

#endif
