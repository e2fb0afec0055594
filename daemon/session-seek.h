/* Where a trainer wants to go on: at a place, where its group is, or with batches of its own. Loop thread only. */
#ifndef BATCHD_SESSION_SEEK_H
#define BATCHD_SESSION_SEEK_H

#include "session-state.h"

void session_on_seek(struct session *s, const Batchd__Wire__Seek *m);
void session_on_join(struct session *s, const Batchd__Wire__Join *m);
void session_on_indices(struct session *s, const Batchd__Wire__Indices *m);

#endif
