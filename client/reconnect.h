/* Calls to a daemon that may go away meanwhile: the only place that knows of reconnecting. The loader's thread. */
#ifndef BATCHD_CLIENT_RECONNECT_H
#define BATCHD_CLIENT_RECONNECT_H

#include "loader.h"

/* A part of a call that needs the daemon, on l->link. left_ms: what is left of the call's timeout. 0, another outcome
 * that is not negative, or a code with l->fault. */
typedef int (*link_attempt)(struct batchd_loader *l, void *arg, int left_ms);

/* Makes the attempt, again with the next link whenever the daemon goes away; while it is away waits for it. timeout_ms
 * as for batchd_next. Returns what the last attempt did; BATCHD_AGAIN: the daemon is still away; or a code with
 * l->fault: it has stayed away for too long, or refuses us. */
int with_link(struct batchd_loader *l, int timeout_ms, link_attempt attempt, void *arg);
/* For what a daemon need not be told as long as it is away, since position_ask_again tells the next one: one attempt at
 * most, without waiting. Returns what it did; 0: the daemon is away. */
int with_link_now(struct batchd_loader *l, link_attempt attempt, void *arg);
/* While the daemon is away: unmaps its memory on the GPU as soon as nothing reads it. */
void reconnect_part(struct batchd_loader *l);
/* A batch has come: a daemon that goes away now was not away all the time. */
static inline void reconnect_note_progress(struct batchd_loader *l)
{
	l->absence.barren = false;
}

#endif
