/* The trainer's view of a slab: a private mapping of the daemon's memory, slot by slot lent and given back.
 *
 * The caller serialises all calls on one slab; the signal handler needs no help. */
#ifndef BATCHD_CLIENT_SLAB_H
#define BATCHD_CLIENT_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

struct slab;

/* Maps the memfd after checking that it is sealed and as large as n_slots * slot_bytes. Borrows fd. writable as in
 * struct batchd_options.
 * 0 or a batchd code with f. */
int slab_map(int fd, uint32_t n_slots, uint64_t slot_bytes, bool writable, struct slab **out, struct fault *f);

void *slab_slot(const struct slab *s, uint32_t slot);
/* From now on the slot may be read and written by this process. */
void slab_lend(struct slab *s, uint32_t slot);
/* Ends that, and drops pages that were written to, so that the slot shows the daemon's bytes again. Before the daemon
 * is told. */
void slab_take_back(struct slab *s, uint32_t slot);

/* Replaces every slot on loan by a copy of this process's own, at the same address, and unmaps the rest. False: memory
 * was short, and some slots still are the daemon's. Afterwards only slab_drop and slab_destroy are allowed. */
bool slab_detach(struct slab *s);
/* After slab_detach: ends a loan. */
void slab_drop(struct slab *s, uint32_t slot);
/* After slab_detach and a slab_drop for every slot that was on loan: nothing is mapped any more. NULL is allowed. */
void slab_destroy(struct slab *s);

/* Puts the handler for first writes (back) on top, in case somebody has installed another since. */
void slab_guard(const struct slab *s);

#endif
