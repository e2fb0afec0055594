/* The part of the CUDA driver's binary interface that the fake driver implements: types, constants, and a list that has
 * every exported function once. The prototypes, cuGetProcAddress and the call counters are made from that list. Written
 * from the documentation of CUDA 13.0; needs no toolkit. */
#ifndef BATCHD_TESTS_FAKECUDA_ABI_H
#define BATCHD_TESTS_FAKECUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifndef FAKECUDA_LIST_ONLY /* otherwise the includer has NVIDIA's own types, to compare the list with their
                            * declarations */
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct {
	char bytes[16];
} CUuuid;
typedef struct {
	char reserved[64];
} CUipcMemHandle;
typedef struct {
	char reserved[64];
} CUipcEventHandle;
typedef struct {
	int type, id;
} CUmemLocation;
typedef struct {
	int type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType, gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;
typedef struct {
	CUmemLocation location;
	int flags;
} CUmemAccessDesc;
typedef void (*CUhostFn)(void *);

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_IMAGE = 200,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_MAP_FAILED = 205,
	CUDA_ERROR_ALREADY_MAPPED = 208,
	CUDA_ERROR_NOT_MAPPED = 211,
	CUDA_ERROR_ECC_UNCORRECTABLE = 214,
	CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
	CUDA_ERROR_OPERATING_SYSTEM = 304,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
	CUDA_ERROR_LAUNCH_TIMEOUT = 702,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_NOT_PERMITTED = 800,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
	CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
	CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
	CUDA_ERROR_CAPTURED_EVENT = 907,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
	CUDA_ERROR_UNKNOWN = 999
};

enum {
	CU_CTX_SCHED_BLOCKING_SYNC = 4,
	CU_STREAM_NON_BLOCKING = 1,
	CU_EVENT_DISABLE_TIMING = 2,
	CU_EVENT_INTERPROCESS = 4,
	CU_MEMHOSTREGISTER_PORTABLE = 1,
	CU_MEMHOSTREGISTER_DEVICEMAP = 2,
	CU_MEMHOSTREGISTER_IOMEMORY = 4,
	CU_MEMHOSTREGISTER_READ_ONLY = 8,
	CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
	CU_MEM_ALLOCATION_TYPE_PINNED = 1,
	CU_MEM_LOCATION_TYPE_DEVICE = 1,
	CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
	CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
	CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
	CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
	CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
	CU_MEMORYTYPE_HOST = 1,
	CU_MEMORYTYPE_DEVICE = 2
};
#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

/* CU_LAUNCH_PARAM_*: how cuLaunchKernel's `extra` is written. */
#define CU_LAUNCH_PARAM_END ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)
#endif

/* X(name as cuGetProcAddress knows it, exported symbol, CUDA version that brought it, parameters) */
#define FAKECUDA_API(X) \
	X(cuInit, cuInit, 2000, (unsigned flags)) \
	X(cuDriverGetVersion, cuDriverGetVersion, 2020, (int *version)) \
	X(cuGetErrorName, cuGetErrorName, 6000, (CUresult error, const char **name)) \
	X(cuGetErrorString, cuGetErrorString, 6000, (CUresult error, const char **text)) \
	X(cuGetProcAddress, cuGetProcAddress, 11030, (const char *symbol, void **fn, int version, uint64_t flags)) \
	X(cuGetProcAddress, cuGetProcAddress_v2, 12000, \
	  (const char *symbol, void **fn, int version, uint64_t flags, int *status)) \
	X(cuDeviceGet, cuDeviceGet, 2000, (CUdevice * device, int ordinal)) \
	X(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *count)) \
	X(cuDeviceGetName, cuDeviceGetName, 2000, (char *name, int size, CUdevice device)) \
	X(cuDeviceGetUuid, cuDeviceGetUuid, 9020, (CUuuid * uuid, CUdevice device)) \
	X(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040, (CUuuid * uuid, CUdevice device)) \
	X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, (size_t *bytes, CUdevice device)) \
	X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, (int *value, int attribute, CUdevice device)) \
	X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, (char *id, int size, CUdevice device)) \
	X(cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, 4010, (CUdevice * device, const char *id)) \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (CUcontext * ctx, CUdevice device)) \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, (CUdevice device)) \
	X(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, 11000, (CUdevice device, unsigned flags)) \
	X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, \
	  (CUdevice device, unsigned *flags, int *active)) \
	X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, (CUdevice device)) \
	X(cuCtxCreate, cuCtxCreate_v2, 3020, (CUcontext * ctx, unsigned flags, CUdevice device)) \
	X(cuCtxCreate, cuCtxCreate_v4, 12050, (CUcontext * ctx, void *params, unsigned flags, CUdevice device)) \
	X(cuCtxDestroy, cuCtxDestroy_v2, 4000, (CUcontext ctx)) \
	X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (CUcontext ctx)) \
	X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, (CUcontext * ctx)) \
	X(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, (CUcontext ctx)) \
	X(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, (CUcontext * ctx)) \
	X(cuCtxGetDevice, cuCtxGetDevice, 2000, (CUdevice * device)) \
	X(cuCtxGetFlags, cuCtxGetFlags, 7000, (unsigned *flags)) \
	X(cuCtxGetApiVersion, cuCtxGetApiVersion, 3020, (CUcontext ctx, unsigned *version)) \
	X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050, (int *least, int *greatest)) \
	X(cuCtxSynchronize, cuCtxSynchronize, 2000, (void)) \
	X(cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t *free_bytes, size_t *total)) \
	X(cuMemAlloc, cuMemAlloc_v2, 3020, (CUdeviceptr * ptr, size_t bytes)) \
	X(cuMemFree, cuMemFree_v2, 3020, (CUdeviceptr ptr)) \
	X(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020, (CUdeviceptr * base, size_t *bytes, CUdeviceptr ptr)) \
	X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, (void *data, int attribute, CUdeviceptr ptr)) \
	X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, \
	  (unsigned n, int *attributes, void **data, CUdeviceptr ptr)) \
	X(cuMemAllocHost, cuMemAllocHost_v2, 3020, (void **ptr, size_t bytes)) \
	X(cuMemHostAlloc, cuMemHostAlloc, 2020, (void **ptr, size_t bytes, unsigned flags)) \
	X(cuMemFreeHost, cuMemFreeHost, 2000, (void *ptr)) \
	X(cuMemHostRegister, cuMemHostRegister_v2, 6050, (void *ptr, size_t bytes, unsigned flags)) \
	X(cuMemHostUnregister, cuMemHostUnregister, 4000, (void *ptr)) \
	X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020, \
	  (CUdeviceptr * device, void *ptr, unsigned flags)) \
	X(cuMemHostGetFlags, cuMemHostGetFlags, 2030, (unsigned *flags, void *ptr)) \
	X(cuMemcpy, cuMemcpy, 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
	X(cuMemcpyAsync, cuMemcpyAsync, 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
	X(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020, (CUdeviceptr to, const void *from, size_t bytes)) \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020, (void *to, CUdeviceptr from, size_t bytes)) \
	X(cuMemcpyDtoD, cuMemcpyDtoD_v2, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
	X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020, \
	  (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) \
	X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020, (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) \
	X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020, \
	  (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
	X(cuMemsetD8, cuMemsetD8_v2, 3020, (CUdeviceptr to, unsigned char value, size_t n)) \
	X(cuMemsetD8Async, cuMemsetD8Async, 3020, (CUdeviceptr to, unsigned char value, size_t n, CUstream stream)) \
	X(cuMemsetD32, cuMemsetD32_v2, 3020, (CUdeviceptr to, unsigned value, size_t n)) \
	X(cuMemsetD32Async, cuMemsetD32Async, 3020, (CUdeviceptr to, unsigned value, size_t n, CUstream stream)) \
	X(cuStreamCreate, cuStreamCreate, 2000, (CUstream * stream, unsigned flags)) \
	X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, \
	  (CUstream * stream, unsigned flags, int priority)) \
	X(cuStreamDestroy, cuStreamDestroy_v2, 4000, (CUstream stream)) \
	X(cuStreamQuery, cuStreamQuery, 2000, (CUstream stream)) \
	X(cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream stream)) \
	X(cuStreamWaitEvent, cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned flags)) \
	X(cuStreamGetCtx, cuStreamGetCtx, 9020, (CUstream stream, CUcontext * ctx)) \
	X(cuStreamGetFlags, cuStreamGetFlags, 5050, (CUstream stream, unsigned *flags)) \
	X(cuStreamGetPriority, cuStreamGetPriority, 5050, (CUstream stream, int *priority)) \
	X(cuStreamIsCapturing, cuStreamIsCapturing, 10000, (CUstream stream, int *status)) \
	X(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, (CUstream stream, int mode)) \
	X(cuStreamEndCapture, cuStreamEndCapture, 10000, (CUstream stream, CUgraph * graph)) \
	X(cuGraphDestroy, cuGraphDestroy, 10000, (CUgraph graph)) \
	X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, (int *mode)) \
	X(cuLaunchHostFunc, cuLaunchHostFunc, 10000, (CUstream stream, CUhostFn fn, void *data)) \
	X(cuEventCreate, cuEventCreate, 2000, (CUevent * event, unsigned flags)) \
	X(cuEventDestroy, cuEventDestroy_v2, 4000, (CUevent event)) \
	X(cuEventRecord, cuEventRecord, 2000, (CUevent event, CUstream stream)) \
	X(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, (CUevent event, CUstream stream, unsigned flags)) \
	X(cuEventQuery, cuEventQuery, 2000, (CUevent event)) \
	X(cuEventSynchronize, cuEventSynchronize, 2000, (CUevent event)) \
	X(cuEventElapsedTime, cuEventElapsedTime, 2000, (float *ms, CUevent begin, CUevent end)) \
	X(cuEventElapsedTime, cuEventElapsedTime_v2, 12080, (float *ms, CUevent begin, CUevent end)) \
	X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (CUipcMemHandle * handle, CUdeviceptr ptr)) \
	X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000, \
	  (CUdeviceptr * ptr, CUipcMemHandle handle, unsigned flags)) \
	X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr ptr)) \
	X(cuIpcGetEventHandle, cuIpcGetEventHandle, 4010, (CUipcEventHandle * handle, CUevent event)) \
	X(cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010, (CUevent * event, CUipcEventHandle handle)) \
	X(cuModuleLoadData, cuModuleLoadData, 2000, (CUmodule * module, const void *image)) \
	X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, \
	  (CUmodule * module, const void *image, unsigned n, int *options, void **values)) \
	X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, (CUmodule * module, const void *image)) \
	X(cuModuleUnload, cuModuleUnload, 2000, (CUmodule module)) \
	X(cuModuleGetFunction, cuModuleGetFunction, 2000, (CUfunction * function, CUmodule module, const char *name)) \
	X(cuLibraryLoadData, cuLibraryLoadData, 12000, \
	  (CUlibrary * library, const void *code, int *jit, void **jit_values, unsigned n_jit, int *options, \
	   void **values, unsigned n)) \
	X(cuLibraryUnload, cuLibraryUnload, 12000, (CUlibrary library)) \
	X(cuLibraryGetKernel, cuLibraryGetKernel, 12000, (CUkernel * kernel, CUlibrary library, const char *name)) \
	X(cuKernelGetFunction, cuKernelGetFunction, 12000, (CUfunction * function, CUkernel kernel)) \
	X(cuFuncGetAttribute, cuFuncGetAttribute, 2020, (int *value, int attribute, CUfunction function)) \
	X(cuLaunchKernel, cuLaunchKernel, 4000, \
	  (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
	   unsigned shared_bytes, CUstream stream, void **params, void **extra)) \
	X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, \
	  (size_t *bytes, const CUmemAllocationProp *prop, int option)) \
	X(cuMemCreate, cuMemCreate, 10020, \
	  (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *prop, \
	   unsigned long long flags)) \
	X(cuMemRelease, cuMemRelease, 10020, (CUmemGenericAllocationHandle handle)) \
	X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, \
	  (void *fd, CUmemGenericAllocationHandle handle, int type, unsigned long long flags)) \
	X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, \
	  (CUmemGenericAllocationHandle * handle, void *fd, int type)) \
	X(cuMemAddressReserve, cuMemAddressReserve, 10020, \
	  (CUdeviceptr * ptr, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)) \
	X(cuMemAddressFree, cuMemAddressFree, 10020, (CUdeviceptr ptr, size_t bytes)) \
	X(cuMemMap, cuMemMap, 10020, \
	  (CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, \
	   unsigned long long flags)) \
	X(cuMemUnmap, cuMemUnmap, 10020, (CUdeviceptr ptr, size_t bytes)) \
	X(cuMemSetAccess, cuMemSetAccess, 10020, \
	  (CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t n)) \
	X(cuMemGetAccess, cuMemGetAccess, 10020, \
	  (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr))

/* Names that still stand for an interface of 32-bit times: dlsym finds them, and they are wrong for every caller. A
 * call of such a name is reported. */
/* clang-format off */ /* which never settles on an indentation for these */
#define FAKECUDA_OLD(X) \
	X(cuMemAlloc) \
	X(cuMemFree) X(cuMemGetInfo) X(cuMemGetAddressRange) X(cuMemAllocHost) X(cuMemHostRegister) \
		X(cuMemHostGetDevicePointer) X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyDtoD) X(cuMemcpyHtoDAsync) \
			X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemsetD8) X(cuMemsetD32) X(cuStreamDestroy) \
				X(cuEventDestroy) X(cuIpcOpenMemHandle) X(cuDeviceTotalMem) \
					X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxSetFlags) \
						X(cuDevicePrimaryCtxReset) X(cuCtxCreate) X(cuCtxDestroy) \
							X(cuCtxPushCurrent) X(cuCtxPopCurrent)
/* clang-format on */

#define FAKECUDA_ID(name, symbol, since, params) API_##symbol,
enum api { FAKECUDA_API(FAKECUDA_ID) API_N };
#undef FAKECUDA_ID

#ifndef FAKECUDA_LIST_ONLY
#define FAKECUDA_PROTOTYPE(name, symbol, since, params) CUresult symbol params;
FAKECUDA_API(FAKECUDA_PROTOTYPE)
#undef FAKECUDA_PROTOTYPE
#endif

#endif
