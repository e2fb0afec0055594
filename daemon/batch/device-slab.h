/* A device slab: a mirror of a slab on a GPU. Its slot i receives the content of the host slab's slot i, after the
 * workers have filled that slot and before a trainer on that GPU is told of it.
 *
 * A device slab belongs to its slots and lives as long as they do, unless its only trainer could not open it. A trainer that attached with it may have the GPU's
 * slab open until the trainer sends Close or its process ends; for that time it holds a reference to the slots.
 *
 * States of each batch on each device slab:
 *
 *      slot_begin              device_slab_copy            seen complete
 *     ----------> NOT COPIED -------------> COPYING ---------------> THERE
 *
 * While a slot is being copied it cannot become FREE, even if no trainer wants it (slot.n_copying). Loop thread
 * only. */
#ifndef BATCHD_DEVICE_SLAB_H
#define BATCHD_DEVICE_SLAB_H

#include <stdbool.h>
#include <stdint.h>

#include "batch/slot-copies.h"
#include "batch/slots.h"

/* The device slab of these slots on that GPU with that share kind, open or being opened; NULL: there is none. */
struct device_slab *device_slab_find(const struct slots *s, const unsigned char uuid[GPU_UUID_BYTES],
				     enum gpu_share share);

/* Begins to make a device slab. fd: zeroed, or a charge for its descriptor, which is taken over unless this fails. 0:
 * on_open will be called, with m, or with NULL and result and why as in gpus.h (the device slab is gone then);
 * GPU_E_REFUSED: on_open will not be called, why (GPU_REASON_BYTES) gives the reason; -ENOMEM. The slots stay until
 * on_open is called. */
int device_slab_open(struct slots *s, struct gpus *g, const unsigned char uuid[GPU_UUID_BYTES], enum gpu_share share,
		     struct charge *fd, void (*on_open)(void *arg, struct device_slab *m, int result, const char *why),
		     void *arg, char *why);

/* No trainer uses the open device slab, and none has it open: closes it, unless a batch was copied to it. */
void device_slab_drop(struct device_slab *m);

/* Begins to copy a READY slot's batch and returns true; done will be called afterwards. False: the copy was begun
 * before, a copy to this device slab has failed, or the batch is large: it has no room there, and its trainers copy it
 * themselves. The slots stay until done has returned. */
bool device_slab_copy(struct device_slab *m, struct slot *slot,
		      void (*done)(struct slot *slot, struct device_slab *device_slab, const char *why));
/* Whether a trainer with this device slab (NULL: with none) can read the slot's batch where it looks for it. */
bool device_slab_has(const struct device_slab *m, const struct slot *slot);

/* A trainer with this device slab (NULL: with none) has been told of the slot's batch. */
void device_slab_note_published(struct device_slab *m, const struct slot *slot);

#endif
