/* Replays: a trainer that allows it gets its last batches again, so that its speed with infinitely fast input is known
 * (daemon/headroom.h has the rules that ranks follow together). The loader's thread, unless said otherwise. */
#ifndef BATCHD_CLIENT_HEADROOM_H
#define BATCHD_CLIENT_HEADROOM_H

#include "loader.h"

enum { HEADROOM_OVER = 100 }; /* no more replays: the next batch is due */

/* Whether the trainer, or its environment, allows replays. Read once, as a loader is made: its options have the answer,
 * which the daemon knows, too. */
bool headroom_is_allowed(const struct batchd_options *o);
/* A marked batch has been taken. */
void headroom_begin(struct batchd_loader *l, const struct ready *b);
/* A batch of n_rows, or a slice of it, is given to the trainer, which waited for it. */
void headroom_note_given(struct batchd_loader *l, const struct batchd_batch *b, uint32_t n_rows, uint64_t wait_ns);
/* Phase REPLAY: a kept batch again (BATCHD_OK), or HEADROOM_OVER; BATCHD_AGAIN; or a code with l->fault. */
int headroom_next(struct batchd_loader *l, struct batchd_batch *b, uint64_t began_ns, int timeout_ms);
/* Rows of the whole batch that a replayed one is part of. */
uint32_t headroom_rows(struct batchd_loader *l, const struct batchd_batch *b);
/* The daemon says how many replays it grants. */
void headroom_hear(struct batchd_loader *l, const Batchd__Wire__Replay *m);
/* The trainer begins another epoch, or elsewhere. */
void headroom_leave_epoch(struct batchd_loader *l);
/* The loader has another link. */
void headroom_lose(struct batchd_loader *l);
/* Gives the kept batches back. Any thread, under the lock. */
void headroom_let_go(struct batchd_loader *l);

#endif
