/* See vmm.h.
 *
 * The driver's rules: sizes are multiples of the granularity; a mapping begins at offset 0 of its memory; nothing may
 * access it before cuMemSetAccess; cuMemUnmap comes before cuMemAddressFree and cuMemRelease.
 *
 * Both sides map the memory for reading and writing: it is not known whether a GPU can map it read-only. */
#include "gpu/vmm.h"

#include <fcntl.h>

#define STEP(name, ...) (*call = name, __VA_ARGS__)

int vmm_look(const struct cuda_driver *d, cuda_device device, bool *supported, const char **call)
{
	int management = 0, descriptors = 0, r;

	*supported = false;
	r = STEP("cuDeviceGetAttribute", d->device_get_attribute(&management, CUDA_DEVICE_VMM_SUPPORTED, device));
	if (r == CUDA_OK)
		r = d->device_get_attribute(&descriptors, CUDA_DEVICE_POSIX_FD_SUPPORTED, device);
	*supported = r == CUDA_OK && management && descriptors;
	return r;
}

static struct cuda_mem_prop prop_on(cuda_device device)
{
	return (struct cuda_mem_prop){ .type = CUDA_MEM_PINNED,
				       .handle_types = CUDA_MEM_POSIX_FD,
				       .location = { CUDA_MEM_ON_DEVICE, device } };
}

int vmm_round(const struct cuda_driver *d, cuda_device device, uint64_t *n_bytes, const char **call)
{
	struct cuda_mem_prop prop = prop_on(device);
	size_t granularity = 0;
	int r = STEP("cuMemGetAllocationGranularity",
		     d->mem_get_allocation_granularity(&granularity, &prop, CUDA_MEM_GRANULARITY_MINIMUM));

	if (r == CUDA_OK && granularity)
		*n_bytes = (*n_bytes + granularity - 1) / granularity * granularity;
	return r;
}

/* After a sticky error the driver may never return from a call. */
static int vmm_undo(const struct cuda_driver *d, struct vmm *v, int result)
{
	const char *call;

	if (!cuda_error_sticky(result))
		(void)vmm_close(d, v, &call);
	*v = (struct vmm){ 0 };
	return result;
}

/* Gives the memory behind v->handle an address. */
static int vmm_map_handle(const struct cuda_driver *d, cuda_device device, struct vmm *v, const char **call)
{
	struct cuda_mem_access access = { .location = { CUDA_MEM_ON_DEVICE, device }, .flags = CUDA_MEM_READ_WRITE };
	int r = STEP("cuMemAddressReserve", d->mem_address_reserve(&v->address, v->n_bytes, 0, 0, 0));

	if (r != CUDA_OK) {
		v->address = 0;
		return r;
	}
	r = STEP("cuMemMap", d->mem_map(v->address, v->n_bytes, 0, v->handle, 0));
	if (r != CUDA_OK)
		return r;
	v->mapped = true;
	return STEP("cuMemSetAccess", d->mem_set_access(v->address, v->n_bytes, &access, 1));
}

static int map_handle(const struct cuda_driver *d, cuda_device device, int result, uint64_t n_bytes, struct vmm *v,
		      const char **call)
{
	v->n_bytes = n_bytes;
	v->has_handle = result == CUDA_OK;
	if (result == CUDA_OK)
		result = vmm_map_handle(d, device, v, call);
	return result == CUDA_OK ? CUDA_OK : vmm_undo(d, v, result);
}

int vmm_create(const struct cuda_driver *d, cuda_device device, uint64_t n_bytes, struct vmm *v, const char **call)
{
	struct cuda_mem_prop prop = prop_on(device);

	*v = (struct vmm){ 0 };
	return map_handle(d, device, STEP("cuMemCreate", d->mem_create(&v->handle, n_bytes, &prop, 0)), n_bytes, v,
			  call);
}

int vmm_export(const struct cuda_driver *d, const struct vmm *v, int *fd, const char **call)
{
	int r = STEP("cuMemExportToShareableHandle",
		     d->mem_export_to_shareable_handle(fd, v->handle, CUDA_MEM_POSIX_FD, 0));

	if (r == CUDA_OK)
		(void)fcntl(*fd, F_SETFD, FD_CLOEXEC); /* NVIDIA does not document that it is set */
	return r;
}

int vmm_import(const struct cuda_driver *d, cuda_device device, int fd, uint64_t n_bytes, struct vmm *v,
	       const char **call)
{
	void *os_handle = (void *)(intptr_t)fd; /* the descriptor itself, not its address */

	*v = (struct vmm){ 0 };
	return map_handle(d, device,
			  STEP("cuMemImportFromShareableHandle",
			       d->mem_import_from_shareable_handle(&v->handle, os_handle, CUDA_MEM_POSIX_FD)),
			  n_bytes, v, call);
}

static void vmm_note(int *first, int result, const char **call, const char *name)
{
	if (*first == CUDA_OK && result != CUDA_OK)
		*first = result, *call = name;
}

int vmm_close(const struct cuda_driver *d, struct vmm *v, const char **call)
{
	bool unmapped = true;
	int r = CUDA_OK;

	if (v->mapped) {
		vmm_note(&r, d->mem_unmap(v->address, v->n_bytes), call, "cuMemUnmap");
		unmapped = r == CUDA_OK;
	}
	if (v->has_handle && !cuda_error_sticky(r))
		vmm_note(&r, d->mem_release(v->handle), call, "cuMemRelease");
	if (v->address && unmapped && !cuda_error_sticky(r)) /* a range with a mapping in it must stay */
		vmm_note(&r, d->mem_address_free(v->address, v->n_bytes), call, "cuMemAddressFree");
	*v = (struct vmm){ 0 };
	return r;
}
