/* Processor time that one image may take. Its thread's clock costs a system call, so work is counted, roughly in pixels,
 * and the clock asked only after some millions of them: for usual images never. */
#ifndef BATCHD_CPU_BUDGET_H
#define BATCHD_CPU_BUDGET_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { CPU_BUDGET_STEP = 4 << 20 };

struct cpu_budget {
	uint64_t limit_ns; /* 0: none */
	uint64_t work;     /* since the clock was asked */
	uint64_t began_ns; /* 0: it has not been asked yet */
	bool over;
};

static inline void cpu_budget_begin(struct cpu_budget *b, uint64_t limit_ns)
{
	*b = (struct cpu_budget){ .limit_ns = limit_ns };
}

/* So many pixels more. False: the time is over. */
static inline bool cpu_budget_spend(struct cpu_budget *b, uint64_t work)
{
	struct timespec t;

	b->work += work;
	if (b->work < CPU_BUDGET_STEP || !b->limit_ns)
		return !b->over;
	b->work = 0;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	uint64_t now_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	if (!b->began_ns)
		b->began_ns = now_ns;
	b->over = b->over || now_ns - b->began_ns > b->limit_ns;
	return !b->over;
}

#endif
