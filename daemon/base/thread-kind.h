/* Which thread runs: code that belongs to the loop asserts it. A thread that is not the loop's says what it is before
 * anything else; one that says nothing counts as the loop's, as the only thread of a test does. */
#ifndef BATCHD_THREAD_KIND_H
#define BATCHD_THREAD_KIND_H

#include <stdbool.h>

enum thread_kind { THREAD_LOOP, THREAD_WORKER, THREAD_IO, THREAD_OTHER };

extern _Thread_local enum thread_kind thread_kind;

static inline bool is_loop_thread(void)
{
	return thread_kind == THREAD_LOOP;
}

static inline bool is_worker_thread(void)
{
	return thread_kind == THREAD_WORKER;
}

static inline bool is_io_thread(void)
{
	return thread_kind == THREAD_IO;
}

#endif
