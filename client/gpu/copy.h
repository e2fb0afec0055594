/* Batches on the GPU without CUDA IPC: slots of this process's own there, filled from the host slab by asynchronous
 * copies on a stream of its own. */
#ifndef BATCHD_CLIENT_COPY_H
#define BATCHD_CLIENT_COPY_H

#include <stdint.h>

#include "gpu/copy-thread.h"
#include "gpu/gpu.h"

struct copy;

/* Maps the memfd once more (borrows fd), pins it, and allocates as many slots on the GPU. In the GPU's context. 0 or a
 * batchd code with f. */
int copy_create(struct copy **out, const struct gpu *g, int fd, uint32_t n_slots, size_t slot_bytes, struct fault *f);
/* In the GPU's context, when none of its slots is in use any more; waits for copies that are under way. NULL is
 * allowed. */
void copy_destroy(struct copy *c);

/* How the memory is read: "" if straight from the slab, else why it is copied indirectly. Static. */
const char *copy_detour(const struct copy *c);

/* Begins to copy a slot, unless that was begun already for this generation. Copies nothing itself. In the GPU's
 * context. Returns a CUDA result. Callers serialise. */
int copy_begin(struct copy *c, const struct copy_request *r);
/* Sleeps until the slot's copy, which was begun, has been queued on the GPU. Returns the CUDA result of queueing; if
 * that is not CUDA_OK the copy may be begun again. Callers serialise. */
int copy_begun(struct copy *c, uint32_t slot);
/* Makes work that is queued on stream from now on wait for the slot's copy, which copy_begun has seen queued. In the
 * GPU's context. Returns a CUDA result. */
int copy_wait(const struct copy *c, uint32_t slot, struct cuda_stream *stream);
cuda_ptr copy_slot(const struct copy *c, uint32_t slot);

#endif
