/* A histogram of durations in steps of a quarter of an octave. It covers the last tens of thousands of samples; older
 * ones fade. No allocation, no lock; one thread's. A zeroed one is empty. */
#ifndef BATCHD_LATENCY_H
#define BATCHD_LATENCY_H

#include <stdint.h>

enum { LATENCY_CLASSES = 128 }; /* from 1 us to longer than an hour */

struct latency {
	uint32_t n; /* sum of the counts */
	uint32_t count[LATENCY_CLASSES];
};

void latency_add(struct latency *l, uint64_t ns);
/* The duration that `percent` per cent of all samples do not exceed, rounded up by at most a quarter; 0: no samples. */
uint64_t latency_percentile_ns(const struct latency *l, unsigned percent);

#endif
