/* Memory made of handles, address ranges and mappings, which other processes receive as a file descriptor. It lives as
 * long as a handle, a mapping or a descriptor in any process. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

struct vmm_handle {
	struct vmm_handle *next;
	unsigned n_mappings;
	bool released; /* only mappings keep it alive */
	int fd;
	size_t n_bytes;
	struct block *block;
	int device;
	bool exportable, imported;
};

struct range {
	struct range *next;
	CUdeviceptr base;
	size_t n_bytes;
	void *reserved;
	size_t n_reserved;
};

static struct vmm_handle *handles;
static struct range *ranges;

static struct vmm_handle *handle_find(CUmemGenericAllocationHandle handle)
{
	for (struct vmm_handle *h = handles; h; h = h->next)
		if ((uintptr_t)h == handle && !h->released)
			return h;
	violation("an allocation handle was used that does not exist, or no more");
	return NULL;
}

/* This process frees the memory with the last of its handle and mappings. A descriptor, or another process, keeps the
 * bytes. */
static void free_if_over(struct vmm_handle *h)
{
	if (!h->released || h->n_mappings)
		return;
	for (struct vmm_handle **p = &handles; *p; p = &(*p)->next)
		if (*p == h) {
			*p = h->next;
			break;
		}
	if (!h->imported)
		device_refund(&fake.devices[h->device], h->n_bytes);
	munmap(h->block, PAGE);
	close(h->fd);
	free(h);
}

void vmm_mapping_ends(struct vmm_handle *h)
{
	h->n_mappings--;
	free_if_over(h);
}

unsigned vmm_n_fds(void)
{
	unsigned n = 0;

	for (struct vmm_handle *h = handles; h; h = h->next)
		n++;
	return n;
}

static CUresult prop_check(const CUmemAllocationProp *p)
{
	if (p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    (p->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return CUDA_ERROR_INVALID_VALUE;
	return p->location.id >= 0 && p->location.id < fake.n_devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, int option)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemGetAllocationGranularity, NEED_INIT);

	if (!r)
		r = option & ~1 ? CUDA_ERROR_INVALID_VALUE : prop_check(prop);
	if (!r)
		*bytes = GRANULARITY;
	return call_end(&c, r);
}

/* Stands for old content, maybe of another process. */
static void dirty(const struct vmm_handle *h)
{
	static const char junk[4096] = { [0 ... 4095] = (char)0xcd };

	for (size_t at = 0; at < h->n_bytes && at < 1 << 20; at += sizeof junk)
		if (pwrite(h->fd, junk, sizeof junk, (off_t)at) < 0)
			abort();
	if (pwrite(h->fd, junk, sizeof junk, (off_t)(h->n_bytes - sizeof junk)) < 0)
		abort();
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
		     unsigned long long flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemCreate, NEED_INIT);
	struct vmm_handle *h;

	if (!r)
		r = flags || !bytes || bytes % GRANULARITY ? CUDA_ERROR_INVALID_VALUE : prop_check(prop);
	if (!r && settings.no_vmm)
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (!r && !device_charge(&fake.devices[prop->location.id], bytes))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (!r) {
		h = calloc(1, sizeof *h);
		if (!h)
			abort();
		h->n_bytes = bytes;
		h->device = prop->location.id;
		h->exportable = prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
		h->fd = memory_create_fd(bytes, &h->block);
		if (h->fd < 0)
			abort();
		h->block->physical = fake.devices[h->device].physical;
		dirty(h);
		h->next = handles;
		handles = h;
		fake.n_vmm_handles++;
		*handle = (uintptr_t)h;
	}
	return call_end(&c, r);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemRelease, NEED_INIT);
	struct vmm_handle *h = r ? NULL : handle_find(handle);

	if (!r && !h)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r) {
		h->released = true;
		free_if_over(h);
		fake.n_vmm_handles--;
	}
	return call_end(&c, r);
}

CUresult cuMemExportToShareableHandle(void *fd, CUmemGenericAllocationHandle handle, int type, unsigned long long flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemExportToShareableHandle, NEED_INIT);
	struct vmm_handle *h = r ? NULL : handle_find(handle);

	if (!r && (!h || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !h->exportable))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r) {
		int copy = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);

		if (copy < 0)
			r = CUDA_ERROR_OPERATING_SYSTEM;
		else
			memcpy(fd, &copy, sizeof copy);
	}
	return call_end(&c, r);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle, int type)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemImportFromShareableHandle, NEED_INIT);
	int fd = (int)(intptr_t)os_handle;
	struct block *b = MAP_FAILED;
	struct stat st;

	if (!r && (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &st) || st.st_size <= PAGE))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r) {
		b = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(st.st_size - PAGE));
		if (b == MAP_FAILED || !b->id || b->n_bytes != (size_t)st.st_size - PAGE)
			r = CUDA_ERROR_INVALID_VALUE;
	}
	if (!r) /* the GPU that the memory is on must be visible */
		r = device_of(b) < 0 ? CUDA_ERROR_INVALID_DEVICE : settings.no_vmm ? CUDA_ERROR_NOT_SUPPORTED : 0;
	if (!r) {
		struct vmm_handle *h = calloc(1, sizeof *h);

		if (!h)
			abort();
		*h = (struct vmm_handle){ .next = handles,
					  .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
					  .n_bytes = b->n_bytes,
					  .block = b,
					  .exportable = true,
					  .imported = true };
		handles = h;
		fake.n_vmm_handles++;
		*handle = (uintptr_t)h;
	} else if (b != MAP_FAILED) {
		munmap(b, PAGE);
	}
	return call_end(&c, r);
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr hint,
			     unsigned long long flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemAddressReserve, NEED_INIT);

	(void)hint, (void)alignment;
	if (!r && (flags || !bytes || bytes % GRANULARITY))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r) {
		struct range *n = calloc(1, sizeof *n);

		if (!n)
			abort();
		n->n_bytes = bytes;
		n->n_reserved = bytes + GRANULARITY;
		n->reserved = mmap(NULL, n->n_reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (n->reserved == MAP_FAILED)
			abort();
		n->base = ((uintptr_t)n->reserved + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
		n->next = ranges;
		ranges = n;
		fake.n_reservations++;
		*ptr = n->base;
	}
	return call_end(&c, r);
}

/* The mapping that begins at this address, or NULL. */
static struct memory *mapping_at(CUdeviceptr ptr)
{
	struct memory *m = memory_find(ptr, 1);

	return m && m->kind == MEMORY_VMM && m->base == ptr ? m : NULL;
}

static bool has_mapping(CUdeviceptr ptr, size_t bytes)
{
	for (struct memory *m = fake.memory; m; m = m->next)
		if (m->kind == MEMORY_VMM && m->base >= ptr && m->base < ptr + bytes)
			return true;
	return false;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemAddressFree, NEED_INIT);
	struct range **p = &ranges, *n;

	while (!r && *p && ((*p)->base != ptr || (*p)->n_bytes != bytes))
		p = &(*p)->next;
	if (!r && !*p)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r && has_mapping(ptr, bytes)) {
		violation("an address range was freed with a mapping in it");
		r = CUDA_ERROR_INVALID_VALUE;
	}
	if (!r) {
		n = *p;
		*p = n->next;
		munmap(n->reserved, n->n_reserved);
		free(n);
		fake.n_reservations--;
	}
	return call_end(&c, r);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemMap, NEED_INIT);
	struct vmm_handle *h = r ? NULL : handle_find(handle);
	struct range *n = ranges;

	while (!r && n && (ptr < n->base || ptr + bytes > n->base + n->n_bytes))
		n = n->next;
	if (!r && (!h || !n || offset || flags || bytes != h->n_bytes || ptr % GRANULARITY))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r && memory_find(ptr, 1))
		r = CUDA_ERROR_ALREADY_MAPPED;
	if (!r) {
		struct memory *m = calloc(1, sizeof *m);

		if (!m)
			abort();
		*m = (struct memory){ .next = fake.memory,
				      .kind = MEMORY_VMM,
				      .base = ptr,
				      .n_bytes = bytes,
				      .fd = -1,
				      .n_alias = bytes };
		m->alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, h->fd, 0);
		m->block = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, h->fd, (off_t)bytes);
		if (m->alias == MAP_FAILED || m->block == MAP_FAILED)
			abort();
		m->data = m->alias;
		m->handle = h;
		h->n_mappings++;
		fake.memory = m;
	}
	return call_end(&c, r);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemUnmap, NEED_INIT);

	if (!r) {
		context_drain(NULL);
		struct memory *m = mapping_at(ptr);

		if (!m || m->n_bytes != bytes)
			r = CUDA_ERROR_INVALID_VALUE;
		else
			memory_remove(m);
	}
	return call_end(&c, r);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemSetAccess, NEED_INIT);
	struct memory *m = r ? NULL : mapping_at(ptr);

	if (!r && (!m || m->n_bytes != bytes || n != 1 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		   access->location.id < 0 || access->location.id >= fake.n_devices))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r) {
		m->readable = access->flags & 1;
		m->writable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	}
	return call_end(&c, r);
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemGetAccess, NEED_INIT);
	struct memory *m = r ? NULL : memory_find(ptr, 1);

	(void)location;
	if (!r && (!m || m->kind != MEMORY_VMM))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*flags = m->writable   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
			 : m->readable ? CU_MEM_ACCESS_FLAGS_PROT_READ
				       : 0;
	return call_end(&c, r);
}
