/* A device slab: a slab's slots once more, on a GPU. Slot i there gets what slot i here holds, after the workers are done
 * and before a trainer on that GPU is told.
 *
 * A device slab belongs to its slots and lives as long as they do: whoever attached with it may have the GPU's slab open
 * until it says Close or its process ends, and that is what a reference to the slots means.
 *
 * Of each batch, on each device slab:
 *
 *      slot_begin              device_slab_copy            seen complete
 *     ----------> NOT COPIED -------------> COPYING ---------------> THERE
 *
 * While a slot is copied it cannot become FREE, wanted or not (slot.n_copying). Loop thread only. */
#ifndef BATCHD_DEVICE_SLAB_H
#define BATCHD_DEVICE_SLAB_H

#include <stdbool.h>
#include <stdint.h>

#include "core/slots.h"
#include "cuda/gpus.h"
#include "util/account.h"
#include "util/latency.h"

enum copy_state { COPY_NONE, COPY_RUNNING, COPY_THERE };

/* A slot's copy on one device slab. */
struct slot_copy {
	struct gpu_copy copy;
	struct slot *slot;
	struct device_slab *device_slab;
	enum copy_state state;
	/* Copied, or not (why is not empty). The slot may be wanted no longer. */
	void (*done)(struct slot *slot, struct device_slab *device_slab, const char *why);
};

struct device_slab {
	struct slots *slots;
	unsigned char uuid[GPU_UUID_BYTES];
	enum gpu_share share;
	struct charge fd;        /* GPU_SHARE_FD: the slab's descriptor */
	struct gpu_slab *slab;   /* NULL: still being opened */
	bool failed;             /* a copy has failed: nobody may attach with it any more */
	bool left;               /* others have it open and are not waited for: its memory is not freed before
	                             * this process ends */
	struct slot_copy *copy;  /* one per slot */
	struct latency handover; /* from when a copy was seen complete until a trainer was told of the batch, if
	                             * none before it was still to come */
	void (*on_open)(void *arg, struct device_slab *m, int result, const char *why);
	void *arg;
};

/* The device slab of these slots on that GPU that is shared in this way, open or being opened; NULL: there is none. */
struct device_slab *device_slab_find(const struct slots *s, const unsigned char uuid[GPU_UUID_BYTES],
				     enum gpu_share share);

/* Begins to make one. fd: zeroed, or a charge for its descriptor, which is taken over unless this fails. 0: on_open
 * will be called, with m, or with NULL and result and why as in gpus.h (then there is none any more); GPU_E_REFUSED: it
 * will not, why (GPU_REASON_BYTES) says so; -ENOMEM. The slots stay until then. */
int device_slab_open(struct slots *s, struct gpus *g, const unsigned char uuid[GPU_UUID_BYTES], enum gpu_share share,
		     struct charge *fd, void (*on_open)(void *arg, struct device_slab *m, int result, const char *why),
		     void *arg, char *why);

/* Begins to copy a READY slot's batch, unless that has been done; done will be called then. The slots stay until after
 * it. */
bool device_slab_copy(struct device_slab *m, struct slot *slot,
		      void (*done)(struct slot *slot, struct device_slab *device_slab, const char *why));
/* Whether a trainer with this device slab (NULL: with none) finds the slot's batch where it looks. */
bool device_slab_has(const struct device_slab *m, const struct slot *slot);

/* A trainer with this device slab (NULL: with none) has been told of the slot's batch. */
void device_slab_note_published(struct device_slab *m, const struct slot *slot);

#endif
