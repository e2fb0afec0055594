/* Measurements over some batches: of one epoch, of one trainer, or of the whole run. */
#ifndef BATCHCTL_BENCH_STATS_H
#define BATCHCTL_BENCH_STATS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_stats {
	uint64_t images, bytes, batches, padding, replaced;
	uint64_t trainer_cpu_ns;
	uint64_t begun_ns, ended_ns;  /* CLOCK_MONOTONIC, of the first trainer and of the last; 0 in sums of several
	                               * epochs */
	double seconds;               /* between them */
	uint64_t first_ns;            /* the slowest trainer's wait for its first batch */
	double daemon_cpu_s, decoded; /* NAN: not known */
	uint64_t *waits_ns;           /* n_waits, of every batch but a trainer's first of an epoch; owned */
	size_t n_waits;
	bool partial; /* time was up before the end */
};

void bench_stats_init(struct bench_stats *t);
void bench_stats_finish(struct bench_stats *t);

/* Adds one trainer's "epoch" answer (trainer.h), which ran at the same time as those already added. False: no
 * memory. */
bool bench_stats_add(struct bench_stats *t, const json_t *answer);
/* Adds figures that came after those already added; `first_ns` stays that of the first. */
bool bench_stats_append(struct bench_stats *t, const struct bench_stats *later);

/* NAN when nothing was measured. */
double bench_stats_images_per_s(const struct bench_stats *t);
double bench_stats_daemon_cpu_ms(const struct bench_stats *t); /* per image */
double bench_stats_trainer_cpu_ms(const struct bench_stats *t);
double bench_stats_wait_ms(struct bench_stats *t, double quantile); /* sorts the waits */

/* NULL: no memory. */
json_t *bench_stats_json(struct bench_stats *t);

#endif
