/* Copies and fills. Addresses are checked during the call; the source is read when the copy runs. Host memory that is
 * not page-locked makes the call wait, and is counted. */
#include <stdio.h>

#include "fake.h"

/* One end of a copy. */
struct side {
	struct memory *memory;
	struct registration *host;
	char *address;
};

static CUresult device_side(struct side *side, CUdeviceptr ptr, size_t n_bytes, bool write)
{
	bool partly;

	side->memory = memory_find(ptr, n_bytes ? n_bytes : 1);
	if (side->memory) {
		side->address = side->memory->data + (ptr - side->memory->base);
		if ((write && !side->memory->writable) || !side->memory->readable) {
			violation("a %s of memory whose mapping does not allow it", write ? "write" : "read");
			return CUDA_ERROR_INVALID_VALUE;
		}
		return CUDA_SUCCESS;
	}
	side->host = host_find((const void *)(uintptr_t)ptr, n_bytes, &partly);
	side->address = (char *)(uintptr_t)ptr;
	if (side->host)
		return CUDA_SUCCESS;
	violation("%zu bytes at 0x%llx are not all in one piece of device memory", n_bytes, ptr);
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult host_side(struct side *side, const void *ptr, size_t n_bytes, bool write)
{
	bool partly;

	side->address = (char *)(uintptr_t)ptr;
	side->host = host_find(ptr, n_bytes, &partly);
	if (!side->host && partly) {
		violation("%zu bytes at %p lie only partly in one registration", n_bytes, ptr);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!side->host && memory_find((uintptr_t)ptr, 1)) {
		violation("device memory at %p passed as host memory", ptr);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (write && side->host && side->host->read_only) {
		violation("a copy to host memory at %p that is registered read-only", ptr);
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static CUresult any_side(struct side *side, CUdeviceptr ptr, size_t n_bytes, bool write)
{
	return memory_find(ptr, 1) ? device_side(side, ptr, n_bytes, write)
				   : host_side(side, (const void *)(uintptr_t)ptr, n_bytes, write);
}

static CUresult submit(const struct side *to, const struct side *from, size_t n_bytes, CUstream stream, bool wait)
{
	struct op op = { .kind = OP_COPY,
			 .to = to->address,
			 .from = from->address,
			 .n_bytes = n_bytes,
			 .to_memory = to->memory,
			 .from_memory = from->memory };
	bool pageable = (!to->memory && !to->host) || (!from->memory && !from->host);
	CUresult r = stream_for_work(&stream);

	if (r || !n_bytes)
		return r;
	if (to->memory && from->memory)
		count(COUNT_ON_DEVICE, 1), count(COUNT_BYTES_ON_DEVICE, n_bytes);
	else if (to->memory)
		count(COUNT_TO_DEVICE, 1), count(COUNT_BYTES_TO_DEVICE, n_bytes);
	else
		count(COUNT_TO_HOST, 1), count(COUNT_BYTES_TO_HOST, n_bytes);
	if (pageable)
		count(COUNT_PAGEABLE, 1), count(COUNT_PAGEABLE_BYTES, n_bytes);
	stream_submit(stream, &op);
	return pageable || wait ? stream_finish(stream) : CUDA_SUCCESS;
}

enum direction { ANY, TO_DEVICE, TO_HOST, ON_DEVICE };

static CUresult copy_call(enum api api, enum direction d, uint64_t to, uint64_t from, size_t n_bytes, CUstream stream,
			  bool wait)
{
	struct call c;
	CUresult r = call_begin(&c, api, NEED_CONTEXT);
	struct side a = { 0 }, b = { 0 };

	if (!r)
		r = d == ANY       ? any_side(&a, to, n_bytes, true)
		    : d == TO_HOST ? host_side(&a, (void *)(uintptr_t)to, n_bytes, true)
				   : device_side(&a, to, n_bytes, true);
	if (!r)
		r = d == ANY         ? any_side(&b, from, n_bytes, false)
		    : d == TO_DEVICE ? host_side(&b, (void *)(uintptr_t)from, n_bytes, false)
				     : device_side(&b, from, n_bytes, false);
	if (!r)
		r = submit(&a, &b, n_bytes, stream, wait);
	return call_end(&c, r);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return copy_call(API_cuMemcpy, ANY, to, from, bytes, NULL, true);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy_call(API_cuMemcpyAsync, ANY, to, from, bytes, stream, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy_call(API_cuMemcpyHtoD_v2, TO_DEVICE, to, (uintptr_t)from, bytes, NULL, true);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	return copy_call(API_cuMemcpyDtoH_v2, TO_HOST, (uintptr_t)to, from, bytes, NULL, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return copy_call(API_cuMemcpyDtoD_v2, ON_DEVICE, to, from, bytes, NULL, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	return copy_call(API_cuMemcpyHtoDAsync_v2, TO_DEVICE, to, (uintptr_t)from, bytes, stream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy_call(API_cuMemcpyDtoHAsync_v2, TO_HOST, (uintptr_t)to, from, bytes, stream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy_call(API_cuMemcpyDtoDAsync_v2, ON_DEVICE, to, from, bytes, stream, false);
}

static CUresult fill(enum api api, CUdeviceptr to, unsigned value, unsigned width, size_t n, CUstream stream)
{
	struct call c;
	CUresult r = call_begin(&c, api, NEED_CONTEXT);
	struct side side = { 0 };

	if (!r && to % width)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		r = device_side(&side, to, n * width, true);
	if (!r)
		r = stream_for_work(&stream);
	if (!r && n)
		stream_submit(stream, &(struct op){ .kind = OP_SET,
						    .to = side.address,
						    .n_bytes = n * width,
						    .value = value,
						    .width = width,
						    .to_memory = side.memory });
	return call_end(&c, r);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n)
{
	return fill(API_cuMemsetD8_v2, to, value, 1, n, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream)
{
	return fill(API_cuMemsetD8Async, to, value, 1, n, stream);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t n)
{
	return fill(API_cuMemsetD32_v2, to, value, 4, n, NULL);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t n, CUstream stream)
{
	return fill(API_cuMemsetD32Async, to, value, 4, n, stream);
}
