/* Processor time that one image may take. Reading the thread's clock costs a system call, so work is counted, roughly
 * in pixels, and the clock is read only after several million of them: for usual images never. */
#ifndef BATCHD_CPU_BUDGET_H
#define BATCHD_CPU_BUDGET_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"

enum { CPU_BUDGET_STEP = 4 << 20 };

struct cpu_budget {
	uint64_t limit_ns; /* 0: none */
	uint64_t work;     /* since the clock was read */
	uint64_t began_ns; /* 0: it has not been read yet */
	bool over;
};

static inline void cpu_budget_begin(struct cpu_budget *b, uint64_t limit_ns)
{
	*b = (struct cpu_budget){ .limit_ns = limit_ns };
}

/* Spends this much work, in pixels. False: the time is used up. */
static inline bool cpu_budget_spend(struct cpu_budget *b, uint64_t work)
{
	b->work += work;
	if (b->work < CPU_BUDGET_STEP || !b->limit_ns)
		return !b->over;
	b->work = 0;
	uint64_t now_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	if (!b->began_ns)
		b->began_ns = now_ns;
	b->over = b->over || now_ns - b->began_ns > b->limit_ns;
	return !b->over;
}

#endif
