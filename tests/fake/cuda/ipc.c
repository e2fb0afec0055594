/* Memory of another process by a 64-byte handle. The handle leads to the owner's memfd through /proc, so that nothing
 * needs cleaning up; the memory's header page counts the processes that have it open. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

static const uint64_t HANDLE_MAGIC = 0x626466616b656970u;

struct handle {
	uint64_t magic, id, start, n_bytes, pidns;
	int32_t pid, fd;
	uint32_t euid;
};
_Static_assert(sizeof(struct handle) <= 64, "fits");

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuIpcGetMemHandle, NEED_CONTEXT);
	struct memory *m = NULL;

	if (!r && settings.no_ipc)
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (!r) {
		m = memory_find(ptr, 1);
		if (!m || m->kind != MEMORY_OWN || m->base != ptr) /* imported memory, VMM memory and the middle of an
		                                                    * allocation cannot be exported */
			r = CUDA_ERROR_INVALID_VALUE;
	}
	if (!r) {
		struct handle h = { .magic = HANDLE_MAGIC,
				    .id = m->block->id,
				    .start = m->block->start,
				    .n_bytes = m->block->n_bytes,
				    .pidns = settings.pidns,
				    .pid = getpid(),
				    .fd = m->fd,
				    .euid = settings.euid };

		memset(handle, 0, sizeof *handle);
		memcpy(handle, &h, sizeof h);
	}
	return call_end(&c, r);
}

static bool note_opener(struct block *b)
{
	for (int pass = 0; pass < 2; pass++) /* takes rows of dead processes only when no other row is free */
		for (int i = 0; i < MOST_OPENERS; i++) {
			int32_t pid = atomic_load(&b->openers[i].pid);

			if (pid && (!pass || process_start(pid)))
				continue;
			if (atomic_compare_exchange_strong(&b->openers[i].pid, &pid, getpid())) {
				atomic_store(&b->openers[i].n, 1);
				return true;
			}
		}
	return false;
}

static CUresult permitted(const struct handle *h)
{
	if (settings.no_ipc)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (h->magic != HANDLE_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	if (h->pidns != settings.pidns || h->euid != settings.euid)
		return CUDA_ERROR_INVALID_HANDLE;
	if (h->pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	return CUDA_SUCCESS;
}

/* The same memory opened again, or an import at this address of an earlier allocation that is still open. */
static CUresult already(const struct handle *h, uint64_t va, CUcontext ctx, struct memory **foundp)
{
	for (struct memory *m = fake.memory; m; m = m->next) {
		if (m->kind != MEMORY_IMPORTED || m->block->pid != h->pid || m->block->start != h->start)
			continue;
		if (m->block->id == h->id) {
			if (m->ctx != ctx) {
				violation("a handle opened in a second context of the process");
				return CUDA_ERROR_INVALID_CONTEXT;
			}
			*foundp = m;
			return CUDA_SUCCESS;
		}
		if (va && va < m->block->va + m->block->n_bytes && m->block->va < va + h->n_bytes) {
			violation("a handle opened while memory that its owner had at the same place is still open");
			return CUDA_ERROR_ALREADY_MAPPED;
		}
	}
	return CUDA_SUCCESS;
}

/* The memfd and its header, if they are still those that the handle was made for. */
static CUresult reach(const struct handle *h, int *fdp, struct block **blockp)
{
	size_t whole = (h->n_bytes + PAGE - 1) / PAGE * PAGE;
	char path[64];
	struct stat st;
	struct block *b;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/fd/%d", h->pid, h->fd);
	fd = process_alive(h->pid, h->start) ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return CUDA_ERROR_INVALID_HANDLE;
	if (fstat(fd, &st) || (size_t)st.st_size != whole + PAGE) {
		close(fd);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	b = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)whole);
	if (b == MAP_FAILED || b->id != h->id || atomic_load(&b->freed) || strcmp(b->mig, settings.mig_name)) {
		if (b != MAP_FAILED)
			munmap(b, PAGE);
		close(fd);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	*fdp = fd;
	*blockp = b;
	return CUDA_SUCCESS;
}

static CUresult import(const struct handle *h, CUcontext ctx, CUdeviceptr *ptr)
{
	struct memory *m = NULL;
	struct block *b;
	CUresult r;
	int fd;

	r = already(h, 0, ctx, &m);
	if (r)
		return r;
	if (m) {
		m->refs++;
		*ptr = m->base;
		return CUDA_SUCCESS;
	}
	r = reach(h, &fd, &b);
	if (r)
		return r;
	r = already(h, b->va, ctx, &m);
	if (r) {
		munmap(b, PAGE);
		close(fd);
		return r;
	}
	m = calloc(1, sizeof *m);
	if (!m)
		abort();
	*m = (struct memory){ .kind = MEMORY_IMPORTED,
			      .ctx = ctx,
			      .n_bytes = b->n_bytes,
			      .block = b,
			      .refs = 1,
			      .readable = true,
			      .writable = true };
	r = note_opener(b) ? memory_map(m, fd, b->va) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r) {
		munmap(b, PAGE);
		close(fd);
		free(m);
		return r;
	}
	m->next = fake.memory;
	fake.memory = m;
	*ptr = m->base;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuIpcOpenMemHandle_v2, NEED_CONTEXT);
	struct handle h;

	memcpy(&h, &handle, sizeof h);
	if (!r && flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
		violation("cuIpcOpenMemHandle with flags %u: must be CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS", flags);
		r = CUDA_ERROR_INVALID_VALUE;
	}
	if (!r)
		r = permitted(&h);
	if (!r)
		r = import(&h, context_current(), ptr);
	return call_end(&c, r);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuIpcCloseMemHandle, NEED_CONTEXT);
	struct memory *m;

	if (!r) {
		context_drain(NULL);
		m = memory_find(ptr, 1);
		if (!m || m->kind != MEMORY_IMPORTED || m->base != ptr) {
			violation("cuIpcCloseMemHandle of 0x%llx, which is not open", ptr);
			r = CUDA_ERROR_INVALID_VALUE;
		} else if (!--m->refs) {
			memory_remove(m);
		}
	}
	return call_end(&c, r);
}
