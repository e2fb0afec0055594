/* Headroom: how fast the trainers of a job would be with infinitely fast input.
 *
 * A client asks (batchctl headroom). Each trainer of the job times some steps as they are, then steps with its last
 * batches again, and goes on with the batch that was due. Only jobs of which every trainer allows replays are measured,
 * as replayed batches are extra steps of the training.
 *
 * All trainers begin at the same batch, which is marked (headroom_mark), and make the same number of replays: they may
 * depend on each other's steps (all-reduce). So a trainer makes only replays that the daemon has granted to all
 * trainers of the job, and a measurement that ends early ends at the number that was granted last.
 *
 * Loop thread only. */
#ifndef BATCHD_HEADROOM_H
#define BATCHD_HEADROOM_H

#include "refusal.h"
#include "session-state.h"

/* A client asks for a measurement, or stops its own. 0 or REFUSED. */
int headroom_on_request(struct session *asker, const Batchd__Wire__Headroom *m, struct refusal *why);
/* A trainer tells what it has measured. */
void headroom_on_stepped(struct session *s, const Batchd__Wire__Stepped *m);
/* Marks the batch with which the trainer's part begins, if it is this one. */
void headroom_mark(const struct session *s, const struct slot *slot, Batchd__Wire__Batch *b);
/* The trainer has been given that batch. */
void headroom_note_marked(struct session *s, const Batchd__Wire__Batch *b);
/* The trainer moves to another place, where the marked batch may not come. */
void headroom_note_moved(struct session *s);
/* The session's connection ends, before it leaves its job: as a trainer, or as the client that asked. */
void headroom_leave(struct session *s);

#endif
