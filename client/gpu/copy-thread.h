/* A thread that copies slots, one at a time, so that the trainer's own thread never does: from memory that cannot be
 * pinned each byte passes through a processor on its way to the GPU.
 *
 * A slot has at most one request. A newer one replaces it: the batch of the older one has been given up. */
#ifndef BATCHD_CLIENT_COPY_THREAD_H
#define BATCHD_CLIENT_COPY_THREAD_H

#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu.h"

/* The first data_bytes of a slot, and rest_bytes from rest_offset on. */
struct copy_request {
	uint32_t slot;
	uint64_t generation; /* of the batch; never 0 */
	size_t data_bytes, rest_offset, rest_bytes;
	cuda_ptr to; /* where the slot begins on the GPU */
};

struct copy_thread;

/* run: called in the thread, in the GPU's context, for one request at a time; returns a CUDA result. 0, or a batchd
 * code with f. */
int copy_thread_create(struct copy_thread **out, const struct gpu *g, uint32_t n_slots,
		       int (*run)(void *arg, const struct copy_request *r), void *arg, struct fault *f);
/* Ends the thread after its present request; requests that it has not begun are dropped. NULL is allowed. */
void copy_thread_destroy(struct copy_thread *t);

/* Any thread; never waits for a copy. */
void copy_thread_ask(struct copy_thread *t, const struct copy_request *r);
/* Sleeps until `run` has returned for the last request of that slot, and returns its result. */
int copy_thread_wait(struct copy_thread *t, uint32_t slot);

#endif
