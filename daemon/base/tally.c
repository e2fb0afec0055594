/* See tally.h. */
#include "base/tally.h"

unsigned tally_cell(void)
{
	static atomic_uint n_threads;
	static _Thread_local unsigned mine; /* 0: none yet */
	if (!mine)
		mine = 1 + atomic_fetch_add_explicit(&n_threads, 1, memory_order_relaxed) % TALLY_CELLS;
	return mine - 1;
}
