/* GPU memory that other processes map by a file descriptor: CUDA's virtual memory management. The descriptor is the
 * permission, so user, namespaces and containers do not matter. The memory lives until every process has closed its
 * descriptors, handles and mappings. A process that cannot see the GPU cannot import it.
 *
 * The daemon makes such memory and the client library maps it, with this same file. All calls need the GPU's context
 * current on the calling thread; each returns a CUDA result, and in *call the name of the CUDA function that returned
 * it. */
#ifndef BATCHD_CUDA_VMM_H
#define BATCHD_CUDA_VMM_H

#include "gpu/driver.h"

/* Zeroed: nothing. */
struct vmm {
	cuda_ptr address; /* where the memory is mapped, once an open or a create has succeeded */
	uint64_t n_bytes;
	cuda_mem_handle handle;
	bool has_handle, mapped;
};

/* Whether the GPU and the driver support both virtual memory management and handles that are descriptors. On an error
 * *supported is false. */
int vmm_look(const struct cuda_driver *d, cuda_device device, bool *supported, const char **call);

/* Raises *n_bytes to the next size that can be allocated. */
int vmm_round(const struct cuda_driver *d, cuda_device device, uint64_t *n_bytes, const char **call);
/* Allocates n_bytes, a size from vmm_round, and maps it. On an error *v is zeroed and everything is undone, except what
 * a sticky error prevents. */
int vmm_create(const struct cuda_driver *d, cuda_device device, uint64_t n_bytes, struct vmm *v, const char **call);
/* Exports a descriptor, close-on-exec and owned by the caller, for any number of processes. */
int vmm_export(const struct cuda_driver *d, const struct vmm *v, int *fd, const char **call);

/* Maps the memory of another process, which must be n_bytes large. fd is borrowed, and may be closed afterwards. Errors
 * as with vmm_create. */
int vmm_import(const struct cuda_driver *d, cuda_device device, int fd, uint64_t n_bytes, struct vmm *v,
	       const char **call);

/* Unmaps the memory and releases it. Nothing on the GPU may use it any more; other processes keep their mappings. A
 * zeroed *v is allowed. After an error the remaining steps are tried as far as possible; *v is zeroed either way. */
int vmm_close(const struct cuda_driver *d, struct vmm *v, const char **call);

#endif
