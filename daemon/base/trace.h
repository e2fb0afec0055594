/* Records what threads do, for `batchctl trace`: one recording at a time, for the daemon's own user.
 *
 * Off, a place that records costs a load and a branch that is never taken. On, a thread writes into a ring of its own,
 * without a lock. */
#ifndef BATCHD_TRACE_H
#define BATCHD_TRACE_H

#include <stdbool.h>

#include "recording.h"

extern _Atomic uint32_t trace_recording; /* its number; 0: there is none */

static inline bool trace_is_on(void)
{
	return __builtin_expect(atomic_load_explicit(&trace_recording, memory_order_relaxed) != 0, 0);
}

/* Any thread. end_ns 0: the moment begin_ns; both 0: now. */
void trace_add(enum trace_kind kind, uint64_t begin_ns, uint64_t end_ns, uint64_t a, uint64_t b, uint64_t c);
/* Loop thread. Begins a recording; *fd is a descriptor of its memory (struct trace_memory), which the caller borrows
 * until trace_stop. 0; -EBUSY: there is one; other negative errno. */
int trace_start(int *fd);
void trace_stop(void);

#endif
