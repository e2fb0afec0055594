/* A session's ring: its batches and releases. See proto/ring.h for the page, proto/README.md for the
 * rules.
 *
 * The trainer can write any value to it, so every value is checked; a ring that breaks the rules costs the session its
 * connection. Loop thread only. */
#ifndef BATCHD_SESSION_RING_H
#define BATCHD_SESSION_RING_H

#include "server/refusal.h"
#include "server/session-state.h"

/* Charges it, before slots take what memory its user has left. 0 or REFUSED. */
int session_ring_charge(struct session *s, struct refusal *why);
/* Makes the page. The caller sends *fd and closes it. 0 or REFUSED. */
int session_ring_open(struct session *s, int *fd, struct refusal *why);
/* Unmaps it, and ends the charge; unread entries of the trainer are dropped. */
void session_ring_close(struct session *s);

/* Puts a Batch into the ring, and wakes the trainer if it sleeps. 0; -EAGAIN: full; -EPIPE: the session is about to
 * end. */
int session_ring_put(struct session *s, const Batchd__Wire__ServerMessage *m);
/* Whether session_ring_put would fail for now. */
bool session_ring_is_full(struct session *s);
/* Takes in the trainer's releases. */
void session_ring_collect(struct session *s);

/* What its trainer has been given, as the trainer says: at most what was published. */
struct ring_taken session_ring_taken(const struct session *s);

/* Notes the trainer's statistics from a Release, received as a packet or through the ring. */
void control_note_release(struct session *s, const Batchd__Wire__Release *r);

/* For consumer_ops. */
void session_ring_look(struct consumer *c);
bool session_ring_arm(struct consumer *c, uint32_t wake_at);

#endif
