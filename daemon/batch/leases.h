/* Slots that trainers hold. Loop thread only. */
#ifndef BATCHD_LEASES_H
#define BATCHD_LEASES_H

#include <stdbool.h>
#include <stdint.h>

struct consumer;
struct slot;
struct stream;

/* Gives the consumer a ready slot, once more if it has the slot already. */
void lease_begin(struct consumer *c, struct slot *slot);
/* The consumer gives the slot back once. */
void lease_end(struct consumer *c, struct slot *slot);
/* Like stream_release, for consumer_ops.look: only ends the lease. */
int stream_take_back(struct consumer *c, uint32_t slot, uint64_t generation);
/* Whether a detached consumer still holds slots: then a new trainer wants fresh ones. */
bool stream_has_strangers(const struct stream *s);

#endif
