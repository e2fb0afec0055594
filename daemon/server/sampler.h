/* Looks about 20 times a second at what each attached trainer does or waits for, and counts it in the trainer's state
 * clock (batch/state-clock.h); and at what the workers do, for the loaders' stages. While no trainer is attached, there
 * is no timer. Loop thread only. */
#ifndef BATCHD_SAMPLER_H
#define BATCHD_SAMPLER_H

struct engine;
struct session;

void sampler_init(struct engine *e);
/* A trainer is attached: its clock begins. */
void sampler_attach(struct session *s);
/* A trainer that waits is about to be given a batch. */
void sampler_before_handover(struct engine *e);

#endif
