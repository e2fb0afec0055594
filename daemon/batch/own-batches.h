/* Batches that a trainer lists itself (batch_sampler) and sends ahead. Loop thread only. */
#ifndef BATCHD_OWN_BATCHES_H
#define BATCHD_OWN_BATCHES_H

#include <stdbool.h>
#include <stdint.h>

struct slot;
struct stream;

/* Appends indices of batch `step`; more: its last packet has not come yet. 0, STREAM_E_INVALID, STREAM_E_LIMIT, -ENOMEM. */
int own_batches_add(struct stream *s, uint64_t step, const uint64_t *indices, uint32_t n, bool more);
/* Writes the indices of the first one, which must be there, into the slot. */
void own_batches_take(struct stream *s, struct slot *slot);
void own_batches_drop(struct stream *s);

#endif
