/* a slot allocation: the making of slots, either for a session whose stream has none, or for a share group when another
 * trainer joins. It decides how many slots the budget and the user's quota allow, charges them, and has an I/O thread
 * make their memory.
 *
 * Loop thread only. It is a task of the job, and may outlive the session that asked. In that case slots made for that
 * session alone are freed as soon as they are made; a share group that is at work keeps its slots. */
#ifndef BATCHD_SLOT_ALLOC_H
#define BATCHD_SLOT_ALLOC_H

#include "server/refusal.h"

#include <stddef.h>

struct loader;
struct session;
struct slots;

enum { SLOT_ALLOC_THERE = 2 };

/* Begins a slot allocation for an OPENING session without s->slot_alloc; job_advance is called when the slots are made. 0;
 * SLOT_ALLOC_THERE: there is nothing to make; REFUSED: there is too little memory. */
int slot_alloc_request(struct session *s, struct refusal *why);
/* The session's trainer has taken batches; the loop has not looked at its releases yet. Makes the rest of the slab's
 * slots, if there is any, and if the workers rest. */
void slot_alloc_on_taken(struct session *s);
/* Makes the rest of the slab's slots now, if there is any: the session wants them on a GPU, and the daemon's driver or
 * the trainer's takes a slab as a whole. */
void slot_alloc_complete(struct session *s, struct slots *slots);
/* Why a loader has so many slots now, and whether more will come, for a person: "4 of 9.6 MB: ..."; at most 200 bytes. */
void slot_alloc_explain(const struct loader *l, const struct slots *slots, char *text, size_t size);
#endif
