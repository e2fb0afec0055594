/* Measurements over some batches: of one epoch, of one trainer, or of the whole run. */
#ifndef BATCHCTL_TALLY_H
#define BATCHCTL_TALLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tally {
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

void tally_init(struct tally *t);
void tally_finish(struct tally *t);

/* Adds one trainer's "epoch" answer (trainer.h), which ran at the same time as those already added. False: no
 * memory. */
bool tally_add(struct tally *t, const json_t *answer);
/* Adds a tally that came after those already added; `first_ns` stays that of the first. */
bool tally_append(struct tally *t, const struct tally *later);

/* NAN when nothing was measured. */
double tally_images_per_s(const struct tally *t);
double tally_daemon_cpu_ms(const struct tally *t); /* per image */
double tally_trainer_cpu_ms(const struct tally *t);
double tally_wait_ms(struct tally *t, double quantile); /* sorts the waits */

/* NULL: no memory. */
json_t *tally_json(struct tally *t);

#endif
