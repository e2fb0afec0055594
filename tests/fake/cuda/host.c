/* Page-locked host memory, registered or allocated. All other host memory is pageable, and a copy from it waits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake.h"

/* The registration that holds all of the bytes. *partlyp: there is no such registration, but one holds some of the
 * bytes. */
struct registration *host_find(const void *ptr, size_t n_bytes, bool *partlyp)
{
	const char *from = ptr;

	*partlyp = false;
	for (struct registration *r = fake.registrations; r; r = r->next) {
		if (from >= r->base && from + n_bytes <= r->base + r->n_bytes)
			return r;
		if (from < r->base + r->n_bytes && from + n_bytes > r->base)
			*partlyp = true;
	}
	return NULL;
}

/* Whether each page in the range is mapped readable, and writable if asked. */
static bool mapped(const char *from, size_t n_bytes, bool writable)
{
	uintptr_t at = (uintptr_t)from, end = at + n_bytes;
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];

	if (!f)
		return true;
	while (at < end && fgets(line, sizeof line, f)) {
		unsigned long low, high;
		char mode[5];

		if (sscanf(line, "%lx-%lx %4s", &low, &high, mode) != 3 || high <= at)
			continue;
		if (low > at || mode[0] != 'r' || (writable && mode[1] != 'w'))
			break;
		at = high;
	}
	fclose(f);
	return at >= end;
}

static CUresult add(char *base, size_t n_bytes, unsigned flags, bool ours)
{
	struct registration *r = malloc(sizeof *r);

	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*r = (struct registration){ .next = fake.registrations,
				    .base = base,
				    .n_bytes = n_bytes,
				    .flags = flags,
				    .ours = ours,
				    .read_only = flags & CU_MEMHOSTREGISTER_READ_ONLY };
	fake.registrations = r;
	return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemHostRegister_v2, NEED_CONTEXT);

	if (!r && (!ptr || !bytes || flags & ~0xfu || (flags & CU_MEMHOSTREGISTER_IOMEMORY)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r && (flags & CU_MEMHOSTREGISTER_READ_ONLY) && !settings.read_only_register)
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (!r) {
		char *low = (char *)((uintptr_t)ptr / PAGE * PAGE),
		     *high = (char *)(((uintptr_t)ptr + bytes + PAGE - 1) / PAGE * PAGE);
		bool partly;

		if (host_find(low, (size_t)(high - low), &partly) || partly)
			r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
		else if (!mapped(ptr, bytes, !(flags & CU_MEMHOSTREGISTER_READ_ONLY)))
			r = CUDA_ERROR_INVALID_VALUE;
		else
			r = add(ptr, bytes, flags, false);
	}
	return call_end(&c, r);
}

/* Whether a copy that runs or is still queued uses it. */
static bool in_use(const struct registration *h)
{
	for (CUstream s = fake.streams; s; s = s->next)
		for (struct op *o = s->first; o; o = o->next)
			if (o->kind == OP_COPY && ((o->from >= h->base && o->from < h->base + h->n_bytes) ||
						   (o->to >= h->base && o->to < h->base + h->n_bytes)))
				return true;
	return false;
}

static CUresult removed(void *ptr, bool ours, const char *call)
{
	struct registration **p = &fake.registrations, *h;

	while (*p && (*p)->base != ptr)
		p = &(*p)->next;
	h = *p;
	if (!h || h->ours != ours) {
		violation("%s of %p, which it did not get", call, ptr);
		return ours ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	}
	if (in_use(h))
		violation("%s of %p while copies with it were under way", call, ptr);
	context_drain(NULL);
	for (p = &fake.registrations; *p && *p != h;) /* the list may have changed while the lock was released */
		p = &(*p)->next;
	if (!*p)
		return CUDA_ERROR_INVALID_VALUE;
	*p = h->next;
	if (ours)
		munmap(h->base, h->n_bytes);
	free(h);
	return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *ptr)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemHostUnregister, NEED_CONTEXT);

	if (!r)
		r = removed(ptr, false, "cuMemHostUnregister");
	return call_end(&c, r);
}

static CUresult host_allocate(enum api api, void **ptr, size_t bytes, unsigned flags)
{
	struct call c;
	CUresult r = call_begin(&c, api, NEED_CONTEXT);
	size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;

	if (!r && (!bytes || flags & ~7u))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r) {
		char *base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		r = base == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : add(base, whole, flags & 3, true);
		if (!r)
			*ptr = base;
	}
	return call_end(&c, r);
}

CUresult cuMemAllocHost_v2(void **ptr, size_t bytes)
{
	return host_allocate(API_cuMemAllocHost_v2, ptr, bytes, 0);
}

CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	return host_allocate(API_cuMemHostAlloc, ptr, bytes, flags);
}

CUresult cuMemFreeHost(void *ptr)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemFreeHost, NEED_CONTEXT);

	if (!r)
		r = removed(ptr, true, "cuMemFreeHost");
	return call_end(&c, r);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *ptr, unsigned flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemHostGetDevicePointer_v2, NEED_CONTEXT);
	bool partly;

	if (!r && (flags || !host_find(ptr, 1, &partly)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*device = (uintptr_t)ptr; /* attribute 91: the same as above */
	return call_end(&c, r);
}

CUresult cuMemHostGetFlags(unsigned *flags, void *ptr)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemHostGetFlags, NEED_CONTEXT);
	struct registration *h;
	bool partly;

	if (!r) {
		h = host_find(ptr, 1, &partly);
		if (!h)
			r = CUDA_ERROR_INVALID_VALUE;
		else
			*flags = h->flags;
	}
	return call_end(&c, r);
}
