/* What a device slab (device-slab.h) has of each slot, for the slots themselves. Loop thread only. */
#ifndef BATCHD_SLOT_COPIES_H
#define BATCHD_SLOT_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpus.h"
#include "base/account.h"
#include "base/latency.h"

struct slot;
struct slots;

enum copy_state { COPY_NONE, COPY_RUNNING, COPY_THERE };

/* A slot's copy on one device slab. */
struct slot_copy {
	struct gpu_copy copy;
	struct slot *slot;
	struct device_slab *device_slab;
	enum copy_state state;
	/* The copy is done, or failed (then why is not empty). By now the slot may no longer be wanted. */
	void (*done)(struct slot *slot, struct device_slab *device_slab, const char *why);
};

struct device_slab {
	struct slots *slots;
	unsigned char uuid[GPU_UUID_BYTES];
	enum gpu_share share;
	struct charge fd; /* GPU_SHARE_FD: the slab's descriptor */
	struct gpu_slab
		*slab; /* NULL: still being opened, given up, because the driver does not return, or being dropped */
	bool failed;   /* a copy has failed, it is given up or dropped: no trainer may attach with it any more */
	bool used;     /* a batch was copied to it */
	bool left;     /* other processes have it open and are not waited for: its memory is not freed before
	                          * this process ends */
	struct slot_copy *copy;  /* one per slot */
	struct latency handover; /* from the moment a copy is seen complete until a trainer is told of the batch; only
	                          * if no earlier batch was still pending */
	void (*on_open)(void *arg, struct device_slab *m, int result, const char *why);
	void *arg;
};

/* A new batch begins in the slot of this number: its copy is no longer valid. */
void slot_copies_begin(struct device_slab *m, uint32_t slot);
/* The slots are no longer in use: frees the device slab, and calls closed when the GPU has let go of the slots, see
 * gpu_slab_close. */
void slot_copies_close(struct device_slab *m, void (*closed)(void *arg, bool lost), void *arg);

#endif
