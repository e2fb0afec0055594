/* Stalled trainers: see stall.c for when a trainer counts as stalled. Loop thread only. */
#ifndef BATCHD_STALL_H
#define BATCHD_STALL_H

struct engine;
struct session;

/* (Re)starts or stops the clock. */
void stall_watch(struct engine *e);
/* The session leaves its job. */
void stall_forget(struct session *s);
/* Tells a new session which trainers of its job are stalled; the other sessions already know. */
void stall_tell(struct session *newcomer);

#endif
