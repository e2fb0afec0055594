/* The trainer's view of a slab: a private mapping of the daemon's memory, lent and given back slot by slot.
 *
 * The caller serialises all calls on one slab; the signal handler needs no lock. */
#ifndef BATCHD_CLIENT_SLAB_H
#define BATCHD_CLIENT_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "link/error.h"

struct slab;

/* Maps n_slots of the memfd, whose descriptor it borrows, after checking that it is sealed and has one of them. The others
 * may have no memory yet, or never: see slab_has. writable as in struct batchd_options. 0 or a batchd code with f. */
int slab_map(int fd, uint32_t n_slots, uint64_t slot_bytes, bool writable, struct slab **out, struct fault *f);
/* Whether the slot's memory is there; it stays there. */
bool slab_has(struct slab *s, uint32_t slot);

void *slab_slot(const struct slab *s, uint32_t slot);
/* From now on this process may read and write the slot, which is there. */
void slab_lend(struct slab *s, uint32_t slot);
/* Ends that, and drops pages that were written to, so that the slot shows the daemon's bytes again. Call it before
 * telling the daemon. */
void slab_take_back(struct slab *s, uint32_t slot);

/* Replaces every slot on loan by a copy of this process's own, at the same address, and unmaps the rest. False: memory
 * was short, and some slots still are the daemon's. Afterwards only slab_drop and slab_destroy are allowed. */
bool slab_detach(struct slab *s);
/* The memory of a batch that does not fit its slot: maps a memfd of n_bytes, after checking that no process can change
 * it, for this process to read and write alone. Borrows fd; munmap undoes it. 0 or a batchd code with f. */
int slab_map_alone(int fd, uint64_t n_bytes, void **out, struct fault *f);
/* Replaces such memory by a copy at the same address. False: memory was short. */
bool slab_detach_alone(void *at, size_t n_bytes);
/* After slab_detach: ends a loan. */
void slab_drop(struct slab *s, uint32_t slot);
/* After slab_detach and a slab_drop for every slot that was on loan: nothing is mapped any more. NULL is allowed. */
void slab_destroy(struct slab *s);

/* Installs the handler for first writes again, on top, in case other code has installed one since. */
void slab_guard(const struct slab *s);

#endif
