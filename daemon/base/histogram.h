/* Durations counted in fixed classes that double, from 50 us to 3.3 s; they only grow, as Prometheus wants its
 * histograms. No allocation, no lock; one thread's. A zeroed one is empty. */
#ifndef BATCHD_HISTOGRAM_H
#define BATCHD_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_CLASSES = 18 }; /* the last has what is longer than all others */

struct histogram {
	uint64_t count[HISTOGRAM_CLASSES];
	uint64_t sum_ns;
};

/* The longest duration of class i, in ns; UINT64_MAX for the last. */
static inline uint64_t histogram_limit_ns(unsigned i)
{
	return i + 1 < HISTOGRAM_CLASSES ? UINT64_C(50000) << i : UINT64_MAX;
}

static inline void histogram_add(struct histogram *h, uint64_t ns)
{
	unsigned i = 0;

	while (ns > histogram_limit_ns(i))
		i++;
	h->count[i]++;
	h->sum_ns +=
		ns < (uint64_t)INT64_MAX ? ns : 0; /* a client sends the duration: nonsense does not spoil the sum */
}

#endif
