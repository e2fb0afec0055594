/* An allotment: slots that are made for a session whose stream has none, or for a group of trainers that one more has
 * come to. It decides how many the budget, and the user's part of it, allow, charges them, and has an I/O thread make
 * their memory.
 *
 * Loop thread only. It is a task of the job, and outlives the session that asked: what is made for that session alone
 * is then freed as soon as it is there, and a group that is at work keeps it. */
#ifndef BATCHD_ALLOTMENT_H
#define BATCHD_ALLOTMENT_H

#include "refusal.h"

struct session;

enum { ALLOTMENT_THERE = 2 };

/* Begins one for an OPENING session without s->allotment; job_advance is called when it is there. 0; ALLOTMENT_THERE:
 * nothing need be made; REFUSED: there is too little memory. */
int allotment_request(struct session *s, struct refusal *why);
#endif
