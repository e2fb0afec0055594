/* Batches on the GPU without CUDA IPC: places of this process's own there, filled from the host slab by asynchronous
 * copies on a stream of its own. */
#ifndef BATCHD_CLIENT_COPY_H
#define BATCHD_CLIENT_COPY_H

#include <stdint.h>

#include "gpu/copy-thread.h"
#include "gpu/gpu.h"

struct copy;

/* Maps the memfd once more (borrows fd), pins it, and allocates places for some of the slots on the GPU. In the GPU's context. 0 or a
 * batchd code with f. */
int copy_create(struct copy **out, const struct gpu *g, int fd, uint32_t n_slots, size_t slot_bytes, struct fault *f);
/* In the GPU's context, when none of its slots is in use any more; waits for copies that are under way. NULL is
 * allowed. */
void copy_destroy(struct copy *c);

/* How the memory is read: "" if straight from the slab, else why it is copied indirectly. Static. */
const char *copy_detour(const struct copy *c);

/* Begins to copy a slot (r->to is set here), unless that was begun already for this generation. is_lent: the trainer gets
 * the batch now, so there must be a place; else nothing is done where there is none. Copies nothing itself. In the GPU's
 * context. Returns a CUDA result. Callers serialise. */
int copy_begin(struct copy *c, const struct copy_request *r, bool is_lent);
/* Nothing reads the slot's place any more. Any thread. */
void copy_free(struct copy *c, uint32_t slot);
/* Whether a batch can be lent without more memory, in this slot or (NULL) in any. Any thread. */
bool copy_has_room(struct copy *c, const uint32_t *slot);
/* In the GPU's context, where copy_has_room says no. A CUDA result. The loader's thread. */
int copy_add_place(struct copy *c);
/* Why it failed. The loader's thread. */
void copy_describe(const struct copy *c, char *text, size_t n);
/* Sleeps until the slot's copy, which was begun, has been queued on the GPU. Returns the CUDA result of queueing; if
 * that is not CUDA_OK the copy may be begun again. Callers serialise. */
int copy_begun(struct copy *c, uint32_t slot);
/* Makes work that is queued on stream from now on wait for the slot's copy, which copy_begun has seen queued. In the
 * GPU's context. Returns a CUDA result. */
int copy_wait(const struct copy *c, uint32_t slot, struct cuda_stream *stream);
/* The place of a slot that is lent. */
cuda_ptr copy_slot(const struct copy *c, uint32_t slot);

#endif
