/* One GPU as this process sees it: found by its UUID, used through the primary context, which PyTorch, JAX and CuPy
 * use, too. */
#ifndef BATCHD_CLIENT_GPU_H
#define BATCHD_CLIENT_GPU_H

#include <stdbool.h>

#include "../daemon/gpu/driver.h"
#include "link/error.h"

struct gpu {
	const struct cuda_driver *driver;
	cuda_device device;
	struct cuda_context *context; /* retained */
	struct cuda_uuid uuid;
	int ordinal;              /* CUDA's number for it in this process; torch's as well */
	int driver_version;       /* 1000 * major + 10 * minor */
	bool registers_read_only; /* can DMA from memory that is mapped for reading only */
	bool maps_fds;            /* can map GPU memory that comes as a descriptor */
	bool needs_mps;           /* this process has it as a client of MPS: its compute mode leaves no other way */
	char name[16];            /* "cuda:0" */
};

/* The driver's calls, loaded and initialised once per process; never unloaded. NULL: there is none, f says why. Any
 * thread. */
const struct cuda_driver *gpu_driver(struct fault *f);

/* wanted: "cuda" (the calling thread's current device, else the first), "cuda:N", or "GPU-..." (a UUID). 0 or a batchd
 * code with f. */
int gpu_open(struct gpu *g, const char *wanted, struct fault *f);
/* Gives the context back. A zeroed struct is allowed. */
void gpu_close(struct gpu *g);

/* Between the two calls the calling thread's current context is the GPU's, and its calls do not disturb another thread
 * that captures a CUDA graph. gpu_leave restores the state before. A struct gpu_visit belongs to one thread and one
 * visit. */
struct gpu_visit {
	int capture_mode;
};
int gpu_enter(const struct gpu *g, struct gpu_visit *v); /* a CUDA result */
void gpu_leave(const struct gpu *g, const struct gpu_visit *v);

/* Turns a CUDA result into a batchd code with a line of text: "<what>: CUDA_ERROR_... on cuda:0; <what to do>". 0 stays
 * 0. */
int gpu_fault(const struct gpu *g, int result, struct fault *f, const char *what);
/* The same for an operation on a stream of the caller's, which may be the cause, also of CONTEXT_IS_DESTROYED: the
 * context is known to be there. */
int gpu_fault_on_stream(const struct gpu *g, int result, struct fault *f, const char *what);

#endif
