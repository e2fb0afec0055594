/* Sums that many threads add to and few read. A thread adds to its own cell, as long as there are enough cells, so that
 * no cache line moves between processors for it. */
#ifndef BATCHD_TALLY_H
#define BATCHD_TALLY_H

#include <stdatomic.h>
#include <stdint.h>

enum { TALLY_SUMS = 5, TALLY_CELLS = 16, TALLY_LINE_BYTES = 64 };

struct tally_cell {
	atomic_uint_fast64_t sum[TALLY_SUMS];
	/* Two cells share no line, wherever the first begins. */
	char padding[2 * TALLY_LINE_BYTES - TALLY_SUMS * sizeof(atomic_uint_fast64_t)];
};

/* All zero at first. */
struct tally {
	struct tally_cell cell[TALLY_CELLS];
};

/* The calling thread's cell: threads get them in turn. */
unsigned tally_cell(void);

static inline void tally_add(struct tally *t, unsigned k, uint64_t n)
{
	atomic_fetch_add_explicit(&t->cell[tally_cell()].sum[k], n, memory_order_relaxed);
}

/* Exact once the threads have added; several sums need not be of one moment. */
static inline uint64_t tally_sum(const struct tally *t, unsigned k)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < TALLY_CELLS; i++)
		sum += atomic_load_explicit(&t->cell[i].sum[k], memory_order_relaxed);
	return sum;
}

#endif
