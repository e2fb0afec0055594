/* What trainers that wait for their next batch lack, for their clocks. A stream calls these at the beginning and at the
 * end of each of its steps; in between, the reason may go away. Loop thread only. */
#ifndef BATCHD_SHORTAGE_H
#define BATCHD_SHORTAGE_H

#include "core/stream.h"

/* A trainer attaches: its clock begins. */
void shortage_begin(struct consumer *c);
/* Accounts the time of one trainer up to now, whether it waits or not; the shortage stays. */
void shortage_account(struct consumer *c);
/* For the stream's trainers that waited, or may have: accounts the time up to now. */
void shortage_account_stream(struct stream *s);
/* Nothing more can be done for the stream now: notes what its trainers that wait, or soon will, lack. */
void shortage_note(struct stream *s);

#endif
