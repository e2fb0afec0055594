/* An allotment: the making of slots, either for a session whose stream has none, or for a share group when another
 * trainer joins. It decides how many slots the budget and the user's quota allow, charges them, and has an I/O thread
 * make their memory.
 *
 * Loop thread only. It is a task of the job, and may outlive the session that asked. In that case slots made for that
 * session alone are freed as soon as they are made; a share group that is at work keeps its slots. */
#ifndef BATCHD_ALLOTMENT_H
#define BATCHD_ALLOTMENT_H

#include "refusal.h"

struct session;

enum { ALLOTMENT_THERE = 2 };

/* Begins an allotment for an OPENING session without s->allotment; job_advance is called when the slots are made. 0;
 * ALLOTMENT_THERE: there is nothing to make; REFUSED: there is too little memory. */
int allotment_request(struct session *s, struct refusal *why);
#endif
