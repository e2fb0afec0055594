/* The part of NVIDIA's driver API that batchd uses, declared here and resolved at run time: neither the daemon nor the
 * client library needs a CUDA toolkit to be built or a driver to start. NVIDIA's "CUDA Driver API" defines what a call
 * does and may return; the names here are NVIDIA's without the "cu" prefix. The client library compiles the same file,
 * so nothing here depends on the rest of the daemon.
 *
 * The values and the layout of every type are part of the driver's ABI (cuda.h) and do not change.
 * tests/unit/gpu/test_driver.c compares them with cuda.h where that is installed. */
#ifndef BATCHD_CUDA_DRIVER_H
#define BATCHD_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- outcomes ---- */

/* The results that batchd acts on or names; the driver has more, for which cuda_error_name asks the driver. Sticky:
 * once a call has returned it, every later call in this process does, and only a new process can use the GPU again. */
#define CUDA_RESULTS(X) \
	X(CUDA_OK, 0, "CUDA_SUCCESS", false) \
	X(CUDA_INVALID_VALUE, 1, "CUDA_ERROR_INVALID_VALUE", false) \
	X(CUDA_OUT_OF_MEMORY, 2, "CUDA_ERROR_OUT_OF_MEMORY", false) \
	X(CUDA_NOT_INITIALIZED, 3, "CUDA_ERROR_NOT_INITIALIZED", false) \
	X(CUDA_DEINITIALIZED, 4, "CUDA_ERROR_DEINITIALIZED", true) \
	X(CUDA_STUB_LIBRARY, 34, "CUDA_ERROR_STUB_LIBRARY", false) \
	X(CUDA_DEVICE_UNAVAILABLE, 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", false) \
	X(CUDA_NO_DEVICE, 100, "CUDA_ERROR_NO_DEVICE", false) \
	X(CUDA_INVALID_DEVICE, 101, "CUDA_ERROR_INVALID_DEVICE", false) \
	X(CUDA_INVALID_IMAGE, 200, "CUDA_ERROR_INVALID_IMAGE", false) \
	X(CUDA_INVALID_CONTEXT, 201, "CUDA_ERROR_INVALID_CONTEXT", false) \
	X(CUDA_MAP_FAILED, 205, "CUDA_ERROR_MAP_FAILED", false) \
	X(CUDA_ALREADY_MAPPED, 208, "CUDA_ERROR_ALREADY_MAPPED", false) \
	X(CUDA_NO_BINARY_FOR_GPU, 209, "CUDA_ERROR_NO_BINARY_FOR_GPU", false) \
	X(CUDA_ECC_UNCORRECTABLE, 214, "CUDA_ERROR_ECC_UNCORRECTABLE", true) \
	X(CUDA_INVALID_PTX, 218, "CUDA_ERROR_INVALID_PTX", false) \
	X(CUDA_NVLINK_UNCORRECTABLE, 220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", true) \
	X(CUDA_JIT_COMPILER_NOT_FOUND, 221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", false) \
	X(CUDA_UNSUPPORTED_PTX_VERSION, 222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", false) \
	X(CUDA_JIT_COMPILATION_DISABLED, 223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", false) \
	X(CUDA_CONTAINED, 226, "CUDA_ERROR_CONTAINED", true) \
	X(CUDA_OPERATING_SYSTEM, 304, "CUDA_ERROR_OPERATING_SYSTEM", false) \
	X(CUDA_INVALID_HANDLE, 400, "CUDA_ERROR_INVALID_HANDLE", false) \
	X(CUDA_NOT_FOUND, 500, "CUDA_ERROR_NOT_FOUND", false) \
	X(CUDA_NOT_READY, 600, "CUDA_ERROR_NOT_READY", false) \
	X(CUDA_ILLEGAL_ADDRESS, 700, "CUDA_ERROR_ILLEGAL_ADDRESS", true) \
	X(CUDA_LAUNCH_OUT_OF_RESOURCES, 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", false) \
	X(CUDA_LAUNCH_TIMEOUT, 702, "CUDA_ERROR_LAUNCH_TIMEOUT", true) \
	X(CUDA_PRIMARY_CONTEXT_ACTIVE, 708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", false) \
	X(CUDA_CONTEXT_IS_DESTROYED, 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", true) \
	X(CUDA_ASSERT, 710, "CUDA_ERROR_ASSERT", true) \
	X(CUDA_HOST_MEMORY_ALREADY_REGISTERED, 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", false) \
	X(CUDA_HOST_MEMORY_NOT_REGISTERED, 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", false) \
	X(CUDA_HARDWARE_STACK_ERROR, 714, "CUDA_ERROR_HARDWARE_STACK_ERROR", true) \
	X(CUDA_ILLEGAL_INSTRUCTION, 715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", true) \
	X(CUDA_MISALIGNED_ADDRESS, 716, "CUDA_ERROR_MISALIGNED_ADDRESS", true) \
	X(CUDA_INVALID_ADDRESS_SPACE, 717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", true) \
	X(CUDA_INVALID_PC, 718, "CUDA_ERROR_INVALID_PC", true) \
	X(CUDA_LAUNCH_FAILED, 719, "CUDA_ERROR_LAUNCH_FAILED", true) \
	X(CUDA_TENSOR_MEMORY_LEAK, 721, "CUDA_ERROR_TENSOR_MEMORY_LEAK", true) \
	X(CUDA_NOT_PERMITTED, 800, "CUDA_ERROR_NOT_PERMITTED", false) \
	X(CUDA_NOT_SUPPORTED, 801, "CUDA_ERROR_NOT_SUPPORTED", false) \
	X(CUDA_SYSTEM_NOT_READY, 802, "CUDA_ERROR_SYSTEM_NOT_READY", false) \
	X(CUDA_SYSTEM_DRIVER_MISMATCH, 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", false) \
	X(CUDA_COMPAT_NOT_SUPPORTED, 804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", false) \
	X(CUDA_MPS_CONNECTION_FAILED, 805, "CUDA_ERROR_MPS_CONNECTION_FAILED", false) \
	X(CUDA_MPS_CLIENT_TERMINATED, 810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", true) \
	X(CUDA_STREAM_CAPTURE_UNSUPPORTED, 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", false) \
	X(CUDA_STREAM_CAPTURE_ISOLATION, 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", false) \
	X(CUDA_STREAM_CAPTURE_IMPLICIT, 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", false) \
	X(CUDA_EXTERNAL_DEVICE, 911, "CUDA_ERROR_EXTERNAL_DEVICE", true) \
	X(CUDA_UNKNOWN, 999, "CUDA_ERROR_UNKNOWN", false)

enum cuda_result {
#define X(constant, value, name, sticky) constant = value,
	CUDA_RESULTS(X)
#undef X
};

/* ---- types and flags ---- */

typedef int cuda_device;   /* CUdevice: an ordinal, valid only within this process */
typedef uint64_t cuda_ptr; /* CUdeviceptr: an address on the device; never dereferenced here */
struct cuda_context;
struct cuda_stream; /* NULL: the legacy default stream; see CUDA_STREAM_LEGACY */
struct cuda_event;
struct cuda_module;
struct cuda_function;
struct cuda_uuid {
	unsigned char bytes[16];
};
struct cuda_ipc_handle { /* what cudaIpcOpenMemHandle takes */
	unsigned char bytes[64];
};
typedef unsigned long long cuda_mem_handle; /* CUmemGenericAllocationHandle: memory without an address */
struct cuda_mem_location {
	int type, id;
};
struct cuda_mem_prop { /* CUmemAllocationProp */
	int type, handle_types;
	struct cuda_mem_location location;
	void *win32_meta_data;
	struct {
		unsigned char compression, rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};
struct cuda_mem_access { /* CUmemAccessDesc */
	struct cuda_mem_location location;
	int flags;
};

enum cuda_device_attribute {
	CUDA_DEVICE_INTEGRATED = 18,
	CUDA_DEVICE_COMPUTE_MODE = 20,
	CUDA_DEVICE_PCI_BUS_ID = 33,
	CUDA_DEVICE_PCI_DEVICE_ID = 34,
	CUDA_DEVICE_ASYNC_ENGINE_COUNT = 40,
	CUDA_DEVICE_UNIFIED_ADDRESSING = 41,
	CUDA_DEVICE_PCI_DOMAIN_ID = 50,
	CUDA_DEVICE_COMPUTE_MAJOR = 75,
	CUDA_DEVICE_COMPUTE_MINOR = 76,
	CUDA_DEVICE_CAN_USE_HOST_POINTER = 91,
	CUDA_DEVICE_HOST_REGISTER_SUPPORTED = 99,
	CUDA_DEVICE_VMM_SUPPORTED = 102,
	CUDA_DEVICE_POSIX_FD_SUPPORTED = 103,
	CUDA_DEVICE_READ_ONLY_HOST_REGISTER_SUPPORTED = 113,
	CUDA_DEVICE_IPC_EVENT_SUPPORTED = 125,
	CUDA_DEVICE_MPS_ENABLED = 133,
	CUDA_DEVICE_HOST_NUMA_ID = 134
};

enum cuda_compute_mode { CUDA_COMPUTE_DEFAULT = 0, CUDA_COMPUTE_PROHIBITED = 2, CUDA_COMPUTE_EXCLUSIVE_PROCESS = 3 };

enum cuda_pointer_attribute {
	CUDA_POINTER_CONTEXT = 1,
	CUDA_POINTER_MEMORY_TYPE = 2, /* unsigned: 1 host, 2 device */
	CUDA_POINTER_DEVICE_POINTER = 3,
	CUDA_POINTER_HOST_POINTER = 4,
	CUDA_POINTER_IS_MANAGED = 8,
	CUDA_POINTER_DEVICE_ORDINAL = 9,
	CUDA_POINTER_IS_LEGACY_IPC_CAPABLE = 10, /* int */
	CUDA_POINTER_RANGE_START = 11,
	CUDA_POINTER_RANGE_SIZE = 12
};

enum {
	CUDA_CTX_SCHED_BLOCKING_SYNC = 0x04,
	CUDA_CTX_SCHED_MASK = 0x07,
	CUDA_STREAM_NON_BLOCKING = 0x1,
	CUDA_EVENT_BLOCKING_SYNC = 0x1,
	CUDA_EVENT_DISABLE_TIMING = 0x2,
	CUDA_EVENT_INTERPROCESS = 0x4,
	CUDA_HOST_ALLOC_PORTABLE = 0x1,
	CUDA_HOST_REGISTER_PORTABLE = 0x1,
	CUDA_HOST_REGISTER_DEVICEMAP = 0x2,
	CUDA_HOST_REGISTER_READ_ONLY = 0x8,
	CUDA_IPC_LAZY_PEER_ACCESS = 0x1, /* the only flag that ipc_open_mem_handle takes */
	CUDA_MEM_PINNED = 1,             /* of cuda_mem_prop.type */
	CUDA_MEM_ON_DEVICE = 1,          /* of cuda_mem_location.type */
	CUDA_MEM_POSIX_FD = 1,           /* of handle_types, export and import */
	CUDA_MEM_GRANULARITY_MINIMUM = 0,
	CUDA_MEM_READ_WRITE = 3,       /* of cuda_mem_access.flags */
	CUDA_CAPTURE_NONE = 0,         /* of stream_is_capturing */
	CUDA_CAPTURE_MODE_RELAXED = 2, /* this thread's calls do not disturb captures of other threads */

	CUDA_LEAST_DRIVER = 11040 /* cuDriverGetVersion's form: 1000 * major + 10 * minor */
};

/* CU_STREAM_LEGACY: the default stream of a context. It waits for all streams of the context that are not NON_BLOCKING,
 * and they wait for it. CU_STREAM_PER_THREAD: the calling thread's own default stream, which is such a blocking
 * stream. */
#define CUDA_STREAM_LEGACY ((struct cuda_stream *)1)
#define CUDA_STREAM_PER_THREAD ((struct cuda_stream *)2)

/* ---- the table ---- */

/* Member, the symbol that libcuda.so.1 exports for the intended ABI (many unversioned names are older ABIs),
 * parameters. */
#define CUDA_CALLS(X) \
	X(init, cuInit, (unsigned flags)) \
	X(driver_get_version, cuDriverGetVersion, (int *version)) \
	X(get_error_name, cuGetErrorName, (int result, const char **name)) \
	X(device_get_count, cuDeviceGetCount, (int *n)) \
	X(device_get, cuDeviceGet, (cuda_device * device, int ordinal)) \
	X(device_get_name, cuDeviceGetName, (char *name, int n_bytes, cuda_device device)) \
	X(device_get_uuid, cuDeviceGetUuid_v2, (struct cuda_uuid * uuid, cuda_device device)) \
	X(device_get_attribute, cuDeviceGetAttribute, \
	  (int *value, enum cuda_device_attribute attribute, cuda_device device)) \
	X(device_total_mem, cuDeviceTotalMem_v2, (size_t *n_bytes, cuda_device device)) \
	X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (struct cuda_context * *context, cuda_device device)) \
	X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (cuda_device device)) \
	X(primary_ctx_set_flags, cuDevicePrimaryCtxSetFlags_v2, (cuda_device device, unsigned flags)) \
	X(primary_ctx_get_state, cuDevicePrimaryCtxGetState, (cuda_device device, unsigned *flags, int *active)) \
	X(ctx_push_current, cuCtxPushCurrent_v2, (struct cuda_context * context)) \
	X(ctx_pop_current, cuCtxPopCurrent_v2, (struct cuda_context * *context)) \
	X(ctx_set_current, cuCtxSetCurrent, (struct cuda_context * context)) \
	X(ctx_get_current, cuCtxGetCurrent, (struct cuda_context * *context)) \
	X(ctx_get_device, cuCtxGetDevice, (cuda_device * device)) \
	X(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange, (int *least, int *greatest)) \
	X(ctx_synchronize, cuCtxSynchronize, (void)) \
	X(mem_get_info, cuMemGetInfo_v2, (size_t *n_free, size_t *n_total)) \
	X(mem_alloc, cuMemAlloc_v2, (cuda_ptr * memory, size_t n_bytes)) \
	X(mem_free, cuMemFree_v2, (cuda_ptr memory)) \
	X(mem_host_alloc, cuMemHostAlloc, (void **memory, size_t n_bytes, unsigned flags)) \
	X(mem_free_host, cuMemFreeHost, (void *memory)) \
	X(mem_host_register, cuMemHostRegister_v2, (void *memory, size_t n_bytes, unsigned flags)) \
	X(mem_host_unregister, cuMemHostUnregister, (void *memory)) \
	X(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2, \
	  (cuda_ptr * device, void *memory, unsigned flags)) \
	X(memcpy_htod_async, cuMemcpyHtoDAsync_v2, \
	  (cuda_ptr to, const void *from, size_t n_bytes, struct cuda_stream *stream)) \
	X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2, \
	  (void *to, cuda_ptr from, size_t n_bytes, struct cuda_stream *stream)) \
	X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2, \
	  (cuda_ptr to, cuda_ptr from, size_t n_bytes, struct cuda_stream *stream)) \
	X(memset_d8_async, cuMemsetD8Async, \
	  (cuda_ptr memory, unsigned char value, size_t n_bytes, struct cuda_stream *stream)) \
	X(stream_create_with_priority, cuStreamCreateWithPriority, \
	  (struct cuda_stream * *stream, unsigned flags, int priority)) \
	X(stream_destroy, cuStreamDestroy_v2, (struct cuda_stream * stream)) \
	X(stream_query, cuStreamQuery, (struct cuda_stream * stream)) \
	X(stream_synchronize, cuStreamSynchronize, (struct cuda_stream * stream)) \
	X(stream_is_capturing, cuStreamIsCapturing, (struct cuda_stream * stream, int *status)) \
	X(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode, (int *mode)) \
	X(stream_wait_event, cuStreamWaitEvent, \
	  (struct cuda_stream * stream, struct cuda_event * event, unsigned flags)) \
	X(event_create, cuEventCreate, (struct cuda_event * *event, unsigned flags)) \
	X(event_destroy, cuEventDestroy_v2, (struct cuda_event * event)) \
	X(event_record, cuEventRecord, (struct cuda_event * event, struct cuda_stream * stream)) \
	X(event_query, cuEventQuery, (struct cuda_event * event)) \
	X(event_synchronize, cuEventSynchronize, (struct cuda_event * event)) \
	X(event_elapsed_time, cuEventElapsedTime, (float *ms, struct cuda_event *start, struct cuda_event *end)) \
	X(ipc_get_mem_handle, cuIpcGetMemHandle, (struct cuda_ipc_handle * handle, cuda_ptr memory)) \
	X(ipc_open_mem_handle, cuIpcOpenMemHandle_v2, \
	  (cuda_ptr * memory, struct cuda_ipc_handle handle, unsigned flags)) \
	X(ipc_close_mem_handle, cuIpcCloseMemHandle, (cuda_ptr memory)) \
	X(mem_get_allocation_granularity, cuMemGetAllocationGranularity, \
	  (size_t *n_bytes, const struct cuda_mem_prop *prop, int option)) \
	X(mem_create, cuMemCreate, \
	  (cuda_mem_handle * handle, size_t n_bytes, const struct cuda_mem_prop *prop, unsigned long long flags)) \
	X(mem_release, cuMemRelease, (cuda_mem_handle handle)) \
	X(mem_export_to_shareable_handle, cuMemExportToShareableHandle, \
	  (void *fd, cuda_mem_handle handle, int type, unsigned long long flags)) \
	X(mem_import_from_shareable_handle, cuMemImportFromShareableHandle, \
	  (cuda_mem_handle * handle, void *fd, int type)) \
	X(mem_address_reserve, cuMemAddressReserve, \
	  (cuda_ptr * at, size_t n_bytes, size_t alignment, cuda_ptr hint, unsigned long long flags)) \
	X(mem_address_free, cuMemAddressFree, (cuda_ptr at, size_t n_bytes)) \
	X(mem_map, cuMemMap, \
	  (cuda_ptr at, size_t n_bytes, size_t offset, cuda_mem_handle handle, unsigned long long flags)) \
	X(mem_unmap, cuMemUnmap, (cuda_ptr at, size_t n_bytes)) \
	X(mem_set_access, cuMemSetAccess, \
	  (cuda_ptr at, size_t n_bytes, const struct cuda_mem_access *access, size_t n)) \
	X(pointer_get_attribute, cuPointerGetAttribute, \
	  (void *value, enum cuda_pointer_attribute attribute, cuda_ptr pointer)) \
	X(module_load_data, cuModuleLoadData, (struct cuda_module * *module, const void *image)) \
	X(module_unload, cuModuleUnload, (struct cuda_module * module)) \
	X(module_get_function, cuModuleGetFunction, \
	  (struct cuda_function * *function, struct cuda_module * module, const char *name)) \
	X(launch_kernel, cuLaunchKernel, \
	  (struct cuda_function * function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
	   unsigned block_y, unsigned block_z, unsigned shared_bytes, struct cuda_stream *stream, void **parameters, \
	   void **extra))

/* Every member is set once cuda_driver_load has succeeded; each returns a CUresult. The table is read-only from then
 * on, so any thread may use it, after init; most calls need a current context on the calling thread. */
struct cuda_driver {
#define X(member, symbol, parameters) int(*member) parameters;
	CUDA_CALLS(X)
#undef X
};

/* Finds the driver and fills in the table: the library that $BATCHD_LIBCUDA names (for tests), else libcuda.so.1. It is
 * never unloaded. Makes no CUDA call: a caller that wants a GPU calls init(0), and treats every result but 0 as "no
 * GPU". 0; -ENOENT: no driver here, the usual outcome on a machine without a GPU; -ENOSYS: the driver is too old. On
 * both errors the table is all NULL and why gives a human-readable reason (cut to n_bytes). Any thread. */
int cuda_driver_load(struct cuda_driver *driver, char *why, size_t n_bytes);

/* What this result of cuInit means, in words for a person; *advice says what may be done about it. Both are static,
 * never NULL. */
const char *cuda_init_meaning(int result, const char **advice);

/* "CUDA_ERROR_OUT_OF_MEMORY" and the like; static. driver: asked for results that are not in the list above, may be
 * NULL. An unknown result is "CUDA error 987", in memory of the calling thread that the next such call overwrites. */
const char *cuda_error_name(const struct cuda_driver *driver, int result);
/* What a user can do about a call with this result; static. */
const char *cuda_error_advice(int result);
/* Whether the result means that this process cannot use the GPU any more. */
bool cuda_error_sticky(int result);

#endif
