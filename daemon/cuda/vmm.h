/* GPU memory that other processes map by a file descriptor: CUDA's virtual memory management. The descriptor is the
 * permission, so user, namespaces and containers do not matter, and the memory lives until the last descriptor, handle
 * and mapping of any process are gone. A process that cannot see the GPU cannot import it.
 *
 * The daemon makes such memory and the client library maps it, with this same file. All calls want the GPU's context
 * current on the calling thread; each returns a CUDA result, and in *call the name of the call that gave it. */
#ifndef BATCHD_CUDA_VMM_H
#define BATCHD_CUDA_VMM_H

#include "driver.h"

/* Zeroed: nothing. */
struct vmm {
	cuda_ptr address; /* where the memory is mapped, once an open or a create has succeeded */
	uint64_t n_bytes;
	cuda_mem_handle handle;
	bool has_handle, mapped;
};

/* Whether the GPU and the driver have both parts of it: virtual memory management and handles that are descriptors. On
 * an error *supported is false. */
int vmm_look(const struct cuda_driver *d, cuda_device device, bool *supported, const char **call);

/* Raises *n_bytes to the next size that can be made. */
int vmm_round(const struct cuda_driver *d, cuda_device device, uint64_t *n_bytes, const char **call);
/* Makes memory of n_bytes, which vmm_round has seen, and maps it. On an error *v is zeroed and nothing is left, but for
 * what a sticky error keeps. */
int vmm_create(const struct cuda_driver *d, cuda_device device, uint64_t n_bytes, struct vmm *v, const char **call);
/* A descriptor of it, close-on-exec and the caller's, for any number of processes. */
int vmm_export(const struct cuda_driver *d, const struct vmm *v, int *fd, const char **call);

/* Maps the memory of another process, which must be n_bytes large. fd is borrowed, and may be closed afterwards. Errors
 * as with vmm_create. */
int vmm_import(const struct cuda_driver *d, cuda_device device, int fd, uint64_t n_bytes, struct vmm *v,
	       const char **call);

/* Unmaps it and lets go of it. Nothing on the GPU may use it any more; other processes keep what they have mapped. A
 * zeroed *v is allowed. On an error the rest is tried as far as it can be; *v is zeroed either way. */
int vmm_close(const struct cuda_driver *d, struct vmm *v, const char **call);

#endif
