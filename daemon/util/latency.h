/* How long something took, many times: a histogram in steps of a quarter of an octave. Of the last tens of thousands of
 * times, as older ones fade. No allocation, no lock; one thread's. A zeroed one is empty. */
#ifndef BATCHD_LATENCY_H
#define BATCHD_LATENCY_H

#include <stdint.h>

enum { LATENCY_CLASSES = 128 }; /* from 1 us to longer than an hour */

struct latency {
	uint32_t n; /* sum of the counts */
	uint32_t count[LATENCY_CLASSES];
};

void latency_add(struct latency *l, uint64_t ns);
/* At most so many ns in so many per cent of all times, to a quarter more than the truth; 0: there were none. */
uint64_t latency_percentile_ns(const struct latency *l, unsigned percent);

#endif
