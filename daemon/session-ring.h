/* A session's ring: its batches and releases without packets. See proto/ring.h for the page, proto/README.md
 * for the rules.
 *
 * The trainer writes to it as it likes, so nothing in it is believed; one that breaks the rules costs that session its
 * connection. Loop thread only. */
#ifndef BATCHD_SESSION_RING_H
#define BATCHD_SESSION_RING_H

#include "session-state.h"

/* Makes the page and charges it. *fd is the caller's to send and close; -1: there is none, and packets will do. */
void session_ring_open(struct session *s, int *fd);
/* Unmaps it; what the trainer has left in it is not looked at any more. */
void session_ring_close(struct session *s);

/* Puts a Batch into the ring, and wakes the trainer if it sleeps. 0; -EAGAIN: full; -EPIPE: the session is about to
 * end. */
int session_ring_put(struct session *s, const Batchd__Wire__ServerMessage *m);
/* Takes in what the trainer has released. */
void session_ring_collect(struct session *s);

/* What a Release says of its trainer, by whichever way it came. */
void control_note_release(struct session *s, const Batchd__Wire__Release *r);

/* consumer_ops of a session with a page. */
void session_ring_look(struct consumer *c);
bool session_ring_arm(struct consumer *c, uint32_t wake_at);

#endif
