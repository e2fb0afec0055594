/* Device memory: a memfd that is mapped twice, once without access (the device pointer) and once for the streams, with
 * a header page that processes share. Addresses are random, so that two processes do not get the same address by
 * chance. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

static const uint64_t BLOCK_MAGIC = 0x62646361666b6375u;

uint64_t process_start(pid_t pid)
{
	char path[32], text[1024], *p;
	unsigned long long start = 0;
	FILE *f;
	size_t n;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = '\0';
	p = strrchr(text, ')'); /* state is the 3rd field, the start the 22nd */
	if (!p || p[1] != ' ' || p[2] == 'Z' || p[2] == 'X')
		return 0;
	for (int field = 2; field < 22 && p; field++)
		p = strchr(p + 1, ' ');
	if (p)
		start = strtoull(p + 1, NULL, 10);
	return start;
}

bool process_alive(pid_t pid, uint64_t start)
{
	return start && process_start(pid) == start;
}

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* A memfd for n_bytes of device memory, with its header mapped at *blockp; -1: errno. */
int memory_create_fd(size_t n_bytes, struct block **blockp)
{
	size_t whole = round_up(n_bytes, PAGE);
	int fd = memfd_create("fakecuda", MFD_CLOEXEC);

	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)(whole + PAGE))) {
		close(fd);
		return -1;
	}
	*blockp = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)whole);
	if (*blockp == MAP_FAILED) {
		close(fd);
		return -1;
	}
	**blockp = (struct block){ .magic = BLOCK_MAGIC,
				   .id = (uint64_t)getpid() << 32 | ++fake.last_id,
				   .n_bytes = n_bytes,
				   .pidns = settings.pidns,
				   .start = process_start(getpid()),
				   .pid = getpid(),
				   .euid = settings.euid };
	snprintf((*blockp)->mig, sizeof(*blockp)->mig, "%s", settings.mig_name);
	return fd;
}

/* Maps fd's memory into m: base, data. avoid_va: the exporter's address, which must not be used here as well. The
 * caller maps the header. */
CUresult memory_map(struct memory *m, int fd, uint64_t avoid_va)
{
	static uint64_t spread;
	size_t whole = round_up(m->n_bytes, PAGE);

	if (!spread)
		spread = (uint64_t)getpid() * 0x2545f4914f6cdd1du;
	m->n_alias = whole;
	m->alias = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m->alias == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (int i = 0; i < 16; i++) {
		size_t skip = random_next(&spread) % 64 * GRANULARITY;

		m->n_reserved = round_up(whole, GRANULARITY) + 65 * GRANULARITY;
		m->reserved = mmap(NULL, m->n_reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (m->reserved == MAP_FAILED)
			break;
		m->base = round_up((uintptr_t)m->reserved, GRANULARITY) + skip;
		if (m->base != avoid_va) {
			m->data = m->alias;
			m->fd = fd;
			return CUDA_SUCCESS;
		}
		munmap(m->reserved, m->n_reserved);
	}
	munmap(m->alias, m->n_alias);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void memory_unmap(struct memory *m)
{
	if (m->reserved)
		munmap(m->reserved, m->n_reserved);
	munmap(m->alias, m->n_alias);
	munmap(m->block, PAGE);
	if (m->fd >= 0)
		close(m->fd);
	free(m);
}

struct memory *memory_find(CUdeviceptr ptr, size_t n_bytes)
{
	for (struct memory *m = fake.memory; m; m = m->next)
		if (ptr >= m->base && ptr - m->base < m->n_bytes)
			return n_bytes <= m->n_bytes - (ptr - m->base) ? m : NULL;
	return NULL;
}

/* Frees memory of any kind; reports a violation if another process still has it open. */
void memory_remove(struct memory *m)
{
	for (struct memory **p = &fake.memory; *p; p = &(*p)->next)
		if (*p == m) {
			*p = m->next;
			break;
		}
	if (m->kind == MEMORY_OWN) {
		unsigned users = 0;

		for (int i = 0; i < MOST_OPENERS; i++) {
			int32_t pid = atomic_load(&m->block->openers[i].pid);

			/* a zombie process has closed everything */
			users += pid && atomic_load(&m->block->openers[i].n) > 0 && process_start(pid) != 0;
		}
		if (users)
			violation("%zu bytes of device memory freed while %u other process%s them open", m->n_bytes,
				  users, users == 1 ? " has" : "es have");
		atomic_store(&m->block->freed, 1);
		memset(m->alias, 0xdb, m->n_alias < 1 << 16 ? m->n_alias : 1 << 16);
		if (context_valid(m->ctx))
			device_refund(&fake.devices[m->ctx->device], round_up(m->n_bytes, GRANULARITY));
	} else if (m->kind == MEMORY_IMPORTED) {
		for (int i = 0; i < MOST_OPENERS; i++)
			if (atomic_load(&m->block->openers[i].pid) == getpid())
				atomic_store(&m->block->openers[i].n, 0), atomic_store(&m->block->openers[i].pid, 0);
	}
	if (m->kind == MEMORY_VMM)
		vmm_mapping_ends(m->handle);
	memory_unmap(m);
}

/* Checked when a stream is about to use m. Called without the lock; m cannot go away, because freeing waits for
 * streams. */
CUresult memory_usable(struct memory *m)
{
	if (m->kind != MEMORY_IMPORTED)
		return CUDA_SUCCESS;
	if (atomic_load(&m->block->freed)) {
		violation("work on imported memory that its owner, process %d, has freed", m->block->pid);
		return CUDA_SUCCESS; /* its content is undefined */
	}
	if (!process_alive(m->block->pid, m->block->start))
		count(COUNT_DEAD_EXPORTER, 1);
	return CUDA_SUCCESS;
}

/* ---- calls ---- */

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemGetInfo_v2, NEED_CONTEXT);

	if (!r) {
		struct device *d = &fake.devices[context_current()->device];
		size_t used = device_used(d);

		*total = d->n_bytes;
		*free_bytes = used < d->n_bytes ? d->n_bytes - used : 0;
	}
	return call_end(&c, r);
}

/* On a real GPU, allocations below 2 MiB share a block with others. Here each gets a block of its own at an odd offset,
 * so that a handle opens at an address other than the allocation's. */
static CUresult allocate(CUcontext ctx, size_t n_bytes, CUdeviceptr *ptr)
{
	struct device *d = &fake.devices[ctx->device];
	bool small = n_bytes % GRANULARITY != 0;
	size_t whole = round_up(n_bytes, GRANULARITY);
	struct memory *m;
	CUresult r;
	int fd;

	if (!n_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (whole < n_bytes || !device_charge(d, whole))
		return CUDA_ERROR_OUT_OF_MEMORY;
	m = calloc(1, sizeof *m);
	if (!m)
		abort();
	*m = (struct memory){ .kind = MEMORY_OWN, .ctx = ctx, .n_bytes = n_bytes, .readable = true, .writable = true };
	size_t offset = small ? 512 * (1 + fake.last_id % 16) : 0;
	m->n_bytes = whole + (small ? GRANULARITY : 0);
	fd = memory_create_fd(m->n_bytes, &m->block);
	r = fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : memory_map(m, fd, 0);
	if (r) {
		if (fd >= 0) {
			munmap(m->block, PAGE);
			close(fd);
		}
		free(m);
		device_refund(d, whole);
		return r;
	}
	m->block->physical = d->physical;
	m->block->va = m->base;
	m->block->offset = offset;
	m->base += offset;
	m->data += offset;
	m->n_bytes = n_bytes;
	memset(m->data, 0xcd, n_bytes < 1 << 16 ? n_bytes : 1 << 16); /* stands for old content */
	m->next = fake.memory;
	fake.memory = m;
	*ptr = m->base;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemAlloc_v2, NEED_CONTEXT);

	if (!r)
		r = allocate(context_current(), bytes, ptr);
	return call_end(&c, r);
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemFree_v2, NEED_CONTEXT);
	struct memory *m;

	if (!r && ptr) {
		context_drain(NULL); /* the real driver waits as well */
		m = memory_find(ptr, 1);
		if (!m || m->base != ptr || m->kind != MEMORY_OWN) {
			violation("cuMemFree of 0x%llx, which cuMemAlloc did not give or which is free already", ptr);
			r = CUDA_ERROR_INVALID_VALUE;
		} else {
			memory_remove(m);
		}
	}
	return call_end(&c, r);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuMemGetAddressRange_v2, NEED_CONTEXT);

	if (!r) {
		struct memory *m = memory_find(ptr, 1);

		if (!m) {
			r = CUDA_ERROR_NOT_FOUND;
		} else {
			if (base)
				*base = m->base;
			if (bytes)
				*bytes = m->n_bytes;
		}
	}
	return call_end(&c, r);
}

static CUresult pointer_attribute(void *data, int attribute, CUdeviceptr ptr)
{
	struct memory *m = memory_find(ptr, 1);
	struct registration *h = host_find((const void *)(uintptr_t)ptr, 1, &(bool){ 0 });

	if (!m && !h)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case 1: /* context */
		if (m && !m->ctx)
			return CUDA_ERROR_INVALID_VALUE;
		*(CUcontext *)data = m ? m->ctx : context_current();
		return CUDA_SUCCESS;
	case 2: /* memory type */
		*(unsigned *)data = m ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
		return CUDA_SUCCESS;
	case 3: /* device pointer */
		*(CUdeviceptr *)data = ptr;
		return CUDA_SUCCESS;
	case 4: /* host pointer */
		if (m)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)(uintptr_t)ptr;
		return CUDA_SUCCESS;
	case 7: /* buffer id */
		*(unsigned long long *)data = m ? m->block->id : (uintptr_t)h;
		return CUDA_SUCCESS;
	case 8: /* managed */
		*(unsigned *)data = 0;
		return CUDA_SUCCESS;
	case 9: /* ordinal */
		*(int *)data = m && m->ctx ? m->ctx->device : m ? device_of(m->block) : 0;
		return CUDA_SUCCESS;
	case 10: /* whether cuIpcGetMemHandle is allowed */
		*(int *)data = m && m->kind == MEMORY_OWN && !settings.no_ipc;
		return CUDA_SUCCESS;
	case 11:
		*(CUdeviceptr *)data = m ? m->base : (uintptr_t)h->base;
		return CUDA_SUCCESS;
	case 12:
		*(size_t *)data = m ? m->n_bytes : h->n_bytes;
		return CUDA_SUCCESS;
	case 13: /* mapped */
		*(int *)data = 1;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuPointerGetAttribute, NEED_CONTEXT);

	if (!r)
		r = pointer_attribute(data, attribute, ptr);
	return call_end(&c, r);
}

/* Unknown pointers are not an error here: their attributes are zero. */
CUresult cuPointerGetAttributes(unsigned n, int *attributes, void **data, CUdeviceptr ptr)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuPointerGetAttributes, NEED_CONTEXT);

	for (unsigned i = 0; !r && i < n; i++)
		if (pointer_attribute(data[i], attributes[i], ptr))
			memset(data[i], 0,
			       attributes[i] == 2 || attributes[i] == 8 || attributes[i] == 9 || attributes[i] == 10
				       ? 4
				       : 8);
	return call_end(&c, r);
}
