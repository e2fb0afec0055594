/* Calls to a daemon that may go away meanwhile: the only place that knows about reconnecting. The loader's thread. */
#ifndef BATCHD_CLIENT_RECONNECT_H
#define BATCHD_CLIENT_RECONNECT_H

#include "loader/loader.h"

/* A part of a call that needs the daemon, on l->link. left_ms: what is left of the call's timeout. 0, another outcome
 * that is not negative, or a code with l->fault. */
typedef int (*link_attempt)(struct batchd_loader *l, void *arg, int left_ms);

/* Makes the attempt, and makes it again with the next link whenever the daemon goes away; waits while the daemon is
 * away. timeout_ms as for batchd_next. Returns the result of the last attempt; BATCHD_AGAIN: the daemon is still away;
 * or a code with l->fault: the daemon has stayed away for too long, or refuses this trainer. */
int with_link(struct batchd_loader *l, int timeout_ms, link_attempt attempt, void *arg);
/* For messages that a daemon need not get while it is away, since position_ask_again tells the next one: one attempt at
 * most, without waiting. Returns its result; 0: the daemon is away. */
int with_link_now(struct batchd_loader *l, link_attempt attempt, void *arg);
/* While the daemon is away: unmaps its memory on the GPU as soon as nothing reads it. */
void reconnect_part(struct batchd_loader *l);
/* A batch has come: if the daemon goes away now, that is a new outage. */
static inline void reconnect_note_progress(struct batchd_loader *l)
{
	l->outage.no_progress = false;
}

#endif
